"""Take the result away: mask, table, figure, recipe; and apply the recipe to another layer."""

import csv

import imageio.v3 as iio
import numpy as np
import pytest
from gui_cases import blocks
from label_cases import QUADRANTS
from qtpy.QtWidgets import QLineEdit
from scenes import share_told_apart

import napari_saf as saf
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui


def test_walk(hands, take_picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layers, out = hands.viewer.layers, tmp_path / "out"
    iio.imwrite(tmp_path / "tiles.png", blocks())
    iio.imwrite(tmp_path / "others.png", blocks()[::-1])
    hands.open_file(tmp_path / "tiles.png")
    segment = hands.open_dock("Segment")
    hands.type(hands.field(segment, "Labels up to"), "4")
    hands.press(segment, "Run")
    hands.wait_until(lambda: "tiles [SAF, Labels 4]" in layers)
    hands.wait_for_end(segment)
    hands.open_file(tmp_path / "others.png")

    dock = hands.open_dock("Export")
    for words in ("Figure", "Recipe"):
        hands.press(dock, words)
    hands.type(hands.field(dock, "Name"), "tiles")
    with hands.answer(tmp_path):
        hands.press(dock, "…")
    folder = hands.part(hands.field(dock, "Folder"), QLineEdit)
    assert folder.text() == str(tmp_path)
    hands.type(folder, "out")
    hands.press(dock, "Export")
    hands.wait_until(lambda: dock.status.text.startswith("saved"))

    hands.press(dock, "Apply the recipe")
    hands.press(dock, "Apply to image …")
    hands.choose(hands.field(dock.applying, "Apply to"), "others")
    hands.press(dock.applying, "Apply")
    hands.wait_until(lambda: "others [SAF, Labels 4]" in layers)
    hands.wait_for_end(dock)
    hands.go_home()
    take_picture(hands, "walk_6_export")
    assert share_told_apart(layers["others [SAF, Labels 4]"].data, QUADRANTS[::-1]) > 0.95
    check_files(out)


def check_files(out) -> None:
    """Read each file and hold it against the picture."""
    names = ["tiles.figure.png", "tiles.labels.tif", "tiles.recipe.json", "tiles.regions.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    labels = read_labels(out / "tiles.labels.tif").array
    assert share_told_apart(labels, QUADRANTS) > 0.95
    with open(out / "tiles.regions.csv", encoding="utf-8") as file:
        sizes = {int(row["label"]): int(row["pixels"]) for row in csv.DictReader(file)}
    assert sizes == {n: np.count_nonzero(labels == n) for n in np.unique(labels)}
    recipe = saf.load_recipe(out / "tiles.recipe.json")
    problem = saf.Problem.from_image(blocks(), **recipe.options.arguments())
    np.testing.assert_array_equal(recipe.method.run(problem).labels, labels)
    figure = iio.imread(out / "tiles.figure.png")
    assert figure.ndim == 3 and min(figure.shape[:2]) > 100
