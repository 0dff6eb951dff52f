"""Of the results at one place of an image the newest is in sight, whichever dock made them."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, stack
from napari.layers import Labels

from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.diagnostics.dock import DiagnosticsWidget
from napari_saf._gui.layers.metadata import METADATA_KEY, SCORE_KEY
from napari_saf._gui.layers.view import selection_kept, visibility_of
from napari_saf._gui.scribbles.dock import ScribblesWidget

pytestmark = pytest.mark.gui

EVERY = slice(None)


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def add_result(viewer):
    """Add labels of an image as a dock does, for a part of it."""

    def add(image, *index):
        layer = viewer.add_labels(np.ones(image.data.shape, dtype=int))
        visibility_of(viewer).show_result(image, layer, index)
        return layer

    return add


def in_sight(viewer):
    return [layer for layer in viewer.layers if isinstance(layer, Labels) and layer.visible]


def test_a_newer_result_hides_the_earlier_one_once(viewer, add_result):
    image = viewer.add_image(stack())
    first, second = add_result(image), add_result(image)
    assert in_sight(viewer) == [second]
    first.visible = True
    visibility_of(viewer).show_result(image, second)
    assert in_sight(viewer) == [first, second]
    second.visible = False
    visibility_of(viewer).show_result(image, second)
    assert in_sight(viewer) == [first]
    visibility_of(viewer).hide_results(image)
    assert not in_sight(viewer)
    visibility_of(viewer).show_result(image, first)  # which goes on
    assert in_sight(viewer) == [first]
    for active in (second, image):  # nothing hidden stays active
        visibility_of(viewer).show_result(image, second)
        viewer.layers.selection.active = active
        visibility_of(viewer).show_result(image, first)
        assert viewer.layers.selection.active == (first if active is second else image)
    over = viewer.add_image(stack())
    third, fourth = add_result(over), add_result(over)
    for layer in (third, fourth):
        layer.metadata[METADATA_KEY] = {"image": str(over.unique_id)}
    visibility_of(viewer).reveal(image, first)  # which hides the image above and its result
    assert not over.visible and not fourth.visible
    visibility_of(viewer).show_result(over, third)
    assert over.visible and third.visible and not fourth.visible
    score = viewer.add_labels(np.ones(stack().shape, int), metadata={SCORE_KEY: "pixels"})
    visibility_of(viewer).hide(first)
    visibility_of(viewer).show_result(image, first)
    assert first.visible and not score.visible


def test_other_places_other_images_and_layers_of_a_person_stay(viewer, add_result):
    image, other = viewer.add_image(stack()), viewer.add_image(stack())
    own = viewer.add_labels(np.ones(stack().shape, dtype=int))
    kept = [own, add_result(other), add_result(image, 1, EVERY, EVERY)]
    kept.append(add_result(image, EVERY, 2, EVERY))
    before = add_result(image, 2, EVERY, EVERY)
    now = add_result(image, 2, EVERY, EVERY)
    assert in_sight(viewer) == [*kept, now] and not before.visible
    volume = add_result(image)  # which hides its slices, and they hide it
    assert in_sight(viewer) == [*kept[:2], volume]
    visibility_of(viewer).show_result(image, now, (2, EVERY, EVERY))
    assert in_sight(viewer) == [*kept[:2], now]


def test_layers_that_come_along_leave_the_selection(viewer):
    layers = [viewer.add_image(stack()) for _ in range(3)]
    for n_selected in (2, 1, 0):
        viewer.layers.selection = layers[:n_selected]
        with selection_kept(viewer):
            viewer.layers.remove(viewer.add_points(np.zeros((1, 3))))
        assert set(viewer.layers.selection) == set(layers[:n_selected])
        assert viewer.layers.selection.active == (layers[0] if n_selected == 1 else None)


def test_a_branch_is_hidden_by_the_next_result(viewer, dock, open_dock, run):
    diagnostics = open_dock(viewer, DiagnosticsWidget)
    run(dock)
    diagnostics.slider.setValue(0)
    diagnostics.branch_fold.expand(animate=False)
    run(diagnostics, diagnostics.branch.button.click)
    run(dock)
    assert [layer.name for layer in in_sight(viewer)] == ["blocks [SAF]"]


def test_results_side_by_side_are_left_alone(viewer, dock, open_dock, qtbot, run):
    compare = open_dock(viewer, CompareWidget)
    for name, box in compare.choice.boxes.items():
        box.setChecked(name == "slk")
    compare.choice.rows[0].choose(None)
    compare.choice.rows[1].choose(None)
    compare.start()
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    made = in_sight(viewer)
    assert made
    run(dock)
    assert in_sight(viewer)[:-1] == made
    assert blocks().shape[:2] == made[0].data.shape


def test_two_runs_on_one_image_take_no_turns(viewer, dock, open_dock, long_run, qtbot):
    docks = [dock, open_dock(viewer, ScribblesWidget)]
    docks[1].follow.setChecked(False)
    docks[1].automatic.setChecked(False)  # else other settings begin another run
    docks[1].new_strokes()
    for row, number in ((4, 1), (20, 2)):
        docks[1].strokes.layer.data_setitem((np.arange(row, row + 4), np.full(4, 6)), number)
    told = []
    for own in docks:
        long_run(own)
    for own in docks:
        own.controller.live.layer.events.visible.connect(told.append)
    for own in docks * 2:
        with qtbot.waitSignal(own.controller.advanced, timeout=TIMEOUT):
            pass
    assert not told
    for own in docks:
        own.controller.stop()
        qtbot.waitUntil(lambda own=own: not own.controller.is_running, timeout=TIMEOUT)
