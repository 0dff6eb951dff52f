"""Rows that act on strokes alone are shown only where there are strokes."""

from __future__ import annotations

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.parameters import describe

pytestmark = pytest.mark.gui


def for_seeds(name):
    return {p.name for p in describe(saf.METHODS[name]) if p.for_seeds}


def test_the_segment_dock_shows_them_with_strokes_only(viewer, dock):
    dock.choose_method("af")
    assert for_seeds("af") and not for_seeds("af") & set(dock.form.visible_names())
    strokes = viewer.add_labels(np.zeros((32, 32), np.uint8), name="strokes")
    dock.input.choose_strokes(strokes)
    assert for_seeds("af") <= set(dock.form.visible_names())
    dock.choose_method("saf")
    assert for_seeds("saf") <= set(dock.form.visible_names())
    viewer.layers.remove(strokes)
    assert not for_seeds("saf") & set(dock.form.visible_names())


def test_what_is_not_shown_is_not_read(viewer, dock):
    dock.choose_method("af")
    strokes = viewer.add_labels(np.zeros((32, 32), np.uint8), name="strokes")
    dock.input.choose_strokes(strokes)
    dock.form.set_values({"rounds": 0})
    assert dock.form.read().rounds == 0
    dock.input.choose_strokes(None)
    assert dock.form.read().rounds == saf.AssignmentFlow().rounds


def test_the_scribbles_dock_shows_them(viewer):
    dock = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")[1]
    assert for_seeds(dock.form.method.name)
    assert for_seeds(dock.form.method.name) <= set(dock.form.visible_names())
