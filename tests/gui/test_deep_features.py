"""The rows of features that ask for more than their name, in both docks that have features."""

import dataclasses

import pytest
from gui_cases import blocks

from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.features import DeepFeatures


@pytest.fixture(params=[SegmentWidget, ScribblesWidget])
def opened(request, model, open_dock):
    model.add_image(blocks())
    return open_dock(model, request.param).input


def shown(chosen):
    return {
        name: chosen.features.is_shown(field)
        for name, field in chosen.extractor_rows.fields["deep"].items()
    }


def test_rows_are_shown_with_deep_features_only(opened):
    assert not any(shown(opened).values())
    opened.choose(features="deep")
    assert set(shown(opened)) == {"architecture", "weights_file", "layers", "n_components"}
    assert all(shown(opened).values())
    opened.choose(features="lab")
    assert not any(shown(opened).values())


def test_the_job_has_what_the_rows_say(opened):
    told = []
    opened.options_changed.connect(lambda: told.append(True))
    opened.choose(features="deep")
    fields = opened.extractor_rows.fields["deep"]
    fields["architecture"].value = "convnext_nano"  # none of those that are offered
    fields["weights_file"].value = "/there/nano.safetensors"
    assert told
    found = opened.job().options.features
    assert found == DeepFeatures("convnext_nano", "/there/nano.safetensors")


def test_what_was_learned_is_kept_until_a_row_changes(opened):
    learned = DeepFeatures("vgg16", "vgg.safetensors", layers=(2,), basis="AAAA", sha256="0")
    opened.choose(features=learned)
    assert opened.job().options.features == learned
    opened.extractor_rows.fields["deep"]["n_components"].value = 16
    other = opened.job().options.features
    assert other == dataclasses.replace(learned, basis="", sha256="", n_components=16)
