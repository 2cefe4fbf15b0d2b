"""A source is read as jupytext reads it, ids stay, and every mistake is told with file and line."""

import jupytext
import pytest
from _build.source import SourceError, read
from tiny_course import HEADER, LABS, TINY

SOURCES = sorted((LABS / "src").glob("*.py"))
SEEN_COLUMNS = 100  # what JupyterLab shows of a line of code in a window of 1,280 pixels, with some to spare


def edit(source, old, new):
    text = source.read_text(encoding="utf-8")
    assert text.count(old) == 1
    source.write_text(text.replace(old, new), encoding="utf-8")


def ids(source):
    return {cell.source: cell.id for cell in read(source).cells}


def assert_read_as_jupytext_does(path):
    theirs = jupytext.read(path, fmt="py:percent")
    ours = read(path)
    assert [(cell.cell_type, cell.source) for cell in theirs.cells] == [
        (cell.kind, cell.source) for cell in ours.cells[1:]
    ]
    assert theirs.metadata["lab"]["title"] == ours.title


def test_the_tiny_source_is_read_as_jupytext_does(source):
    assert_read_as_jupytext_does(source)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_lab_is_read_as_jupytext_does(path):
    assert_read_as_jupytext_does(path)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_line_of_code_is_cut_off_on_a_projector(path):
    lines = [line for cell in read(path).cells if cell.kind == "code" for line in cell.source.splitlines()]
    assert [line for line in lines if len(line) > SEEN_COLUMNS] == []


def test_the_opening_comes_from_the_header(source):
    opening = read(source).cells[0]
    assert opening.id == "opening"
    assert opening.source == "# 00 · A tiny lab\n\n**How many?**\n\nAbout 5 minutes. You measure a sum."


def test_headers_of_cells(source):
    cells = read(source).cells
    assert [cell.claims for cell in cells] == ["", "R1 R4", "", "R1", "", "", ""]
    assert [cell.checked for cell in cells] == [False, False, False, True, False, False, True]
    assert cells[-1].id == "verdict"


def test_an_edit_changes_only_the_id_of_its_cell(source):
    before = ids(source)
    edit(source, "2 + 3", "2 + 4")
    after = ids(source)
    changed = {text for text in after if before.get(text) != after[text]}
    assert len(after) == len(before) and len(changed) == 1 and "2 + 4" in changed.pop()


def test_a_cell_more_or_less_changes_no_other_id(source):
    before = ids(source)
    edit(source, '# %% [markdown] claims="R1 R4"', '# %%\nnew = 1\n\n# %% [markdown] claims="R1 R4"')
    after = ids(source)
    assert after.pop("new = 1")
    assert after == before


def test_a_given_id_stays_when_the_cell_changes(source):
    edit(source, "double(2) == 4", "double(3) == 6")
    assert read(source).cells[-1].id == "verdict"


def test_equal_cells_have_different_ids(source):
    source.write_text(HEADER + "# %%\nx = 1\n\n# %%\nx = 1\n\n# %%\nx = 1\n", encoding="utf-8")
    assert len({cell.id for cell in read(source).cells}) == 4


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("", 8, "no cells"),
        ("x = 1\n", 10, "text before the first cell"),
        ("# %%\n\n# %%\nx = 1\n", 10, "an empty cell"),
        ("# %% colour=1\nx = 1\n", 10, "cannot read 'colour=1'"),
        ('# %% colour="red"\nx = 1\n', 10, "unknown in a cell header: colour"),
        ("# %% Launching\nx = 1\n", 10, "cannot read 'Launching'"),
        ('# %% tags=["skip"]\nx = 1\n', 10, "the only tag"),
        ('# %% tags=["raises-exception"]\nx = 1\n', 10, "use `with expect(...)`"),
        ("# %% tags=[skip]\nx = 1\n", 10, "write it as JSON"),
        ('# %% claims="R1,R2"\nx = 1\n', 10, "claims is like R1 R4"),
        ('# %% id="Launch it"\nx = 1\n', 10, "id is like first-launch"),
        ('# %% id="cell-1"\nx = 1\n', 10, "id is like first-launch"),
        ('# %% id="a"\nx = 1\n\n# %% id="a"\ny = 1\n', 13, "the id a is taken"),
        ('# %% id="opening"\nx = 1\n', 10, "the id opening is taken"),
        ("# %%\nx = 1\n%time x\n", 12, "no % or ! lines"),
        ("# %%\n# !ls\n", 11, "no % or ! lines"),
        ("# %%\nx = 1\n# NBVAL_CHECK_OUTPUT\n", 12, "mark a compared cell in its header"),
        ("# %%\nif x:\n    # %% \n    y = 1\n", 12, "starts at the left margin"),
        ("# %% [markdown]\n# text\nmore\n", 12, "starts with # and a space"),
        ("# %% [markdown]\n# # Title\n", 11, "the title is made from the header"),
        ('# %% [markdown] tags=["nbval-check-output"]\n# text\n', 10, "is for code cells"),
    ],
)
def test_a_mistake_in_a_cell_is_told_with_its_line(source, body, line, message):
    source.write_text(HEADER + body, encoding="utf-8")
    with pytest.raises(SourceError) as error:
        read(source)
    assert str(error.value).startswith(f"labs/src/00_tiny.py:{line}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# ---\n# jupyter:", "# jupyter:", "start with a header"),
        ("#     minutes: 5\n", "", "needs lab: minutes: (int)"),
        ("minutes: 5", "minutes: five", "needs lab: minutes: (int)"),
        ("minutes: 5", "minutes: true", "needs lab: minutes: (int)"),
        ("measures: a sum", "measures: a sum\n#     level: 3", "unknown in the header: level"),
        ("question: How", "question: : [", "not YAML"),
        ("#   lab:", "#   labs:", "not YAML with jupyter: lab:"),
    ],
)
def test_a_mistake_in_the_header_is_told(source, old, new, message):
    source.write_text(TINY.replace(old, new), encoding="utf-8")
    with pytest.raises(SourceError, match=r"labs/src/00_tiny\.py:1: ") as error:
        read(source)
    assert message in str(error.value)


def test_a_file_name_without_its_number_is_told(source):
    with pytest.raises(SourceError, match="name the file like"):
        read(source.rename(source.with_name("tiny.py")))
