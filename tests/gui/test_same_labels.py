"""The same labels, every pixel, from dock, dialog, `run` and Python, for all that is learned."""

import numpy as np
import pytest
from gui_cases import blocks, choose_files
from test_apply import teach_corners

import napari_saf as saf
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.cli import main
from napari_saf.io import read_labels
from napari_saf.project import Project, save_project

pytestmark = pytest.mark.gui


def strokes(model, open_on, settle, path):
    """Strokes in the Scribbles dock; a project with what they taught."""
    dock = open_on(model, ScribblesWidget)
    teach_corners(dock, settle)
    return dock, save_project(
        path / "work.napari-saf", Project(recipes={"x": recipe_of(dock.result)})
    )


def segmented(model, open_on, settle):
    """A run in the Segment dock."""
    dock = open_on(model, SegmentWidget)
    dock.start()
    settle(dock)
    return dock


def prototypes(model, open_on, settle, path):
    """The labels of a run in the Prototypes dock; its classifier."""
    labels = segmented(model, open_on, settle).regions.shown.layer
    dock = open_on(model, PrototypesWidget)
    dock.choose(labels)
    settle(dock)
    dock.applying.save_to(str(path / "own.prototypes.json"))
    return dock, path / "own.prototypes.json"


def recipe(model, open_on, settle, path):
    """The labels of a run in the Export dock; its recipe."""
    labels = segmented(model, open_on, settle).regions.shown.layer
    dock = open_on(model, ExportWidget)
    dock.labels.choose(labels)
    dock.repeat.save_to(str(path / "own.recipe.json"))
    return dock, path / "own.recipe.json"


def dictionary(model, open_on, settle, path):
    """Atoms learned in the Patch dictionary dock; their file."""
    dock = open_on(model, DictionaryWidget)
    dock.scale.set_value(5)
    dock.form.set_values({"n_atoms": 4, "patch_size": 3})
    dock.start()
    settle(dock)
    dock.save(path / "own.safetensors")
    settle(dock)
    return dock, path / "own.safetensors"


@pytest.mark.parametrize("learn", [strokes, prototypes, recipe, dictionary])
def test_dock_dialog_run_and_python_label_alike(learn, model, open_on, settle, tmp_path):
    model.add_image(blocks(), name="blocks")
    dock, path = learn(model, open_on, settle, tmp_path)
    image = (blocks()[::-1, ::-1] / 3 + 20).astype(np.uint8)
    other, folder = model.add_image(image, name="other", rgb=True), tmp_path / "images"
    folder.mkdir()
    np.save(folder / "other.npy", image)

    dialog, before = dock.applying, list(model.layers)
    dialog.image.choose(other)
    dialog.button.click()
    settle(dock)
    new = [
        layer for layer in model.layers if layer not in before and layer._type_string == "labels"
    ]
    (shown,) = (np.asarray(layer.data) for layer in new)
    choose_files(dialog, folder)
    dialog.button.click()
    settle(dock)
    assert main(["run", str(path), str(folder), "-o", str(tmp_path / "run")]) == 0
    saf.apply_to_images(path, [folder], tmp_path / "python")

    assert len(np.unique(shown)) > 1
    for out in (tmp_path / "images_labels", tmp_path / "run", tmp_path / "python"):
        (mask,) = out.glob("*.labels.tif")
        np.testing.assert_array_equal(read_labels(mask).array, shown)
