import json
import sys
from pathlib import Path

import pytest
from clones import make

from tools import environment
from tools.stop import StopError


class Machine:
    """Stands in for the programs that `environment` starts, and keeps what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.pip_works = True

    def run(self, command, folder, variables, *, quiet=False):
        if "-c" in command:
            return Path(command[0]).read_text() == "works"
        self.asked.append(command[1:])
        if command[2] == "venv":
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("works")
            return True
        return self.pip_works

    def take(self) -> list[str]:
        """Return what was asked since the last time, shortened to the words that matter."""
        asked, self.asked = self.asked, []
        return [" ".join(word for word in command if not word.startswith("/")) for command in asked]


@pytest.fixture
def machine(monkeypatch) -> Machine:
    fake = Machine()
    monkeypatch.setattr(environment, "_run", fake.run)
    monkeypatch.setattr(environment.download, "announce", lambda *_: fake.asked.append(["announce"] * 2))
    return fake


PIP = "-m pip install --disable-pip-version-check --only-binary :all: --constraint constraints.txt"
FIRST = ["-m venv --clear", "announce announce", f"{PIP} --editable ."]


def test_the_first_time_makes_the_environment_and_announces_before_it_installs(clone, machine):
    python = environment.ready(clone)
    assert python == clone / ".venv" / "bin" / "python"
    assert machine.take() == FIRST


def test_the_second_time_installs_nothing(clone, machine):
    environment.ready(clone)
    machine.take()
    environment.ready(clone)
    assert machine.take() == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_list_of_packages_installs_again(clone, machine, name):
    environment.ready(clone)
    machine.take()
    (clone / name).write_text((clone / name).read_text() + "\n# changed")
    environment.ready(clone)
    assert machine.take()[-1] == f"{PIP} --editable ."


def test_an_extra_is_added_to_those_that_are_there(clone, machine):
    environment.ready(clone, extras=["test"])
    machine.take()
    environment.ready(clone, extras=["bench"])
    assert machine.take()[-1] == f"{PIP} --editable .[bench,test]"
    for extras in ([], ["test"], ["bench", "test"]):
        environment.ready(clone, extras=extras)
    assert machine.take() == []


def test_a_clone_that_was_moved_installs_again(clone, machine):
    environment.ready(clone)
    machine.take()
    moved = clone.rename(clone.parent / "elsewhere")
    environment.ready(moved)
    assert machine.take()[-1] == f"{PIP} --editable ."


def test_an_installation_that_failed_is_said_and_taken_up_again(clone, machine):
    machine.pip_works = False
    with pytest.raises(StopError, match="pip could not install the packages"):
        environment.ready(clone)
    machine.take()
    machine.pip_works = True
    environment.ready(clone)
    assert machine.take() == FIRST[1:]
    environment.ready(clone)
    assert machine.take() == []


def test_an_environment_that_no_longer_runs_is_made_again(clone, machine, capsys):
    environment.ready(clone)
    machine.take()
    (clone / ".venv/bin/python").write_text("broken")
    environment.ready(clone)
    assert machine.take() == FIRST
    assert "again, since the old one no longer runs" in capsys.readouterr().out


def test_a_python_that_went_away_does_not_work(tmp_path: Path):
    (tmp_path / "python").symlink_to(tmp_path / "gone")
    assert not environment._works(tmp_path / "python")
    assert environment._works(Path(sys.executable))


def test_an_index_for_torch_is_asked_for_torch_alone(clone, machine):
    environment.ready(clone, torch_index="file:///cpu")
    assert machine.take() == [FIRST[0], f"{PIP} --index-url file:///cpu torch", f"{PIP} --editable ."]


def test_with_torch_in_place_nothing_is_announced(clone, machine):
    environment.ready(clone)
    machine.take()
    (clone / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    environment.ready(clone, extras=["test"])
    assert machine.take() == [f"{PIP} --editable .[test]"]


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_which_package_to_install(clone, machine, monkeypatch, missing):
    monkeypatch.setattr(environment, "_importable", lambda name: name != missing)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(StopError) as stop:
        environment.ready(clone)
    assert str(stop.value) == (
        f"Python {version} on this machine lacks its {missing} module; on Debian and Ubuntu run"
        f" `sudo apt install python{version}-venv`, then try again"
    )
    assert machine.take() == []
    assert not (clone / ".venv").exists()


def test_windows_is_sent_to_wsl(clone, machine, monkeypatch):
    monkeypatch.setattr(environment.os, "name", "nt")
    with pytest.raises(StopError, match="WSL2"):
        environment._make(clone / ".venv")


def test_no_pop_up_asks_about_news(clone, machine):
    environment.ready(clone)
    settings = json.loads((clone / ".venv/share/jupyter/lab/settings/overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


def test_variables_that_lead_astray_are_left_out(monkeypatch, tmp_path: Path):
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_TARGET", "PYTHONHOME"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///mirror")
    monkeypatch.setenv("PATH", "/usr/bin")
    found = environment.variables(tmp_path)
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_TARGET", "PYTHONHOME"} & found.keys()
    assert found["PIP_INDEX_URL"] == "file:///mirror"
    assert found["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert found["VIRTUAL_ENV"] == str(tmp_path)


def test_make_runs_modules_and_files_in_the_environment(clone, fake_python: Path):
    done = make(clone, "check", PYTHONPATH="/elsewhere")
    assert done.returncode == 0, done.stderr
    calls = fake_python.read_text().splitlines()
    assert [call for call in calls if "pip" not in call] == [
        "-m ruff check .",
        "-m ruff format --check .",
        "-m mypy",
        "labs/build.py --check",
        "-m pytest -n 2 --dist loadfile --no-loadscope-reorder -m not slow and not soak and not browser"
        + "".join(f" --ignore=tests/{room}" for room in ("engine", "browser", "bench", "training", "parallel")),
    ]
    assert sum("pip install" in call for call in calls) == 1
    assert f"{PIP} --editable .[test]" in calls
