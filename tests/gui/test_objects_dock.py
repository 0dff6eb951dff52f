"""The Objects dock: split, previewed, chosen, corrected, saved."""

import threading
from types import SimpleNamespace

import napari
import numpy as np
import pytest
from gui_cases import TIMEOUT, read_table
from napari.layers import Tracks
from napari.utils.colormaps import ensure_colormap

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.objects import corrections
from napari_saf._gui.objects import dock as objects_dock
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.objects.layers import Source
from napari_saf._gui.objects.table import ObjectTable
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.cli import main
from napari_saf.objects import NECK

pytestmark = pytest.mark.gui
SOON = 5


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(objects_dock, "PATIENCE", 0)
    monkeypatch.setattr(corrections, "PATIENCE", 0)


def discs():
    """Two discs that touch and one alone, on a ground."""
    rows, columns = np.ogrid[:40, :100]
    inside = [(rows - 20) ** 2 + (columns - x) ** 2 < 130 for x in (20, 40, 80)]
    return np.where(np.any(inside, axis=0), 2, 1).astype(np.uint8)


@pytest.fixture
def dock(model, open_on, settle):
    labels = model.add_labels(discs(), name="cells", scale=(0.5, 0.5), units="um")
    labels.metadata["class_names"] = {"2": "nucleus"}
    model.add_image(np.where(discs() == 2, 7.0, 1.0), name="photo", scale=(0.5, 0.5), units="um")
    opened = open_on(model, ObjectsWidget)
    settle(opened)
    return opened


def split(dock, settle):
    dock.start()
    settle(dock)
    return dock.layer


@pytest.fixture
def correct(settle):
    """Select objects and press a button."""

    def press(dock, name, *numbers):
        if numbers:
            dock.table.select(numbers)
        dock.buttons[name].click()
        settle(dock, SOON)

    return press


@pytest.fixture
def change(settle):
    """Move a control of the form, and wait for the preview."""

    def set_values(dock, **values):
        dock.choices.split_form.set_values(values)
        settle(dock, SOON)

    return set_values


def objects_in(dock):
    return dock.table.model.table["object"].tolist()


def pressed(layer, pixel, modifiers=()):
    """Return what napari tells a callback of the mouse."""
    position = layer.data_to_world(pixel)
    return SimpleNamespace(position=position, type="mouse_press", modifiers=[*modifiers])


def drag(dock, *corners, modifiers=()):
    event = pressed(dock.layer, corners[0], modifiers)
    steps = dock.canvas.on_mouse(dock.layer, event)
    next(steps, None)
    for corner in corners[1:]:
        event.type, event.position = "mouse_move", dock.layer.data_to_world(corner)
        next(steps)
    event.type = "mouse_release"
    next(steps, None)


def test_objects_come_with_a_row_each_and_are_in_sight_until_a_later_result(
    dock, model, settle, open_on, qtbot
):
    layer, cells, export = split(dock, settle), dock.labels.layer, open_on(model, ExportWidget)
    assert np.array_equal(layer.data, saf.split_objects(discs(), kinds=[2]).labels)
    assert layer.name == "cells [Objects]" and np.allclose(layer.scale, 0.5)
    assert layer.visible and not cells.visible and dock.choices.kinds.ticked == [2]
    table = dock.table.model.table
    assert objects_in(dock) == [1, 2, 3] and set(table["name"]) == {"nucleus"}
    assert np.allclose(table["area_um2"], np.bincount(layer.data.ravel())[1:] / 4)
    assert set(table["intensity_mean"]) == {7.0}
    assert dock.counts.text().startswith("nucleus: 3 objects")
    features = layer.features.set_index("index")
    assert features.loc[3, "pixels"] == (layer.data == 3).sum()
    for active in (layer, cells):  # an open Export dock takes the labels that are active
        model.layers.selection.active = active
        qtbot.waitUntil(lambda active=active: export.labels.layer == active)
    result = model.add_labels(discs(), name="result", scale=(0.5, 0.5), units="um")
    visibility_of(model).show_result(model.layers["photo"], result)
    assert result.visible and not layer.visible
    dock.labels.choose(cells)
    assert split(dock, settle).visible and not result.visible


@pytest.mark.parametrize("ground", [0, 5])
def test_the_kinds_are_those_of_the_command(model, open_on, settle, tmp_path, ground):
    labels = np.where(discs() == 1, ground, np.arange(100) // 50 + 2).astype(np.uint8)
    model.add_labels(labels, name="cells")
    dock = open_on(model, ObjectsWidget)
    assert not dock.buttons["split"].isEnabled()  # until the labels are counted
    settle(dock)
    assert dock.buttons["split"].isEnabled()
    saf.save_masks(tmp_path / "m.tif", labels)
    main(["objects", str(tmp_path / "m.tif"), "-o", str(tmp_path / "t.csv")])
    kinds = {int(row["kind"]) for row in read_table(tmp_path / "t.csv")}
    assert dock.choices.kinds.ticked == sorted(kinds) == [2, 3]


def test_a_control_that_moves_changes_objects_and_recipe_but_no_corrections(
    dock, settle, change, correct
):
    problem = saf.Problem.from_image(discs() / 2.0, features="intensity", max_side=None)
    recipe = saf.SelfAssignmentFlow(max_labels=2).run(problem).recipe
    dock.labels.layer.metadata["napari_saf"] = {"recipe": recipe}
    layer = split(dock, settle)
    change(dock, neck=0.5)
    assert layer.data.max() == 2
    change(dock, smallest=500)
    assert layer.data.max() == 1
    change(dock, neck=NECK, smallest=33)
    step = saf.ObjectStep(smallest=33, neck=NECK, kinds=(2,))
    assert recipe_of(dock.labels.layer).objects == step
    correct(dock, "merge", 1, 2)
    change(dock, neck=0.5)
    assert layer.data.max() == 3 and "corrections" in dock.status.text


def test_rows_and_image_choose_each_other(dock, settle, qtbot):
    layer = split(dock, settle)
    for mode, stays in (("paint", 1), ("pan_zoom", 2)):
        layer.mode, layer.selected_label = mode, 1
        dock.table.select([2])  # its object flashes
        assert layer.selected_label == 2 and layer.show_selected_label
        qtbot.waitUntil(lambda: not layer.show_selected_label, timeout=TIMEOUT)
        view = dock.table.view
        view.clicked.emit(view.currentIndex())  # on the row that is chosen already
        assert layer.selected_label == 2 and layer.show_selected_label
        qtbot.waitUntil(lambda: not layer.show_selected_label, timeout=TIMEOUT)
        assert layer.selected_label == stays
        dock.table.select([])
    number = int(layer.data[20, 20])
    drag(dock, (20, 20))
    assert dock.table.selected == [number]
    drag(dock, (20, 80), modifiers=["Control"])
    assert set(dock.table.selected) == {number, 3}
    drag(dock, (1, 1))
    assert dock.table.selected == []
    plot = dock.table.filter
    plot.measure.choose("pixels")
    plot.set_gate((0, int((layer.data == 3).sum()) - 1))
    hidden = next(n for n in (1, 2, 3) if n not in dock.table.shown)
    assert f"{len(dock.table.shown)} of 3 objects in the table" in dock.counts.text()
    drag(dock, tuple(np.argwhere(layer.data == hidden).mean(axis=0).round().astype(int)))
    assert f"object {hidden} is outside" in dock.status.text
    keep = dock.buttons["keep"]
    assert keep.isEnabled()
    keep.click()
    settle(dock, SOON)
    assert hidden not in objects_in(dock) and not keep.isEnabled()  # nothing is hidden now
    dock.buttons["undo"].click()
    plot.set_gate(None)
    settle(dock, SOON)
    assert "in the table" not in dock.counts.text()


def test_objects_and_corrections_are_autosaved_before_a_minute_is_over(
    dock, settle, correct, monkeypatch
):
    kept = []
    monkeypatch.setattr(dock.workspace, "autosave", lambda: kept.append(1))
    monkeypatch.setattr(dock.workspace, "_soon", 0)

    def is_kept(work):
        kept.clear()
        work()
        settle(dock, SOON)
        return bool(kept)

    assert not is_kept(lambda: dock.table.select([]))
    assert is_kept(lambda: split(dock, settle))
    assert is_kept(lambda: correct(dock, "delete", 3))
    assert is_kept(dock.classes.add)


def test_corrections_change_image_and_table_and_go_back(dock, model, settle, correct):
    layer = split(dock, settle)
    before = layer.data.copy()
    for line in ([(0, 0), (0, 5)], [(20, 76), (20, 80)]):  # across nothing
        dock.tools.cut(np.array(line, float))
        assert np.array_equal(layer.data, before)
    correct(dock, "merge", 1, 2)
    assert set(np.unique(layer.data)) == {0, 1, 3} and dock.table.model.rowCount() == 2
    dock.buttons["cut"].click()
    assert not layer.mouse_pan
    drag(dock, (2, 30), (20, 30), (38, 30))
    settle(dock)
    assert len(np.unique(layer.data[:, :60])) == 3 and dock.table.model.rowCount() == 3
    dock.buttons["cut"].click()
    correct(dock, "delete", 3)
    assert dock.table.model.rowCount() == 2
    visibility_of(model).show_result(
        model.layers["photo"], model.add_labels(discs(), scale=(0.5, 0.5))
    )
    assert not layer.visible  # and what is corrected is shown
    for _ in range(3):
        correct(dock, "undo")
    assert np.array_equal(layer.data, before) and not dock.buttons["undo"].isEnabled()
    assert layer.visible
    correct(dock, "redo")
    assert set(np.unique(layer.data)) == {0, 1, 3}


def pairs(rows=4, columns=3):
    """A grid of pairs of discs that touch, label 2, on a ground."""
    y, x = np.ogrid[: 30 * rows, : 60 * columns]
    inside = (y % 30 - 15) ** 2 + (abs(x % 60 - 30) - 8.5) ** 2 <= 100
    return np.where(inside, 2, 1).astype(np.uint8)


def test_ten_corrections_set_neck_anew_and_undo_brings_all_back(
    model, open_on, settle, change, correct
):
    model.add_labels(pairs(), name="pairs")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    change(dock, neck=0.5)
    split(dock, settle)
    assert dock.tools.editor.numbers.size == 12
    corners = [(15 + 30 * row, 30 + 60 * column) for column in range(3) for row in range(4)]
    for count, (row, column) in enumerate(corners[:10], start=1):
        before = dock.layer.data.copy()
        dock.tools.cut(np.array([(row - 14, column), (row + 14, column)]))
        settle(dock)
        assert (dock.choices.split_form.read().neck == 0.5) is (count < 10)
    assert "10 corrections: 22 → 24 objects (Undo" in dock.status.text
    correct(dock, "undo")
    assert dock.choices.split_form.read().neck == 0.5 and dock.tools.editor.numbers.size == 22
    correct(dock, "undo")
    assert np.array_equal(dock.layer.data, before)  # and no other lesson came


def press(layer, keys):
    layer.keymap[napari.utils.key_bindings.coerce_keybinding(keys)](layer)


def test_strokes_of_the_brush_get_a_row_and_go_back_with_it(dock, settle, correct):
    layer = split(dock, settle)
    before = layer.data.copy()
    correct(dock, "delete", 3)
    press(layer, "Control-Z")  # of a correction
    settle(dock, SOON)
    assert np.array_equal(layer.data, before) and dock.table.model.rowCount() == 3
    dock.buttons["new"].click()
    assert layer.mode == "paint"
    layer.paint((5, 60), layer.selected_label)
    press(layer, "Control-Z")  # before its row came
    settle(dock, SOON)
    assert np.array_equal(layer.data, before) and dock.table.model.rowCount() == 3
    correct(dock, "redo")
    painted = layer.data.copy()
    assert objects_in(dock) == [1, 2, 3, 4]
    correct(dock, "merge", 1, 2)
    for expected in (painted, before):
        press(layer, "Control-Z")
        settle(dock, SOON)
        assert np.array_equal(layer.data, expected)
    assert objects_in(dock) == [1, 2, 3]
    assert not dock.buttons["undo"].isEnabled() and dock.buttons["redo"].isEnabled()
    correct(dock, "redo")
    assert not dock.buttons["redo"].isEnabled()


def test_lines_are_drawn_in_a_flat_view(model, open_on, settle):
    model.add_labels(np.stack([discs()] * 3), name="cells")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    split(dock, settle)
    model.dims.ndisplay = 3
    dock.buttons["cut"].click()
    assert not dock.buttons["cut"].isChecked() and "line" not in model.layers
    assert "2-D" in dock.status.text
    model.dims.ndisplay = 2
    dock.buttons["cut"].click()
    assert dock.buttons["cut"].isChecked() and "line" in model.layers


def test_an_object_that_is_painted_on_is_measured_anew_and_stays(dock, settle, change):
    layer = split(dock, settle)
    layer.brush_size = 30
    layer.paint((5, 80), 3)
    layer.paint((5, 60), 9)
    settle(dock, SOON)
    sizes = np.bincount(layer.data.ravel())
    assert dock.table.model.table["pixels"].tolist() == sizes[sizes > 0][1:].tolist()
    change(dock, smallest=30)
    assert np.array_equal(np.bincount(layer.data.ravel()), sizes)


def test_the_line_that_cuts_and_the_objects_may_be_removed_at_any_time(dock, model, settle):
    layer = split(dock, settle)
    dock.buttons["cut"].click()
    line = model.layers["line"]
    assert model.layers.selection.active is layer
    event = pressed(layer, (2, 20))
    steps = dock.canvas.on_mouse(layer, event)
    next(steps)
    event.type, event.position = "mouse_move", layer.data_to_world((38, 20))
    next(steps)
    assert np.allclose(line.data[0], [(2, 20), (38, 20)])  # seen while it is drawn
    model.layers.remove(line)
    drag(dock, (20, 66), (20, 94))
    settle(dock)
    dock.buttons["cut"].click()
    assert layer.mouse_pan and dock.table.model.rowCount() == 4
    dock.buttons["cut"].click()
    drag(dock, (14, 80), (14, 80))  # a click chooses
    assert dock.table.selected and not dock.status.is_error
    dock.buttons["cut"].click()
    dock.buttons["cut"].click()
    model.layers.remove(layer)
    assert "line" not in model.layers and not dock.buttons["cut"].isChecked()
    assert dock.layer is None and dock.table.model.rowCount() == 0
    assert not dock.buttons["save"].isEnabled()
    model.layers.remove("cells")
    assert not dock.buttons["split"].isEnabled()


def test_files_of_all_kinds_have_the_objects_as_they_are(
    dock, settle, correct, tmp_path, monkeypatch
):
    pytest.importorskip("shapely")
    layer, asked = split(dock, settle), []
    correct(dock, "merge", 1, 2)
    for name in ("a.csv", "a.geojson", "a.json", "a.tif", "b"):
        dock.save_to(str(tmp_path / name))
        settle(dock)
        assert "saved" in dock.status.text
    assert [row["object"] for row in read_table(tmp_path / "b.csv")] == ["1", "3"]
    back = saf.load_objects(tmp_path / "a.geojson", (40, 100))
    assert np.array_equal(back.labels > 0, layer.data > 0) and back.names == {2: "nucleus"}
    assert np.array_equal(saf.read_mask(tmp_path / "a.tif").labels, layer.data)
    dock.save_to(str(tmp_path / "nowhere" / "a.csv"))
    settle(dock)
    assert dock.status.is_error
    monkeypatch.setattr(objects_dock, "ask_for_path", lambda *arguments: asked.append(arguments))
    dock.buttons["save"].click()
    assert asked[0][2].endswith("cells.objects.csv")


def test_a_split_of_labels_that_went_meanwhile_is_not_shown(dock, model, settle):
    dock.start()
    model.layers.clear()
    settle(dock)
    assert not model.layers and dock.layer is None and not dock.status.is_error


def test_other_labels_get_a_layer_of_their_own_and_each_goes_on_with_it(
    dock, model, open_on, settle, correct
):
    first, cells = split(dock, settle), dock.labels.layer
    correct(dock, "delete", 3)
    corrected = first.data.copy()
    other = model.add_labels(np.roll(discs(), 6, axis=0), name="other", scale=(0.5, 0.5))
    dock.labels.choose(other)
    settle(dock)
    second = split(dock, settle)
    assert second is not first and second.name == "other [Objects]"
    assert np.array_equal(first.data, corrected) and not first.mouse_drag_callbacks
    third = model.add_labels(discs(), name="third", scale=(0.5, 0.5))
    dock.table.select([1])
    dock.labels.choose(third)  # which has no objects yet
    settle(dock)
    assert dock.layer is None and not dock.counts.text() and dock.table.model.rowCount() == 0
    assert not any(dock.buttons[name].isEnabled() for name in dock.buttons if name != "split")
    dock.labels.choose(other)
    settle(dock)
    assert dock.layer == second and dock.table.model.rowCount() == 3 and not dock.table.selected
    dock.buttons["new"].click()
    second.paint((1, 1), second.selected_label)
    settle(dock, SOON)
    assert dock.buttons["undo"].isEnabled()
    first.visible = False
    dock.labels.choose(cells)
    settle(dock)
    assert dock.layer == first and first.visible  # what the table lists is in sight
    dock.buttons["undo"].click()  # the correction, while the stroke on the other image stays
    assert not dock.buttons["undo"].isEnabled()
    dock.buttons["redo"].click()
    dock.labels.choose(other)
    settle(dock)
    dock.buttons["undo"].click()
    settle(dock, SOON)
    assert not dock.buttons["undo"].isEnabled() and second.data[1, 1] == 0
    model.layers.remove(third)
    dock.shut_down()
    for labels, layer in ((cells, first), (other, second)):
        model.layers.selection.active = labels
        again = open_on(model, ObjectsWidget)
        settle(again)
        assert again.labels.layer == labels and again.layer == layer
        again.shut_down()


@pytest.mark.parametrize("is_preview", [True, False])
def test_a_layer_that_goes_while_it_is_measured_stays_gone(
    dock, model, settle, qtbot, monkeypatch, is_preview
):
    layer, may_end, measure = split(dock, settle), threading.Event(), Source.measure

    def slow(*arguments):
        may_end.wait(TIMEOUT / 1000)
        return measure(*arguments)

    monkeypatch.setattr(Source, "measure", slow)
    if is_preview:
        dock.choices.split_form.set_values({"neck": 0.5})
    else:
        dock.table.select([3])
        dock.buttons["delete"].click()
    qtbot.waitUntil(lambda: dock.panel.is_calculating, timeout=TIMEOUT)
    model.layers.remove(layer)
    may_end.set()
    settle(dock, SOON)
    assert dock.layer is None and layer.name not in model.layers


def test_frames_of_a_series_are_split_unasked_one_by_one_and_followed(
    model, open_on, settle, tmp_path
):
    pytest.importorskip("laptrack")
    frames = np.stack([np.roll(discs(), k, axis=0) for k in range(3)])
    placed = {"scale": (1, 0.5, 0.5)}
    model.add_labels(frames, name="series", axis_labels=("t", "y", "x"), **placed)
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    assert dock.choices.slices.isChecked()
    dock.labels.choose(model.add_labels(np.zeros_like(frames), name="empty"))
    settle(dock)
    assert dock.choices.why_not == dock.status.text == "this layer has no labels"
    dock.labels.choose(model.add_labels(frames, name="volume", **placed))
    settle(dock)
    assert not dock.choices.slices.isChecked()
    split(dock, settle)
    assert objects_in(dock) == [1, 2, 3] and not dock.buttons["track"].isEnabled()
    assert "tick each by itself" in dock.buttons["track"].toolTip()
    dock.choices.slices.setChecked(True)
    settle(dock)
    assert len(dock.table.model.table["slice"]) == 9
    dock.choices.track_by.setCurrentText("overlap")
    dock.buttons["track"].click()
    settle(dock)
    tracks = model.layers["volume [Tracks]"]
    assert len(np.unique(tracks.data[:, 0])) == 3 and len(tracks.data) == 9
    assert np.allclose(tracks.scale, (1, 0.5, 0.5))
    table = dock.table.model.table
    for track in (1, 2, 3):  # one object a frame
        assert sorted(table["slice"][table["track"] == track]) == [0, 1, 2]
    dock.save_to(str(tmp_path / "a.csv"))
    settle(dock)
    rows = read_table(tmp_path / "a.csv")
    assert [int(row["track"]) for row in rows] == table["track"].tolist()
    dock.table.select([int(table["object"][0])])
    dock.buttons["delete"].click()
    settle(dock)
    dock.buttons["track"].click()
    settle(dock)
    (again,) = [layer for layer in model.layers if isinstance(layer, Tracks)]
    assert len(again.data) == 8


@pytest.mark.parametrize("extent", ["each", "volume"])
def test_slices_are_split_as_they_were_labelled(model, open_on, run, settle, extent):
    frames = np.stack([discs()] * 3).astype(float)
    segment = open_on(model, SegmentWidget)
    segment.input.choose(image=model.add_image(frames, name="stack"), extent=extent)
    run(segment)
    dock = open_on(model, ObjectsWidget)
    dock.labels.choose(segment.result)
    settle(dock)
    assert dock.choices.slices.isChecked() == (extent == "each")


def test_the_table_is_sorted_and_filtered_by_measures(qtbot):
    table = ObjectTable()
    qtbot.addWidget(table)
    numbers = np.arange(1, 101)
    measured = {"object": numbers, "pixels": numbers[::-1] * 2, "extent": numbers / 100}
    table.show_table(measured)
    table.resize(120, 200)
    table.show()
    table.select([3])
    scrolled = table.view.horizontalScrollBar()
    scrolled.setValue(scrolled.maximum())
    table.model.sort(1)
    assert table.shown[0] == 100 and scrolled.value() == scrolled.maximum() > 0
    table.filter.measure.choose("pixels")
    assert len(table.shown) == 100
    table.filter._on_span(100, 101)  # a click of a hand that trembles
    assert len(table.shown) == 100
    table.filter._on_span(100, 150)
    kept = [number for number in numbers if 100 <= 2 * (101 - number) <= 150]
    assert sorted(table.shown) == kept
    table.filter.against.choose("extent")
    table.filter.set_gate([(0, 0), (300, 0), (300, 0.305), (0, 0.305)])
    assert sorted(table.shown) == [*range(1, 31)]
    table.show_table({name: values[20:] for name, values in measured.items()})
    assert sorted(table.shown) == [*range(21, 31)]  # the polygon stays with other objects
    table.filter.measure.choose(None)
    assert len(table.shown) == 80


def test_objects_have_the_colours_of_a_measure_and_their_own_again(dock, settle):
    layer, plot = split(dock, settle), dock.table.filter
    before, table = layer.colormap, dock.table.model.table
    plot.measure.choose("pixels")
    plot.color.click()
    largest = table["object"][table["pixels"].argmax()]
    shown = layer.colormap.map(np.uint32([0, largest]))
    assert np.allclose(shown[1], ensure_colormap("viridis").map(1.0)[0]) and not shown[0, 3]

    def colors_of_bars():
        (axes,) = plot._canvas.figure.axes
        return {bar.get_facecolor() for bar in axes.containers[0]}

    assert len(colors_of_bars()) > 1
    plot.color.click()
    assert layer.colormap == before and len(colors_of_bars()) == 1
