"""lablib inside IPython: live output, how a run and an error show in a cell."""
