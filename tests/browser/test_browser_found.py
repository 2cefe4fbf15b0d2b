"""Without Chromium people see one line and a skip, and CI sees a failure."""

import pytest
from chromium import find_chromium

SAID = "need the program chromium, which is not on the path"


@pytest.mark.parametrize("required", ["", "0"])
def test_without_chromium_people_see_a_skip(tmp_path, required):
    with pytest.raises(pytest.skip.Exception, match=SAID):
        find_chromium({"PATH": str(tmp_path), "LABLIB_REQUIRE_BROWSER": required})


def test_without_chromium_ci_sees_a_failure(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=SAID):
        find_chromium({"PATH": str(tmp_path), "LABLIB_REQUIRE_BROWSER": "1"})


def test_chromium_is_taken_from_the_path(tmp_path):
    (tmp_path / "chromium").touch(mode=0o755)
    assert find_chromium({"PATH": str(tmp_path)}) == str(tmp_path / "chromium")
