"""Teach with strokes painted by the mouse, and correct what follows."""

import imageio.v3 as iio
import numpy as np
import pytest

from napari_saf._gui.scribbles.strokes import ClassTable

pytestmark = pytest.mark.gui

SIDE = 96


def leaf() -> tuple[np.ndarray, np.ndarray]:
    """Return a disc on blue whose right half is more like the blue, and where it is."""
    rows, columns = np.indices((SIDE, SIDE))
    inside = np.hypot(rows - SIDE / 2, columns - SIDE / 2) < SIDE / 3
    image = np.empty((SIDE, SIDE, 3))
    image[:] = (0.25, 0.35, 0.8)
    image[inside & (columns < SIDE / 2)] = (0.2, 0.7, 0.3)
    image[inside & (columns >= SIDE / 2)] = (0.5, 0.35, 0.75)
    noise = np.random.default_rng(0).normal(0, 0.04, image.shape)
    return (255 * np.clip(image + noise, 0, 1)).astype(np.uint8), inside


def test_walk(hands, take_picture, tmp_path):
    image, inside = leaf()
    iio.imwrite(tmp_path / "leaf.png", image)
    hands.open_file(tmp_path / "leaf.png")
    dock = hands.open_dock("Scribbles")
    hands.press(dock, "New")
    strokes = hands.viewer.layers["leaf strokes"]
    classes = hands.part(dock, ClassTable)
    hands.rename(classes, 0, 1, "leaf")
    hands.rename(classes, 1, 1, "sky")

    hands.click_cell(classes, 0, 1)
    hands.drag(strokes, [(30, 30), (48, 24), (66, 30)])
    assert set(np.unique(strokes.data)) == {0, 1}
    hands.click_cell(classes, 1, 1)
    hands.drag(strokes, [(8, 12), (8, 84)])
    hands.wait_until(lambda: dock.result is not None)
    hands.wait_for_end(dock)
    first = agreement(dock, inside)
    assert first < 0.95

    hands.click_cell(classes, 0, 1)
    hands.encircle(strokes, [(36, 60), (36, 68), (60, 68), (60, 60)])
    assert strokes.data[48, 64] == 1  # it is filled
    hands.wait_until(lambda: agreement(dock, inside) > 0.95)
    hands.wait_for_end(dock)
    assert agreement(dock, inside) > 0.95
    take_picture(hands, "walk_2_strokes")

    hands.press_key("Z", control=True)
    hands.wait_until(lambda: agreement(dock, inside) == first)


def agreement(dock, inside: np.ndarray) -> float:
    """Return the share of pixels whose class is that of the picture."""
    return float(((np.asarray(dock.result.data) == 1) == inside).mean())
