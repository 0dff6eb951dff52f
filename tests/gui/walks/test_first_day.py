"""The tasks of a new user's first day: how many clicks each takes, and what it ends with."""

import imageio.v3 as iio
import numpy as np
import pytest
from napari.layers import Labels
from skimage.data import astronaut
from test_walk_2_strokes import leaf

from napari_saf._gui.scribbles.strokes import ClassTable
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui


@pytest.mark.exhaustive
def test_what_strokes_taught_labels_images_and_folders_in_3_clicks(hands, take_picture, tmp_path):
    """And is exported by one."""
    dock, inside = taught_on_the_leaf(hands, tmp_path, "before")
    apply_to_images(hands, dock, inside, take_picture, tmp_path)
    apply_to_folder(hands, dock, inside, take_picture, tmp_path)
    export = hands.open_dock("Export")
    hands.choose(hands.field(export, "Labels"), dock.result.name)
    hands.clicks = 0
    hands.press(export, "Export")
    hands.wait_until(lambda: "saved" in export.status.text)
    assert hands.clicks == 1
    (mask,) = tmp_path.glob("*from_strokes*.tif")
    np.testing.assert_array_equal(read_labels(mask).array, dock.result.data)


def apply_to_images(hands, dock, inside, take_picture, folder) -> None:
    """Labels are in sight on images that were opened before and after strokes were painted."""
    iio.imwrite(folder / "after.png", leaf()[0][:, ::-1])
    hands.open_file(folder / "after.png")
    layers, hands.clicks = hands.viewer.layers, 0
    hands.press(dock, "Apply to image …")
    for name, truth in (("before", inside[::-1]), ("after", inside[:, ::-1])):
        hands.choose(hands.field(dock.applying, "Apply to"), name)
        hands.press(dock.applying, "Apply")
        assert hands.clicks == (3 if name == "before" else 5)
        hands.wait_until(lambda name=name: f"{name} [from strokes]" in layers)
        hands.wait_for_end(dock)
        take_picture(hands, f"first_day_apply_{name}")
        result = layers[f"{name} [from strokes]"]
        assert layers.index(result) == layers.index(name) + 1
        shown = [layer for layer in layers if layer.visible]
        assert shown[-2:] == [layers[name], result]
        assert (result.data == 1)[truth].mean() > 0.9 and (result.data == 2)[~truth].mean() > 0.9


def apply_to_folder(hands, dock, inside, take_picture, folder) -> None:
    """Each file gets the labels that the image would get in the window."""
    (folder / "photos").mkdir()
    for number in (1, 2):
        iio.imwrite(folder / "photos" / f"{number}.png", np.rot90(leaf()[0], number))
    hands.clicks = 0
    hands.press(dock, "Apply to folder …")
    hands.type(hands.field(dock.applying, "Images in"), str(folder / "photos"))
    hands.press(dock.applying, "Apply")
    assert hands.clicks == 3
    done = "2 of 2 images done, in photos_labels"
    hands.wait_until(lambda: dock.status.text.startswith(done))
    hands.wait_for_end(dock)
    take_picture(hands, "first_day_apply_folder")
    for number in (1, 2):
        mask = read_labels(folder / "photos_labels" / f"{number}.labels.tif").array
        truth = np.rot90(inside, number)
        assert (mask == 1)[truth].mean() > 0.9 and (mask == 2)[~truth].mean() > 0.9


def taught_on_the_leaf(hands, folder, *before):
    """Open an image after others and paint on it; return the dock and where the leaf is."""
    image, inside = leaf()
    for name in (*before, "taught"):
        iio.imwrite(folder / f"{name}.png", image if name == "taught" else image[::-1])
        hands.open_file(folder / f"{name}.png")
    dock = hands.open_dock("Scribbles")
    hands.press(dock, "New")
    teach(hands, dock)
    return dock, inside


def teach(hands, dock) -> None:
    """Paint what is in the middle, and what is around it."""
    strokes, classes = dock.strokes.layer, hands.part(dock, ClassTable)
    ways = ((0.4, 0.4), (0.55, 0.55)), ((0.05, 0.1), (0.05, 0.9))
    for row, way in enumerate(ways):
        hands.click_cell(classes, row, 1)
        hands.go_home()
        hands.drag(strokes, [tuple(np.multiply(strokes.data.shape, place)) for place in way])
    hands.wait_until(lambda: dock.result is not None)
    hands.wait_for_end(dock)


def test_a_photograph_is_labelled_in_4_clicks(hands, take_picture, tmp_path):
    iio.imwrite(tmp_path / "photograph.png", astronaut()[::2, ::2])
    hands.open_file(tmp_path / "photograph.png")
    hands.clicks = len(("Layers", "Segment", "Segment (napari-saf)"))  # what opens the dock
    dock = hands.open_dock("Segment")
    hands.press(dock, "Run")
    hands.wait_for_end(dock)
    hands.wait_until(lambda: len(hands.viewer.layers) == 3)
    assert hands.clicks == 4
    regions, labels = layers_of(hands.viewer)[::-1]
    assert regions.visible and regions.data.max() > labels.data.max() >= 2
    take_picture(hands, "first_day_label")


def layers_of(viewer) -> list[Labels]:
    return [layer for layer in viewer.layers if isinstance(layer, Labels)]
