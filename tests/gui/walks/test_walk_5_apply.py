"""Apply what was learned: prototypes to an image, a dictionary to an image and to a folder."""

import imageio.v3 as iio
import numpy as np
import pytest
from gui_cases import blocks
from label_cases import QUADRANTS
from scenes import share_told_apart, wall

import napari_saf as saf
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui


@pytest.mark.exhaustive
def test_walk(hands, take_picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walls = prepare(tmp_path)
    apply_dictionary(hands, tmp_path, walls)
    hands.go_home()
    take_picture(hands, "walk_5_apply")
    apply_prototypes(hands, tmp_path)


def apply_dictionary(hands, folder, walls) -> None:
    """Label an image with the atoms of a file, then all images of a folder."""
    hands.open_file(folder / "wall.png")
    layers, dock = hands.viewer.layers, hands.open_dock("Patch dictionary")
    with hands.answer(folder / "wall.safetensors"):
        hands.press(dock, "Load …")
    hands.wait_until(lambda: dock.current is not None)
    hands.press(dock, "Apply to image …")
    hands.choose(hands.field(dock.applying, "Apply to"), "wall")
    hands.press(dock.applying, "Apply")
    hands.wait_until(lambda: "wall [labels]" in layers)
    hands.wait_for_end(dock)
    assert share_told_apart(layers["wall [labels]"].data, walls[0]) > 0.95
    hands.press(dock, "Labels")
    assert layers["wall [labels]"].visible and not layers["wall [rebuilt]"].visible

    hands.choose(hands.field(dock.applying, "Apply to"), "a file or folder …")
    hands.type(hands.field(dock.applying, "Images in"), "walls")
    hands.type(hands.field(dock.applying, "Results in"), "results")
    hands.press(dock.applying, "Apply")
    hands.wait_until(lambda: "2 of 2 images done" in dock.status.text)
    for path, texture in zip(sorted((folder / "results").glob("*.labels*")), walls, strict=True):
        assert share_told_apart(read_labels(path).array, texture) > 0.95


def apply_prototypes(hands, folder) -> None:
    """Label an image, then another with what the labels of the first stand for."""
    for name in ("second", "first"):
        hands.open_file(folder / f"{name}.png")
    layers, segment = hands.viewer.layers, hands.open_dock("Segment")
    hands.type(hands.field(segment, "Labels up to"), "4")
    hands.press(segment, "Run")
    hands.wait_until(lambda: "first [SAF, Labels 4]" in layers)
    hands.wait_for_end(segment)
    dock = hands.open_dock("Prototypes")
    hands.press(dock, "Apply to image …")
    hands.choose(hands.field(dock.applying, "Apply to"), "second")
    hands.press(dock.applying, "Apply")
    above = layers.index("second") + 1
    hands.wait_until(lambda: layers[above].name.startswith("second"))
    hands.wait_for_end(dock)
    found = layers[above].data
    assert (found == layers["first [SAF, Labels 4]"].data[::-1]).mean() > 0.95
    assert share_told_apart(found, QUADRANTS[::-1]) > 0.95


def prepare(folder) -> list[np.ndarray]:
    """Write images and a dictionary; return the textures of the images in the folder."""
    iio.imwrite(folder / "first.png", blocks())
    iio.imwrite(folder / "second.png", blocks()[::-1])
    learned = saf.PatchDictionary.learn([wall()[0]], n_atoms=8)
    learned.save(folder / "wall.safetensors")
    iio.imwrite(folder / "wall.png", wall(seed=1)[0])
    (folder / "walls").mkdir()
    textures = []
    for seed in (1, 2):
        image, texture = wall(seed)
        iio.imwrite(folder / "walls" / f"wall{seed}.png", image)
        textures.append(texture)
    return textures
