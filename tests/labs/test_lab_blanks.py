"""Solutions become gaps in the learner's cell, and nothing of them is left; markers pair or are told."""

import ast

import pytest
from _build.blank import blanked
from _build.source import SourceError, read
from tiny_course import HEADER


def blank(source, body):
    source.write_text(f"{HEADER}# %%\n{body}", encoding="utf-8")
    lab = read(source)
    return blanked(lab, lab.cells[1])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = 1\n# solution\nb = 2\nc = 3\n# end solution\nd = 4", "a = 1\n...  # your code\nd = 4"),
        (
            "def f(x):\n    # solution\n    y = x\n\n    return y\n    # end solution",
            "def f(x):\n    ...  # your code",
        ),
        (
            "# solution\na = 1\n# end solution\n# solution\nb = 2\n# end solution",
            "...  # your code\n...  # your code",
        ),
        ("weights = [4 / 7, 3 / 7]  # solution", "weights = ...  # your code"),
        ("size = (1 + 2) * 3  # solution", "size = ...  # your code"),
        ("a = b = 1  # solution", "a = b = ...  # your code"),
        ("ü['ö'] = 1  # solution", "ü['ö'] = ...  # your code"),
        ("n: int = 3  # solution", "...  # your code"),
        ("def f(x):\n    return x + 1  # solution", "def f(x):\n    return ...  # your code"),
        ("for x in y:\n    x.wait()  # solution", "for x in y:\n    ...  # your code"),
        ("a = 1  # a resolution\nb = 'solution'", "a = 1  # a resolution\nb = 'solution'"),
    ],
)
def test_solutions_become_gaps(source, body, expected):
    assert blank(source, body) == expected
    ast.parse(expected)


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("# solution\na = 1", 11, "without # end solution"),
        ("a = 1\n# end solution", 12, "without a # solution"),
        ("# solution\n# solution\na = 1\n# end solution", 12, "inside the one of line 11"),
        ("# solution\na = 1  # solution\n# end solution", 12, "inside the one of line 11"),
        ("# Solution\na = 1\n# end solution", 11, "exactly `# solution`"),
        ("# solution: sum them\na = 1", 11, "exactly `# solution`"),
        ("# solution\na = 1\n# end of solution", 13, "exactly `# solution`"),
        ("a = 1  #solution", 11, "exactly `# solution`"),
        ("a = [\n    1,\n]  # solution", 13, "one whole statement"),
        ("if a:  # solution\n    b = 1", 11, "one whole statement"),
        ("a, b = 1, 2  # solution", 11, "cannot be unpacked"),
        ("a = 1\nb = = 2", 12, "not Python: "),
        ("x = [\n# solution\n1,\n# end solution\n2]", 10, "without its solutions the cell is not Python"),
    ],
)
def test_a_mistake_in_the_markers_is_told_with_its_line(source, body, line, message):
    with pytest.raises(SourceError) as error:
        blank(source, body)
    assert str(error.value).startswith(f"labs/src/00_tiny.py:{line}: ")
    assert message in str(error.value)
