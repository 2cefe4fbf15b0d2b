"""The source of a tiny lab, and where the real course lies."""

from pathlib import Path

LABS = Path(__file__).parents[2] / "labs"

HEADER = """\
# ---
# jupyter:
#   lab:
#     title: A tiny lab
#     minutes: 5
#     question: How many?
#     measures: a sum
# ---

"""

TINY = (
    HEADER
    + """\
# %% [markdown] claims="R1 R4"
# ## Add
# Text with *stars* and an ü.

# %%
import sys
import time

from IPython.display import HTML, display

guess = 5  # solution

# %% claims="R1" tags=["nbval-check-output"]
print("sum", 2 + 3)
print("guess", guess)

# %%
shown = display(HTML("<b>one</b>"), display_id=True)
shown.update(HTML("<b>two</b>"))
print(time.time())
print("to stderr", file=sys.stderr)
HTML("a result")


# %%
def double(x):
    # solution
    y = x + x
    return y
    # end solution


# %% id="verdict" tags=["nbval-check-output"]
print("passed" if double(2) == 4 else "not attempted")
"""
)
