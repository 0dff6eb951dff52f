"""The tasks of a new user's first day: how many clicks each takes, and what it ends with."""

import imageio.v3 as iio
import numpy as np
import pytest
from gui_cases import blocks
from napari.layers import Labels
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication
from skimage.data import astronaut
from test_walk_2_strokes import leaf

from napari_saf._gui.layers.metadata import points_of, stored_recipe
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


@pytest.mark.exhaustive
def test_a_click_on_a_row_moves_the_camera_only_where_it_must(hands, take_picture, tmp_path):
    taught_on_the_leaf(hands, tmp_path)
    dock, camera = hands.open_dock("Prototypes"), hands.viewer.scene.camera
    settle(hands, dock)
    assert len(dock.table.rows) == 2
    hands.go_home()
    at_home = view_of(camera)
    for row in range(2):
        hands.click_cell(dock.table, row, 1)
        settle(hands, dock)
        assert view_of(camera) == at_home
    camera.center, camera.zoom = (0, 0, 0), 40  # a corner, in which only the second is
    settle(hands, dock)
    corner = view_of(camera)
    hands.click_cell(dock.table, 0, 1)
    hands.wait_until(lambda: view_of(camera) != corner)
    settle(hands, dock)
    take_picture(hands, "first_day_row")
    for place in (dock.table, None):  # wherever the keys go to
        hands.press_key(Qt.Key.Key_Escape, place)
        hands.wait_until(lambda: view_of(camera) == corner and not dock.table.selected())
        hands.click_cell(dock.table, 0, 1)
        hands.wait_until(lambda: view_of(camera) != corner)
        settle(hands, dock)


def view_of(camera) -> tuple[float, ...]:
    return (*camera.center, camera.zoom)


def settle(hands, dock) -> None:
    """Wait until what was to be found is found, and drawn."""
    hands.wait_until(lambda: not dock.panel.is_calculating)
    for _ in range(5):
        QApplication.processEvents()


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


@pytest.mark.exhaustive
def test_an_exported_mask_is_opened_again_as_labels(hands, take_picture, tmp_path):
    """By the button of the dock, and by the menu of napari, which asks for the reader."""
    iio.imwrite(tmp_path / "tiles.png", blocks())
    hands.open_file(tmp_path / "tiles.png")
    layers, segment = hands.viewer.layers, hands.open_dock("Segment")
    hands.press(segment, "Run")
    hands.wait_until(lambda: "tiles [SAF]" in layers)
    hands.wait_for_end(segment)
    dock, mask = hands.open_dock("Export"), tmp_path / "tiles_SAF.labels.tif"
    hands.clicks = 0
    hands.press(dock, "Export")
    hands.wait_until(mask.exists)
    hands.wait_for_end(dock)
    with hands.answer(mask):
        hands.press(dock, "Open mask …")
    in_the_dialog = 2  # the file, and Open
    assert hands.clicks + in_the_dialog == 4
    hands.wait_until(lambda: dock.status.text.startswith("opened"))
    found, own = dock.labels.layer, layers["tiles [SAF]"]
    assert isinstance(found, Labels) and found is not own
    np.testing.assert_array_equal(found.data, own.data)
    assert (
        stored_recipe(found) == stored_recipe(own)
        and points_of(found).keys() == points_of(own).keys()
    )
    hands.open_file(mask, "napari-saf")
    assert isinstance(layers[-1], Labels) and points_of(layers[-1]).keys() == points_of(own).keys()
    hands.press(dock, "Table")
    hands.wait_until(lambda: dock.table.model.rowCount() > 0)
    hands.click_cell(dock.table.view, 1, 0)
    assert dock.labels.layer.selected_label == dock.table.model.table["label"][1]
    take_picture(hands, "first_day_export")


def layers_of(viewer) -> list[Labels]:
    return [layer for layer in viewer.layers if isinstance(layer, Labels)]
