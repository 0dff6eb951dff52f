"""Names of labels and files: signs of mathematics, formulas of spreadsheets, what is no text."""

import csv
import os
import sys

import imageio.v3 as iio
import numpy as np
import pytest

import napari_saf as saf
from napari_saf.cli import main

NAMES = {
    1: "$x^$",
    2: "a $ b_{",
    3: "=HYPERLINK(1)",
    4: "+cmd|' /C'!A0",
    5: "-1+1",
    6: "@x",
    7: "\udcfc\udc80",
    8: "<b>",
    9: "a, b",
    10: 'two\nlines "of" text',
}
LABELS = np.repeat(np.arange(len(NAMES) + 1, dtype=np.uint8), 8).reshape(8, -1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_hold_every_name_and_compute_none(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = saf.save_regions(tmp_path / f"a{suffix}", LABELS, names=NAMES)
    if suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            found = {int(row["label"]): row["name"] for row in csv.DictReader(file)}
        for label, name in NAMES.items():
            expected = name.encode(errors="backslashreplace").decode()
            assert found[label] == (f"'{expected}" if name[0] in "=+-@" else expected)
    assert path.stat().st_size


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figures_show_every_name(tmp_path, suffix):
    title = " ".join(NAMES.values())
    path = saf.save_figure(tmp_path / f"a{suffix}", LABELS, LABELS, names=NAMES, title=title)
    assert path.stat().st_size


@pytest.mark.parametrize("suffix", [".ome.zarr", ".tif", ".png"])
def test_masks_hold_every_name(tmp_path, suffix):
    saf.save_masks(tmp_path / f"a{suffix}", LABELS, names=NAMES)
    np.testing.assert_array_equal(saf.read_labels(tmp_path / f"a{suffix}").array, LABELS)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of files are text there")
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "IMAGE", "-o", "a.png", "--method", "slk"),
        ("dictionary", "apply", "words.safetensors", "IMAGE", "-o", "out"),
        ("export", "LABELS", "--image", "IMAGE", "-o", "out"),
        ("segment", "IMAGE", "-o", "out", "--max-labels", "2"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["=$x^$" + os.fsdecode(b"b\xfc")], ids=["name"])
def test_commands_take_files_of_every_name(tmp_path, monkeypatch, capsys, arguments, name):
    monkeypatch.chdir(tmp_path)
    image = np.random.default_rng(0).integers(0, 255, (24, 30), dtype=np.uint8)
    iio.imwrite("plain.png", image)
    os.rename("plain.png", f"{name}.png")
    np.save(f"{name}.labels.npy", 1 + (image > 99))
    if "words.safetensors" in arguments:
        saf.PatchDictionary.learn([image], n_atoms=3, patch_size=3).save("words.safetensors")
    files = {"IMAGE": f"{name}.png", "LABELS": f"{name}.labels.npy"}
    assert main([files.get(argument, argument) for argument in arguments]) == 0, capsys.readouterr()
    if arguments[0] == "dictionary" and arguments[1] == "apply":
        table = (tmp_path / "out" / "dictionary.csv").read_text(errors="surrogateescape")
        for row in csv.reader(table.splitlines()):
            assert not any(cell.startswith(("=", "+", "@")) for cell in row)
        assert main([files.get(argument, argument) for argument in arguments]) == 0
        assert "1 done before" in capsys.readouterr().out
