"""The Export dock from click to files, and the recipe of a result on other images."""

import csv
import hashlib
import json
import threading
import time

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, layer_of, stack
from napari.components import ViewerModel
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QCheckBox, QComboBox, QPushButton, QSpinBox

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import ARE_STROKES, OBJECTS_KEY
from napari_saf._gui.layers.placement import Placement, image_region
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.scribbles.strokes import add_strokes
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.io import _labelling, read_labels
from napari_saf.methods import Cancelled, SelfAssignmentFlow
from napari_saf.pipeline import load_recipe
from napari_saf.problem import Problem

pytestmark = pytest.mark.gui
LABELS = np.array([[0, 1, 1, 2]] * 3, np.uint8)


def result_of(image, method=None, **options):
    return (method or SelfAssignmentFlow(max_labels=3)).run(Problem.from_image(image, **options))


def add_result(viewer, result, name="blocks [SAF]", **options):
    entry = {"recipe": result.recipe, "prototypes": result.prototypes}
    return viewer.add_labels(result.labels, name=name, metadata={"napari_saf": entry}, **options)


@pytest.fixture
def viewer():
    """A viewer without a window."""
    return ViewerModel()


@pytest.fixture
def export(viewer, qtbot, tmp_path):
    """Make the dock, on a folder that is empty."""

    def open_dock():
        dock = ExportWidget(viewer)
        qtbot.addWidget(dock, before_close_func=ExportWidget.shut_down)
        dock.folder.set_path(tmp_path / "out")
        return dock

    return open_dock


@pytest.fixture
def done(viewer, export):
    """The dock on a finished result."""
    viewer.add_image(blocks(), name="blocks")
    add_result(viewer, result_of(blocks()))
    return export()


def test_of_objects_the_table_is_left_to_their_dock(viewer, done):
    objects = viewer.add_labels(LABELS, metadata={OBJECTS_KEY: True}, name="objects")
    done.labels.choose(objects)
    assert not done.choice.ticks["regions"].isChecked()
    assert "Objects" in done.choice.ticks["regions"].toolTip()
    done.labels.choose(viewer.layers["blocks [SAF]"])
    assert done.choice.selection.regions


def test_what_was_exported_is_so_in_the_project(viewer, done, settle, monkeypatch):
    """Files are hashed in no thread that somebody waits for."""
    session, threads, digest = done.workspace.session, [], hashlib.file_digest

    def noting(*given):
        threads.append(threading.current_thread())
        return digest(*given)

    monkeypatch.setattr(hashlib, "file_digest", noting)
    assert session.stage(session.model.entries[0]) == "labelled"
    done.start()
    settle(done)
    assert session.stage(session.model.entries[0]) == "exported"
    names = [one.path.name for one in session.model.entries[0].results]
    assert names and all((done.folder.path / name).exists() for name in names)
    assert threads and threading.main_thread() not in threads


def click(qtbot, widget):
    assert widget.isEnabled()
    place = QPoint(12, widget.height() // 2)
    qtbot.mouseClick(widget, Qt.MouseButton.LeftButton, pos=place)


def click_and_wait(qtbot, dock, button):
    click(qtbot, button)
    qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)


def tick(qtbot, dock, words, checked=True):
    box = next(box for box in dock.findChildren(QCheckBox) if box.text() == words)
    if box.isChecked() != checked:
        click(qtbot, box)
    assert box.isChecked() == checked


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_click_saves_mask_and_table(done, qtbot, tmp_path, viewer):
    click_and_wait(qtbot, done, done.button)
    assert names(tmp_path / "out") == ["blocks_SAF.labels.tif", "blocks_SAF.regions.csv"]
    assert done.status.text.startswith("saved blocks_SAF.labels.tif, blocks_SAF.regions.csv in ")
    np.testing.assert_array_equal(
        read_labels(tmp_path / "out" / "blocks_SAF.labels.tif").array, viewer.layers[1].data
    )


def test_everything_is_saved(done, qtbot, tmp_path, viewer):
    for words in ("A mask for each label", "Figure", "Prototypes", "Recipe"):
        tick(qtbot, done, words)
    done.choice.choose("masks", ".ome.zarr")
    viewer.layers[1].metadata["class_names"] = {1: "sky", "2": "sea", "x": "?"}
    click_and_wait(qtbot, done, done.button)
    out, n_labels = tmp_path / "out", len(np.unique(viewer.layers[1].data))
    found = names(out)
    assert "blocks_SAF_1_sky.tif" in found and "blocks_SAF_2_sea.tif" in found
    assert len(found) == n_labels + 5
    entry = viewer.layers[1].metadata["napari_saf"]
    assert json.loads((out / "blocks_SAF.recipe.json").read_text())["method"] == "saf"
    np.testing.assert_array_equal(np.load(out / "blocks_SAF.prototypes.npy"), entry["prototypes"])
    with open(out / "blocks_SAF.regions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows][:2] == ["sky", "sea"]
    for row in rows:
        values = blocks()[viewer.layers[1].data == int(row["label"])][:, 0]
        assert float(row["intensity_mean_0"]) == pytest.approx(values.mean())


def test_regions_are_numbered_and_small_ones_left_out(viewer, export, qtbot, tmp_path):
    viewer.add_labels(np.array([[1, 1, 0, 1], [0, 0, 2, 0], [2, 2, 0, 1]], np.uint8), name="found")
    dock = export()
    least = dock.findChild(QSpinBox)
    assert not least.isEnabled() and least.text() == "regions of any size"
    tick(qtbot, dock, "Numbered regions")
    rows = next(box for box in dock.findChildren(QComboBox) if "for each label" in box.itemText(0))
    assert rows.currentIndex() == 1 and not rows.isEnabled()  # a row for each region
    least.selectAll()
    qtbot.keyClicks(least, "2")
    assert least.text() == "regions of 2 pixels or more"
    click_and_wait(qtbot, dock, dock.button)
    out = tmp_path / "out"
    assert names(out) == ["found.labels.tif", "found.regions.csv", "found.regions.tif"]
    regions = read_labels(out / "found.regions.tif").array
    np.testing.assert_array_equal(regions, [[1, 1, 0, 0], [0, 0, 2, 0], [2, 2, 0, 0]])
    with open(out / "found.regions.csv", encoding="utf-8") as file:
        assert [row["region"] for row in csv.DictReader(file)] == ["1", "2"]
    tick(qtbot, dock, "Numbered regions", checked=False)
    rows.setCurrentIndex(0)
    assert not least.isEnabled() and dock.choice.selection.min_pixels == 1


def test_colours_are_those_of_the_layer(viewer, export, qtbot, tmp_path):
    layer = viewer.add_labels(LABELS)
    layer.show_selected_label = True
    dock = export()
    dock.choice.choose("masks", ".png")
    dock.choice.choose("regions", "")
    click_and_wait(qtbot, dock, dock.button)
    from PIL import Image

    with Image.open(tmp_path / "out" / "LABELS.labels.png") as image:
        shown = np.asarray(image.convert("RGB"))
    layer.show_selected_label = False
    for k, label in ((1, 1), (3, 2)):
        np.testing.assert_allclose(shown[0, k], 255 * layer.get_color(label)[:3], atol=0.6)


def test_files_that_are_there_are_asked_about(done, qtbot, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "blocks_SAF.labels.tif").write_bytes(b"precious")
    click_and_wait(qtbot, done, done.button)
    assert done.status.suggested_action == "Replace it"
    assert "blocks_SAF.labels.tif is there already" in done.status.text
    assert (out / "blocks_SAF.labels.tif").read_bytes() == b"precious"
    assert names(out) == ["blocks_SAF.labels.tif"]
    (button,) = [b for b in done.findChildren(QPushButton) if b.text() == "Replace it"]
    click_and_wait(qtbot, done, button)
    assert read_labels(out / "blocks_SAF.labels.tif").array.shape == (32, 32)
    assert done.status.suggested_action == ""


def test_a_disk_that_fails_is_told_and_the_old_file_stays(done, qtbot, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    click_and_wait(qtbot, done, done.button)
    before = (out / "blocks_SAF.labels.tif").read_bytes()
    monkeypatch.setattr("tifffile.TiffWriter.write", full)
    click_and_wait(qtbot, done, done.button)
    (button,) = [b for b in done.findChildren(QPushButton) if b.text() == "Replace these 2"]
    click_and_wait(qtbot, done, button)
    assert done.status.is_error and "No space left on device" in done.status.text
    assert (out / "blocks_SAF.labels.tif").read_bytes() == before
    assert names(out) == ["blocks_SAF.labels.tif", "blocks_SAF.regions.csv"]
    assert done.button.isEnabled()
    done.folder.set_path(out / "not there" / "results")  # what is wrong now is said, not what was
    assert not done.button.isEnabled() and done.status.text == "the folder does not exist"
    done.folder.set_path(out)
    assert done.button.isEnabled() and done.status.text == ""


def test_without_labels_the_button_says_why(viewer, export):
    dock = export()
    assert not dock.button.isEnabled()
    assert "no labels" in dock.status.text and "no labels" in dock.button.toolTip()
    viewer.add_labels(LABELS)
    assert dock.button.isEnabled() and dock.status.text == ""
    viewer.layers.clear()
    assert not dock.button.isEnabled()


def test_what_cannot_be_written_is_told_before_the_click(done, qtbot, tmp_path):
    for words in ("Label image", "Table of regions"):
        tick(qtbot, done, words, checked=False)
    assert not done.button.isEnabled() and done.status.text == "nothing is ticked"
    tick(qtbot, done, "Figure")
    assert done.button.isEnabled() and done.status.text == ""
    done.folder.set_path(tmp_path / "missing" / "out")
    assert not done.button.isEnabled() and "folder" in done.status.text
    done.folder.set_path(tmp_path / ("x" * 300) / "out")  # longer than names of files may be
    assert not done.button.isEnabled() and "folder" in done.status.text
    done.folder.set_path(tmp_path)
    done.file_name.setText("a/b")
    assert not done.button.isEnabled() and "name" in done.status.text


def test_foreign_labels_have_neither_prototypes_nor_recipe(viewer, export, qtbot, tmp_path):
    viewer.add_labels(LABELS, name="mine")
    dock = export()
    off = [box for box in dock.findChildren(QCheckBox) if not box.isEnabled()]
    assert [box.text() for box in off] == ["Prototypes", "Probability maps", "Recipe"]
    assert all("computed" in box.toolTip() for box in off)
    assert (
        not dock.applying.button.isEnabled() and "Nothing to repeat" in dock.repeat.summary.text()
    )
    click_and_wait(qtbot, dock, dock.button)
    assert names(tmp_path / "out") == ["mine.labels.tif", "mine.regions.csv"]


def test_stop_leaves_out_the_files_that_were_not_begun(done, qtbot, tmp_path, monkeypatch):
    tick(qtbot, done, "Figure")
    begun, clicked = threading.Event(), threading.Event()
    save = _labelling.save_table

    def save_slowly(*arguments, **options):
        begun.set()
        clicked.wait(TIMEOUT / 1000)
        return save(*arguments, **options)

    monkeypatch.setattr(_labelling, "save_table", save_slowly)
    assert not done.panel.stop_button.isEnabled()
    click(qtbot, done.button)
    assert begun.wait(TIMEOUT / 1000)
    click(qtbot, done.panel.stop_button)
    clicked.set()
    qtbot.waitUntil(lambda: not done.panel.is_busy, timeout=TIMEOUT)
    assert done.status.text.startswith("stopped: saved") and not done.panel.stop_button.isEnabled()
    assert names(tmp_path / "out") == ["blocks_SAF.labels.tif", "blocks_SAF.regions.csv"]


def test_stop_while_the_labels_are_read_saves_nothing(done, qtbot, tmp_path, monkeypatch):
    def read(pixels, cancelled):
        while not cancelled():
            time.sleep(0.01)
        raise Cancelled

    monkeypatch.setattr(Pixels, "read", read)
    click(qtbot, done.button)
    click_and_wait(qtbot, done, done.panel.stop_button)
    assert done.status.text == "stopped: nothing was saved" and not (tmp_path / "out").exists()


def test_a_slice_goes_with_its_slice_of_the_image(viewer, export, qtbot, tmp_path):
    image = stack().astype(float) + 10 * np.arange(5)[:, None, None]
    viewer.add_image(image, name="stack", scale=(3, 1, 1), translate=(6, 0, 0))
    labels = (image[3:4] > np.median(image[3])).astype(np.uint8) + 1
    viewer.add_labels(labels, name="stack [SAF]", scale=(3, 1, 1), translate=(15, 0, 0))
    dock = export()
    dock.choice.choose("figure", ".png")
    click_and_wait(qtbot, dock, dock.button)
    assert not dock.status.is_error, dock.status.text
    with open(tmp_path / "out" / "stack_SAF.regions.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = image[3][labels[0] == int(row["label"])]
            assert float(row["intensity_mean"]) == pytest.approx(values.mean())


def test_an_axis_of_channels_is_found(viewer):
    image = viewer.add_image(np.zeros((2, 5, 6)))
    other = viewer.add_image(np.zeros((5, 7)))
    labels = viewer.add_labels(np.ones((5, 6), int))
    assert image_region(labels, image) == ((slice(None), slice(0, 5), slice(0, 6)), 0)
    assert image_region(labels, other) == ((slice(0, 5), slice(0, 6)), None)
    other.translate = (0, 9)
    assert image_region(labels, other) is None


def test_a_new_result_is_turned_to(viewer, export):
    viewer.add_image(blocks(), name="blocks")
    viewer.add_labels(np.ones((32, 32), int), name="mine")
    dock = export()
    assert dock.labels.layer.name == "mine"
    add_result(viewer, result_of(blocks()))
    assert dock.labels.layer.name == "blocks [SAF]"
    assert dock.file_name.text() == "blocks_SAF"
    viewer.add_labels(np.ones((32, 32), int), name="strokes")
    assert dock.labels.layer.name == "blocks [SAF]"


def test_a_run_under_way_gets_its_recipe_at_the_end(viewer, run, export, qtbot):
    viewer.add_image(blocks(), name="blocks")
    dock, exporting = SegmentWidget(viewer), export()
    qtbot.addWidget(dock, before_close_func=SegmentWidget.shut_down)
    run(dock)
    assert exporting.labels.layer.name == "blocks [SAF]"
    assert exporting.applying.button.isEnabled()
    exporting.choice.choose("recipe", True)
    exporting.choice.choose("prototypes", ".csv")
    assert exporting.choice.selection.recipe and exporting.choice.selection.prototypes == ".csv"


def repeat(qtbot, dock):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.applying.button.click()


def test_an_image_of_other_brightness_is_scaled_by_itself_if_that_is_wanted(
    viewer, export, qtbot, tmp_path
):
    result = result_of(stack(), window=5)
    add_result(viewer, result)
    dock = export()
    dock.applying.image.choose(viewer.add_image(stack() * 20 + 3.0, name="bright"))
    dock.applying.brightness.choose(False)
    repeat(qtbot, dock)
    text = dock.status.text
    assert "bright: 1" in text and "of the values lie outside" in text, text
    assert dock.status.suggested_action == "Scale this image by itself"
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.status.action_button.click()
    assert dock.applying.brightness.value and not dock.status.suggested_action
    for by_itself in (True, False):
        dock.applying.brightness.choose(by_itself)
        dock.repeat.save_to(str(tmp_path / "r.json"))
        assert load_recipe(tmp_path / "r.json").options.rescale == by_itself
    second = next(layer for layer in viewer.layers if layer.name.endswith("[1]"))
    np.testing.assert_array_equal(second.data, result.labels)


def test_a_recipe_of_a_plane_labels_the_slice_on_screen(viewer, export, qtbot):
    result = result_of(stack()[0] + stack()[2])
    image = viewer.add_image(stack(), name="stack")
    add_result(viewer, result)
    viewer.dims.set_current_step(0, 2)
    dock = export()
    dock.applying.image.choose(image)
    repeat(qtbot, dock)
    layer = layer_of(viewer, "stack [SAF")
    assert layer.data.shape == (1, 16, 16) and layer.translate[0] == 2


def test_a_saved_recipe_is_the_one_of_the_layer(done, tmp_path, viewer):
    done.repeat.save_to(str(tmp_path / "mine"))
    recipe = saf.load_recipe(tmp_path / "mine.recipe.json")
    assert recipe.plain == viewer.layers[1].metadata["napari_saf"]["recipe"]
    done.repeat.save_to(str(tmp_path / "missing" / "mine.json"))
    assert done.status.is_error


def test_a_recipe_that_a_file_cannot_repeat_is_not_offered(viewer, export):
    affinity = saf.KernelAffinity(np.eye(32 * 32))
    recipe = SelfAssignmentFlow(affinity=affinity).recipe(Problem.from_image(blocks()))
    viewer.add_labels(np.ones((32, 32), int), metadata={"napari_saf": {"recipe": recipe}})
    dock = export()
    assert "cannot repeat" in dock.repeat.summary.text()
    assert not dock.applying.button.isEnabled()


def test_what_strokes_gave_is_exported_and_not_the_strokes(viewer, export):
    image = viewer.add_image(blocks(), name="photo")
    strokes = add_strokes(viewer, image, np.zeros((32, 32), np.uint8), Placement((), (0, 1), {}))
    dock = export()
    assert dock.labels.layer == strokes and dock.status.text == ARE_STROKES
    entry = {"napari_saf": {"image": str(image.unique_id)}}
    result = viewer.add_labels(np.ones((32, 32), np.uint8), name="labels", metadata=entry)
    assert dock.labels.layer == result and not dock.status.text
    viewer.layers.selection.active = strokes
    viewer.layers.remove(result)
    other = viewer.add_labels(np.ones((32, 32), np.uint8), name="others")
    viewer.layers.move(1, 2)  # the strokes on top
    viewer.layers.selection.active = strokes
    again = export()
    assert again.labels.layer == other
    again.labels.choose(strokes)
    assert again.status.text == ARE_STROKES
