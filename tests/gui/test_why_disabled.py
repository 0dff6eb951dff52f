"""Whether a button is enabled is a function of a frozen state: no window is needed to tell."""

import dataclasses
import itertools

import pytest

from napari_saf._gui.diagnostics.dock import ContinueState
from napari_saf._gui.diagnostics.dock import why_disabled as why_not_continued
from napari_saf._gui.scribbles.results import StrokeState
from napari_saf._gui.scribbles.results import why_disabled as why_not_followed
from napari_saf._gui.segment.dock import SegmentState
from napari_saf._gui.segment.dock import why_disabled as why_not_labelled
from napari_saf._gui.sharpen.layers import SharpenState
from napari_saf._gui.sharpen.layers import why_disabled as why_not_sharpened

DOCKS = {
    "Diagnostics": (why_not_continued, ContinueState()),
    "Scribbles": (why_not_followed, StrokeState(painted=("sky", "sea"))),
    "Segment": (why_not_labelled, SegmentState()),
    "Sharpen borders": (why_not_sharpened, SharpenState()),
}


@pytest.mark.parametrize("dock", DOCKS)
def test_a_button_is_enabled_unless_something_is_missing(dock):
    """Without what comes first (image, labels, recorded run) it is not, whatever else holds."""
    why_disabled, free = DOCKS[dock]
    assert why_disabled(free) == ""
    flags = [field.name for field in dataclasses.fields(free) if field.type == "bool"]
    for values in itertools.product((False, True), repeat=len(flags) - 1):
        state = dataclasses.replace(free, **dict(zip(flags[1:], values, strict=True)))
        assert why_disabled(dataclasses.replace(state, **{flags[0]: False}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_image": False, "has_strokes": False}, "no image"),
        ({"has_strokes": False, "fault": "window: odd"}, "press New"),
        ({"fault": "window: odd"}, "window: odd"),
        ({"painted": ()}, "a few pixels of class 1"),
        ({"painted": ("sky",)}, "only sky is painted"),
        ({"painted": ("sky",), "n_least": 1}, ""),
        ({"painted": ("sky",), "is_locked": True}, "locked"),
    ],
)
def test_strokes_lack(change, words):
    reason = why_not_followed(dataclasses.replace(StrokeState(painted=("sky", "sea")), **change))
    assert words in reason and bool(words) == bool(reason)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_recorded": False, "is_running": True}, "no state was recorded"),
        ({"is_running": True}, "wait for the end"),
        ({"is_busy": True}, "wait for the end"),
        ({"has_layers": False}, "removed or changed"),
    ],
)
def test_a_run_does_not_go_on(change, words):
    assert words in why_not_continued(dataclasses.replace(ContinueState(), **change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_labels": False, "image_fits": False}, "no labels"),
        ({"are_strokes": True, "is_in_memory": False}, "strokes"),
        ({"is_in_memory": False}, "use a terminal"),
        ({"can_change": False}, "duplicate the layer"),
        ({"image_fits": False}, "open an image with the shape"),
    ],
)
def test_borders_do_not_move(change, words):
    assert words in why_not_sharpened(dataclasses.replace(SharpenState(), **change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_image": False, "fault": "window: odd"}, "no image"),
        ({"fault": "window: odd", "follows_seeds": True}, "window: odd"),
        ({"follows_seeds": True}, "paint strokes of two classes"),
        ({"follows_seeds": True, "takes_prototypes": True}, "choose prototypes, or paint"),
        ({"follows_seeds": True, "has_strokes": True}, ""),
    ],
)
def test_an_image_is_not_labelled(change, words):
    reason = why_not_labelled(dataclasses.replace(SegmentState(), **change))
    assert words in reason and bool(words) == bool(reason)
