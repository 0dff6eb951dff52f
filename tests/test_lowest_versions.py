"""The oldest versions that are declared are those that were tested: constraints-lowest.txt."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = [*PROJECT["dependencies"]]
for extra in ("pyqt5", "pyqt6", "pyside6", "parquet", "objects", "deep"):
    DECLARED += [one for one in EXTRAS[extra] if ">=" in one]
LINES = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
TESTED = dict(re.fullmatch(r"([\w-]+)==(\S+)", one).groups() for one in LINES if one[0] != "#")


@pytest.mark.parametrize("declared", [*map(Requirement, DECLARED)], ids=lambda one: one.name)
def test_the_lowest_version_that_is_declared_was_tested(declared):
    (bound,) = [one for one in declared.specifier if one.operator == ">="]
    assert Version(TESTED[declared.name.lower()]) == Version(bound.version)


def test_what_was_tested_is_declared():
    assert set(TESTED) == {Requirement(one).name.lower() for one in DECLARED}
    assert list(TESTED) == sorted(TESTED)
