"""Apply to image: what strokes taught labels other images alike by every way."""

import shlex

import numpy as np
import pytest
from gui_cases import TIMEOUT, apply_to, blocks, choose_files, rename
from qtpy.QtWidgets import QPlainTextEdit, QPushButton

import napari_saf as saf
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.docks.apply import BUSY
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf.cli import main
from napari_saf.io import read_labels

pytestmark = pytest.mark.gui

CORNERS = {3: (6, 6), 1: (6, 22), 7: (22, 6), 2: (22, 22)}
"""Where classes are painted, by number: none is that of its size."""


def teach_corners(dock, settle):
    """Paint a stroke of each class in the Scribbles dock, and update."""
    dock.follow.setChecked(False)
    dock.buttons["new_strokes"].click()
    for number, (row, column) in CORNERS.items():
        rows = np.arange(row, row + 4)
        dock.strokes.layer.data_setitem((rows, np.full(4, column)), number)
    teach(dock, settle)


@pytest.fixture
def taught(model, open_on, settle, qtbot):
    """The Scribbles dock with labels of four classes."""
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, ScribblesWidget)
    teach_corners(dock, settle)
    rename(dock.classes, 7, "sky")
    return dock


@pytest.fixture
def other(model):
    """Another image: the first one turned, and dimmer."""
    return model.add_image((blocks()[::-1, ::-1] / 3 + 20).astype(np.uint8), name="other", rgb=True)


@pytest.fixture
def folder(tmp_path, other):
    (tmp_path / "images").mkdir()
    np.save(tmp_path / "images" / "other.npy", other.data)
    return tmp_path / "images"


def teach(dock, settle):
    """Press Update, which is greyed until the strokes were looked at."""
    while not dock.buttons["update_labels"].isEnabled():
        settle(dock, milliseconds=20)
    dock.buttons["update_labels"].click()
    settle(dock)


def labels_applied(dock, image, settle):
    """Return what Apply of the Scribbles dock makes of an image."""
    before = list(dock.workspace.viewer.layers)
    apply_to(dock, image)
    settle(dock)
    (layer,) = [layer for layer in dock.workspace.viewer.layers if layer not in before]
    assert dock.workspace.viewer.layers.selection.active is layer  # no strokes beneath it
    return np.asarray(layer.data)


def test_the_printed_command_the_recipe_and_export_label_as_apply_does(
    taught, other, folder, model, open_on, settle, tmp_path, monkeypatch
):
    taught.automatic.setChecked(False)
    taught.form.choose("laplacianshot")
    teach(taught, settle)
    applied, source = labels_applied(taught, other, settle), taught.result
    assert len(np.unique(applied)) == 4

    export = open_on(model, ExportWidget)
    export.labels.choose(source)
    assert "by the prototypes learned from the strokes" in export.repeat.summary.text()
    (shown,) = export.repeat.findChildren(QPlainTextEdit)
    typed = shlex.split(shown.toPlainText().replace("FOLDER", "images").replace("OUT", "masks"))
    monkeypatch.chdir(tmp_path)
    export.repeat.save_to(typed[2])
    assert typed[0] == "napari-saf" and main(typed[1:]) == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "masks/other.labels.tif").array, applied)

    recipe = saf.load_recipe(typed[2])
    assert recipe.prototypes.names[7] == "sky" and recipe.method.name == "laplacianshot"
    np.testing.assert_array_equal(recipe.run(other.data).labels, applied)

    export.applying.image.choose(other)
    export.applying.button.click()
    settle(export)
    layer = export.labels.layer
    assert layer != source and layer.metadata["class_names"][7] == "sky"
    np.testing.assert_array_equal(layer.data, applied)
    for number in CORNERS:
        np.testing.assert_allclose(layer.get_color(number), source.get_color(number), atol=1e-3)


def test_edits_of_what_was_taught_come_with_the_recipe(taught, model, open_on, settle, other):
    source = taught.result
    prototypes = open_on(model, PrototypesWidget)
    prototypes.choose(source)
    settle(prototypes)
    prototypes.table.select((3, 7))
    prototypes.edit("merge")
    settle(prototypes)
    export = open_on(model, ExportWidget)
    export.labels.choose(source)
    found = export.repeat.recipe.prototypes
    assert set(found.labels) == set(np.unique(source.data)) and len(set(found.labels)) == 3
    assert set(np.unique(export.repeat.recipe.run(other.data).labels)) == set(found.labels)


def test_what_cannot_be_applied_to_an_image_is_told(taught, model, open_on, settle, other):
    taught.automatic.setChecked(False)
    taught.input.choose(features="lab")
    teach(taught, settle)
    apply_to(taught, model.add_image(blocks()[..., 0], name="grey"))
    settle(taught)
    assert taught.status.text.startswith("grey: expected as many channels as the prototypes have")
    taught.input.choose(features="position")
    teach(taught, settle)
    apply_to(taught, other)
    assert taught.status.is_error and "positions" in taught.status.text
    export = open_on(model, ExportWidget)
    export.labels.choose(taught.result)
    export.applying.image.choose(other)
    assert not export.applying.button.isEnabled()
    assert "prototypes for other images" in export.applying.button.toolTip()
    assert "prototypes for other images" in export.repeat.summary.text()


def test_files_in_the_way_are_named(taught, folder, settle):
    def start():
        taught.applying.button.click()
        settle(taught)
        return taught.status.text

    results = folder.with_name("images_labels")
    results.mkdir()
    (folder / "wrong.npy").write_text("no array")
    choose_files(taught.applying, folder)
    for done in ("1 of 2 images done", "1 skipped"):
        lines = start().splitlines()
        assert any(done in line for line in lines) and "1 failed: wrong.npy (cannot" in lines[-1]
        assert taught.status.is_error
    (path,) = results.glob("*.tif")
    path.write_bytes(b"mine")
    (results / "other.recipe.json").unlink()
    assert "replace existing results" in start() and taught.status.is_error
    assert path.read_bytes() == b"mine"


def test_every_dock_that_holds_something_learned_asks_for_image_or_files(model, open_on, tmp_path):
    dialog = open_on(model, PrototypesWidget).applying
    dialog.update_enabled("")
    assert not dialog.takes_files and not dialog.button.isEnabled()
    image = model.add_image(blocks(), name="blocks")
    assert dialog.layer == image
    # results go beside the images unless another folder was chosen
    choose_files(dialog, tmp_path / "a")
    assert dialog.results.path == tmp_path / "a_labels"
    (tmp_path / "one.npy").touch()
    dialog.source.set_path(tmp_path / "one.npy")
    assert dialog.results.path == tmp_path
    dialog.results.set_path(tmp_path / "mine")
    dialog.source.set_path(tmp_path / "b")
    assert dialog.results.path == tmp_path / "mine"
    for kind in (ScribblesWidget, PrototypesWidget, ExportWidget, DictionaryWidget):
        dock = open_on(model, kind)
        dialog = dock.applying
        dialog.update_enabled("")
        dialog.to_folder.click()
        assert dialog.isVisible() and dialog.takes_files and not dialog.isModal()
        dialog.update_enabled("")  # which the dock has done anew
        dialog.to_image.click()
        assert not dialog.takes_files
        dialog.update_enabled("nothing was learned yet")
        assert not (dialog.to_image.isEnabled() or dialog.to_folder.isEnabled())
        dialog.update_enabled(BUSY)  # how it goes can be looked at
        assert dialog.to_folder.isEnabled() and not dialog.button.isEnabled()


def test_the_dialog_shows_how_it_goes_and_stops_it(taught, folder, settle, qtbot):
    for number in range(5):
        np.save(folder / f"{number}.npy", np.roll(blocks(), number, axis=0))
    dialog = taught.applying
    dialog.to_folder.click()
    usual = dialog.height()
    dialog.source.set_path(folder)
    for button in dialog.findChildren(QPushButton):
        assert not button.autoDefault(), "Enter in a field presses it"
    dialog.maps.choose(".npy")
    assert not dialog.stop.isEnabled()
    dialog.button.click()
    qtbot.waitUntil(lambda: " of 6: " in dialog.status.text, timeout=TIMEOUT)
    dialog.stop.click()
    settle(taught)
    assert "left" in dialog.status.text and dialog.status.text == taught.status.text
    results = folder.with_name("images_labels")
    n_maps = len(list(results.glob("*.probabilities.npy")))
    assert 0 < n_maps == len(list(results.glob("*.tif"))) < 6
    dialog.button.click()
    settle(taught)
    assert f"{6 - n_maps} of 6 images done" in dialog.status.text
    assert len(np.load(results / "0.probabilities.npy")) == len(CORNERS)
    layout, width = dialog.layout(), dialog.width()
    before = layout.totalHeightForWidth(width)
    taught.panel.show_outcome("1 failed: 0.npy, which cannot be read as an image; " * 9)
    qtbot.waitUntil(lambda: layout.totalHeightForWidth(width) > before)
    qtbot.wait(50)
    assert dialog.height() >= layout.totalHeightForWidth(width)
    assert dialog.source.height() >= dialog.source.sizeHint().height()
    dialog.hide()
    dialog.to_folder.click()
    assert dialog.height() == usual  # without the long status
