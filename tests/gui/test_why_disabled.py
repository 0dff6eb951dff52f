"""Whether a button is enabled is a function of a frozen state: no window is needed to tell."""

import dataclasses
import itertools

import pytest

from napari_saf._gui.diagnostics.recorded_run import ContinueState
from napari_saf._gui.diagnostics.recorded_run import why_disabled as why_not_continued
from napari_saf._gui.scribbles.results import StrokeState
from napari_saf._gui.scribbles.results import why_disabled as why_not_followed
from napari_saf._gui.segment.dock import SegmentState
from napari_saf._gui.segment.dock import why_disabled as why_not_labelled
from napari_saf._gui.sharpen.layers import SharpenState
from napari_saf._gui.sharpen.layers import why_disabled as why_not_sharpened

PAINTED = StrokeState(painted=("sky", "sea"))
DOCKS = [
    (why_not_continued, ContinueState()),
    (why_not_followed, PAINTED),
    (why_not_labelled, SegmentState()),
    (why_not_sharpened, SharpenState()),
]


@pytest.mark.parametrize(("why_disabled", "free"), DOCKS)
def test_a_button_is_enabled_unless_something_is_missing(why_disabled, free):
    """Without what comes first (image, labels, recorded run) it is not, whatever else holds."""
    assert why_disabled(free) == ""
    flags = [field.name for field in dataclasses.fields(free) if field.type == "bool"]
    for values in itertools.product((False, True), repeat=len(flags) - 1):
        state = dataclasses.replace(free, **dict(zip(flags[1:], values, strict=True)))
        assert why_disabled(dataclasses.replace(state, **{flags[0]: False}))


@pytest.mark.parametrize(
    ("why_disabled", "state", "words"),
    [
        (why_not_followed, StrokeState(has_image=False, has_strokes=False), "no image"),
        (why_not_followed, StrokeState(has_strokes=False, fault="window: odd"), "press New"),
        (why_not_followed, dataclasses.replace(PAINTED, fault="window: odd"), "window: odd"),
        (why_not_followed, StrokeState(painted=()), "a few pixels of class 1"),
        (why_not_followed, StrokeState(painted=("sky",)), "only sky is painted"),
        (why_not_followed, StrokeState(painted=("sky",), n_least=1), ""),
        (why_not_followed, StrokeState(painted=("sky",), is_locked=True), "locked"),
        (why_not_continued, ContinueState(is_recorded=False, is_running=True), "no state was"),
        (why_not_continued, ContinueState(is_running=True), "wait for the end"),
        (why_not_continued, ContinueState(has_layers=False), "removed or changed"),
        (why_not_sharpened, SharpenState(are_strokes=True, is_in_memory=False), "strokes"),
        (why_not_labelled, SegmentState(has_image=False, fault="window: odd"), "no image"),
        (why_not_labelled, SegmentState(fault="odd", follows_seeds=True), "odd"),
        (why_not_labelled, SegmentState(follows_seeds=True), "paint strokes of two classes"),
        (
            why_not_labelled,
            SegmentState(follows_seeds=True, takes_prototypes=True),
            "choose prototypes, or paint",
        ),
        (why_not_labelled, SegmentState(follows_seeds=True, has_strokes=True), ""),
    ],
)
def test_the_reason_is_what_comes_first(why_disabled, state, words):
    reason = why_disabled(state)
    assert words in reason and bool(words) == bool(reason)
