"""The rows of features that ask for more than their name, in both docks that have features."""

import dataclasses

import numpy as np
import pytest
from gui_cases import blocks

from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.features import DeepFeatures


@pytest.fixture(params=[SegmentWidget, ScribblesWidget])
def opened(request, model, open_on):
    model.add_image(blocks())
    return open_on(model, request.param).input


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


def test_a_run_with_deep_features_has_labels_and_a_recipe(
    model, open_on, run, weights, own_cache, no_socket
):
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, SegmentWidget)
    dock.input.scale.set_value(5)
    dock.input.choose(features="deep")
    fields = dock.input.extractors["deep"].fields
    fields["architecture"].value = "test_vit"
    fields["weights_file"].value = str(weights("test_vit"))
    result = run(dock, dock.run_button.click)
    layer = model.layers["blocks [SAF, deep (a network)]"]
    np.testing.assert_array_equal(layer.data, result.labels)
    assert result.n_labels > 1 and not dock.status.is_error
    features = layer.metadata["napari_saf"]["recipe"]["input"]["features"]
    assert features["architecture"] == "test_vit" and len(features["sha256"]) == 64
