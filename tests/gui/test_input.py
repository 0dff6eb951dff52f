"""What images the Segment dock takes, where the labels land, and what it refuses."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import numpy as np
import pytest
from gui_cases import blocks, stack
from napari.layers import Labels
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.input import PLAIN
from napari_saf.problem import ImageOptions

pytestmark = pytest.mark.gui


def add(viewer, dock, data, **options):
    layer = viewer.add_image(data, **options)
    dock.input.choose(image=layer)
    return layer


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def chosen(viewer, qtbot):
    """The controls that say what to label, in a viewer that has an RGB image."""
    viewer.add_image(blocks(), name="blocks")
    controls = ImageInput(viewer)
    for widget in (controls.section, controls.features, controls.scale):
        qtbot.addWidget(widget)
    return controls


def offer(viewer, chosen, data, **options):
    layer = viewer.add_image(data, **options)
    chosen.choose(image=layer)
    return layer


def result_of(viewer, image):
    (layer,) = [x for x in viewer.layers if isinstance(x, Labels) and x.name.startswith(image.name)]
    return layer


def gray() -> np.ndarray:
    return blocks(16).mean(axis=2)


KINDS = {
    "bool": (gray() > 100, {}, gray() > 100),
    "rgba": (np.dstack([blocks(16), np.full((16, 16), 255, np.uint8)]), {}, blocks(16)),
    "channels in front": (np.moveaxis(blocks(16), -1, 0), {"channels": 0}, blocks(16)),
    "slice": (stack(), {"extent": "slice", "channels": None}, stack()[2]),
    "volume": (stack(), {"extent": "volume"}, stack()),
}


def test_every_kind_of_image_is_labelled_as_by_the_library(viewer, dock, run):
    dock.input.scale.set_value(3)
    for name, (data, choice, read) in KINDS.items():
        image = add(viewer, dock, data, name=name, rgb=name == "rgba")
        viewer.dims.set_point(0, 2)
        dock.input.choose(**choice)
        run(dock)
        assert not dock.status.is_error, (name, dock.status.text)
        expected = saf.SelfAssignmentFlow().run(saf.Problem.from_image(read, window=3, **PLAIN))
        labels = result_of(viewer, image).data
        np.testing.assert_array_equal(labels.reshape(expected.labels.shape), expected.labels, name)
    thin = add(viewer, dock, stack()[:, :, :4].copy(), name="no colours", rgb=False)
    dock.input.choose(extent="volume")
    run(dock)
    assert result_of(viewer, thin).data.shape == (5, 16, 4)


def test_docks_start_with_the_active_image_or_the_selected_ones(model, open_on):
    images = [model.add_image(blocks()) for _ in range(3)]
    labels = model.add_labels(np.ones((32, 32), int))
    for kind in (SegmentWidget, ScribblesWidget, CompareWidget):
        for active, image in ((labels, images[0]), (images[1], images[1])):
            model.layers.selection.active = active
            dock = open_on(model, kind)
            assert dock.input.image is image
        model.layers.selection.active = images[2]
        assert dock.input.image is images[1]
    model.layers.selection = {images[1], images[2]}
    assert open_on(model, DictionaryWidget).images.chosen() == images[1:]


def test_the_axis_of_the_channels_is_offered_by_name_and_kept_for_images_of_its_kind(
    viewer, chosen
):
    section, choices = chosen.section, chosen.choices
    assert not any(section.is_shown(choices[name]) for name in ("channels", "extent"))
    axes = {"axis_labels": ("z", "y", "x")}
    first = offer(viewer, chosen, np.zeros((3, 20, 24)), **axes)
    assert all(section.is_shown(choices[name]) for name in ("channels", "extent"))
    assert choices["channels"].itemText(1) == "z  (3 channels)"
    chosen.choose(channels=0)
    assert not section.is_shown(choices["extent"])
    offer(viewer, chosen, np.ones((3, 16, 18)), **axes)
    assert chosen.read().job().options.channel_axis == 0
    offer(viewer, chosen, np.ones((7, 16, 18)), **axes)
    assert chosen.read().job().options.channel_axis is None
    chosen.choose(image=first)
    assert chosen.read().job().options.channel_axis is None


def test_a_lazy_image_is_read_in_the_thread_if_it_fits(viewer, dock, run, monkeypatch):
    readers = []

    def block(block_info=None):
        readers.append(threading.current_thread().name)
        return stack()[:1]

    lazy = da.map_blocks(block, chunks=((1,) * 5, (16,), (16,)), dtype=np.float32)
    with dask.config.set(scheduler="synchronous"):
        image = add(viewer, dock, lazy, name="lazy", contrast_limits=(0, 1))
        dock.input.choose(extent="volume")
        readers.clear()
        with monkeypatch.context() as patch:
            patch.setattr("napari_saf.device.free_memory", lambda: 1000)
            assert run(dock) is None
        assert "not enough memory" in dock.status.text and "one slice" in dock.status.text
        assert not readers
        run(dock)
    assert readers.count("napari-saf run") == 5
    assert result_of(viewer, image).data.shape == (5, 16, 16)


def test_pixels_that_are_no_numbers_are_counted_and_masked_with_the_mask(viewer, dock, run):
    data = blocks().mean(axis=2)
    data[3, :7] = np.nan
    layer = add(viewer, dock, data, name="holes")
    assert run(dock) is None
    assert dock.status.is_error and "7 of 1024 pixels" in dock.status.text
    assert dock.status.suggested_action == "Mask them and run"
    result = run(dock, start=dock.status.action_button.click)
    assert not dock.status.is_error and dock.status.suggested_action == ""
    np.testing.assert_array_equal(result.labels == 0, np.isnan(data))
    mask = np.arange(32) < 16 * np.ones((32, 1), int)
    dock.input.choose(mask=viewer.add_labels(mask.astype(int)))
    assert run(dock) is None
    result = run(dock, start=dock.status.action_button.click)
    np.testing.assert_array_equal(result.labels > 0, mask & np.isfinite(data))
    # where it would not help
    data[2:] = 0.5
    layer.data = data
    dock.input.choose(mask=viewer.add_labels((data == 0.5).astype(int)))
    assert run(dock) is None
    assert "expected differing values" in dock.status.text and not dock.status.suggested_action
    layer.data = np.full((32, 32), np.nan, dtype=np.float32)
    dock.input.choose(mask=None)
    assert run(dock) is None
    assert "all of them are NaN" in dock.status.text and not dock.status.suggested_action


def test_bad_input_and_faults_are_told_and_the_app_goes_on(viewer, dock, run, monkeypatch):
    good, ones = dock.input.image, viewer.add_labels(np.ones((9, 9), int))
    constant = viewer.add_image(np.full((32, 32), 3.0))
    empty = viewer.add_labels(np.zeros((32, 32), int))
    before = list(viewer.layers)

    def refused(*words):
        assert run(dock) is None
        assert dock.status.is_error and all(each in dock.status.text for each in words)
        assert not dock.controller.is_running
        dock.input.choose(image=good, mask=None, strokes=None)

    for choice, words in (
        ({"image": constant}, "differing values"),
        ({"mask": empty}, "empty mask"),
        ({"mask": ones}, "Mask: expected the image's shape"),
        ({"strokes": ones}, "Strokes: expected the image's shape (32, 32)"),
    ):
        dock.input.choose(**choice)
        refused(words)
    dock.form.choose("fair")
    dock.form.fields["proportions"].control.setText("a half")
    dock.start()
    assert dock.status.is_error and "a half" in dock.status.text
    dock.form.choose("saf")
    with monkeypatch.context() as patch:
        patch.setattr("napari_saf.device.free_memory", lambda: 1000)
        refused("not enough memory", "fewer labels")
    assert list(viewer.layers) == before
    for error in (RuntimeError, MemoryError, KeyError):

        def fail(*arguments, error=error):
            raise error("out of luck")

        with monkeypatch.context() as patch:
            patch.setattr("napari_saf.flow._loop.FlowRun._advance", fail)
            refused("out of luck")
    assert run(dock) is not None and not dock.status.is_error


def test_what_is_less_than_was_asked_for_is_said(viewer, dock, run):
    add(viewer, dock, np.repeat([[0.0, 1.0]], 32, axis=0).repeat(16, axis=1), name="two")
    dock.input.scale.set_value(1)
    dock.form.set_values({"max_labels": 9})
    run(dock)
    assert "labels reduced to 2" in dock.status.text
    add(viewer, dock, blocks().mean(axis=2)[:20], name="low")
    dock.input.scale.set_value(25)
    assert run(dock).recipe["input"]["window"] == (19, 25)
    assert "scale along axis -2: 19 px" in dock.status.text


def test_what_is_read_follows_each_change(viewer, chosen):
    offer(viewer, chosen, stack(), name="stack")
    labels = viewer.add_labels(np.ones((5, 16, 16), int), name="labels")
    chosen.show_row("groups", True)
    for name, value in {
        "extent": "volume",
        "channels": 0,
        "groups": labels,
        "features": "multiscale",
        "weights": "contrast",
        "max_side": 77,
        "full_resolution": False,
        "mask": labels,
        "strokes": labels,
        "image": viewer.layers["blocks"],
    }.items():
        before = chosen.read()
        assert chosen.read() is before
        chosen.choose(**{name: value})
        after = chosen.read()
        assert after is not before and chosen.read() is after, name
        is_option = hasattr(after.options, name) and name != "groups"
        owner = after.options if is_option else after
        assert getattr(owner, {"channels": "channel_axis"}.get(name, name)) == value
    chosen.choose(mask=labels)
    viewer.layers.remove(labels)
    assert chosen.read().mask is None


def test_each_volume_of_a_series_by_itself(viewer, dock, run):
    series = np.stack([stack(), stack()[::-1], stack()])
    layer = add(viewer, dock, series, name="series")
    dock.input.choose(extent="volumes")
    dock.input.scale.set_value(5)
    result = run(dock)
    assert tuple(result.recipe["input"]["window"]) == (1, 5, 5, 5)
    assert result_of(viewer, layer).data.shape == series.shape
    np.testing.assert_array_equal(result.labels[0], result.labels[2])
    dock.input.choose(image=viewer.layers["blocks"])
    assert "volumes" not in dock.input.choices["extent"].values()


def test_sizes_that_are_not_offered_can_be_typed_and_even_scales_become_odd(viewer, qtbot):
    chosen = ImageInput(viewer, ImageOptions())
    box = chosen.choices["max_side"].control
    qtbot.addWidget(chosen.features)
    sizes = box.values()
    for typed, side in (
        ("0077 px", 77),
        ("full", None),
        ("Auto", "auto"),
        ("0", 240),
        ("large", 240),
    ):
        chosen.choose(max_side=240)
        box.lineEdit().selectAll()
        qtbot.keyClicks(box.lineEdit(), typed)
        qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)
        assert box.value == chosen.read().options.max_side == side, typed
    chosen.choose(max_side=77)
    assert chosen.read().options.max_side == 77 and {*sizes, 77} <= set(box.values())
    for width, value in ((8, 9), (0, 1)):
        chosen.scale.set_value(width)
        assert chosen.scale.value == value
