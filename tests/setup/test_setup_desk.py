from datetime import datetime, timezone
from pathlib import Path

import pytest
from clones import notebook

from tools import desk
from tools.stop import StopError

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=timezone.utc)


def test_notebooks_and_solutions_are_copied_and_the_first_lab_is_named(clone: Path):
    assert desk.lay_out(clone) == clone / "work" / "00_ranks.ipynb"
    for name in (
        "00_ranks.ipynb",
        "04_buckets.ipynb",
        "solutions/00_ranks.ipynb",
        "solutions/04_buckets.ipynb",
    ):
        assert (clone / "work" / name).read_bytes() == (clone / "labs" / name).read_bytes()


def test_what_the_learner_wrote_stays(clone: Path):
    mine = desk.lay_out(clone)
    mine.write_text("my answers")
    desk.lay_out(clone)
    assert mine.read_text() == "my answers"


def test_a_file_that_was_there_before_the_first_copy_stays(clone: Path):
    mine = clone / "work" / "00_ranks.ipynb"
    mine.parent.mkdir()
    mine.write_text("mine")
    desk.lay_out(clone)
    assert mine.read_text() == "mine"


def test_a_lab_that_is_new_in_the_course_is_added(clone: Path):
    desk.lay_out(clone)
    notebook(clone / "labs" / "05_late.ipynb")
    desk.lay_out(clone)
    assert (clone / "work" / "05_late.ipynb").exists()


def test_a_reset_brings_one_lab_back_and_keeps_the_learners_version(clone: Path, capsys):
    desk.lay_out(clone)
    work = clone / "work"
    for name in ("00_ranks.ipynb", "04_buckets.ipynb", "solutions/04_buckets.ipynb"):
        (work / name).write_text("mine")
    desk.lay_out(clone, reset="04", now=NOON)
    said = capsys.readouterr().out
    assert (work / "00_ranks.ipynb").read_text() == "mine"
    for name in ("04_buckets", "solutions/04_buckets"):
        assert (work / f"{name}.ipynb").read_bytes() == (clone / "labs" / f"{name}.ipynb").read_bytes()
        kept = work / "backups" / f"{name}.2026-05-04_120000_000000.ipynb"
        assert kept.read_text() == "mine"
        assert f"Your {name}.ipynb is kept as work/{kept.relative_to(work)}" in said


def test_a_reset_of_an_unchanged_lab_leaves_no_backup(clone: Path, capsys):
    desk.lay_out(clone)
    desk.lay_out(clone, reset="04")
    assert not (clone / "work" / "backups").exists()
    assert capsys.readouterr().out == ""


def test_two_resets_keep_two_versions(clone: Path):
    desk.lay_out(clone)
    for text in ("first", "second"):
        (clone / "work" / "04_buckets.ipynb").write_text(text)
        desk.lay_out(clone, reset="4")
    kept = {path.read_text() for path in (clone / "work" / "backups").glob("04_*.ipynb")}
    assert kept == {"first", "second"}


def test_a_reset_of_a_lab_that_the_learner_deleted_brings_it_back(clone: Path):
    desk.lay_out(clone)
    (clone / "work" / "04_buckets.ipynb").unlink()
    desk.lay_out(clone, reset="04")
    assert (clone / "work" / "04_buckets.ipynb").exists()


@pytest.mark.parametrize("reset", ["7", "four", "-4", "00_ranks"])
def test_an_unknown_lab_is_said_and_nothing_moves(clone: Path, reset):
    mine = desk.lay_out(clone)
    mine.write_text("mine")
    with pytest.raises(StopError, match="names no lab; there are: 00, 04"):
        desk.lay_out(clone, reset=reset)
    assert mine.read_text() == "mine"


def test_a_newer_version_is_announced_until_it_is_taken(clone: Path, capsys):
    desk.lay_out(clone)
    notebook(clone / "labs" / "04_buckets.ipynb", "a better question")
    desk.lay_out(clone)
    assert capsys.readouterr().out == ("Lab 04 has a newer version: make lab RESET=04 brings it and keeps yours too.\n")
    desk.lay_out(clone, reset="04")
    capsys.readouterr()
    desk.lay_out(clone)
    assert capsys.readouterr().out == ""


def test_a_damaged_note_loses_nothing(clone: Path):
    mine = desk.lay_out(clone)
    mine.write_text("mine")
    (clone / "work" / desk.NOTE).write_text("{")
    desk.lay_out(clone)
    assert mine.read_text() == "mine"


def test_a_clone_without_notebooks_says_what_to_do(tmp_path: Path):
    (tmp_path / "labs").mkdir()
    with pytest.raises(StopError, match="no notebooks in labs/"):
        desk.lay_out(tmp_path)
