"""The conda recipe asks for what pyproject.toml asks for."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "napari": "napari-base", "torch": "pytorch"}


@pytest.fixture(scope="module")
def recipe():
    """Render the recipe, which checks its form, as rattler-build would build it."""
    rattler_build = pytest.importorskip("rattler_build")
    written = rattler_build.Stage0Recipe.from_file(str(ROOT / "recipe" / "recipe.yaml"))
    (variant,) = written.render(rattler_build.VariantConfig())
    return variant.recipe.to_dict()


def test_version_and_licence_are_those_of_the_project(recipe):
    assert recipe["package"]["version"] == PROJECT["version"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_the_package_needs_what_the_project_needs(recipe):
    bounds = [dependency.partition(">=") for dependency in PROJECT["dependencies"]]
    wanted = {f"{CONDA_NAMES.get(name, name)} >={version}" for name, _, version in bounds}
    wanted.add(f"python {PROJECT['requires-python']}")
    assert {str(one) for one in recipe["requirements"]["run"]} == wanted


def test_qt_is_as_new_as_the_extras_want_it(recipe):
    extras = PROJECT["optional-dependencies"]
    wanted = {f"{extras[name][0].lower().replace('>=', ' >=')}" for name in ("pyqt6", "pyside6")}
    assert {str(one) for one in recipe["requirements"]["run_constraints"]} == wanted
