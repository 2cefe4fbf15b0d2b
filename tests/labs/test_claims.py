"""labs/claims.toml: every claim is in a lab, and the lab shows what is said there."""

import ast
import json
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
CLAIMS = tomllib.loads((ROOT / "labs" / "claims.toml").read_text(encoding="utf-8"))
COMPLETE = {"R": 20, "C": 17, "S": 10}  # the families of claims whose labs are there, and how many claims each has
LATER = {"R13", "S8"}  # elastic training and unequal ranks have labs of their own, which are to come
FIELDS = {"sentence", "verdict", "lab", "prints", "runs", "test"}


def cells_of(folder):
    """Yield lab number, claims and cell of each cell that has claims."""
    for path in sorted(folder.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if claims := cell["metadata"].get("claims"):
                yield path.name[:2], claims.split(), cell


def evidence(claim):
    """Return what the cells of a claim say in the solved notebook: sources of what runs, and compared outputs."""
    sources, outputs = [], []
    for lab, claims, cell in cells_of(ROOT / "labs" / "solutions"):
        if claim in claims and lab == CLAIMS[claim]["lab"] and cell["cell_type"] == "code":
            sources.append("".join(cell["source"]))
            outputs += ["".join(output["text"]) for output in cell["outputs"]]
    return sources, outputs


@pytest.mark.parametrize("folder", ["labs", "labs/solutions"])
def test_the_notebooks_and_the_list_have_the_same_claims(folder):
    found = {(claim, lab) for lab, claims, _ in cells_of(ROOT / folder) for claim in claims}
    assert found == {(claim, about["lab"]) for claim, about in CLAIMS.items()}


def test_no_claim_is_left_out():
    wanted = {f"{family}{number}" for family, count in COMPLETE.items() for number in range(1, count + 1)}
    assert {claim for claim in CLAIMS if claim[0] in COMPLETE} == wanted - LATER


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_a_sentence_with_a_verdict(claim):
    about = CLAIMS[claim]
    assert set(about) <= FIELDS
    assert about["verdict"] in ("T", "Q", "F")
    assert about["sentence"].endswith(".")
    assert about["sentence"][0].isalnum() or about["sentence"].startswith("--")


def test_no_sentence_stands_twice():
    sentences = [about["sentence"] for about in CLAIMS.values()]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_shown_by_what_its_cells_print_or_run(claim):
    about = CLAIMS[claim]
    assert ("prints" in about) != ("runs" in about)
    sources, outputs = evidence(claim)
    if "prints" in about:
        assert any(about["prints"] in output for output in outputs)
    else:
        assert any(about["runs"] in (line.strip() for line in source.splitlines()) for source in sources)


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if "test" in CLAIMS[claim]])
def test_a_named_test_exists(claim):
    file, _, name = CLAIMS[claim]["test"].partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert name in tests
