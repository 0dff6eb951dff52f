"""Label an image without labels, look at what was found, keep the mask."""

import numpy as np
import pytest

from napari_saf._gui.docks.label_table import LabelTable
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui


def outside_the_wheel(side: int = 192) -> np.ndarray:
    """Return where the sample is grey."""
    place = (np.indices((side, side)) - (side - 1) / 2) / (0.45 * side)
    return np.hypot(*place) > 1


@pytest.mark.exhaustive
def test_walk(hands, take_picture, tmp_path):
    viewer = hands.viewer
    hands.open_menu("File", "Open Sample", "napari-saf", "Noisy colour wheel")
    dock = hands.open_dock("Segment")
    hands.type(hands.field(dock, "Scale"), "9")
    hands.type(hands.field(dock, "Labels up to"), "6")
    watched = []
    dock.controller.advanced.connect(watched.append)
    hands.press(dock, "Run")
    hands.wait_until(lambda: len(viewer.layers) >= 2)
    hands.wait_for_end(dock)
    assert "labels in" in dock.status.text and watched
    labels = viewer.layers[1].data
    grey = outside_the_wheel()
    number = np.bincount(labels[grey]).argmax()
    assert ((labels == number) == grey).mean() > 0.95

    prototypes = hands.open_dock("Prototypes")
    table = hands.part(prototypes, LabelTable)
    hands.wait_until(lambda: len(table.rows) == len(np.unique(labels)))
    row = [row.number for row in table.rows].index(number)
    hands.click_cell(table, row, 2)
    assert viewer.layers[1].show_selected_label and viewer.layers[1].selected_label == number
    hands.rename(table, row, 1, "outside")
    assert table.rows[row].name == "outside"
    hands.click_cell(table, row + 1, 2)
    hands.go_home()
    take_picture(hands, "walk_1_label")

    hands.turn_to("Segment")
    hands.wait_until(dock.isVisible)
    export = hands.open_dock("Export")
    hands.type(hands.field(export, "Folder"), str(tmp_path / "kept"))
    hands.press(export, "Export")
    hands.wait_until(lambda: export.status.text.startswith("saved"))
    (mask,) = (tmp_path / "kept").glob("*.tif")
    np.testing.assert_array_equal(read_labels(mask).array, viewer.layers[1].data)
