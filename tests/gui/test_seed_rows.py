"""Rows that act on strokes alone are shown only where there are strokes."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import asked_for

import napari_saf as saf
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf.parameters import describe

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


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
