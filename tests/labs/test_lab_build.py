"""The build: same input, same bytes; outputs live as long as their source; --check sees every difference."""

import json

import build
import nbformat
import pytest
from _build.notebook import printed
from tiny_course import LABS, TINY


def files(labs):
    return {path.relative_to(labs).as_posix(): path.read_bytes() for path in labs.rglob("*.*") if path.is_file()}


def cells(labs, name="00_tiny.ipynb"):
    return json.loads((labs / name).read_text(encoding="utf-8"))["cells"]


def store(labs, name, output, where=slice(None)):
    """Put an output in the checked cells of a notebook, as a run does."""
    notebook = json.loads((labs / name).read_text(encoding="utf-8"))
    for cell in [cell for cell in notebook["cells"] if "tags" in cell["metadata"]][where]:
        cell["outputs"] = [output]
    (labs / name).write_text(json.dumps(notebook), encoding="utf-8")


def stdout(text):
    return {"output_type": "stream", "name": "stdout", "text": [text]}


@pytest.fixture
def built(labs):
    """The tiny course, built, with an output in every checked cell."""
    assert build.main([], labs) == 0
    for name in ("00_tiny.ipynb", "solutions/00_tiny.ipynb"):
        store(labs, name, stdout("five\n"))
    assert build.main([], labs) == 0
    assert build.main(["--check"], labs) == 0
    return labs


def edit(labs, old, new):
    assert TINY.count(old) == 1
    (labs / "src" / "00_tiny.py").write_text(TINY.replace(old, new), encoding="utf-8")


def test_the_same_source_gives_the_same_bytes(labs, tmp_path):
    build.main([], labs)
    first = files(labs)
    other = tmp_path / "elsewhere" / "labs"
    (other / "src").mkdir(parents=True)
    (other / "src" / "00_tiny.py").write_text(TINY, encoding="utf-8")
    build.main([], other)
    assert set(first) == {"src/00_tiny.py", "00_tiny.ipynb", "solutions/00_tiny.ipynb", "README.md"}
    assert files(other) == first


def test_a_second_build_writes_nothing(built, capsys):
    before = files(built)
    assert build.main([], built) == 0
    assert files(built) == before
    assert "wrote" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["00_tiny.ipynb", "solutions/00_tiny.ipynb"])
def test_a_notebook_is_valid_and_names_its_kernel(built, name):
    notebook = nbformat.read(built / name, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info.name == "python"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.cells[1].metadata == {"claims": "R1 R4"}
    assert notebook.cells[3].metadata == {"claims": "R1", "tags": ["nbval-check-output"]}


def test_the_learner_gets_gaps_and_the_same_cells(built):
    learner, solved = cells(built), cells(built, "solutions/00_tiny.ipynb")
    assert [cell["id"] for cell in learner] == [cell["id"] for cell in solved]
    text = "\n".join("".join(cell["source"]) for cell in learner)
    assert text.count("...  # your code") == 2
    assert "x + x" not in text and "solution" not in text
    assert "x + x" in "".join(solved[5]["source"])


def test_only_checked_cells_keep_an_output_and_a_count(built):
    for name in ("00_tiny.ipynb", "solutions/00_tiny.ipynb"):
        code = [cell for cell in cells(built, name) if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == [None, 2, None, None, 5]
        assert [bool(cell["outputs"]) for cell in code] == [False, True, False, False, True]


def test_an_output_is_kept_while_its_source_is_unchanged(built):
    edit(built, "# %%\nimport sys", "# %%\nearlier = 1\n\n# %%\nimport sys")
    build.main([], built)
    assert [cell["execution_count"] for cell in cells(built) if cell.get("outputs")] == [3, 6]
    assert build.main(["--check"], built) == 0


def test_an_output_goes_with_its_source(built, capsys):
    edit(built, "2 + 3", "2 + 4")
    build.main([], built)
    assert [cell["id"] for cell in cells(built) if cell.get("outputs")] == ["verdict"]
    capsys.readouterr()
    assert build.main(["--check"], built) == 1
    assert "labs/src/00_tiny.py:22: no output stored in labs/00_tiny.ipynb" in capsys.readouterr().err


def test_equal_checked_cells_keep_their_own_outputs(built):
    twice = '# %% tags=["nbval-check-output"]\nprint(next(steps))\n\n'
    (built / "src" / "00_tiny.py").write_text(TINY + "\n\n" + twice + twice, encoding="utf-8")
    build.main([], built)
    store(built, "00_tiny.ipynb", stdout("first\n"), where=slice(2, 3))
    store(built, "00_tiny.ipynb", stdout("second\n"), where=slice(3, 4))
    build.main([], built)
    outputs = printed(cells(built))
    assert list(outputs["print(next(steps))"]) == ["first\n", "second\n"]


def test_a_changed_tag_of_an_unchecked_cell_drops_its_output(built):
    edit(built, ' claims="R1" tags=["nbval-check-output"]', "")
    build.main([], built)
    assert [cell["id"] for cell in cells(built) if cell.get("outputs")] == ["verdict"]


STDERR = {"output_type": "stream", "name": "stderr", "text": ["x"]}
CHANGES = {
    "text": (lambda labs: edit(labs, "*stars*", "*moons*"), "labs/solutions/00_tiny.ipynb: differs"),
    "header": (lambda labs: edit(labs, "minutes: 5", "minutes: 6"), "labs/README.md: differs"),
    "no notebook": (lambda labs: (labs / "00_tiny.ipynb").unlink(), "labs/00_tiny.ipynb: differs"),
    "map": (lambda labs: (labs / "README.md").write_text("mine"), "labs/README.md: differs"),
    "empty": (
        lambda labs: store(labs, "00_tiny.ipynb", stdout("")),
        "no output stored in labs/00_tiny.ipynb",
    ),
    "stderr": (lambda labs: store(labs, "00_tiny.ipynb", STDERR), "gives stderr"),
    "broken": (lambda labs: (labs / "00_tiny.ipynb").write_text("<<<<"), "00_tiny.ipynb: not a notebook"),
    "stray": (lambda labs: (labs / "07_old.ipynb").write_text("{}"), "labs/07_old.ipynb: has no source"),
    "number": (lambda labs: (labs / "src" / "00_b.py").write_text(TINY), "two labs have the number 00"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_check_tells_each_difference_and_writes_nothing(built, change, told, capsys):
    change(built)
    before = files(built)
    assert build.main(["--check"], built) == 1
    assert told in capsys.readouterr().err
    assert files(built) == before


def test_a_checked_cell_with_a_figure_is_refused(built, capsys):
    figure = {"output_type": "display_data", "data": {"text/plain": "Figure"}, "metadata": {}}
    store(built, "00_tiny.ipynb", figure)
    assert build.main([], built) == 1
    assert "a checked cell only prints" in capsys.readouterr().err
    assert "display_data" in json.dumps(cells(built))


def test_an_unknown_lab_cannot_be_run(labs, capsys):
    assert build.main(["--run", "42"], labs) == 1
    assert capsys.readouterr().err == "no lab 42 in labs/src\n"


def test_the_map_lists_each_lab(built):
    row = "| [00 A tiny lab](00_tiny.ipynb) | 5 | How many? | a sum | [solution](solutions/00_tiny.ipynb) |"
    assert row in (built / "README.md").read_text(encoding="utf-8").splitlines()


def test_the_course_in_this_repository_is_built(capsys):
    status = build.main(["--check"], LABS)
    assert status == 0, capsys.readouterr().err
