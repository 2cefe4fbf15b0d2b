"""The files of the set-up agree with each other."""

import importlib.metadata
import re
import subprocess
import sys

import pytest
import yaml
from clones import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import pins, setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RANGES = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
]
PINS = {
    canonicalize_name(pin.name): pin
    for pin in map(Requirement, (ROOT / "constraints.txt").read_text().splitlines()[1:])
}
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def pinned_version(name: str) -> str:
    """Return the version that constraints.txt pins."""
    (specifier,) = PINS[canonicalize_name(name)].specifier
    assert specifier.operator == "=="
    return specifier.version


@pytest.mark.parametrize("wanted", RANGES, ids=lambda wanted: wanted.name)
def test_every_range_has_a_tested_pin_inside_it(wanted):
    assert wanted.specifier.contains(pinned_version(wanted.name))


def test_pins_have_no_local_part_and_no_address():
    assert pinned_version("torch") == "2.13.0"
    for pin in PINS.values():
        assert Version(pinned_version(pin.name)).local is None
        assert pin.url is None


def test_this_environment_has_the_pinned_versions():
    applying = [pin for pin in PINS.values() if pin.marker is None or pin.marker.evaluate()]
    found = {canonicalize_name(one.name): one.version for one in importlib.metadata.distributions()}
    other = {
        pin.name: found[canonicalize_name(pin.name)]
        for pin in applying
        if canonicalize_name(pin.name) in found
        and not pin.specifier.contains(Version(found[canonicalize_name(pin.name)]).public)
    }
    assert other == {}


def test_conda_gets_the_same_pins_and_this_package():
    content = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, by_pip = content["dependencies"]
    assert by_pip == {"pip": ["-c constraints.txt", "-e ."]}
    python = next(Requirement(one.replace("=", "==", 1)) for one in conda if one.startswith("python="))
    (version,) = (specifier.version for specifier in python.specifier)
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(version)
    assert version == ".".join(map(str, setup.TESTED))


def test_the_entry_asks_for_the_same_python_as_the_package():
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, setup.OLDEST))


@pytest.mark.parametrize(
    ("version", "requires", "line"),
    [
        ("2.13.0+cpu", ">=3.10", "x==2.13.0"),
        ("1.0", None, "x==1.0"),
        ("1.0", ">=3.9,<4", "x==1.0"),
        ("2.4.6", ">= 3.11", 'x==2.4.6; python_version >= "3.11"'),
        ("4.1", ">=3.11.5", 'x==4.1; python_full_version >= "3.11.5"'),
        ("3.6", "!=3.14.1,>=3.11", 'x==3.6; python_version >= "3.11"'),
    ],
)
def test_a_pin_leaves_older_pythons_free(version, requires, line):
    assert pins.constraint("x", version, requires) == line


@pytest.mark.parametrize("command", ["make lab", "make test"])
def test_the_readme_shows_the_two_commands_and_make_has_them(command):
    assert re.search(rf"^{command}$", README, re.MULTILINE)
    assert re.search(rf"^{command.split()[1]}:", MAKEFILE, re.MULTILINE)


def test_every_make_command_that_the_texts_name_exists():
    texts = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`make (\w+)", texts))
    assert {"check", "soak", "bench"} <= named
    missing = [name for name in named if not re.search(rf"^{name}:", MAKEFILE, re.MULTILINE)]
    assert missing == []


def test_ci_runs_the_readmes_test_command_and_is_sound():
    ci = ROOT / ".ci" / "run"
    assert ci.stat().st_mode & 0o111
    assert re.search(r"^make test\b", ci.read_text(), re.MULTILINE)
    assert subprocess.run(["bash", "-n", ci], check=False).returncode == 0
