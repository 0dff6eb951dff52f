"""The Export dock from click to files, and the recipe of a result on other images."""

import hashlib
import json
import threading
import time

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, read_table, stack
from qtpy.QtWidgets import QCheckBox, QComboBox, QPushButton, QSpinBox

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import ARE_STROKES, OBJECTS_KEY
from napari_saf._gui.layers.placement import Placement
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
def viewer(model):
    return model


@pytest.fixture
def export(viewer, open_on, tmp_path):
    """Make the dock, on a folder that is empty."""

    def open_dock():
        dock = open_on(viewer, ExportWidget)
        dock.folder.set_path(tmp_path / "out")
        return dock

    return open_dock


@pytest.fixture
def done(viewer, export):
    """The dock on a finished result."""
    viewer.add_image(blocks(), name="blocks")
    add_result(viewer, result_of(blocks()))
    return export()


def click(widget):
    assert widget.isEnabled()
    widget.click()


def click_and_wait(qtbot, dock, button):
    click(button)
    qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)


def tick(dock, words, checked=True):
    box = next(box for box in dock.findChildren(QCheckBox) if box.text() == words)
    box.setChecked(checked)


def button(dock, words):
    (wanted,) = [each for each in dock.findChildren(QPushButton) if each.text() == words]
    return wanted


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_everything_is_saved(done, qtbot, tmp_path, viewer):
    for words in ("A mask for each label", "Figure", "Prototypes", "Recipe"):
        tick(done, words)
    done.choice.choose("masks", ".ome.zarr")
    layer = viewer.layers[1]
    layer.metadata["class_names"] = {1: "sky", "2": "sea", "x": "?"}
    click_and_wait(qtbot, done, done.button)
    out, n_labels, entry = (
        tmp_path / "out",
        len(np.unique(layer.data)),
        layer.metadata["napari_saf"],
    )
    assert {"blocks_SAF_1_sky.tif", "blocks_SAF_2_sea.tif"} < set(names(out))
    assert len(names(out)) == n_labels + 5 and done.status.text.startswith("saved ")
    np.testing.assert_array_equal(read_labels(out / "blocks_SAF.labels.ome.zarr").array, layer.data)
    assert json.loads((out / "blocks_SAF.recipe.json").read_text())["method"] == "saf"
    prototypes = saf.load_prototypes(out / "blocks_SAF.prototypes.json")  # labels other images
    np.testing.assert_allclose(prototypes.vectors, entry["prototypes"], rtol=1e-6)
    assert prototypes.options is not None
    rows = read_table(out / "blocks_SAF.regions.csv")
    assert [row["name"] for row in rows][:2] == ["sky", "sea"]
    for row in rows:
        values = blocks()[layer.data == int(row["label"])][:, 0]
        assert float(row["intensity_mean_0"]) == pytest.approx(values.mean())
    done.repeat.save_to(str(tmp_path / "mine"))
    assert saf.load_recipe(tmp_path / "mine.recipe.json").plain == entry["recipe"]
    done.repeat.save_to(str(tmp_path / "missing" / "mine.json"))
    assert done.status.is_error


def test_what_was_exported_is_so_in_the_project(done, settle, monkeypatch):
    """Files are hashed in no thread that somebody waits for."""
    session, threads, digest = done.workspace.session, set(), hashlib.file_digest

    def noting(*arguments):
        threads.add(threading.current_thread())
        return digest(*arguments)

    monkeypatch.setattr(hashlib, "file_digest", noting)
    assert session.stage(session.model.entries[0]) == "labelled"
    done.start()
    settle(done)
    assert session.stage(session.model.entries[0]) == "exported"
    labels = done.workspace.viewer.layers[-1]
    labels.data_setitem((np.array([0]), np.array([0])), 7)
    assert session.stage(session.model.entries[0]) == "labelled"
    assert threads and threading.main_thread() not in threads


def test_regions_are_numbered_and_small_ones_left_out(viewer, export, qtbot, tmp_path):
    viewer.add_labels(np.array([[1, 1, 0, 1], [0, 0, 2, 0], [2, 2, 0, 1]], np.uint8), name="cells")
    dock = export()
    least = dock.findChild(QSpinBox)
    assert not least.isEnabled()
    tick(dock, "Numbered regions")
    rows = next(box for box in dock.findChildren(QComboBox) if "for each label" in box.itemText(0))
    assert rows.currentIndex() == 1 and not rows.isEnabled()  # a row for each region
    least.setValue(2)
    click_and_wait(qtbot, dock, dock.button)
    out = tmp_path / "out"
    assert names(out) == ["cells.labels.tif", "cells.regions.csv", "cells.regions.tif"]
    regions = read_labels(out / "cells.regions.tif").array
    np.testing.assert_array_equal(regions, [[1, 1, 0, 0], [0, 0, 2, 0], [2, 2, 0, 0]])
    assert [row["region"] for row in read_table(out / "cells.regions.csv")] == ["1", "2"]
    tick(dock, "Numbered regions", checked=False)
    rows.setCurrentIndex(0)
    assert not least.isEnabled() and dock.choice.selection.min_pixels == 1


def test_files_that_are_there_are_asked_about_and_stay_where_the_disk_fails(
    done, qtbot, tmp_path, monkeypatch
):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    mask = out / "blocks_SAF.labels.tif"
    mask.write_bytes(b"precious")
    click_and_wait(qtbot, done, done.button)
    assert "blocks_SAF.labels.tif is there already" in done.status.text
    assert mask.read_bytes() == b"precious" and names(out) == [mask.name]
    with monkeypatch.context() as patch:
        patch.setattr("tifffile.TiffWriter.write", full)
        click_and_wait(qtbot, done, button(done, "Replace it"))
    assert done.status.is_error and "No space left on device" in done.status.text
    assert mask.read_bytes() == b"precious" and set(names(out)) <= {
        mask.name,
        "blocks_SAF.regions.csv",
    }
    done.folder.set_path(out / "not there" / "results")  # the present fault is said, not the last
    assert not done.button.isEnabled() and done.status.text == "the folder does not exist"
    done.folder.set_path(out)
    assert done.button.isEnabled() and done.status.text == ""
    click_and_wait(qtbot, done, done.button)
    (replace,) = [b for b in done.findChildren(QPushButton) if b.text().startswith("Replace")]
    click_and_wait(qtbot, done, replace)
    assert read_labels(mask).array.shape == (32, 32) and done.status.suggested_action == ""


def test_what_cannot_be_written_is_told_before_the_click(viewer, export, qtbot, tmp_path):
    def refused(words):
        return not dock.button.isEnabled() and words in dock.status.text

    dock = export()
    assert refused("no labels") and "no labels" in dock.button.toolTip()
    viewer.add_labels(LABELS)
    assert dock.button.isEnabled() and dock.status.text == ""
    for words in ("Label image", "Table of regions"):
        tick(dock, words, checked=False)
    assert refused("nothing is ticked")
    tick(dock, "Figure")
    assert dock.button.isEnabled() and dock.status.text == ""
    for path in (tmp_path / "missing" / "out", tmp_path / ("x" * 300) / "out"):
        dock.folder.set_path(path)
        assert refused("folder")
    dock.folder.set_path(tmp_path)
    dock.file_name.setText("a/b")
    assert refused("name")
    viewer.layers.clear()
    assert refused("no labels")


def test_of_foreign_labels_and_objects_less_is_offered(viewer, export, qtbot, tmp_path):
    labels = viewer.add_labels(LABELS, name="mine")
    dock = export()
    off = [box for box in dock.findChildren(QCheckBox) if not box.isEnabled()]
    assert [box.text() for box in off] == ["Prototypes", "Probability maps", "Recipe"]
    assert all("computed" in box.toolTip() for box in off)
    assert not dock.applying.button.isEnabled()
    click_and_wait(qtbot, dock, dock.button)
    assert names(tmp_path / "out") == ["mine.labels.tif", "mine.regions.csv"]
    dock.labels.choose(viewer.add_labels(LABELS, metadata={OBJECTS_KEY: True}, name="objects"))
    assert not dock.choice.ticks["regions"].isChecked()  # their table is left to their dock
    dock.labels.choose(labels)
    assert dock.choice.selection.regions
    affinity = saf.KernelAffinity(np.eye(32 * 32))
    recipe = SelfAssignmentFlow(affinity=affinity).recipe(Problem.from_image(blocks()))
    metadata = {"napari_saf": {"recipe": recipe}}
    dock.labels.choose(viewer.add_labels(np.ones((32, 32), int), metadata=metadata))
    assert "cannot repeat" in dock.repeat.summary.text()
    assert not dock.applying.button.isEnabled()


def test_stop_saves_nothing_while_labels_are_read_and_then_what_was_begun(
    done, qtbot, tmp_path, monkeypatch
):
    begun, clicked, save = threading.Event(), threading.Event(), _labelling.save_table

    def read(pixels, cancelled):
        while not cancelled():
            time.sleep(0.01)
        raise Cancelled

    def save_slowly(*arguments, **options):
        begun.set()
        clicked.wait(TIMEOUT / 1000)
        return save(*arguments, **options)

    assert not done.panel.stop_button.isEnabled()
    with monkeypatch.context() as patch:
        patch.setattr(Pixels, "read", read)
        click(done.button)
        click_and_wait(qtbot, done, done.panel.stop_button)
    assert done.status.text == "stopped: nothing was saved" and not (tmp_path / "out").exists()
    tick(done, "Figure")
    monkeypatch.setattr(_labelling, "save_table", save_slowly)
    click(done.button)
    assert begun.wait(TIMEOUT / 1000)
    click(done.panel.stop_button)
    clicked.set()
    qtbot.waitUntil(lambda: not done.panel.is_busy, timeout=TIMEOUT)
    assert done.status.text.startswith("stopped: saved")
    assert names(tmp_path / "out") == ["blocks_SAF.labels.tif", "blocks_SAF.regions.csv"]


def test_a_slice_goes_with_its_slice_of_the_image(viewer, export, qtbot, tmp_path):
    image = stack().astype(float) + 10 * np.arange(5)[:, None, None]
    viewer.add_image(image, name="stack", scale=(3, 1, 1), translate=(6, 0, 0))
    labels = (image[3:4] > np.median(image[3])).astype(np.uint8) + 1
    viewer.add_labels(labels, name="stack [SAF]", scale=(3, 1, 1), translate=(15, 0, 0))
    dock = export()
    dock.choice.choose("figure", ".png")
    click_and_wait(qtbot, dock, dock.button)
    assert not dock.status.is_error, dock.status.text
    for row in read_table(tmp_path / "out" / "stack_SAF.regions.csv"):
        values = image[3][labels[0] == int(row["label"])]
        assert float(row["intensity_mean"]) == pytest.approx(values.mean())


def test_a_new_result_is_turned_to_with_its_recipe_but_no_other_labels(
    viewer, run, export, open_on
):
    viewer.add_image(blocks(), name="blocks")
    viewer.add_labels(np.ones((32, 32), int), name="mine")
    exporting = export()
    assert exporting.labels.layer.name == "mine"
    run(open_on(viewer, SegmentWidget))
    viewer.add_labels(np.ones((32, 32), int), name="painted")
    assert exporting.labels.layer.name == "blocks [SAF]"
    assert exporting.file_name.text() == "blocks_SAF" and exporting.applying.button.isEnabled()


def repeat(qtbot, dock, start=None):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        (start or dock.applying.button).click()


def test_an_image_of_other_brightness_is_scaled_by_itself_if_that_is_wanted(
    viewer, export, qtbot, tmp_path
):
    result = result_of(stack(), window=5)
    add_result(viewer, result)
    dock = export()
    dock.applying.image.choose(viewer.add_image(stack() * 20 + 3.0, name="bright"))
    dock.applying.brightness.choose(False)
    repeat(qtbot, dock)
    assert "of the values lie outside" in dock.status.text, dock.status.text
    assert dock.status.suggested_action == "Scale this image by itself"
    repeat(qtbot, dock, dock.status.action_button)
    assert dock.applying.brightness.value and not dock.status.suggested_action
    for by_itself in (True, False):
        dock.applying.brightness.choose(by_itself)
        dock.repeat.save_to(str(tmp_path / "r.json"))
        assert load_recipe(tmp_path / "r.json").options.rescale == by_itself
    second = next(layer for layer in viewer.layers if layer.name.endswith("[1]"))
    np.testing.assert_array_equal(second.data, result.labels)


def test_the_result_of_strokes_is_exported_and_not_the_strokes(viewer, export):
    image = viewer.add_image(blocks(), name="photo")
    strokes = add_strokes(viewer, image, np.zeros((32, 32), np.uint8), Placement((), (0, 1), {}))
    dock = export()
    assert dock.labels.layer == strokes and dock.status.text == ARE_STROKES
    entry = {"napari_saf": {"image": str(image.unique_id)}}
    result = viewer.add_labels(np.ones((32, 32), np.uint8), name="labels", metadata=entry)
    assert dock.labels.layer == result and not dock.status.text
    dock.labels.choose(strokes)
    assert dock.status.text == ARE_STROKES
