"""The running time of each lab under nbval: one table, and a failure far above the budget.

`pytest --nbval-lax --nbval-current-env --nbval-cell-timeout=120 labs` runs every notebook. A lab's seconds
are those of its two notebooks together, kernel start included, on 2 cores.
"""

from collections import defaultdict
from pathlib import PurePosixPath

import pytest

LAB_SECONDS = 30
LONGER_LABS = {"02": 60, "20": 60}
COURSE_SECONDS = 12 * 60
TOLERANCE = 3  # on a shared machine the same notebook takes two and three times as long: only more than that fails

collect_ignore_glob = ["*.ipynb_checkpoints*"]

_seconds = pytest.StashKey[dict[str, float]]()


def pytest_configure(config):
    config.stash[_seconds] = defaultdict(float)
    config.pluginmanager.register(Budget(config.stash[_seconds]), "lab-budget")


class Budget:
    """Adds up the seconds of each lab; reads them at the end of the session."""

    def __init__(self, seconds):
        self.seconds = seconds

    def pytest_runtest_logreport(self, report):
        notebook = PurePosixPath(report.nodeid.partition("::")[0])
        if notebook.suffix == ".ipynb":
            self.seconds[notebook.name[:2]] += report.duration

    def over(self, *, tolerance=1):
        """Return what is above so many times its budget: lab (or "all") -> budget in seconds."""
        limits = {lab: LONGER_LABS.get(lab, LAB_SECONDS) for lab in self.seconds}
        over = {lab: limit for lab, limit in limits.items() if self.seconds[lab] > tolerance * limit}
        return over | ({"all": COURSE_SECONDS} if sum(self.seconds.values()) > tolerance * COURSE_SECONDS else {})

    def pytest_sessionfinish(self, session):
        if self.over(tolerance=TOLERANCE) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self.seconds:
            return
        over = self.over()
        terminalreporter.section("seconds per lab, both notebooks")
        rows = {**dict(sorted(self.seconds.items())), "all": sum(self.seconds.values())}
        for lab, seconds in rows.items():
            limit = COURSE_SECONDS if lab == "all" else LONGER_LABS.get(lab, LAB_SECONDS)
            verdict = "  OVER BUDGET" if lab in over else ""
            terminalreporter.line(f"{lab:>5} {seconds:7.1f} of {limit:4d}{verdict}", red=bool(verdict))
