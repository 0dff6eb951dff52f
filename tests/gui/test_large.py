"""Large images in the app: parts on screen, strokes in regions, and everything in tiles."""

import threading
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from gui_cases import TIMEOUT, blocks
from napari.components import ViewerModel
from napari.layers import Image
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf._gui.docks.large import _suggested_store
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.forms.image_input import ImageSelection
from napari_saf._gui.layers import large, reader
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.placement import ImageRegion
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.io import LargeRegions, _frame
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.tiles import LabelStore, LargeJob

pytestmark = [pytest.mark.gui]

SIDE = 192


SPOTS = np.zeros((64, 64))
SPOTS[10:20, 12:24] = SPOTS[40:52, 30:38] = SPOTS[30:36, 50:60] = 1
SPOTS = gaussian_filter(SPOTS, 1)


def sheet(side=SIDE):
    """Return an RGB image of squares of four colours."""
    return np.tile(blocks(64), (3, 3, 1))[:side, :side]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(large, "LARGE", 100 * 100)
    monkeypatch.setattr(large, "MOST_IN_MEMORY", 100 * 100)
    monkeypatch.setattr(large, "STROKES_SIDE", 48)


@pytest.fixture
def pyramid(tmp_path):
    """A pyramid in a folder, as arrays of zarr."""
    group = zarr.open_group(tmp_path / "sheet.zarr", mode="w")
    for level in range(3):
        step = 2**level
        group.create_array(str(level), data=sheet()[::step, ::step], chunks=(32, 32, 3))
    return [group[str(level)] for level in range(3)]


@pytest.fixture
def image(model, pyramid):
    return model.add_image(pyramid, multiscale=True, rgb=True, name="sheet", scale=(2, 2))


def look_at(model, row, column, n_pixels):
    """Show so many pixels of the canvas around a place of an image of scale 2."""
    model.canvas.size = (n_pixels, n_pixels)
    model.scene.camera.zoom = 0.5
    model.scene.camera.center = (0, 2 * row, 2 * column)


def whole_region(image):
    return ImageRegion(image, None, {}, (0, 1))


def test_a_part_lies_where_it_was_read_and_a_mask_is_cut_likewise(model, image, monkeypatch):
    look_at(model, 70, 100, 40)
    labels = model.add_labels(np.arange(SIDE**2).reshape(SIDE, SIDE), scale=(2, 2))
    for level in range(3):
        step = 2**level
        image.locked_data_level = level
        region = large.narrowed(model, whole_region(image))
        pixels = region.pixels.read(lambda: False)
        assert pixels.shape[:2] == region.shape
        transform, half = region.placement.transform, np.array(region.shape) // 2
        centre = image.world_to_data(transform["translate"] + transform["scale"] * half)
        row, column = np.round(centre).astype(int) // step * step
        np.testing.assert_array_equal(pixels[tuple(half)], sheet()[row, column])
        assert abs(np.array(region.shape) * step - 40).max() <= 2 * step
        mask = region.over(labels).read(lambda: False)
        assert mask.shape == region.shape
        np.testing.assert_array_equal(np.diff(mask, axis=1), step)
    # without levels
    monkeypatch.setattr(large, "MOST_ON_SCREEN", 50)
    model.layers.clear()
    layer = model.add_image(da.from_array(sheet()), rgb=True)
    model.reset_view()
    region = large.narrowed(model, whole_region(layer))
    assert region.shape == (48, 48)
    np.testing.assert_allclose(region.placement.transform["scale"], 4)


def label_all(dock, qtbot, path=None):
    """Label everything into a folder, and wait."""
    if path is not None:
        dock.large.store.set_path(path)
    dock.large.start()
    qtbot.waitUntil(lambda: not dock.large.is_busy, timeout=TIMEOUT)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 64 pixels."""
    own = LargeJob.of.__func__

    def of(cls, *given, **more):
        return own(cls, *given, **more | {"tile": 64})

    monkeypatch.setattr(LargeJob, "of", classmethod(of))


def test_run_labels_what_is_on_screen_until_everything_is_labelled(
    model, image, open_on, run, qtbot, tmp_path, small_tiles
):
    look_at(model, 96, 96, 64)
    image.locked_data_level = 0
    dock = open_on(model, SegmentWidget)
    assert not dock.large.isHidden()
    result = run(dock)
    part = next(layer for layer in reversed(model.layers) if "SAF" in layer.name)
    assert result.labels.shape == part.data.shape and max(part.data.shape) <= 70
    origin = image.world_to_data(part.data_to_world((0, 0)))
    np.testing.assert_allclose(origin, 96 - 32, atol=1.5)
    label_all(dock, qtbot, tmp_path / "all.ome.zarr")
    shown = [layer.name for layer in model.layers if layer.visible]
    assert not part.visible and shown == ["sheet", "all"]


@pytest.mark.parametrize("kind", ["pyramid", "dask", "dask stack"])
def test_automatic_settings_are_those_in_memory(model, kind):
    """Of the part on screen and of the tiles, if the image has a ground."""
    memory = np.tile(SPOTS, (3, 3)).astype(np.float32)
    if kind == "pyramid":
        levels = [da.from_array(memory[::k, ::k]) for k in (1, 2, 4)]
        layer = model.add_image(levels, multiscale=True)
        look_at(model, 96, 96, 40)
    else:
        stack = np.stack([memory] * 3) if "stack" in kind else memory
        layer = model.add_image(da.from_array(stack, chunks=64))
        model.reset_view()
    expected = saf.Problem.from_image(memory).options.features
    selection = ImageSelection(viewer=model, image=layer, extent="slice")
    assert expected.name == "foreground"
    assert selection.job().options.features == expected
    assert selection.whole_options().features == expected
    assert expected.ground_text in selection.automatic_note(uses_window=True)


@pytest.mark.automatic
def test_a_lazy_image_is_looked_at_in_a_thread(model, open_on, settle, monkeypatch):
    ground, in_main = ImageJob.ground, set()

    def look(job, *middle):
        in_main.add(threading.current_thread() is threading.main_thread())
        return ground(job, *middle)

    monkeypatch.setattr(ImageJob, "ground", look)
    memory = np.tile(SPOTS, (3, 3)).astype(np.float32)
    model.add_image(da.from_array(memory, chunks=64), name="lazy")
    dock = open_on(model, SegmentWidget)
    settle(dock)
    assert in_main == {False} and "things on a" in dock.automatic.text()


def pause_after(n_tiles, dock, monkeypatch, seen=None):
    """Press Pause once so many tiles are there, and once that was seen, where it is to be."""
    own, taken = large.GrowingLevels.take, []

    def take(levels, tile):
        own(levels, tile)
        taken.append(tile)
        if len(taken) == n_tiles:
            assert seen is None or seen.wait(TIMEOUT / 1000)
            dock.large.pause()

    monkeypatch.setattr(large.GrowingLevels, "take", take)


def test_everything_is_labelled_and_gone_on_with(
    model, image, open_on, qtbot, tmp_path, small_tiles, monkeypatch
):
    out = tmp_path / "m.ome.zarr"
    dock = open_on(model, SegmentWidget)
    counts = []
    status = "napari_saf._gui.forms.controls.StatusArea.show_progress"
    monkeypatch.setattr(status, lambda area, *args: counts.append(args[1]))
    pause_after(3, dock, monkeypatch)
    label_all(dock, qtbot, out)
    assert "paused" in dock.large.status.text
    assert (tmp_path / "m.ome.zarr.journal").read_text().count("\n") == 1 + 3

    # as after a restart: another dock, with other settings
    other = open_on(model, SegmentWidget)
    other.input.scale.set_value(9)
    label_all(other, qtbot, out)
    assert counts[-1].startswith("done: 9 tiles"), counts[-1]
    assert {text.split(" of ")[1][:7] for text in counts if text[:1].isdigit()} == {"9 tiles"}
    assert [layer.name for layer in model.layers if layer.visible] == ["sheet", "m"]
    expected = saf.label_large(
        tmp_path / "sheet.zarr" / "0",
        Pipeline(dock.form.read(), dock.input.read().whole_options()),
        tmp_path / "e.ome.zarr",
        tile=64,
    )
    store = LabelStore(out)
    np.testing.assert_array_equal(store.read(0, (slice(None),) * 2), expected.labels[:])
    shown_levels = large.levels_of(other.large.layer)
    for shown, stored in zip(shown_levels, store.levels(), strict=True):
        np.testing.assert_array_equal(np.asarray(shown), stored[...])
    np.testing.assert_allclose(other.large.layer.extent.world, image.extent.world)


def test_other_settings_are_said_and_taken_when_started_anew(
    model, image, open_on, qtbot, tmp_path, small_tiles, monkeypatch
):
    dock = open_on(model, SegmentWidget)
    dock.large.store.set_path(tmp_path / "m.ome.zarr")
    with monkeypatch.context() as paused:
        pause_after(3, dock, paused)
        label_all(dock, qtbot)
    assert dock.large.anew_button.isHidden()  # nothing was changed
    layer = dock.large.layer
    layer.opacity = 0.4
    dock.input.scale.set_value(9)
    seen = threading.Event()

    def show(_, text):
        if "Start anew" in text:
            seen.set()

    with monkeypatch.context() as paused:
        pause_after(2, dock, paused, seen)
        paused.setattr(dock.large.status, "show_progress", show)
        label_all(dock, qtbot)
    assert not dock.large.anew_button.isHidden()
    assert dock.large.layer is layer and layer.opacity == 0.4  # as a person set it
    first = dock.large.layer
    dock.large.anew_button.click()
    qtbot.waitUntil(lambda: not dock.large.is_busy, timeout=TIMEOUT)
    assert dock.large.status.text.startswith("done") and dock.large.anew_button.isHidden()
    assert first not in model.layers and dock.large.layer in model.layers
    assert dock.large.layer.metadata["napari_saf"]["recipe"]["input"]["window"] == 9


def test_a_store_that_is_whole_is_shown_and_another_one_stays(
    model, image, open_on, qtbot, tmp_path
):
    out = tmp_path / "m.ome.zarr"
    dock = open_on(model, SegmentWidget)
    for _ in range(2):
        label_all(dock, qtbot, out)
        assert dock.large.status.text.startswith("done")
        model.layers.remove(dock.large.layer)
    dock.input.scale.set_value(9)
    label_all(dock, qtbot)
    assert dock.large.status.is_error and "choose another folder" in dock.large.status.text


def test_strokes_in_regions_teach_together(model, image, open_on, settle, qtbot, tmp_path):
    dock = open_on(model, ScribblesWidget)
    dock.input.scale.set_value(3)
    dock.input.choose(features="intensity")
    for row, classes in ((64, (1, 2)), (128, (3, 4))):
        # The four colours meet in the middle of the region; each region has two of them painted.
        look_at(model, row, 96, 48)
        dock.buttons["new_strokes"].click()
        assert dock.strokes.layer.data.shape == (48, 48)
        for number, column in zip(classes, (12, 36), strict=True):
            at = 12 if row == 64 else 36
            rows = np.arange(at, at + 4)
            dock.strokes.layer.data_setitem((rows, np.full(4, column)), number)
        settle(dock, 60)
    label_all(dock, qtbot, tmp_path / "m.ome.zarr")
    labels = np.asarray(large.levels_of(dock.large.layer)[0])
    assert set(np.unique(labels)) == {1, 2, 3, 4}
    recipe = recipe_of(dock.large.layer)
    assert sorted(recipe.prototypes.by_label()) == [1, 2, 3, 4]
    assert recipe.prototypes.names[2] == "class 2"


def test_a_dock_that_goes_ends_the_work(model, image, open_on, qtbot, tmp_path, small_tiles):
    dock = open_on(model, SegmentWidget)
    dock.large.store.set_path(tmp_path / "m.ome.zarr")
    dock.large.start()
    qtbot.waitUntil(lambda: dock.large.layer is not None, timeout=TIMEOUT)
    dock.shut_down()
    assert (tmp_path / "m.ome.zarr.journal").exists()


def test_a_large_mask_is_opened_without_being_read(model, tmp_path, monkeypatch):
    out = tmp_path / "m.ome.zarr"
    pixels = np.tile(sheet(), (2, 2, 1))
    points = np.eye(3, dtype=np.float32)
    options = ImageOptions("intensity", 3, scaling=(0, 255))
    saf.label_large(pixels, saf.PrototypeSet(points, names={1: "red"}, options=options), out)
    monkeypatch.setattr(large, "LARGE", 10**9)
    whole = reader.read_layer(out)
    monkeypatch.setattr(large, "LARGE", 100)
    data, arguments, kind = reader.read_layer(out)
    assert kind == "labels" and isinstance(data[0], zarr.Array) and len(data) == 2
    layer = model.add_labels(data, **arguments)
    np.testing.assert_array_equal(np.asarray(layer.data[0]), whole[0])
    assert layer.metadata["class_names"] == {1: "red"}


def test_a_mask_on_disk_is_measured_part_by_part(model, image, open_on, settle, tmp_path):
    labels = np.kron([[1, 2], [0, 3]], np.ones((SIDE // 2, SIDE // 2))).astype(np.uint8)
    stored = zarr.create_array(tmp_path / "m.zarr", data=labels, chunks=(64, 64))
    layer = model.add_labels([stored, labels[::2, ::2]], multiscale=True, scale=(2, 2), name="m")
    dock = open_on(model, ExportWidget)
    dock.show()
    dock.labels.choose(layer)
    dock.table_fold.expand()
    settle(dock, 400)
    expected = saf.region_table(labels, sheet(), scale=(2, 2), brief=True)
    shown = dock.table.model.table
    assert [*shown] == [*expected]
    np.testing.assert_allclose(shown["intensity_mean_1"], expected["intensity_mean_1"])
    assert "tables, outlines and the recipe" in dock.choice.ticks["masks"].toolTip()
    dock.folder.set_path(tmp_path)
    dock.start()
    settle(dock)
    assert (tmp_path / "m.regions.csv").exists() and not [*tmp_path.glob("m.labels*")]


@pytest.fixture
def outlining(model, image, open_on, tmp_path, monkeypatch):
    """The Export dock on labels on disk, in many parts, that asks for outlines alone."""
    monkeypatch.setattr(_frame, "PART", 48**2)
    labels = np.kron(np.arange(1, 10).reshape(3, 3) % 4, np.ones((SIDE // 3,) * 2)).astype(np.uint8)
    stored = zarr.create_array(tmp_path / "m.zarr", data=labels, chunks=(48, 48))
    dock = open_on(model, ExportWidget)
    dock.labels.choose(model.add_labels([stored, labels[::2, ::2]], multiscale=True, name="m"))
    dock.choice.choose("regions", "")
    dock.folder.set_path(tmp_path / "out")
    return dock


def test_outlines_of_a_mask_on_disk_are_those_of_its_regions(
    outlining, settle, tmp_path, monkeypatch
):
    shown = []
    monkeypatch.setattr(outlining.panel, "show_task", shown.append)
    outlining.choice.choose("outlines", ".geojson")
    outlining.start()
    settle(outlining)
    assert not outlining.status.is_error, outlining.status.text
    labels = np.asarray(outlining.labels.layer.data[0])
    back = saf.load_objects(tmp_path / "out" / "m.regions.geojson", labels.shape)
    np.testing.assert_array_equal(back.labels, saf.number_regions(labels))
    fractions = [fraction for fraction, _ in shown]
    assert len({*fractions}) > 16 and fractions == sorted(fractions) and fractions[-1] < 1


def test_outlines_that_are_stopped_leave_nothing(outlining, settle, tmp_path, monkeypatch):
    monkeypatch.setattr(outlining.panel, "show_task", lambda step: outlining.panel.stop())
    may_go_on, parts = threading.Event(), LargeRegions.parts

    def wait_before(regions):
        may_go_on.wait(TIMEOUT / 1000)
        return parts(regions)

    monkeypatch.setattr(LargeRegions, "parts", wait_before)
    outlining.panel.stop_button.clicked.connect(may_go_on.set)
    outlining.choice.choose("outlines", ".json")
    outlining.start()
    settle(outlining)
    assert outlining.status.text == "stopped: nothing was saved"
    assert [*(tmp_path / "out").iterdir()] == []


def test_the_folder_that_is_offered_is_valid_whatever_the_layer_is_called():
    layer = Image(np.zeros((4, 4)), name="/data/plate 1: C:\\well")
    for path in (None, "https://example.org/photos/a.zarr"):
        layer._source = layer.source.model_copy(update={"path": path})
        assert _suggested_store(layer) == Path.cwd() / "data_plate_1_C_well.labels.ome.zarr"


def test_labels_of_a_large_image_come_back_with_their_project(
    model, pyramid, open_on, qtbot, tmp_path, small_tiles, settle
):
    """They are too large for its file, which has their folder."""
    dock, project = open_on(model, SegmentWidget), open_on(model, ProjectWidget)
    model.open(str(tmp_path / "sheet.zarr" / "0"), plugin="napari")
    label_all(dock, qtbot, tmp_path / "m.ome.zarr")
    labels = np.asarray(large.levels_of(dock.large.layer)[0])

    def save(saved, name):
        saved.save_to(tmp_path / name)
        settle(saved)
        (image,) = saf.load_project(tmp_path / f"{name}.napari-saf").images
        assert [each.path for each in image.results] == [tmp_path / "m.ome.zarr"]
        assert not image.layers

    save(project, "p")
    second = ViewerModel()
    other = open_on(second, ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    assert len(second.layers) == 2, other.status.text
    np.testing.assert_array_equal(np.asarray(large.levels_of(second.layers[1])[0]), labels)
    entry = other.session.model.entries[0]
    other.session.put_away(entry)
    assert not second.layers
    other.images.go_to(entry)
    assert len(second.layers) == 2
    save(other, "q")
