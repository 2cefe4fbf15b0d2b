"""The whole cycle with real kernels: build, run, check, and nbval as a learner's CI calls it."""

import json
import shutil
import subprocess
import sys
import time

import build
import pytest
from tiny_course import LABS, TINY

NBVAL = [
    "-m",
    "pytest",
    "-q",
    "--nbval-lax",
    "--nbval-current-env",
    "--nbval-cell-timeout=120",
    "-W",
    "error",
]

pytestmark = pytest.mark.timeout(180)


def python(labs, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=labs.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture
def course(labs):
    """The tiny course with the real build beside it."""
    for name in ("build.py", "conftest.py"):
        shutil.copy(LABS / name, labs / name)
    shutil.copytree(LABS / "_build", labs / "_build", ignore=shutil.ignore_patterns("__pycache__"))
    return labs


def test_the_whole_cycle(course):
    assert python(course, "labs/build.py").returncode == 0
    assert python(course, "labs/build.py", "--check").returncode == 1
    ran = python(course, "labs/build.py", "--run", "00")
    assert ran.returncode == 0, ran.stderr
    assert python(course, "labs/build.py", "--check").returncode == 0
    learner = (course / "00_tiny.ipynb").read_text(encoding="utf-8")
    assert '"not attempted\\n"' in learner and '"guess Ellipsis\\n"' in learner
    assert '"passed\\n"' in (course / "solutions" / "00_tiny.ipynb").read_text(encoding="utf-8")

    shutil.copytree(course / "solutions", course / ".ipynb_checkpoints")
    passed = python(course, *NBVAL, "labs")
    assert passed.returncode == 0, passed.stdout
    assert "10 passed" in passed.stdout
    assert "seconds per lab, both notebooks" in passed.stdout
    assert "OVER BUDGET" not in passed.stdout

    (course / "00_tiny.ipynb").write_text(learner.replace('"sum 5\\n"', '"sum 6\\n"'), encoding="utf-8")
    failed = python(course, *NBVAL, "labs")
    assert failed.returncode == 1
    assert "sum 6" in failed.stdout and "1 failed, 9 passed" in failed.stdout


def test_a_lab_above_its_budget_fails(course):
    assert python(course, "labs/build.py").returncode == 0
    (course / "solutions" / "00_tiny.ipynb").unlink()
    budget = course / "conftest.py"
    budget.write_text(budget.read_text().replace("LAB_SECONDS = 30", "LAB_SECONDS = 0"))
    result = python(course, *NBVAL, "labs")
    assert result.returncode == 1
    assert "5 passed" in result.stdout
    assert "of    0  OVER BUDGET" in result.stdout


@pytest.mark.parametrize(
    ("cell", "line", "told"),
    [
        ("# %%\n1 / 0\n", 46, "the cell fails\n"),
        ("# %%\nimport os\nos._exit(3)\n", 46, "the cell fails\nKernel died"),
        (
            '# %% tags=["nbval-check-output"]\nprint(1)\n1 + 1\n',
            1,
            "a checked cell only prints, and `print(1)`",
        ),
    ],
    ids=["error", "dead kernel", "result"],
)
def test_a_cell_that_a_run_refuses_is_told(labs, cell, line, told, capsys):
    (labs / "src" / "00_tiny.py").write_text(f"{TINY}\n\n{cell}", encoding="utf-8")
    assert build.main(["--run", "00"], labs) == 1
    assert f"labs/src/00_tiny.py:{line}: {told}" in capsys.readouterr().err
    assert not (labs / "00_tiny.ipynb").exists()


def test_check_is_quick_for_a_whole_course(course):
    for number in range(1, 25):
        (course / "src" / f"{number:02d}_tiny.py").write_text(TINY, encoding="utf-8")
    python(course, "labs/build.py")
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["x\n"]}]
    for path in [*course.glob("*.ipynb"), *course.glob("solutions/*.ipynb")]:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if "tags" in cell["metadata"]:
                cell["outputs"] = outputs
        path.write_text(json.dumps(notebook), encoding="utf-8")
    assert python(course, "labs/build.py").returncode == 0
    start = time.perf_counter()
    checked = python(course, "labs/build.py", "--check")
    assert checked.returncode == 0, checked.stderr
    assert time.perf_counter() - start < 5
