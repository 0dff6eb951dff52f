"""Masks that Export saved become labels again, with all that a fresh result has."""

import json
from importlib import resources

import imageio.v3 as iio
import numpy as np
import pytest
import yaml
import zarr
from gui_cases import blocks, stack
from label_cases import QUADRANTS
from napari._app_model import get_app_model
from napari.layers import Image, Labels
from napari.settings import get_settings
from npe2 import PluginManager

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import (
    NAMES_KEY,
    class_names,
    colors_of,
    is_given,
    is_regions,
    is_result,
    points_of,
    recipe_of,
    stored_recipe,
)
from napari_saf._gui.layers.placement import image_axes_of, image_region, squeezed_axes
from napari_saf._gui.layers.reader import MASK_PATTERNS, get_reader
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.io import LABELS_MARK, save_masks

pytestmark = pytest.mark.gui


@pytest.fixture
def result(model, open_on, run, tmp_path):
    """The layer of a run, with names, colours and pixels of a size."""
    image = model.add_image(blocks(), name="blocks", scale=(2, 2), units="um")
    assert run(open_on(model, SegmentWidget)) is not None
    layer = next(layer for layer in model.layers if isinstance(layer, Labels))
    layer.metadata[NAMES_KEY] = {1: "sky", 3: "sea"}
    model.layers.selection.active = layer
    assert image.scale[0] == layer.scale[0] == 2
    return layer


@pytest.fixture
def export(model, result, open_on, tmp_path):
    dock = open_on(model, ExportWidget)
    dock.folder.set_path(tmp_path / "out")
    return dock


def save(dock, settle, suffix):
    """Save the chosen labels; return the path of the mask."""
    dock.choice.choose("masks", suffix)
    dock.choice.choose("regions", "")
    dock.button.click()
    settle(dock)
    return dock.folder.path / f"{dock.file_name.text()}{LABELS_MARK}{suffix}"


def reopen(dock, settle, path):
    """Open a mask by the button of the dock, as if a person chose it."""
    dock.open_mask(path / "zarr.json" if path.is_dir() else path)
    settle(dock)
    return dock.labels.layer


@pytest.mark.parametrize("suffix", [".npy", ".ome.zarr"])
def test_a_mask_comes_back_as_a_fresh_result(model, result, export, settle, suffix):
    found = reopen(export, settle, save(export, settle, suffix))
    assert found is model.layers[-1] is not result and isinstance(found, Labels)
    np.testing.assert_array_equal(found.data, result.data)
    numbers = np.unique(result.data[result.data > 0])
    np.testing.assert_allclose(colors_of(found, numbers), colors_of(result, numbers), atol=1e-3)
    assert class_names(found) == {1: "sky", 3: "sea"}
    np.testing.assert_allclose(found.scale, result.scale)
    assert found.units == result.units
    assert is_result(found) and stored_recipe(found) == stored_recipe(result)
    assert recipe_of(found).options == recipe_of(result).options
    own = points_of(result)
    assert points_of(found).keys() == own.keys()
    for n, points in points_of(found).items():
        np.testing.assert_array_equal(points, own[n])
    assert export.image.layer is model.layers["blocks"] and export.applying.button.isEnabled()
    assert export.status.text == f"opened {found.name} with names, recipe, prototypes"


def test_labels_of_a_slice_lie_where_they_did(model, open_on, run, settle, tmp_path):
    image = model.add_image(stack(), name="stack", scale=(3, 2, 2), translate=(5, 1, 0))
    assert run(open_on(model, SegmentWidget)) is not None
    labels = next(layer for layer in model.layers if isinstance(layer, Labels))
    model.layers.selection.active = labels
    dock = open_on(model, ExportWidget)
    dock.folder.set_path(tmp_path / "out")
    again = reopen(dock, settle, save(dock, settle, ".png"))
    np.testing.assert_array_equal(again.data, labels.data)
    for name in ("translate", "scale"):
        np.testing.assert_allclose(getattr(again, name), getattr(labels, name))
    assert again.units == labels.units
    assert image_region(again, image) == image_region(labels, image) is not None
    assert image_axes_of(again) == image_axes_of(labels)
    assert squeezed_axes(again) == squeezed_axes(labels)


def test_regions_and_labels_of_a_person_come_back_as_such(model, result, export, settle, tmp_path):
    recipe = dict(stored_recipe(result)) | {"regions": {"level": 0.5}}
    regions = model.add_labels(
        np.arange(blocks()[..., 0].size, dtype=np.uint32).reshape(blocks().shape[:2]),
        name="blocks [SAF, regions]",
        metadata={"napari_saf": {"level": 0.5, "recipe": recipe}},
    )
    export.labels.choose(regions)
    again = reopen(export, settle, save(export, settle, ".tif"))
    assert is_regions(again) and recipe_of(again).level == 0.5
    np.testing.assert_array_equal(again.data, regions.data)
    assert not class_names(again)
    painted = model.add_labels(QUADRANTS, name="mine", metadata={NAMES_KEY: {2: "cell"}})
    export.labels.choose(painted)
    again = reopen(export, settle, save(export, settle, ".npy"))
    assert is_given(again) and class_names(again) == {2: "cell"}
    n_layers = len(model.layers)
    (tmp_path / "a.png").write_bytes(b"no")
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "line.npy", np.arange(3))
    for name in ("a.png", "a.npy", "line.npy"):  # no masks
        export.open_mask(tmp_path / name)
        settle(export)
        assert export.status.is_error and name in export.status.text
    assert len(model.layers) == n_layers


def test_the_reader_is_asked_for_no_file_of_others():
    manifest = yaml.safe_load(resources.files("napari_saf").joinpath("napari.yaml").read_text())
    readers = manifest["contributions"]["readers"]
    reader = next(each for each in readers if each["command"] == "napari-saf.read_mask")
    assert reader["filename_patterns"] == [*MASK_PATTERNS, "zarr.json"]
    assert not reader["accepts_directories"]  # or napari would ask for every folder
    for name in ("a.tif", "a_labels.tif", "labels.png", "a.labels.jpg", "z.json"):
        assert get_reader(f"/somewhere/{name}") is None
    assert get_reader(["/a/x.labels.tif", "/a/x.tif"]) is None
    for name in ("a.labels.tif", "B.Labels.TIF", "a.labels.npy", "a.b.labels.png"):
        assert get_reader(f"/somewhere/{name}") is not None


@pytest.fixture
def no_other_readers(monkeypatch):
    """Whatever else is installed: napari would ask which reader to take."""
    find = PluginManager.iter_compatible_readers

    def own(manager, path):
        return [r for r in find(manager, path) if r.plugin_name in ("napari", "napari-saf")]

    monkeypatch.setattr(PluginManager, "iter_compatible_readers", own)


@pytest.mark.usefixtures("no_other_readers")
def test_the_manifest_opens_masks_as_labels_and_images_as_before(window, monkeypatch, tmp_path):
    """napari asks for the names that its own reader matches, too, and remembers what it is told."""
    from napari._qt import qt_viewer

    asked = []
    monkeypatch.setattr(
        qt_viewer, "handle_gui_reading", lambda paths, *_, **__: asked.append(paths)
    )
    labels = QUADRANTS.astype(np.uint8)
    for suffix in (".tif", ".png", ".npy", ".nii.gz", ".ome.zarr"):
        save_masks(tmp_path / f"mine.labels{suffix}", labels, names={1: "sky"})
    saf.save_recipe(tmp_path / "mine.recipe.json", {"schema": 1, "method": "saf"})
    zarr.save_array(tmp_path / "foreign.zarr", labels)
    iio.imwrite(tmp_path / "plain.tif", labels)
    iio.imwrite(tmp_path / "foreign.labels.tif", labels)
    (tmp_path / "folder").mkdir()
    iio.imwrite(tmp_path / "folder" / "a.png", labels)

    def opened(name):
        n_layers = len(window.layers)
        window.window._qt_viewer._qt_open([str(tmp_path / name)], stack=False)
        return [type(layer) for layer in window.layers[n_layers:]]

    assert opened("plain.tif") == opened("folder") == [Image] and not asked
    assert opened("mine.labels.ome.zarr/zarr.json") == [Labels] and not asked
    assert opened("foreign.zarr/zarr.json") == [Image] and not asked
    assert opened("mine.labels.tif") == [] and len(asked) == 1
    window.open(tmp_path / "mine.labels.tif", plugin="napari-saf")  # the answer
    assert type(window.layers[-1]) is Labels and class_names(window.layers[-1]) == {1: "sky"}
    get_settings().plugins.extension2reader = {"*.labels.*": "napari-saf"}  # of the person
    for suffix in (".tif", ".png", ".npy", ".nii.gz"):
        assert opened(f"mine.labels{suffix}") == [Labels]
    assert opened("plain.tif") == opened("folder") == opened("foreign.labels.tif") == [Image]
    assert len(asked) == 1


def test_a_mask_that_was_opened_as_an_image_becomes_labels_by_the_command_alone(
    window, open_dock, settle, tmp_path
):
    save_masks(tmp_path / "mask.ome.zarr", QUADRANTS, names={1: "sky"})
    iio.imwrite(tmp_path / "image.png", blocks())
    (mask,) = window.open(tmp_path / "mask.ome.zarr")
    (image,) = window.open(tmp_path / "image.png")
    settle(open_dock(window, ExportWidget))
    assert list(window.layers) == [mask, image]
    show = get_app_model().commands.execute_command
    show("napari-saf.show_as_labels").result()  # of the image, which is no mask
    assert list(window.layers) == [mask, image]
    window.layers.selection.active = mask
    show("napari-saf.show_as_labels").result()
    labels = window.layers[0]
    assert isinstance(labels, Labels) and list(window.layers) == [labels, image]
    assert class_names(labels) == {1: "sky"}
    np.testing.assert_array_equal(labels.data, QUADRANTS)


def test_units_that_napari_does_not_know_are_left_out(tmp_path):
    path = tmp_path / "a.labels.npy"
    np.save(path, QUADRANTS)
    note = {"schema": 1, "kind": "labels", "axes": "yx", "labels": [], "scale": [2.0, 3.0]}
    for unit in ("furlongs per x", "__import__('os')", "1/0", "9**9**9**9", ""):
        (tmp_path / "a.labels.json").write_text(json.dumps(note | {"units": [unit, unit]}))
        data, arguments, kind = get_reader(str(path))(str(path))[0]
        assert kind == "labels" and tuple(Labels(data, **arguments).scale) == (2, 3), unit


def test_a_mask_that_was_opened_before_its_image_finds_it(model, open_on, settle, tmp_path):
    path = str(tmp_path / "blocks.labels.tif")
    save_masks(path, QUADRANTS, names={1: "sky"})
    docks = [open_on(model, kind) for kind in (ExportWidget, PrototypesWidget)]
    data, arguments, _ = get_reader(path)(path)[0]
    model.add_labels(data, **arguments)
    model.add_image(np.zeros((5, 7)), name="of another size")
    for dock in docks:
        settle(dock)
        assert dock.image.layer is None
    image = model.add_image(blocks(), name="blocks")
    model.add_image(blocks(), name="blocks 2")
    for dock in docks:
        settle(dock)
        assert dock.image.layer == image
