"""The Compare dock from click to grid, table, picture."""

import csv
import gc
import threading
import weakref

import numpy as np
import PIL.Image
import pytest
from gui_cases import TIMEOUT, blocks, stack, tooltips
from qtpy.QtCore import QPoint, Qt, QTimer
from qtpy.QtWidgets import QCheckBox, QFileDialog, QLineEdit, QPushButton

import napari_saf as saf
from napari_saf._gui.compare.choice import panel_names
from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.layers.metadata import METADATA_KEY
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


@pytest.fixture
def window(make_napari_viewer):
    """A viewer with a window."""
    return make_napari_viewer()


@pytest.fixture
def docked(window):
    """The dock, opened through the manifest, in a window."""
    window.add_image(IMAGE, name="blocks", rgb=True)
    return vary_labels(window.window.add_plugin_dock_widget("napari-saf", "Compare")[1])


def vary_labels(dock):
    dock.choice.rows[0].choose("max_labels", "2, 5")
    dock.choice.rows[1].choose(None)
    return dock


def tick(dock, *names):
    for name, box in dock.choice.boxes.items():
        box.setChecked(name in names)


def button(dock, words):
    return next(b for b in dock.findChildren(QPushButton) if b.text().startswith(words))


def click(qtbot, widget):
    assert widget.isEnabled()
    place = QPoint(12, widget.height() // 2)
    qtbot.mouseClick(widget, Qt.MouseButton.LeftButton, pos=place)


def run(qtbot, dock):
    click(qtbot, button(dock, "Compare"))
    qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)


def results(viewer):
    return [layer for layer in viewer.layers if METADATA_KEY in layer.metadata]


def column(dock, heading):
    table, model = dock.table, dock.table.model()
    headings = [model.headerData(k, Qt.Orientation.Horizontal) for k in range(model.columnCount())]
    number = [text.strip(" ▴▾") for text in headings].index(heading)
    assert not table.isColumnHidden(number)
    return [model.index(row, number).data() for row in range(model.rowCount())]


def test_a_click_shows_all_results_side_by_side(compare, qtbot, viewer):
    grid = viewer.canvas.grid
    before = grid.shape, grid.stride
    run(qtbot, compare)
    assert not compare.status.is_error, compare.status.text
    assert [layer.name for layer in results(viewer)] == ["Labels up to 2", "Labels up to 5"]
    assert grid.enabled and button(compare, "Side by side").isChecked()
    assert [layer.visible for layer in viewer.layers] == [True, True, True]
    assert grid.actual_shape(viewer.layers) == (2, 2)
    assert results(viewer)[0].name_overlay.visible
    # the same as in Python, and the same colours for what is the same
    variants = saf.variants_of(
        [saf.SelfAssignmentFlow()], {"max_labels": [2, 5]}, compare.input.read().job().options
    )
    expected = saf.compare(IMAGE, variants)
    for layer, one in zip(results(viewer), expected.results, strict=True):
        np.testing.assert_array_equal(layer.data, one.labels)
        assert Pipeline.from_plain(layer.metadata[METADATA_KEY]["recipe"]).method.name == "saf"
    first, second = results(viewer)
    for label in range(1, expected.n_numbers + 1):
        np.testing.assert_array_equal(first.get_color(label), second.get_color(label))
    assert column(compare, "Labels") == [str(len(one.present)) for one in expected.results]
    # napari's own button leaves the grid, too
    grid.enabled = False
    assert not button(compare, "Side by side").isChecked()
    assert (grid.shape, grid.stride) == before
    assert not first.name_overlay.visible and first.opacity < 1
    compare.table.choose(0)
    assert [layer.visible for layer in results(viewer)] == [True, False]
    click(qtbot, button(compare, "Side by side"))
    assert grid.enabled and all(layer.visible for layer in results(viewer))


def test_a_table_of_two_parameters_is_shown_as_one(viewer, open_on, qtbot):
    """And slices that are labelled each by itself have windows in their plane."""
    viewer.add_image(stack(n_slices=3, side=12), name="stack")
    dock = open_on(viewer, CompareWidget)
    dock.input.choose(extent="each")
    dock.choice.rows[0].choose("window", "3, 5")
    dock.choice.rows[1].choose("max_labels", "2, 3")
    run(qtbot, dock)
    assert viewer.canvas.grid.actual_shape(viewer.layers) == (2, 2)
    assert not viewer.layers["stack"].visible
    recipes = [layer.metadata[METADATA_KEY]["recipe"] for layer in results(viewer)]
    found = [(one["input"]["window"], one["parameters"]["max_labels"]) for one in recipes]
    assert found == [((1, w, w), c) for w in (3, 5) for c in (2, 3)]


def test_names_on_screen_say_what_differs_in_the_words_of_the_form(window, qtbot):
    viewer = window
    viewer.add_image(stack(n_slices=3, side=12), name="stack")
    viewer.window.resize(1280, 800)
    frame, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Compare")
    viewer.window._qt_window.show()
    dock.input.choose(extent="each")
    tick(dock, "saf", "slk")
    dock.choice.rows[0].choose("window", "3, 5")
    dock.choice.rows[1].choose("max_labels", "2, 3")
    run(qtbot, dock)
    expected = [f"SAF, Scale {w}, Labels {c}" for w in (3, 5) for c in (2, 3)]
    expected += ["SLK, Scale 3", "SLK, Scale 5"]
    assert [layer.name for layer in results(viewer)] == expected
    assert column(dock, "Name") == expected
    whole = [
        dock.table.model().index(row, 0).data(Qt.ItemDataRole.ToolTipRole).splitlines()[0]
        for row in range(6)
    ]
    assert whole[1] == "SAF, Scale 1 x 3 x 3, Labels up to 3" and whole[4] == "SLK, Scale 1 x 3 x 3"
    # Each has room where it stands, and numbers stand beside it.
    n_columns = viewer.canvas.grid.actual_shape(viewer.layers)[1]
    room = viewer.window._qt_viewer.canvas.native.width() / n_columns
    assert max(map(dock.fontMetrics().horizontalAdvance, expected)) < room
    dock.table.setFixedWidth(frame.width() - 20)
    assert frame.width() <= 380
    assert dock.table.columnViewportPosition(4) < dock.table.viewport().width()


def test_results_are_shown_while_their_image_is_chosen(compare, qtbot, viewer):
    run(qtbot, compare)
    compare.table.choose(0)
    kept = compare.table, compare.swatches
    first, second = viewer.layers[0], viewer.add_image(IMAGE[::-1], name="second")
    compare.input.choose(image=second)
    assert not compare.status.text and all(part.isHidden() for part in kept)
    assert not button(compare, "Save …").isEnabled()
    compare.input.choose(image=first)
    assert not any(part.isHidden() for part in kept) and button(compare, "Save …").isEnabled()
    viewer.layers.remove(first)
    assert not compare.status.text and all(part.isHidden() for part in kept)


def test_columns_that_do_not_fit_are_hidden_and_told_by_rows(compare, qtbot, viewer):
    run(qtbot, compare)
    compare.truth.choose(viewer.add_labels(np.eye(16, dtype=np.uint8) + 1, name="truth"))
    qtbot.waitUntil(lambda: compare.outcome.truth is not None, timeout=TIMEOUT)
    table = compare.table
    compare.show()

    def shown(width):
        table.setFixedWidth(width)
        qtbot.waitUntil(lambda: abs(table.viewport().width() - width) < 30)
        return [k for k in range(table.model().columnCount()) if not table.isColumnHidden(k)]

    every = shown(1200)
    qtbot.waitUntil(lambda: not table.verticalScrollBar().isVisible())  # all rows have room
    some = shown(300)
    assert 3 <= len(some) < len(every) and some == every[: len(some)]
    assert sum(map(table.columnWidth, some)) <= table.viewport().width()
    for row in range(table.model().rowCount()):
        words = table.model().index(row, 0).data(Qt.ItemDataRole.ToolTipRole)
        for k in every[1:]:
            heading = table.model().headerData(k, Qt.Orientation.Horizontal)
            assert f"{heading}: {table.model().index(row, k).data()}" in words


@pytest.mark.parametrize(
    "axes, expected",
    [
        ({"max_labels": [2, 3]}, ["Labels up to 2", "Labels up to 3"]),
        ({"window": [3, (1, 3, 3)]}, ["Scale 3", "Scale 1 x 3 x 3"]),
        ({"window": [(1, 3, 3), (1, 5, 5)]}, ["Scale 3", "Scale 5"]),
        ({"s": [0, 1], "window": [3]}, ["Detail 0", "Detail 1"]),
        ({"s": [0, 1], "window": [3, 5]}, ["Detail 0, Scale 3", "Detail 0, Scale 5",
                                           "Detail 1, Scale 3", "Detail 1, Scale 5"]),
        ({"max_labels": [2, 3], "window": range(3, 13, 2)},
         [f"{c}, {w}" for c in (2, 3) for w in range(3, 13, 2)]),
        ({"max_labels": [2]}, ["SAF, Labels up to 2"]),
    ],
)  # fmt: skip
def test_names_are_as_short_as_the_grid_is_narrow(axes, expected):
    assert panel_names(saf.variants_of([saf.SelfAssignmentFlow()], axes)) == expected


def test_results_are_measured_and_saved(compare, qtbot, viewer, tmp_path, monkeypatch):
    run(qtbot, compare)
    truth = np.kron([[1, 2], [3, 4]], np.ones((8, 8), np.uint8))
    compare.truth.choose(viewer.add_labels(truth, name="truth"))
    qtbot.waitUntil(lambda: compare.outcome.truth is not None, timeout=TIMEOUT)
    measured = [saf.metrics.segmentation_covering(one.data, truth) for one in results(viewer)]
    assert column(compare, "Covering") == [f"{value:.3f}" for value in measured]
    assert measured[0] != measured[1]
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
        click(qtbot, button(compare, "Save …"))
        qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
        assert compare.status.text.startswith("saved "), compare.status.text
    with PIL.Image.open(tmp_path / "a.png") as picture:
        assert picture.width > picture.height
    with (tmp_path / "b.csv").open(encoding="utf-8") as file:
        assert [float(row["covering"]) for row in csv.DictReader(file)] == measured


def test_a_truth_chosen_afterwards_is_that_of_the_slice_compared(viewer, open_on, qtbot):
    """Whatever slice is on screen by then, and whatever the form asks for."""
    image = stack(n_slices=5, side=12)
    layer = viewer.add_image(image, name="stack")
    other = viewer.add_image(image[:, :6], name="other")
    truth = viewer.add_labels(1 + (image > 0.5), name="truth")
    dock = open_on(viewer, CompareWidget)
    dock.choice.rows[0].choose(None)
    dock.choice.rows[1].choose(None)
    dock.input.choose(image=layer)
    dock.truth.choose(truth)
    viewer.dims.set_point(0, 2)

    def measured():
        qtbot.waitUntil(lambda: not dock.panel.is_calculating, timeout=TIMEOUT)
        assert not dock.status.is_error, dock.status.text
        return column(dock, "Covering")

    for change in (
        lambda: viewer.dims.set_point(0, 0),
        lambda: dock.input.choose(extent="volume"),
        lambda: dock.input.choose(image=other),
    ):
        viewer.dims.set_point(0, 2)
        dock.input.choose(image=layer)
        dock.input.choose(extent="slice")
        run(qtbot, dock)
        before = measured()
        dock.truth.choose(None)
        change()
        dock.truth.choose(truth)
        assert measured() == before


def test_stop_keeps_what_is_finished(docked, qtbot, window):
    compare, viewer = docked, window
    boxes = {box.text(): box for box in compare.findChildren(QCheckBox)}
    click(qtbot, boxes["Laplacian K-modes"])
    assert [one.name for one in compare.choice.methods] == ["saf", "slk"]
    compare.choice.rows[0].choose("stop.max_steps", "1, 1000000")
    compare.choice.rows[1].choose("stop.entropy", "0")
    compare.choice.settings.choose(True)
    segment = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")[1]
    segment.form.set_values({"stepper": "euler", "stepper.step": 1e-4, "stop.changed": 0.0})
    click(qtbot, button(compare, "Compare"))
    qtbot.waitUntil(lambda: any("SAF" in one.name for one in viewer.layers), timeout=TIMEOUT)
    click(qtbot, button(compare, "Stop"))
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    assert "stopped" in compare.status.text
    (kept,) = results(viewer)
    recipe = kept.metadata[METADATA_KEY]["recipe"]
    assert recipe["parameters"]["stepper"]["kind"] == "euler"
    assert compare.table.model().rowCount() == 1


def test_what_cannot_be_run_is_told(compare, qtbot, viewer):
    box = next(b for b in compare.findChildren(Choice) if "max_labels" in b.values())
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
    click(qtbot, button(compare, "Side by side"))
    click(qtbot, button(compare, "Side by side"))
    assert viewer.canvas.grid.enabled and len(results(viewer)) == 1
    click(qtbot, button(compare, "Compare"))
    viewer.layers.remove("blocks")
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    assert not button(compare, "Compare").isEnabled() and "no image" in compare.status.text


@pytest.fixture
def all_at_once(compare):
    """Run a comparison of which all results have come before any is shown."""

    def run_to_end():
        compare.choice.rows[0].choose("stop.max_steps", "1, 2, 3, 4, 5")
        compare.start()
        for thread in threading.enumerate():
            if thread.name == "napari-saf run":
                thread.join()

    return run_to_end


def test_each_result_is_shown_in_a_turn_of_its_own(compare, all_at_once, qtbot, viewer):
    turns, shown = [0], []

    def note(event=None):
        shown.append(turns[0])

    clock = QTimer(compare, interval=0)
    clock.timeout.connect(lambda: turns.append(turns.pop() + 1))
    viewer.layers.events.inserted.connect(note)
    viewer.canvas.grid.events.enabled.connect(note)
    all_at_once()
    clock.start()
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    assert len(shown) == 6 and len(set(shown)) == 6, shown
    assert compare.table.model().rowCount() == len(results(viewer)) == 5
    assert button(compare, "Compare").isEnabled()


@pytest.mark.parametrize("end", ["dock", "image", "results"])
def test_what_ends_while_results_are_shown(compare, all_at_once, qtbot, viewer, end):
    def end_midway(event):
        if len(results(viewer)) == 3:
            viewer.layers.events.inserted.disconnect(end_midway)
            QTimer.singleShot(0, ended)

    def ended():
        if end == "dock":
            compare.shut_down()
        for layer in results(viewer) if end == "results" else [viewer.layers[0]]:
            viewer.layers.remove(layer)

    viewer.layers.events.inserted.connect(end_midway)
    all_at_once()
    qtbot.waitUntil(lambda: not compare.panel.is_busy, timeout=TIMEOUT)
    qtbot.wait(50)
    assert not compare.panel.is_busy and len(results(viewer)) < 5
    assert not viewer.canvas.grid.enabled or end != "dock"


def test_a_fault_while_results_are_shown_ends_them(compare, all_at_once, qtbot, viewer):
    def fail(event):
        raise ValueError("the grid is at fault")

    viewer.canvas.grid.events.enabled.connect(fail)
    with qtbot.captureExceptions() as faults:
        all_at_once()
        qtbot.waitUntil(lambda: bool(faults), timeout=TIMEOUT)
        qtbot.wait(50)
    assert len(faults) == 1 and not compare.panel.is_busy
    assert button(compare, "Compare").isEnabled()


def test_a_dock_that_is_closed_while_it_runs_leaves_nothing(docked, qtbot, window):
    compare, viewer = docked, window
    click(qtbot, button(compare, "Compare"))
    layers = weakref.ref(compare.results)
    viewer.window.remove_dock_widget(compare)
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


def test_what_is_chosen_automatically_is_not_compared_with_itself(compare):
    row = compare.choice.rows[0]
    row.choose("features")
    assert "auto" not in row.text.split(", ") and len(row.text.split(", ")) > 3
