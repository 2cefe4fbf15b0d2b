"""Making it happen: real ranks for a learner's function."""
