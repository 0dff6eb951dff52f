"""The Sharpen borders dock: borders move, names and colours stay, all of it can be taken back."""

import threading

import dask.array
import numpy as np
import pytest
from gui_cases import TIMEOUT
from label_cases import result_of
from napari.utils.colormaps import DirectLabelColormap
from qtpy.QtWidgets import QPushButton
from skimage.draw import disk

from napari_saf._gui.layers import metadata
from napari_saf._gui.session.layers import layers_of, state_of
from napari_saf._gui.sharpen import dock as sharpen_dock
from napari_saf._gui.sharpen import layers
from napari_saf._gui.sharpen.dock import SharpenWidget
from napari_saf.sharpening import sharpen_labels

pytestmark = pytest.mark.gui
SIDE = 96
FOLLOWED = 60
"""Milliseconds after which the dock has followed the slider and the history."""


def scene(n_planes=0):
    """Return labels of two disks on a background of 1, and an image of them."""
    truth = np.ones((SIDE, SIDE), np.uint8)
    truth[disk((30, 33), 22)] = 5
    truth[disk((70, 64), 19)] = 9
    levels = np.array([0, 40, 0, 0, 0, 120, 0, 0, 0, 200])[truth]
    image = (levels + np.random.default_rng(0).normal(0, 4, truth.shape)).astype(np.float32)
    if n_planes:
        truth, image = (
            np.stack([np.roll(one, 2 * k, 0) for k in range(n_planes)]) for one in (truth, image)
        )
    return truth, image


def jagged(truth):
    """Return labels of an image reduced by 4, moved by a pixel."""
    coarse = np.kron(np.roll(truth, 1, -1)[..., ::4, ::4], np.ones((4, 4), np.uint8))
    return coarse.astype(truth.dtype)


@pytest.fixture
def truth(model):
    truth, image = scene()
    model.add_image(image, name="disks")
    colors = {None: "black", 1: "blue", 5: "red", 9: "yellow"}
    names = {metadata.NAMES_KEY: {5: "large", 9: "small"}}
    colormap = DirectLabelColormap(color_dict=colors)
    model.add_labels(jagged(truth), name="mask", metadata=names, colormap=colormap)
    return truth


@pytest.fixture
def labels(truth, model):
    return model.layers["mask"]


@pytest.fixture
def dock(labels, model, open_on):
    return open_on(model, SharpenWidget)


def error(labels, truth):
    return int((labels.data != truth).sum())


@pytest.fixture
def quick(monkeypatch):
    """Follow the slider, undo and redo soon."""
    monkeypatch.setattr(sharpen_dock, "_PATIENCE", 20)


def move(dock, settle, position):
    """Move the slider, and wait for what follows."""
    dock.borders.slider.setValue(position)
    settle(dock, FOLLOWED)


@pytest.mark.usefixtures("quick")
def test_borders_move_and_all_else_stays_in_one_step_of_the_history(
    dock, labels, truth, model, settle
):
    """Of that of napari and of the dock."""
    before, entries = labels.data.copy(), dict(labels.metadata)
    colors, image = metadata.colors_of(labels, np.arange(10)), model.layers["disks"]
    assert dock.labels.layer == labels and dock.image.layer == image
    dock.start()
    settle(dock)
    sharp = labels.data.copy()
    assert np.array_equal(sharp, sharpen_labels(before, image.data))
    assert error(labels, truth) < 0.2 * (before != truth).sum()
    assert labels.name == "mask" and metadata.class_names(labels) == {5: "large", 9: "small"}
    assert np.array_equal(metadata.colors_of(labels, np.arange(10)), colors)
    assert dock.status.text.startswith(f"{(sharp != before).sum()} pixels changed")
    assert labels.metadata[metadata.EDITED_KEY]
    dock.undo_button.click()
    assert np.array_equal(labels.data, before) and labels.metadata == entries
    assert not dock.undo_button.isEnabled()
    dock.start()
    settle(dock)
    labels.undo()
    settle(dock, FOLLOWED)
    assert np.array_equal(labels.data, before) and labels.metadata == entries
    assert not dock.undo_button.isEnabled()
    labels.redo()
    settle(dock, FOLLOWED)
    assert np.array_equal(labels.data, sharp) and metadata.EDITS_KEY in labels.metadata
    assert dock.undo_button.isEnabled()


@pytest.mark.usefixtures("quick")
def test_the_slider_sharpens_the_labels_as_they_were_from_both_ends(dock, labels, model, settle):
    image, before = model.layers["disks"].data, labels.data.copy()
    move(dock, settle, 11)  # not before a click
    assert np.array_equal(labels.data, before) and not dock.borders.automatic.isChecked()
    dock.start()
    settle(dock)
    for position, strength in ((6, 0.5), (1, 0.0), (0, None), (11, 1.0)):
        move(dock, settle, position)
        expected = sharpen_labels(before, image, strength=strength) if position else before
        assert np.array_equal(labels.data, expected), position
    labels.undo()  # all of it is one step
    assert np.array_equal(labels.data, before)
    dock.reach.choose(12)
    dock.borders.automatic.setChecked(True)
    settle(dock, FOLLOWED)
    assert np.array_equal(labels.data, sharpen_labels(before, image, reach=12))


@pytest.mark.usefixtures("quick")
def test_strokes_that_are_painted_later_stay(dock, labels, settle):
    dock.start()
    settle(dock)
    labels.data_setitem((np.arange(4), np.arange(4)), 7)
    sharp = labels.data.copy()
    dock.undo_button.click()
    assert (labels.data[np.arange(4), np.arange(4)] == 7).all() and (labels.data == 7).sum() == 4
    labels.undo()
    assert np.array_equal(labels.data, sharp)
    dock.undo()
    where = np.nonzero(labels.data == 5)
    labels.data_setitem(where, 9)  # of which the dock knows nothing
    painted = labels.data.copy()
    move(dock, settle, 9)
    move(dock, settle, 0)
    assert np.array_equal(labels.data, painted)


def test_what_is_too_large_for_the_history_comes_back_by_the_dock(
    dock, labels, settle, monkeypatch
):
    monkeypatch.setattr(layers, "MOST_UNDONE", 3)
    before, entries = labels.data.copy(), dict(labels.metadata)
    dock.start()
    settle(dock)
    sharp = labels.data.copy()
    labels.undo()
    assert np.array_equal(labels.data, sharp) and metadata.EDITED_KEY in labels.metadata
    dock.undo()
    assert np.array_equal(labels.data, before) and labels.metadata == entries


@pytest.fixture
def slow(monkeypatch):
    """Hold each call of `sharpen_labels` back until it is let go; note the strengths."""
    began, go_on, strengths = threading.Semaphore(0), threading.Semaphore(0), []

    def wait(labels, image, **options):
        strengths.append(options["strength"])
        began.release()
        assert go_on.acquire(timeout=TIMEOUT / 1000)
        return sharpen_labels(labels, image, **options)

    monkeypatch.setattr(layers, "sharpen_labels", wait)
    yield began, go_on, strengths
    go_on.release(100)


def add_stack(model, n_planes=3):
    truth, image = scene(n_planes)
    model.add_image(image, name="stack")
    return truth, model.add_labels(jagged(truth), name="stack of masks")


@pytest.mark.usefixtures("quick")
def test_stop_between_planes_changes_nothing_and_the_slider_starts_anew(
    model, open_on, settle, slow, qtbot
):
    _, labels = add_stack(model)
    before, dock = labels.data.copy(), open_on(model, SharpenWidget)
    began, go_on, strengths = slow
    dock.start()
    assert began.acquire(timeout=TIMEOUT / 1000)
    assert dock.panel.stop_button.isEnabled() and not dock.button.isEnabled()
    dock.panel.stop_button.click()
    go_on.release()
    settle(dock)
    assert np.array_equal(labels.data, before) and dock.status.text.startswith("stopped")
    assert dock.button.isEnabled() and not dock.undo_button.isEnabled()
    strengths.clear()
    dock.start()
    assert began.acquire(timeout=TIMEOUT / 1000)
    for position in (3, 7, 11):
        dock.borders.slider.setValue(position)
    qtbot.wait(FOLLOWED)
    go_on.release(100)
    qtbot.waitUntil(lambda: len(strengths) > 3 and not dock.panel.is_busy, timeout=TIMEOUT)
    assert strengths == [None, 1.0, 1.0, 1.0]
    pairs = zip(before, model.layers["stack"].data, strict=True)
    assert np.array_equal(labels.data, [sharpen_labels(*pair, strength=1.0) for pair in pairs])


def test_layers_that_go_or_change_on_the_way_are_left_alone(dock, labels, model, settle, slow):
    began, go_on, _ = slow

    def start_and(change):
        dock.start()
        assert began.acquire(timeout=TIMEOUT / 1000)
        change()
        now = labels.data.copy()
        go_on.release()
        settle(dock)
        return now

    for change in (
        lambda: labels.data.__setitem__(..., 9),
        lambda: setattr(labels, "data", np.ones_like(labels.data)),
    ):
        assert np.array_equal(start_and(change), labels.data)
        assert "edited meanwhile" in dock.status.text
        labels.data = jagged(scene()[0])
    before, image = labels.data.copy(), model.layers["disks"].data
    start_and(lambda: model.layers.remove("disks"))
    sharp = sharpen_labels(before, image)  # of all of the image, or of nothing
    assert any(np.array_equal(labels.data, whole) for whole in (before, sharp))
    assert not dock.button.isEnabled()
    dock.undo()
    assert np.array_equal(labels.data, before)
    dock.image.choose(model.add_image(image))
    assert np.array_equal(start_and(lambda: model.layers.remove("mask")), labels.data)
    assert dock.labels.layer is None and not dock.button.isEnabled()
    dock.start()  # of nothing
    assert not dock.panel.is_busy and "no labels" in dock.status.text


@pytest.mark.usefixtures("quick")
def test_planes_are_sharpened_by_themselves_or_as_a_volume(model, open_on, settle):
    _, labels = add_stack(model)
    before, dock = labels.data.copy(), open_on(model, SharpenWidget)
    image = model.layers["stack"].data
    dock.start()
    settle(dock)
    planes = [sharpen_labels(*pair) for pair in zip(before, image, strict=True)]
    assert np.array_equal(labels.data, planes)
    assert not np.array_equal(sharpen_labels(before, image), planes)
    dock.volume.setChecked(True)
    settle(dock, FOLLOWED)
    assert np.array_equal(labels.data, sharpen_labels(before, image))


def test_channels_slices_and_pixels_that_are_not_finite(model, open_on, settle):
    truth, image = scene()
    colours = np.repeat(image[..., None], 3, -1).clip(0, 255).astype(np.uint8)
    model.add_image(colours, name="colours", rgb=True)
    labels = model.add_labels(jagged(truth), name="colours [SAF]")
    dock = open_on(model, SharpenWidget)
    assert not dock._rows.is_shown(dock.volume)
    dock.start()
    settle(dock)
    assert np.array_equal(labels.data, sharpen_labels(jagged(truth), colours))
    holes = image.copy()
    holes[:40, :40] = np.nan
    dock.labels.choose(labels)
    dock.image.choose(model.add_image(holes))
    dock.start()
    settle(dock)
    assert np.array_equal(labels.data[:40, :40], jagged(truth)[:40, :40])
    assert (labels.data != jagged(truth)).any()
    model.add_image(np.stack([image] * 2), name="frames")
    frame = model.add_labels(jagged(truth)[None], name="frames [SAF]", translate=(1, 0, 0))
    dock.labels.choose(frame)
    assert dock.image.layer == model.layers["frames"] and not dock._rows.is_shown(dock.volume)
    dock.start()
    settle(dock)
    assert np.array_equal(frame.data[0], sharpen_labels(jagged(truth), image))


def test_what_cannot_be_sharpened_is_refused_in_words(model, open_on, settle):
    truth, image = scene()
    dock = open_on(model, SharpenWidget)
    assert "no labels" in dock.status.text
    mask = jagged(truth)
    model.add_image(image, name="image")
    read_only = mask.copy()
    read_only.flags.writeable = False
    for words, labels in (
        ("napari-saf sharpen", model.add_labels(dask.array.from_array(mask))),
        ("napari-saf sharpen", model.add_labels([mask, mask[::2, ::2]], multiscale=True)),
        ("duplicate", model.add_labels(read_only)),
        ("shape and scale", model.add_labels(mask[:90], translate=(60, 0))),
        ("shape and scale", model.add_labels(mask, scale=(2, 2))),
        ("strokes", model.add_labels(mask, metadata={metadata.STROKES_KEY: "of no image"})),
    ):
        dock.labels.choose(labels)
        assert words in dock.status.text and words in dock.button.toolTip(), words
        assert not dock.button.isEnabled()
        dock.start()
        assert not dock.panel.is_busy
    dock.labels.choose(model.add_labels(mask))
    assert dock.button.isEnabled() and not dock.status.text
    negative = mask.astype(int)
    negative[0, 0] = -1
    dock.labels.choose(model.add_labels(negative))
    dock.start()
    settle(dock)
    assert dock.status.is_error and "expected 0" in dock.status.text


def test_results_keep_their_recipe_and_lose_maps_that_are_of_other_labels(model, open_on, settle):
    truth, image = scene()
    model.add_image(image, name="image")
    entry = result_of(image, jagged(truth))
    soft = entry[metadata.METADATA_KEY][metadata.SOFT_KEY] = object()
    labels = model.add_labels(jagged(truth), name="image [SAF]", metadata=entry)
    labels.visible = False
    dock = open_on(model, SharpenWidget)
    before = dict(metadata.metadata_of(labels))
    dock.start()
    settle(dock)
    now = metadata.metadata_of(labels)
    assert labels.visible and metadata.recipe_of(labels).plain == before["recipe"]
    assert metadata.SOFT_KEY not in now and now[metadata.EDITED_KEY]
    assert now[metadata.EDITS_KEY] == ("borders sharpened: reach automatic, strength automatic",)
    (entry,) = dock.workspace.session.model.entries
    assert [one.layer.is_edited for one in map(state_of, layers_of(model, entry.layer))] == [True]
    dock.undo()
    assert metadata.metadata_of(labels) == before and now[metadata.SOFT_KEY] is soft


def test_export_opens_it_on_its_layers_also_out_of_sight(viewer, settle):
    """Of those napari has no slice that a part could be drawn of."""
    truth, image = scene(3)
    viewer.add_image(np.stack([image] * 2), name="longer")
    stack, labels = viewer.add_image(image, name="stack"), viewer.add_labels(jagged(truth))
    stack.translate = labels.translate = (50, 0, 0)
    viewer.add_labels(np.ones((3, 3), int), name="others")
    export = viewer.window.add_plugin_dock_widget("napari-saf", "Export")[1]
    export.labels.choose(labels)
    export.image.choose(stack)
    (button,) = (one for one in export.findChildren(QPushButton) if "Sharpen" in one.text())
    button.click()
    dock = export.workspace.docks["Sharpen borders"]
    assert dock.labels.layer == labels and dock.image.layer == stack
    viewer.dims.set_point(1, 0)
    for visible in (True, False):
        labels.visible = visible
        dock.start()
        settle(dock)
        assert (labels.data != jagged(truth)).any() and labels.visible
        dock.undo()
        assert np.array_equal(labels.data, jagged(truth))
