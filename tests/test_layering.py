"""Imports run one way, and the library loads neither napari nor Qt."""

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import napari_saf

PACKAGE = Path(napari_saf.__file__).parent
LAYERS = [
    {"arrays", "errors", "device", "parameters", "storage", "strategies"},
    {"graph", "features", "points"},
    {"input"},
    {"parts", "problem", "recording", "result"},
    {"flow"},
    {"methods", "regions", "sharpening"},
    {"dictionary"},
    {"io", "metrics", "samples"},
    {"objects"},
    {"pipeline"},
    {"batch", "comparison", "scoring", "tiles", "project"},
    {"cli", "_gui"},
    {"__main__"},
]
"""From the ground up; a module may import from lower layers and from its own."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
APP_LAYERS = [
    {"settings", "napari_workarounds"},
    {"layers"},
    {"forms"},
    {"runs"},
    {"session"},
    {"docks"},
    {
        "segment",
        "scribbles",
        "dictionary",
        "diagnostics",
        "export",
        "compare",
        "prototypes",
        "objects",
        "project",
        "sharpen",
    },
    {"demo"},
]
"""Likewise within the app."""
APP_LEVEL = {name: level for level, names in enumerate(APP_LAYERS) for name in names}
ALLOWED_WITHIN_A_LAYER = {("samples", "io")}
ALLOWED_UPWARDS = {("cli", "_gui")}
"""Within functions only: the demo opens napari."""
GUI_LIBRARIES = {"napari", "qtpy", "magicgui", "superqt", "psygnal", "PyQt5", "PyQt6", "PySide6"}


def modules():
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def part_of(path):
    """Name of the subpackage or top-level module that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def nodes(path):
    """Return the nodes of the syntax of a file that import something."""
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def imports(path):
    """Return dotted names that a file imports, those for type checkers included."""
    names = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "napari_saf":
                names += [f"napari_saf.{alias.name}" for alias in node.names]
            else:
                names.append(node.module)
    return names


def parts_imported(path):
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "napari_saf" and rest:
            yield rest.partition(".")[0]


def test_every_part_has_a_layer():
    assert {part_of(path) for path in modules()} <= set(LEVEL)


def test_imports_run_one_way():
    allowed = ALLOWED_WITHIN_A_LAYER | ALLOWED_UPWARDS
    wrong = []
    for path in modules():
        own = part_of(path)
        for other in set(parts_imported(path)) - {own}:
            is_below = LEVEL[other] < LEVEL[own]
            same = LEVEL[other] == LEVEL[own] and own not in ("io", "samples", "cli", "_gui")
            if not (is_below or same or (own, other) in allowed):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong


def test_imports_within_the_app_run_one_way():
    wrong = []
    for path in (PACKAGE / "_gui").rglob("*.py"):
        own = path.relative_to(PACKAGE / "_gui").parts[0].removesuffix(".py")
        for name in imports(path):
            if own != "__init__" and name.startswith("napari_saf._gui."):
                other = name.split(".")[2]
                if other != own and APP_LEVEL[other] >= APP_LEVEL[own]:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert not wrong


def test_one_module_knows_where_napari_has_axes_camera_and_canvas():
    """They move between versions."""
    wrong = []
    for path in (PACKAGE / "_gui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_model = isinstance(node, ast.Attribute) and (
                node.attr in ("dims", "camera", "scene")
                or (node.attr in ("canvas", "grid") and ast.unparse(node.value).endswith("viewer"))
            )
            if is_model and path.name != "napari_workarounds.py":
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}")
    assert not wrong


def test_no_package_imports_a_private_module_of_another():
    wrong = []
    for path in modules():
        home = ".".join(("napari_saf", *path.relative_to(PACKAGE).parent.parts))
        for name in imports(path):
            parent, _, last = name.rpartition(".")
            is_private = last.startswith("_") and last != "_gui"
            if name.startswith("napari_saf.") and is_private and parent != home:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_no_imports_run_in_a_circle():
    """Those within functions and those for type checkers are counted."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules()}
    names = {name.removesuffix(".__init__") for name in names}
    graph = {}
    for path in modules():
        own = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        own = own.removesuffix(".__init__")
        graph[own] = {name for name in imports(path) if name in names}
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[own] |= members & names
    graphlib.TopologicalSorter(graph).prepare()


def test_only_the_app_knows_napari_and_qt():
    wrong = [
        path.relative_to(PACKAGE)
        for path in modules()
        if part_of(path) != "_gui"
        and {name.partition(".")[0] for name in imports(path)} & GUI_LIBRARIES
    ]
    assert not wrong


def test_importing_loads_neither_napari_nor_qt():
    script = """
from napari_saf import *
import napari_saf.batch, napari_saf.cli, napari_saf.samples, sys
print(*sys.modules)
"""
    run = [sys.executable, "-c", script]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert not {name.partition(".")[0] for name in out.split()} & GUI_LIBRARIES


def test_docks_wait_for_no_library_of_runs():
    """Torch and scikit-learn, with the pandas that it brings, are imported by what runs."""
    docks = sorted((PACKAGE / "_gui").glob("*/dock.py"))
    names = [".".join(("napari_saf", *path.relative_to(PACKAGE).parts))[:-3] for path in docks]
    assert len(names) > 6
    script = f"import {', '.join(names)}, sys\nprint(*sys.modules)"
    run = [sys.executable, "-c", script]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "sklearn", "pandas", "matplotlib"} & set(out.split())


def test_public_names_are_there():
    for name in napari_saf.__all__:
        assert getattr(napari_saf, name) is not None
    assert set(napari_saf.__all__) <= set(dir(napari_saf))
    with pytest.raises(AttributeError, match="nothing"):
        _ = napari_saf.nothing
