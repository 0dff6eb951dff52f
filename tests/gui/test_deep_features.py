"""The rows of features that ask for more than their name, in both docks that have features."""

import dataclasses

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks

from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.features import DeepFeatures


@pytest.fixture(params=[SegmentWidget, ScribblesWidget])
def opened(request, model, open_dock):
    model.add_image(blocks())
    return open_dock(model, request.param).input


def test_rows_of_deep_features_are_shown_with_them_and_told_to_the_job(opened):
    fields, told = opened.extractors["deep"].fields, []
    assert set(fields) == {"architecture", "weights_file", "layers", "n_components", "around"}

    def shown():
        return {opened.features.is_shown(field) for field in fields.values()}

    assert shown() == {False}
    opened.options_changed.connect(lambda: told.append(True))
    opened.choose(features="deep")
    assert shown() == {True}
    fields["architecture"].value = "convnext_nano"  # none of those that are offered
    fields["weights_file"].value = "/there/nano.safetensors"
    features = opened.read().job().options.features
    assert told and features == DeepFeatures("convnext_nano", "/there/nano.safetensors")
    opened.choose(features="lab")
    assert shown() == {False}
    # values that were learned are kept until a row changes
    learned = DeepFeatures("vgg16", "vgg.safetensors", layers=(2,), basis="AAAA", sha256="0")
    opened.choose(features=learned)
    assert opened.read().job().options.features == learned
    fields["n_components"].value = 16
    other = opened.read().job().options.features
    assert other == dataclasses.replace(learned, basis="", sha256="", n_components=16)


@pytest.fixture
def choose_deep(request, model, open_dock, weights, own_cache, no_socket):
    """Return what opens a dock with deep features chosen; nothing may connect anywhere."""
    file = str(weights(request.param))

    def choose(kind):
        model.add_image(blocks(), name="blocks")
        dock = open_dock(model, kind)
        dock.input.scale.set_value(5)
        dock.input.choose(features="deep")
        fields = dock.input.extractors["deep"].fields
        fields["architecture"].value = request.param
        fields["weights_file"].value = file
        return dock

    return choose


@pytest.mark.parametrize("choose_deep", ["test_vit"], indirect=True)
def test_a_run_with_deep_features_has_labels_and_a_recipe(model, choose_deep, run):
    dock = choose_deep(SegmentWidget)
    result = run(dock, dock.run_button.click)
    layer = model.layers["blocks [SAF, deep (a network)]"]
    np.testing.assert_array_equal(layer.data, result.labels)
    assert result.n_labels > 1 and not dock.status.is_error
    features = layer.metadata["napari_saf"]["recipe"]["input"]["features"]
    fields = dock.input.extractors["deep"].fields
    assert features["architecture"] == fields["architecture"].value
    assert len(features["sha256"]) == 64


@pytest.mark.parametrize("choose_deep", ["test_vit"], indirect=True)
def test_a_stroke_with_deep_features_has_labels_and_the_next_one_no_network(
    choose_deep, qtbot, monkeypatch
):
    dock = choose_deep(ScribblesWidget)
    dock.buttons["new_strokes"].click()

    def paint(row, column, number):
        dock.strokes.layer.data_setitem((np.arange(row, row + 4), np.full(4, column)), number)

    def labelled():
        assert not dock.controller.is_running and dock.result is not None
        strokes, labels = np.asarray(dock.strokes.layer.data), np.asarray(dock.result.data)
        np.testing.assert_array_equal(labels[strokes > 0], strokes[strokes > 0])

    paint(6, 6, 1)
    paint(22, 22, 2)
    qtbot.waitUntil(labelled, timeout=TIMEOUT)
    monkeypatch.setattr(DeepFeatures, "_raw", None)  # what is there is not computed again
    paint(6, 22, 3)
    qtbot.waitUntil(labelled, timeout=TIMEOUT)
