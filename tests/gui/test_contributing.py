"""The dock of CONTRIBUTING.md is built from that page, and its test there is run."""

import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from npe2 import PluginManifest

import napari_saf._gui as app
from napari_saf import io, methods, pipeline
from napari_saf._gui.layers import live, reading
from napari_saf._gui.runs import controller, panel, run
from napari_saf._gui.segment import dock

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Add a dock")[2].partition("\n## ")[0]
CODE, MANIFEST, TESTS = (
    textwrap.dedent(block)
    for block in re.findall(
        r"^ *```(?:python|yaml)\n(.*?)^ *```$", SECTION, re.MULTILINE | re.DOTALL
    )
)
NAMES = re.findall(r"^def (test_\w+)", TESTS, re.MULTILINE)


@pytest.fixture
def page(monkeypatch):
    """The module of the dock, as the manifest finds it."""
    module = ModuleType("napari_saf._gui.holes.dock")
    monkeypatch.setitem(sys.modules, "napari_saf._gui.holes", ModuleType("napari_saf._gui.holes"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(CODE, "CONTRIBUTING.md", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.gui
def test_the_dock_on_the_page_does_what_its_test_says(name, page, request):
    values = {"np": np, "HolesWidget": page.HolesWidget}
    exec(compile(TESTS, "CONTRIBUTING.md", "exec"), values)
    test = values[name]
    test(**{each: request.getfixturevalue(each) for each in inspect.signature(test).parameters})


def test_the_manifest_on_the_page_names_the_dock(page):
    """Together with what is there it is a manifest."""
    raw = yaml.safe_load((ROOT / "napari_saf" / "napari.yaml").read_text(encoding="utf-8"))
    added, there = yaml.safe_load(MANIFEST), raw["contributions"]
    for key in ("commands", "widgets"):
        there[key] += added[key]
    for menu, entries in added["menus"].items():
        there["menus"][menu] += entries
    manifest = PluginManifest(**raw)
    (command,) = (one for one in manifest.contributions.commands if one.id == "napari-saf.holes")
    name = str(command.python_name).partition(":")[2]
    assert getattr(app, name) is page.HolesWidget


def test_functions_on_the_way_of_a_click_are_there():
    known = {
        name: value
        for module in (run, controller, panel, dock, pipeline, live, reading, methods, io)
        for name, value in vars(module).items()
    }
    way = PAGE.partition("## The way of a click")[2].partition("\n## ")[0]
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", way)
    assert len(named) > 10
    for kind, method in named:
        assert hasattr(known[kind], method), f"{kind}.{method}"
