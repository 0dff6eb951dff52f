"""Names of labels and files: signs of mathematics, formulas of spreadsheets, what is no text."""

import csv
import dataclasses
import json
import os
import sys

import imageio.v3 as iio
import numpy as np
import pytest

import napari_saf as saf
from napari_saf.cli import main

NAMES = ["$x^$", "a $ b_{", "=HYPERLINK(1)", "+cmd|' /C'!A0", "-1+1", "@x", "\udcfc\udc80", "<b>"]
PROTOTYPES = saf.PrototypeSet(np.eye(2))
LABELS = np.repeat(np.arange(3, dtype=np.uint8), 20).reshape(6, 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_hold_every_name_and_compute_none(tmp_path, name, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = saf.save_regions(tmp_path / f"a{suffix}", LABELS, names={1: name})
    if suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        expected = name.encode(errors="backslashreplace").decode()
        assert rows[0]["name"] == (f"'{expected}" if name[0] in "=+-@" else expected)
    assert path.stat().st_size


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_figures_show_every_name(tmp_path, name, suffix):
    path = saf.save_figure(tmp_path / f"a{suffix}", LABELS, LABELS, names={1: name}, title=name)
    assert path.stat().st_size


@pytest.mark.parametrize("suffix", [".ome.zarr", ".tif", ".png"])
@pytest.mark.parametrize("name", NAMES)
def test_masks_hold_every_name(tmp_path, name, suffix):
    saf.save_masks(tmp_path / f"a{suffix}", LABELS, names={1: name})
    np.testing.assert_array_equal(saf.read_labels(tmp_path / f"a{suffix}").array, LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_prototypes_give_every_name_back(tmp_path, name):
    found = dataclasses.replace(PROTOTYPES, names={1: name})
    saf.save_prototypes(tmp_path / "a.json", found)
    assert saf.load_prototypes(tmp_path / "a.json").names[1] == name
    json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of files are text there")
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "IMAGE", "-o", "a.html", "--method", "slk"),
        ("compare", "IMAGE", "-o", "a.png", "--method", "slk"),
        ("compare", "IMAGE", "-o", "a.csv", "--method", "slk"),
        ("dictionary", "learn", "IMAGE", "-o", "d.safetensors", "--n-atoms", "3"),
        ("dictionary", "apply", "words.safetensors", "IMAGE", "-o", "out"),
        ("fair-sweep", "IMAGE", "-o", "sweep", "--groups", "axis:0", "--n-clusters", "2"),
        ("export", "LABELS", "--image", "IMAGE", "-o", "out"),
        ("segment", "IMAGE", "-o", "out", "--max-labels", "2"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["$x^$", "=1+1", os.fsdecode(b"b\xfc")])
def test_commands_take_files_of_every_name(tmp_path, monkeypatch, capsys, arguments, name):
    monkeypatch.chdir(tmp_path)
    image = np.random.default_rng(0).integers(0, 255, (24, 30), dtype=np.uint8)
    iio.imwrite("plain.png", image)
    os.rename("plain.png", f"{name}.png")
    np.save(f"{name}_labels.npy", 1 + (image > 99))
    saf.PatchDictionary.learn([image], n_atoms=3, patch_size=3).save("words.safetensors")
    files = {"IMAGE": f"{name}.png", "LABELS": f"{name}_labels.npy"}
    assert main([files.get(argument, argument) for argument in arguments]) == 0, capsys.readouterr()
    if arguments[0] == "dictionary" and arguments[1] == "apply":
        table = (tmp_path / "out" / "dictionary.csv").read_text(errors="surrogateescape")
        for row in csv.reader(table.splitlines()):
            assert not any(cell.startswith(("=", "+", "@")) for cell in row)
        assert main([files.get(argument, argument) for argument in arguments]) == 0
        assert "1 were there" in capsys.readouterr().out
