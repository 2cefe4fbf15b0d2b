import shutil
from pathlib import Path

import pytest
from clones import ROOT, notebook, script


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone with the set-up files and two labs, in a folder with a space in its name."""
    root = tmp_path / "a clone"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root / name)
    for name in ("00_ranks", "04_buckets"):
        notebook(root / "labs" / f"{name}.ipynb")
        notebook(root / "labs" / "solutions" / f"{name}.ipynb", "2")
    return root


@pytest.fixture
def fake_python(clone: Path) -> Path:
    """Put a stand-in for .venv/bin/python into the clone: it writes each call to the file it returns."""
    calls = clone.parent / "calls"
    calls.touch()
    script(clone / ".venv" / "bin" / "python", f'echo "$@" >> "{calls}"')
    (clone / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    return calls
