"""Draw the map of the labs that exist: order, minutes, question, what each measures."""

from __future__ import annotations

from _build.source import Lab

HEADER = """\
# The labs

Made by `python labs/build.py` from the headers in `src/`. Start them with `make lab`.

| lab | minutes | question | you measure | solution |
|---|---|---|---|---|
"""


def course_map(course: list[Lab]) -> str:
    """Return the Markdown page of the course, one row per lab."""
    return HEADER + "".join(_row(lab) for lab in course)


def _row(lab: Lab) -> str:
    file = f"{lab.path.stem}.ipynb"
    cells = (
        f"[{lab.number} {lab.title}]({file})",
        str(lab.minutes),
        lab.question,
        lab.measures,
        f"[solution](solutions/{file})",
    )
    return f"| {' | '.join(text.replace('|', '&#124;') for text in cells)} |\n"
