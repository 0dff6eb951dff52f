"""The Compare dock from click to grid, table, picture."""

import gc
import weakref

import numpy as np
import PIL.Image
import pytest
from gui_cases import TIMEOUT, blocks, read_table, stack, tooltips
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog, QLineEdit, QPushButton

import napari_saf as saf
from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.pipeline import Pipeline

pytestmark = pytest.mark.gui
IMAGE = blocks(16)


@pytest.fixture
def viewer(model):
    return model


@pytest.fixture
def compare(model, open_on):
    """The dock, in a viewer that has an RGB image."""
    model.add_image(IMAGE, name="blocks", rgb=True)
    return vary_labels(open_on(model, CompareWidget))


def vary_labels(dock):
    dock.choice.rows[0].choose("max_labels", "2, 5")
    dock.choice.rows[1].choose(None)
    return dock


def tick(dock, *names):
    for name, box in dock.choice.boxes.items():
        box.setChecked(name in names)


def button(dock, words):
    return next(b for b in dock.findChildren(QPushButton) if b.text().startswith(words))


def click(widget):
    assert widget.isEnabled()
    widget.click()


def run(qtbot, dock):
    click(button(dock, "Compare"))
    qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)


def results(viewer):
    return [layer for layer in viewer.layers if METADATA_KEY in layer.metadata]


def column(dock, heading):
    table, model = dock.table, dock.table.model()
    headings = [model.headerData(k, Qt.Orientation.Horizontal) for k in range(model.columnCount())]
    number = [text.strip(" ▴▾") for text in headings].index(heading)
    assert not table.isColumnHidden(number)
    return [model.index(row, number).data() for row in range(model.rowCount())]


def test_a_click_shows_all_results_side_by_side_while_their_image_is_chosen(compare, qtbot, viewer):
    grid, side_by_side = viewer.canvas.grid, button(compare, "Side by side")
    before, camera = (grid.shape, grid.stride), viewer.scene.camera
    camera.zoom, camera.center = 6.0, (0, 8, 9)
    run(qtbot, compare)
    assert not compare.status.is_error, compare.status.text
    assert [layer.name for layer in results(viewer)] == ["Labels up to 2", "Labels up to 5"]
    assert grid.enabled and side_by_side.isChecked()
    assert all(layer.visible for layer in viewer.layers)
    assert grid.actual_shape(viewer.layers) == (2, 2)
    # the same as in Python, and the same colours for the same number
    variants = saf.variants_of(
        [saf.SelfAssignmentFlow()], {"max_labels": [2, 5]}, compare.input.read().job().options
    )
    expected = saf.compare(IMAGE, variants)
    for layer, result in zip(results(viewer), expected.results, strict=True):
        np.testing.assert_array_equal(layer.data, result.labels)
        assert Pipeline.from_plain(layer.metadata[METADATA_KEY]["recipe"]).method.name == "saf"
    first, second = results(viewer)
    for label in range(1, expected.n_numbers + 1):
        np.testing.assert_array_equal(first.get_color(label), second.get_color(label))
    assert column(compare, "Labels") == [str(len(each.present)) for each in expected.results]
    grid.enabled = False  # by the button of napari
    assert not side_by_side.isChecked() and (grid.shape, grid.stride) == before
    assert not first.name_overlay.visible and first.opacity < 1
    assert camera.zoom == 6 and tuple(camera.center) == (0, 8, 9)
    compare.table.choose(0)
    assert [layer.visible for layer in results(viewer)] == [True, False]
    click(side_by_side)
    assert grid.enabled and all(layer.visible for layer in results(viewer))
    entry = {METADATA_KEY: dict(first.metadata[METADATA_KEY])}
    newer = viewer.add_labels(first.data, name="newer", metadata=entry)
    click(side_by_side)
    assert [layer.visible for layer in results(viewer)] == [False, False, True]
    viewer.layers.remove(newer)
    compare.table.choose(0)
    click(side_by_side)
    image, kept = compare.input.image, (compare.table, compare.swatches)
    compare.input.choose(image=viewer.add_image(IMAGE[::-1], name="second"))
    assert all(part.isHidden() for part in kept) and not button(compare, "Save …").isEnabled()
    compare.input.choose(image=image)
    assert not any(part.isHidden() for part in kept) and button(compare, "Save …").isEnabled()
    viewer.layers.remove(image)
    assert not compare.status.text and all(part.isHidden() for part in kept)


def test_results_are_measured_and_saved(compare, qtbot, viewer, tmp_path, monkeypatch):
    run(qtbot, compare)
    truth = np.kron([[1, 2], [3, 4]], np.ones((8, 8), np.uint8))
    compare.truth.choose(viewer.add_labels(truth, name="truth"))
    qtbot.waitUntil(lambda: compare.outcome.truth is not None, timeout=TIMEOUT)
    measured = [saf.metrics.segmentation_covering(one.data, truth) for one in results(viewer)]
    assert column(compare, "Covering") == [f"{value:.3f}" for value in measured]
    assert measured[0] != measured[1]
    # a score ends the grid, and is hidden by the next choice of a result
    click(compare.scoring.button)
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    errors, side_by_side = viewer.layers[-1], button(compare, "Side by side")
    shown = [layer.name for layer in viewer.layers if layer.visible]
    assert shown == ["blocks", errors.name]
    assert not viewer.canvas.grid.enabled and not side_by_side.isChecked()
    changes = []  # napari updates all layers for each
    viewer.layers["blocks"].events.visible.connect(changes.append)
    click(side_by_side)
    assert not errors.visible and all(layer.visible for layer in results(viewer))
    click(side_by_side)
    assert [layer.name for layer in viewer.layers if layer.visible] == shown and not changes
    compare.table.choose(0)
    assert not errors.visible and [x.visible for x in results(viewer)] == [True, False]
    # numbers are sorted as numbers, and a row still means its result
    compare.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    assert column(compare, "Covering") == [f"{v:.3f}" for v in sorted(measured, reverse=True)]
    compare.table.selectRow(0)
    assert viewer.layers.selection.active == results(viewer)[int(np.argmax(measured))]
    # labels that died are crossed
    compare.table.choose(0)
    dead = compare.outcome.comparison.dead(0)
    words = tooltips(compare.swatches)
    assert len(dead) and sum("extinct" in one for one in words) == len(dead)
    assert len(words) == compare.outcome.comparison.n_numbers
    for name in ("a", "b.csv"):
        path = str(tmp_path / name)
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, path=path: (path, ""))
        click(button(compare, "Save …"))
        qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
        assert compare.status.text.startswith("saved "), compare.status.text
    with PIL.Image.open(tmp_path / "a.png") as picture:
        assert picture.width > picture.height
    saved = read_table(tmp_path / "b.csv")
    assert [float(row["covering"]) for row in saved] == measured
    assert [row["name"] for row in saved] == ["Labels up to 2", "Labels up to 5"]


def test_a_truth_chosen_afterwards_is_that_of_the_slice_compared(viewer, open_on, qtbot):
    """Whatever slice is on screen by then, and whatever the form asks for."""
    image = stack(n_slices=5, side=12)
    layer = viewer.add_image(image, name="stack")
    other = viewer.add_image(image[:, :6], name="other")
    truth = viewer.add_labels(1 + (image > 0.5), name="truth")
    dock = open_on(viewer, CompareWidget)
    for row in dock.choice.rows:
        row.choose(None)
    dock.input.choose(image=layer)
    dock.truth.choose(truth)
    viewer.dims.set_point(0, 2)

    def measured():
        qtbot.waitUntil(lambda: not dock.panel.is_calculating, timeout=TIMEOUT)
        assert not dock.status.is_error, dock.status.text
        return column(dock, "Covering")

    run(qtbot, dock)
    before = measured()
    viewer.dims.set_point(0, 0)
    for choice in ({"extent": "volume"}, {"image": other}):
        dock.truth.choose(None)
        dock.input.choose(**choice)
        dock.truth.choose(truth)
        assert measured() == before


def test_stop_keeps_results_that_are_complete(compare, open_on, qtbot, viewer):
    tick(compare, "saf", "slk")
    compare.choice.rows[0].choose("stop.max_steps", "1, 1000000")
    compare.choice.rows[1].choose("stop.entropy", "0")
    compare.choice.settings.choose(True)
    segment = open_on(viewer, SegmentWidget)
    segment.form.set_values({"stepper": "euler", "stepper.step": 1e-4, "stop.changed": 0.0})
    click(button(compare, "Compare"))
    qtbot.waitUntil(lambda: any("SAF" in layer.name for layer in viewer.layers), timeout=TIMEOUT)
    click(button(compare, "Stop"))
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    assert "stopped" in compare.status.text
    (kept,) = results(viewer)
    recipe = kept.metadata[METADATA_KEY]["recipe"]
    assert recipe["parameters"]["stepper"]["kind"] == "euler"
    assert compare.table.model().rowCount() == 1


def test_what_cannot_be_run_is_told(compare, qtbot, viewer):
    box = next(b for b in compare.findChildren(Choice) if "max_labels" in b.values())
    compare.choice.rows[0].choose("features")
    assert "auto" not in compare.choice.rows[0].text.split(", ")  # nor with itself
    compare.choice.rows[0].choose("max_labels")
    tick(compare, "slk")
    assert "n_clusters" in box.values() and "max_labels" not in box.values()
    assert compare.choice.axis_names == []
    tick(compare, "saf")
    compare.choice.rows[0].choose("max_labels")
    typed = next(one for one in compare.findChildren(QLineEdit) if one.text() == "4, 8, 16")
    typed.selectAll()
    qtbot.keyClicks(typed, "2, x")
    assert button(compare, "Compare").text() == "Compare"
    assert not button(compare, "Compare").isEnabled()
    assert "Labels up to: expected" in compare.status.text
    compare.choice.rows[0].choose("max_labels", "2")
    tick(compare, "saf", "bavardage")
    assert button(compare, "Compare").text() == "Compare 2 runs"
    compare.truth.choose(viewer.add_labels(np.ones((5, 5), np.uint8)))
    run(qtbot, compare)
    assert compare.status.is_error and compare.status.text.startswith("Truth: expected")
    assert not results(viewer)
    compare.truth.choose(None)
    run(qtbot, compare)
    assert "not run: BAVARDAGE" in compare.status.text
    assert len(results(viewer)) == 1


def test_layers_may_go_at_any_time(compare, qtbot, viewer):
    run(qtbot, compare)
    viewer.layers.remove(results(viewer)[0])
    compare.table.choose(0)
    click(button(compare, "Side by side"))
    click(button(compare, "Side by side"))
    assert viewer.canvas.grid.enabled and len(results(viewer)) == 1
    click(button(compare, "Compare"))
    viewer.layers.remove("blocks")
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    assert not button(compare, "Compare").isEnabled() and "no image" in compare.status.text


def test_a_dock_that_is_closed_while_it_runs_leaves_nothing(compare, qtbot):
    click(button(compare, "Compare"))
    layers = weakref.ref(compare.results)
    compare.shut_down()
    gc.collect()
    assert layers() is None and compare.outcome is None


def test_strokes_count_and_their_numbers_may_have_gaps(compare, qtbot, viewer):
    strokes = np.zeros(IMAGE.shape[:2], np.uint8)
    strokes[:3, :3], strokes[-3:, -3:] = 1, 4
    compare.input.choose(strokes=viewer.add_labels(strokes, name="strokes"))
    tick(compare, "laplacianshot", "af")
    run(qtbot, compare)
    assert len(results(viewer)) == 2, compare.status.text
    for layer in results(viewer):
        assert layer.data[0, 0] == 1 and layer.data[-1, -1] == 2
