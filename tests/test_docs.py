"""The pages say what is there: links, names, commands, docks, examples."""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import inspect
import itertools
import json
import operator
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import imageio.v3 as iio
import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

import napari_saf as saf
from napari_saf.cli import _group
from napari_saf.cli import main as command_line
from napari_saf.samples import read_sample

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(TEXTS[page]))
    return {title.replace(" ", "-") for title in titles}


def blocks(text: str, *languages: str) -> list[str]:
    fences = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    return [fence.content for fence in fences if fence.info in languages]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(TEXTS[page]):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_picture_is_shown_and_small() -> None:
    shown = {Path(link).name for text in TEXTS.values() for link in LINK.findall(text)}
    pictures = list((ROOT / "docs/pictures").iterdir())
    assert {picture.name for picture in pictures} <= shown
    most = {".gif": 3 * 2**20, ".png": 2**20}
    assert all(picture.stat().st_size < most[picture.suffix] for picture in pictures)


def test_every_page_is_in_the_list_of_one_page() -> None:
    listed = []
    for page, text in TEXTS.items():
        for entry in itertools.chain(*map(str.splitlines, blocks(text, "{toctree}"))):
            name = re.sub(r".*<(.*)>", r"\1", entry.strip())
            if name and not name.startswith(":"):
                listed.append(page.parent / f"{name}.md")
    there = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert len(listed) == len(set(listed))
    assert there - set(listed) == {ROOT / "docs/index.md"}
    assert set(listed) <= there


def extension(name: str) -> ModuleType:
    path = ROOT / f"docs/_extensions/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name() -> None:
    listing = extension("python_reference").listing()
    found = set(re.findall(r"^   napari_saf\.(\S+)$", listing, re.MULTILINE))
    values = {"METHODS", "__version__", "metrics"}
    assert found == set(PUBLIC) - values
    told = TEXTS[ROOT / "docs/reference/python.md"]
    assert all(f"`saf.{name}`" in told for name in values - {"metrics"})


def commands(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{words} {name}")


def public_objects() -> list[object]:
    """Every public name with its public methods and properties; constants have no docstring."""
    found: list[object] = []
    for name in sorted(saf.__all__):
        value = getattr(saf, name)
        if inspect.isclass(value):
            own = [getattr(value, member) for member in vars(value) if not member.startswith("_")]
            found += [value, *(m for m in own if inspect.isfunction(m) or isinstance(m, property))]
        elif inspect.isfunction(value):
            found.append(value)
    return found


def test_public_names_are_documented() -> None:
    without = [value for value in public_objects() if not inspect.getdoc(value)]
    assert not without


MEASURES = [name for name in dir(saf.metrics) if not name.startswith("_")]
PUBLIC = [*saf.__all__, *(f"metrics.{name}" for name in MEASURES)]


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - {"METHODS", "__version__", "metrics"}))
def test_examples_of_public_names_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "track" in name.lower():
        pytest.importorskip("laptrack")
    value = operator.attrgetter(name)(saf)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    tests, said = finder.find(value, name, globs={"np": np, "saf": saf}), list[str]()
    assert any(test.name == name and test.examples for test in tests), "expected an example"
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def test_docstrings_of_public_functions_name_every_parameter() -> None:
    for value in public_objects():
        text = inspect.getdoc(value) or ""
        if inspect.isfunction(value) and "Parameters\n-" in text:
            names = set(inspect.signature(value).parameters) - {"self", "cls"}
            missing = {name for name in names if not re.search(rf"\b{name}\b", text)}
            assert not missing, f"{value.__qualname__}: {missing}"


@pytest.mark.parametrize("method", saf.METHODS.values())
def test_docstrings_of_methods_describe_every_field(method: type) -> None:
    head, _, notes = (inspect.getdoc(method) or "").partition("\nNotes\n-----\n")
    said = re.findall(r"^(\w+) : .+\n    \S", head, re.MULTILINE)
    assert sorted(said) == sorted(field.name for field in dataclasses.fields(method))
    assert "https://" in notes


def test_every_command_is_described_and_shown() -> None:
    shown = "\n".join(TEXTS.values())
    for words, command in commands(_group, "napari-saf"):
        assert command.help, words
        assert words in shown, words
        silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
        assert not silent, words


def test_every_benchmark_is_described() -> None:
    """By a row of the table, and no others are."""
    rows = re.findall(r"^\| `(\w+)` \| \w", TEXTS[ROOT / "CONTRIBUTING.md"], re.MULTILINE)
    assert sorted(rows) == sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


def test_every_dock_has_its_page() -> None:
    manifest = yaml.safe_load((ROOT / "napari.yaml").read_text(encoding="utf-8"))
    own = [text for page, text in TEXTS.items() if page.parent.name == "docs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    pages = [" ".join(text.split()) for text in own]
    for widget in manifest["contributions"]["widgets"]:
        title = f"{widget['display_name']} (napari-saf)"
        assert any(title in text for text in pages), title
        page = f"docs/{widget['command'].partition('.')[2]}.md"  # opened by the help button
        assert included[page] == f"napari_saf/_{page}"


def test_every_dock_is_in_the_menu_that_the_pages_name() -> None:
    manifest = yaml.safe_load((ROOT / "napari.yaml").read_text(encoding="utf-8"))
    contributions = manifest["contributions"]
    listed = {entry["command"] for entry in contributions["menus"]["napari/layers/segment"]}
    assert listed == {widget["command"] for widget in contributions["widgets"]}


def test_the_quick_start_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    coins = read_sample("coins")
    coins = dataclasses.replace(coins, array=coins.array[::2, ::2])
    monkeypatch.setattr("napari_saf.samples.read_sample", lambda name: coins)
    names: dict[str, object] = {}
    for block in blocks(TEXTS[ROOT / "docs/quick_start.md"], "python"):
        exec(compile(block, "quick_start.md", "exec"), names)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"labels.tif", "regions.csv", "labels.recipe.json"} <= written


def files_of_others(image: np.ndarray) -> None:
    """Write what the page on other programs begins with."""
    painted = np.zeros(image.shape, np.uint8)
    painted[8, 66:74], painted[68, 18:27], painted[50, 5:60] = 1, 2, 3
    saf.save_masks("painted.tif", painted)
    kinds = {1: "bright", 2: "dim", 3: "ground"}
    objects = saf.split_objects(painted, smallest=1)
    saf.save_objects("annotations.geojson", dataclasses.replace(objects, names=kinds))
    saf.save_probabilities("probabilities.tif", np.stack([image / 255.0, 1 - image / 255.0]))
    np.save("slice.npy", image)
    saf.save_masks("slice_cp_masks.tif", np.kron([[1, 0], [2, 3]], np.ones((48, 48), np.uint8)))
    Path("slices").mkdir()
    np.save("slices/other.npy", image.T)


@pytest.mark.parametrize(
    "page", [pytest.param("gallery", marks=pytest.mark.exhaustive), "coming_from"]
)
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines of Python and of the terminal, in their order."""
    for library in ("laptrack", "shapely"):
        pytest.importorskip(library)
    shutil.copytree(ROOT / "sample_images", tmp_path / "sample_images")
    monkeypatch.chdir(tmp_path)
    for sample in ("astronaut", "colour_wheel"):  # every fourth pixel will do
        file = f"sample_images/{sample}.png"
        iio.imwrite(file, iio.imread(file)[::4, ::4])
    names: dict[str, Any] = {"np": np, "saf": saf}
    if page == "coming_from":
        files_of_others(saf.read_image("sample_images/nuclei.tif").array[12])
    for fence in MarkdownIt().parse(TEXTS[ROOT / f"docs/{page}.md"]):
        if fence.info == "python":
            exec(compile(fence.content, page, "exec"), names)
        elif fence.info == "sh":
            for _, *words in lines_for_the_terminal(fence.content):
                assert command_line(words) == 0, words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_name_what_is_there(page: Path) -> None:
    for block in blocks(TEXTS[page], "python"):
        compile(block, page.name, "exec")
        for name in re.findall(r"\bsaf\.(\w+)", block):
            assert hasattr(saf, name), name


def lines_for_the_terminal(block: str) -> Iterator[list[str]]:
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("napari-saf "):
            yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_are_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tables").mkdir()
    Path("tables/labels.prototypes.csv").write_text("0.0,0.0\n1.0,1.0\n", encoding="utf-8")
    [prototypes] = blocks(TEXTS[ROOT / "docs/prototypes.md"], "json")
    for name in ("slide", "taught", "nuclei", "photo"):
        Path(f"{name}.prototypes.json").write_text(prototypes, encoding="utf-8")
    lines = map(lines_for_the_terminal, blocks(TEXTS[page], "sh", ""))
    for _, *words in itertools.chain.from_iterable(lines):
        command: click.Command = _group
        while isinstance(command, click.Group):
            name = words.pop(0)
            found = command.get_command(click.Context(command), name)
            assert found is not None, name
            command = found
        command.make_context(command.name, words)


def test_the_recipe_on_the_page_is_one(tmp_path: Path) -> None:
    [block] = blocks(TEXTS[ROOT / "docs/file_formats.md"], "json")
    path = tmp_path / "page.recipe.json"
    path.write_text(block, encoding="utf-8")
    recipe = saf.load_recipe(path)
    assert recipe.method.name == json.loads(block)["method"]


def test_the_citation_has_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"]
