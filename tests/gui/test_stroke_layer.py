"""Strokes in a Labels layer teach a run of the Segment dock."""

import numpy as np
import pytest
from gui_cases import asked_for, stack

import napari_saf as saf
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.parameters import describe

pytestmark = [pytest.mark.gui]


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def strokes(viewer, dock):
    layer = viewer.add_labels(np.zeros((32, 32), dtype=np.uint8), name="strokes")
    dock.input.choose(strokes=layer)
    return layer


def paint(layer):
    """Paint a stroke in each of the four blocks."""
    for label, corner in enumerate(((6, 6), (6, 22), (22, 6), (22, 22)), start=1):
        layer.data_setitem((np.arange(corner[0], corner[0] + 4), np.full(4, corner[1])), label)


def test_all_pixels_follow_the_strokes_in_their_colours(dock, strokes, run):
    paint(strokes)
    dock.form.choose("af")
    result = run(dock)
    expected = np.kron([[1, 2], [3, 4]], np.ones((16, 16), dtype=int))
    assert (result.labels == expected).mean() > 0.95
    painted = strokes.data > 0
    np.testing.assert_array_equal(result.labels[painted], strokes.data[painted])
    found = dock.result
    for label in range(1, 5):
        np.testing.assert_allclose(found.get_color(label), strokes.get_color(label), atol=1e-3)
    assert found not in dock.input.choices["strokes"].values()


def test_new_labels_may_appear_beside_those_of_the_strokes(dock, strokes, run):
    strokes.data_setitem((np.arange(6, 10), np.full(4, 6)), 1)
    dock.form.set_values({"max_labels": 6})
    result = run(dock)
    assert result.n_labels > 1
    assert (result.labels[strokes.data > 0] == 1).all()


def test_strokes_of_a_stack_count_in_their_slice(viewer, open_on, run):
    viewer.add_image(stack(), name="stack")
    layer = viewer.add_labels(np.zeros(stack().shape, dtype=np.uint8), name="strokes")
    dock = open_on(viewer, SegmentWidget)
    dock.input.choose(strokes=layer)
    layer.data_setitem((np.full(3, 2), np.arange(7, 10), np.full(3, 8)), 1)
    layer.data_setitem((np.full(3, 2), np.arange(3), np.full(3, 1)), 2)
    viewer.dims.set_current_step(0, 2)
    dock.form.choose("af")
    result = run(dock)
    assert result.labels[8, 8] == 1
    assert result.labels[1, 1] == 2


def for_seeds(name):
    return {p.name for p in describe(saf.METHODS[name]) if p.for_seeds}


def test_rows_that_act_on_strokes_come_and_go_with_them(viewer, dock, open_on):
    dock.form.choose("af")
    assert for_seeds("af") and not for_seeds("af") & set(asked_for(dock.form))
    strokes = viewer.add_labels(np.zeros((32, 32), np.uint8), name="strokes")
    dock.input.choose(strokes=strokes)
    assert for_seeds("af") <= set(asked_for(dock.form))
    dock.form.set_values({"rounds": 0})
    assert dock.form.read().rounds == 0
    dock.input.choose(strokes=None)
    assert dock.form.read().rounds == saf.AssignmentFlow().rounds
    dock.input.choose(strokes=strokes)
    dock.form.choose("saf")
    assert for_seeds("saf") <= set(asked_for(dock.form))
    viewer.layers.remove(strokes)
    assert not for_seeds("saf") & set(asked_for(dock.form))
    scribbles = open_on(viewer, ScribblesWidget)
    assert for_seeds(scribbles.form.method.name) <= set(asked_for(scribbles.form))
