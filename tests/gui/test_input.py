"""What images the Segment dock takes, where the labels land, and what it refuses."""

from __future__ import annotations

import threading

import dask
import dask.array as da
import numpy as np
import pytest
from gui_cases import blocks, stack
from napari.components import ViewerModel
from napari.layers import Image, Labels
from qtpy.QtCore import QEvent, QPoint, Qt
from qtpy.QtGui import QHelpEvent
from qtpy.QtWidgets import QSlider

import napari_saf as saf
from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection
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
def viewer():
    """A viewer without a window."""
    return ViewerModel()


@pytest.fixture
def dock(viewer, qtbot):
    """The Segment dock, in a viewer that has an RGB image."""
    viewer.add_image(blocks(), name="blocks")
    found = SegmentWidget(viewer)
    qtbot.addWidget(found, before_close_func=SegmentWidget.shut_down)
    return found


@pytest.fixture
def chosen(viewer, qtbot):
    """The controls that say what to label, in a viewer that has an RGB image."""
    viewer.add_image(blocks(), name="blocks")
    found = ImageInput(viewer)
    for widget in (found.section, found.features, found.scale):
        qtbot.addWidget(widget)
    return found


def offer(viewer, chosen, data, **options):
    layer = viewer.add_image(data, **options)
    chosen.choose(image=layer)
    return layer


def result_of(viewer, image):
    (layer,) = [x for x in viewer.layers if isinstance(x, Labels) and x.name.startswith(image.name)]
    return layer


def gray() -> np.ndarray:
    return blocks().mean(axis=2)


@pytest.mark.parametrize(
    ("data", "choice", "read"),
    [
        pytest.param(gray(), {}, gray(), marks=pytest.mark.exhaustive),
        pytest.param(
            *(gray().astype(np.uint16) * 200, {}, gray().astype(np.uint16) * 200),
            marks=pytest.mark.exhaustive,
        ),
        (gray() > 100, {}, gray() > 100),
        (np.dstack([blocks(), np.full((32, 32), 255, np.uint8)]), {}, blocks()),
        (da.from_array(gray(), chunks=(8, 32)), {}, gray()),
        (np.moveaxis(blocks(), -1, 0), {"channels": 0}, blocks()),
        (stack(), {"extent": "volume"}, stack()),
    ],
    ids=["float", "uint16", "bool", "rgba", "dask", "channels in front", "volume"],
)
def test_every_kind_of_image(viewer, dock, run, data, choice, read):
    image = add(viewer, dock, data, name="tried")
    dock.input.choose(**choice)
    run(dock)
    assert not dock.status.is_error, dock.status.text
    layer = result_of(viewer, image)
    assert layer.data.shape == read.shape[: layer.ndim] and layer.data.min() == 1
    problem = saf.Problem.from_image(read, window=dock.input.scale.value, **PLAIN)
    expected = saf.SelfAssignmentFlow().run(problem)
    np.testing.assert_array_equal(layer.data, expected.labels)


@pytest.mark.parametrize("kind", [SegmentWidget, ScribblesWidget, CompareWidget])
def test_a_dock_starts_with_the_active_image(model, open_on, kind):
    viewer = model
    active = [viewer.add_image(blocks()) for _ in range(3)][1]
    viewer.layers.selection.active = active
    dock = open_on(viewer, kind)
    assert dock.input.image is active
    viewer.layers.selection.active = viewer.layers[2]
    assert dock.input.image is active


def test_a_dictionary_is_learned_from_the_selected_images(model, open_on):
    viewer = model
    images = [viewer.add_image(gray()) for _ in range(3)]
    viewer.layers.selection = {images[1], images[2]}
    dock = open_on(viewer, DictionaryWidget)
    assert dock.images.chosen() == images[1:]


def test_an_active_layer_that_is_no_image_leaves_the_first(viewer, qtbot):
    first = viewer.add_image(blocks())
    viewer.add_image(blocks())
    viewer.add_labels(np.ones((32, 32), int))
    found = ImageInput(viewer)
    for widget in (found.section, found.features, found.scale):
        qtbot.addWidget(widget)
    assert found.image is first


def test_the_axis_of_the_channels_is_kept_for_the_next_image_of_its_kind(viewer, chosen):
    first = offer(viewer, chosen, np.zeros((3, 20, 24)), name="first")
    chosen.choose(channels=0)
    offer(viewer, chosen, np.ones((3, 16, 18)), name="second")
    assert chosen.read().job().options.channel_axis == 0
    offer(viewer, chosen, np.ones((7, 16, 18)), name="of seven")
    assert chosen.read().job().options.channel_axis is None
    chosen.choose(image=first)
    assert chosen.read().job().options.channel_axis is None


def test_rows_appear_only_where_there_is_a_choice(viewer, chosen):
    section = chosen.section
    assert not section.is_shown(chosen.choices["channels"])
    assert not section.is_shown(chosen.choices["extent"])
    offer(viewer, chosen, stack())
    assert section.is_shown(chosen.choices["channels"])
    assert section.is_shown(chosen.choices["extent"])
    chosen.choose(channels=0)
    assert not section.is_shown(chosen.choices["extent"])


def test_axes_are_called_as_beside_their_sliders(viewer, chosen):
    blocks = chosen.image
    image = offer(viewer, chosen, stack(), name="stack")
    assert chosen.choices["channels"].itemText(1) == "-3  (5 channels)"
    image.axis_labels = ("z", "y", "x")
    chosen.choose(image=blocks)
    chosen.choose(image=image)
    assert chosen.choices["channels"].itemText(1) == "z  (5 channels)"


def test_the_slice_on_screen(viewer, dock, run):
    image = add(viewer, dock, stack(), name="stack", scale=(2, 1, 1), translate=(10, 0, 0))
    viewer.dims.set_point(0, 10 + 2 * 3)
    result = run(dock)
    layer = result_of(viewer, image)
    expected = saf.SelfAssignmentFlow().run(
        saf.Problem.from_image(stack()[3], window=dock.input.scale.value, **PLAIN)
    )
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert layer.data.shape == (1, 16, 16)
    np.testing.assert_allclose(layer.translate, (16, 0, 0))
    np.testing.assert_allclose(layer.scale, (2, 1, 1))


def test_a_stack_whose_last_axis_could_be_colours(viewer, dock, run):
    image = add(viewer, dock, stack()[:, :, :4].copy(), name="thin", rgb=False)
    dock.input.choose(extent="volume")
    dock.input.scale.set_value(3)
    run(dock)
    assert result_of(viewer, image).data.shape == (5, 16, 4)


def test_a_lazy_image_is_read_in_the_thread(viewer, dock, run):
    readers = []

    def block(block_info=None):
        readers.append(threading.current_thread().name)
        return stack()[:1]

    lazy = da.map_blocks(block, chunks=((1,) * 5, (16,), (16,)), dtype=np.float32)
    with dask.config.set(scheduler="synchronous"):
        image = add(viewer, dock, lazy, name="lazy", contrast_limits=(0, 1))
        dock.input.choose(extent="volume")
        run(dock)
    assert readers.count("napari-saf run") == 5
    assert result_of(viewer, image).data.shape == (5, 16, 16)


def test_place_and_units_are_carried(viewer, dock, run):
    image = add(
        viewer,
        dock,
        blocks(),
        name="placed",
        scale=(0.5, 0.25),
        translate=(3, 4),
        rotate=30,
        units=("um", "um"),
        axis_labels=("y", "x"),
    )
    run(dock)
    layer = result_of(viewer, image)
    for point in ((0, 0), (5, 9)):
        np.testing.assert_allclose(layer.data_to_world(point), image.data_to_world(point))
    assert layer.units == image.units
    assert layer.axis_labels == image.axis_labels


def test_a_mask(viewer, dock, run):
    mask = np.zeros((32, 32), dtype=int)
    mask[4:20, 4:20] = 1
    dock.input.choose(mask=viewer.add_labels(mask, name="inside"))
    result = run(dock)
    np.testing.assert_array_equal(result.labels > 0, mask > 0)


def test_nan_pixels_are_counted_and_can_be_masked(viewer, dock, run):
    data = gray()
    data[3, :7] = np.nan
    image = add(viewer, dock, data, name="holes")
    assert run(dock) is None
    assert dock.status.is_error and "7 of 1024 pixels" in dock.status.text
    assert dock.status.suggested_action == "Mask them and run"
    run(dock, start=dock.status.action_button.click)
    assert not dock.status.is_error
    assert dock.status.suggested_action == ""
    np.testing.assert_array_equal(result_of(viewer, image).data == 0, np.isnan(data))


def test_nan_pixels_and_a_mask(viewer, dock, run):
    data = gray()
    data[3, :7] = np.inf
    add(viewer, dock, data, name="holes")
    mask = np.zeros((32, 32), dtype=int)
    mask[:, :16] = 1
    dock.input.choose(mask=viewer.add_labels(mask))
    assert run(dock) is None
    result = run(dock, start=dock.status.action_button.click)
    np.testing.assert_array_equal(result.labels > 0, (mask > 0) & np.isfinite(data))
    dock.input.choose(mask=viewer.add_labels(np.ones((9, 9), int)))
    assert run(dock) is None
    assert "Mask: expected the image's shape" in dock.status.text


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda v, d: add(v, d, np.full((32, 32), 3.0)), "differing values"),
        (
            lambda v, d: d.input.choose(mask=v.add_labels(np.zeros((32, 32), int))),
            "empty mask",
        ),
        (
            lambda v, d: d.input.choose(mask=v.add_labels(np.ones((9, 9), int))),
            "Mask: expected the image's shape",
        ),
        (
            lambda v, d: d.input.choose(strokes=v.add_labels(np.ones((9, 9), int))),
            "Strokes: expected the image's shape (32, 32)",
        ),
    ],
    ids=["constant", "empty mask", "mask shape", "strokes outside"],
)
def test_bad_input_is_told_and_the_app_goes_on(viewer, dock, run, prepare, words):
    good = dock.input.image
    n_labels = sum(isinstance(layer, Labels) for layer in viewer.layers)
    prepare(viewer, dock)
    given = sum(isinstance(layer, Labels) for layer in viewer.layers) - n_labels
    assert run(dock) is None
    assert dock.status.is_error and words in dock.status.text
    assert sum(isinstance(layer, Labels) for layer in viewer.layers) == n_labels + given
    dock.input.choose(image=good)
    dock.input.choose(mask=None)
    dock.input.choose(strokes=None)
    dock.input.scale.set_value(3)
    assert run(dock) is not None
    assert not dock.status.is_error


def test_too_little_memory(dock, run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("napari_saf.device.free_memory", lambda: 1000)
        assert run(dock) is None
    assert "not enough memory" in dock.status.text and "fewer labels" in dock.status.text
    assert run(dock) is not None


def test_a_lazy_image_that_does_not_fit_is_not_read(viewer, dock, run, monkeypatch):
    image = da.from_array(gray(), chunks=8)
    dock.input.choose(image=viewer.add_image(image, name="lazy"))
    with monkeypatch.context() as patch:
        patch.setattr("napari_saf.device.free_memory", lambda: 1000)
        assert run(dock) is None
    assert "not enough memory" in dock.status.text and "one slice" in dock.status.text
    assert run(dock) is not None


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyError])
def test_what_goes_wrong_in_the_thread_is_told(dock, run, monkeypatch, error):
    def fail(*args, **options):
        raise error("out of luck")

    monkeypatch.setattr("napari_saf.flow._loop.FlowRun._advance", fail)
    assert run(dock) is None
    assert dock.status.is_error and "out of luck" in dock.status.text
    assert not dock.controller.is_running


def test_fewer_features_than_labels_is_said(viewer, dock, run):
    add(viewer, dock, np.repeat([[0.0, 1.0]], 32, axis=0).repeat(16, axis=1), name="two")
    dock.input.scale.set_value(1)
    dock.form.set_values({"max_labels": 9})
    run(dock)
    assert "labels reduced to 2" in dock.status.text


def test_even_numbers_become_odd(chosen):
    chosen.scale.set_value(8)
    assert chosen.scale.value == 9
    chosen.scale.findChild(QSlider).setValue(3)
    assert chosen.scale.value == 7


CHANGES = {
    "channels": lambda viewer: {"channels": 0},
    "extent": lambda viewer: {"extent": "volume"},
    "groups": lambda viewer: {"groups": viewer.layers["labels"]},
    "features": lambda viewer: {"features": "multiscale"},
    "network": lambda viewer: {"features": saf.DeepFeatures(weights_file="a.safetensors")},
    "weights": lambda viewer: {"weights": "contrast"},
    "max_side": lambda viewer: {"max_side": 77},
    "full_resolution": lambda viewer: {"full_resolution": False},
    "mask": lambda viewer: {"mask": viewer.layers["labels"]},
    "strokes": lambda viewer: {"strokes": viewer.layers["labels"]},
    "image": lambda viewer: {"image": viewer.layers["blocks"]},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_read_follows_each_change(viewer, chosen, change):
    offer(viewer, chosen, stack(), name="stack")
    viewer.add_labels(np.ones((5, 16, 16), int), name="labels")
    chosen.show_row("groups", True)
    before = chosen.read()
    assert chosen.read() is before
    chosen.choose(**change(viewer))
    after = chosen.read()
    assert after is not before and chosen.read() is after
    for name, value in change(viewer).items():
        owner = after.options if hasattr(after.options, name) and name != "groups" else after
        assert getattr(owner, {"channels": "channel_axis"}.get(name, name)) == value


def test_what_was_learned_comes_back_with_features_until_their_rows_say_otherwise(chosen):
    fitted = saf.DeepFeatures(weights_file="a.safetensors", sha256="0" * 64)
    chosen.choose(features=fitted)
    assert chosen.read().options.features == fitted
    chosen.extractors["deep"].fields["n_components"].value = 16
    assert chosen.read().options.features == saf.DeepFeatures(
        weights_file="a.safetensors", n_components=16
    )


def test_a_layer_that_is_removed_is_not_read(viewer, chosen):
    mask = viewer.add_labels(np.ones((32, 32), int))
    chosen.choose(mask=mask)
    assert chosen.read().mask is mask
    viewer.layers.remove(mask)
    assert chosen.read().mask is None


def test_a_scale_larger_than_a_picture_is_as_large_as_it(viewer, dock, run):
    add(viewer, dock, gray()[:20], name="low")
    dock.input.scale.set_value(25)
    assert run(dock).recipe["input"]["window"] == (19, 25)
    assert "scale along axis -2: 19 px" in dock.status.text
    dock.form.choose("slk")
    assert not run(dock).recipe["input"]["window"] == 25


def test_no_suggested_action_where_masking_pixels_would_not_help(viewer, dock, run):
    image = np.full((16, 16), np.nan, dtype=np.float32)
    layer = viewer.add_image(image, contrast_limits=(0, 1))
    dock.input.choose(image=layer)
    run(dock)
    assert "all of them are NaN or infinite" in dock.status.text
    assert dock.status.suggested_action == ""
    image[2:] = 0.5
    layer.data = image
    dock.input.choose(mask=viewer.add_labels((image == 0.5).astype(int)))
    run(dock)
    assert "expected differing values" in dock.status.text
    assert dock.status.suggested_action == ""


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


@pytest.mark.parametrize(
    ("typed", "side", "shown"),
    [
        ("300", 300, "300 px"),
        ("0077 px", 77, "77 px"),
        ("240", 240, "240 px"),
        ("full", None, "full size"),
        ("Auto", "auto", "automatic"),
        ("0", 240, "240 px"),
        ("large", 240, "240 px"),
        ("", 240, "240 px"),
    ],
)
def test_any_size_to_compute_at_can_be_typed(viewer, qtbot, typed, side, shown):
    chosen = ImageInput(viewer, ImageOptions())
    chosen.choose(max_side=240)
    box = chosen.choices["max_side"].control
    qtbot.addWidget(chosen.features)
    changes = []
    chosen.options_changed.connect(lambda: changes.append(box.value))
    box.lineEdit().selectAll()
    qtbot.keyClicks(box.lineEdit(), typed)
    if not typed:
        box.lineEdit().clear()
    qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)
    assert (box.value, box.currentText()) == (side, shown)
    assert changes == ([] if side == 240 else [side])


def test_a_size_that_is_not_in_the_list_is_chosen_for_other_docks(viewer, chosen):
    sizes = chosen.choices["max_side"].control.values()
    chosen.choose(max_side=77)
    assert chosen.read().job().options.max_side == 77
    chosen.choose(max_side=None)
    assert chosen.read().job().options.max_side is None
    assert set(chosen.choices["max_side"].control.values()) == {*sizes, 77}


def test_a_layer_whose_name_does_not_fit_ends_in_an_ellipsis_and_is_named_in_full(viewer, qtbot):
    name = "a photograph of which the name is long [SAF, labels up to 12]"
    viewer.add_image(blocks(), name=name)
    chosen = LayerChoice(viewer, Image)
    qtbot.addWidget(chosen)
    chosen.setToolTip("What to label.")
    chosen.resize(150, 24)
    assert "…" in chosen.shown_text and chosen.shown_text[:3] == name[:3]
    assert chosen.fontMetrics().horizontalAdvance(chosen.shown_text) < 150
    assert chosen.shown_help == f"{name}\nWhat to label."
    chosen.resize(600, 24)
    assert chosen.shown_text == name
    assert chosen.shown_help == "What to label."


def test_the_help_of_a_row_is_shown_over_a_choice_without_one(viewer, chosen, qtbot):
    section, choice = FormSection(), LayerChoice(viewer, Image)
    qtbot.addWidget(section)
    section.add_row("Image", choice, "What to label.")
    choice.resize(300, 24)
    for help in ("", "What this is."):
        choice.setToolTip(help)
        asked = QHelpEvent(QEvent.Type.ToolTip, QPoint(2, 2), QPoint(2, 2))
        choice.event(asked)
        assert asked.isAccepted() == bool(help)  # else the row is asked
