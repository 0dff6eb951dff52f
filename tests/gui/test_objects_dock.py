"""The Objects dock: split, previewed, chosen, corrected, saved."""

import csv
import threading

import imageio.v3 as iio
import napari
import numpy as np
import pytest
from gui_cases import TIMEOUT
from napari.components import ViewerModel
from napari.utils.colormaps import ensure_colormap
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.export.dock import ExportWidget
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.objects import dock as objects_dock
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.objects.layers import Source
from napari_saf._gui.objects.table import ObjectTable
from napari_saf.cli import main
from napari_saf.objects import NECK

pytestmark = pytest.mark.gui


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


def test_one_of_objects_and_later_results_is_in_sight(dock, model, settle):
    layer, photo = split(dock, settle), model.layers["photo"]
    assert layer.visible and not model.layers["cells"].visible
    result = model.add_labels(discs(), name="result", scale=(0.5, 0.5), units="um")
    visibility_of(model).show_result(photo, result)
    assert result.visible and not layer.visible
    dock.labels.choose(model.layers["cells"])
    assert split(dock, settle).visible and not result.visible


def test_long_names_hide_no_kind(dock, model, settle, qtbot):
    model.layers["cells"].metadata["class_names"] = {"1": "the ground between the cells " * 3}
    dock.labels.choose(None)
    dock.labels.choose(model.layers["cells"])
    settle(dock)
    dock.choices.kinds.resize(150, dock.choices.kinds.height())
    with qtbot.waitExposed(dock):
        dock.show()
    last = dock.choices.kinds.visualItemRect(dock.choices.kinds.item(1))
    assert 0 <= dock.choices.kinds.viewport().rect().bottom() - last.bottom() <= 4


@pytest.mark.parametrize("ground", [0, 1, 5])
def test_the_kinds_are_those_of_the_command(model, open_on, settle, tmp_path, ground):
    labels = np.where(discs() == 1, ground, np.arange(100) // 50 + 2).astype(np.uint8)
    model.add_labels(labels, name="cells")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    saf.save_masks(tmp_path / "m.tif", labels)
    main(["objects", str(tmp_path / "m.tif"), "-o", str(tmp_path / "t.csv")])
    with (tmp_path / "t.csv").open() as file:
        kinds = {int(row["kind"]) for row in csv.DictReader(file)}
    assert dock.choices.kinds.ticked == sorted(kinds) == [2, 3]


class Mouse:
    """What napari tells a callback of the mouse."""

    def __init__(self, position):
        self.position, self.type, self.modifiers = position, "mouse_press", []


def drag(dock, *places, modifiers=()):
    events = Mouse(dock.layer.data_to_world(places[0]))
    events.modifiers = list(modifiers)
    steps = dock.canvas.on_mouse(dock.layer, events)
    next(steps, None)
    for place in places[1:]:
        events.type, events.position = "mouse_move", dock.layer.data_to_world(place)
        next(steps)
    events.type = "mouse_release"
    next(steps, None)


def test_objects_come_with_a_row_each_and_counts(dock, settle):
    layer = split(dock, settle)
    expected = saf.split_objects(discs(), kinds=[2])
    assert np.array_equal(layer.data, expected.labels)
    assert layer.name == "cells [Objects]" and np.allclose(layer.scale, 0.5)
    table = dock.table.model.table
    assert table["object"].tolist() == [1, 2, 3] and set(table["name"]) == {"nucleus"}
    assert np.allclose(table["area_um2"], np.bincount(layer.data.ravel())[1:] / 4)
    assert set(table["intensity_mean"]) == {7.0}
    words = dock.counts.text().split()
    assert words[:3] == ["nucleus:", "3", "objects,"] and words[4:] == "% of the image".split()
    assert abs(float(words[3]) - 100 * (discs() == 2).mean()) < 0.1
    features = dock.layer.features.set_index("index")
    assert features.loc[3, "pixels"] == (layer.data == 3).sum()
    assert not dock.labels.layer.visible and dock.choices.kinds.ticked == [2]


def test_an_open_export_dock_takes_the_labels_that_are_active(dock, model, open_on, settle, qtbot):
    export = open_on(model, ExportWidget)
    export.labels.choose(dock.labels.layer)
    layer = split(dock, settle)
    model.layers.selection.active = layer
    qtbot.waitUntil(lambda: export.labels.layer == layer)
    model.layers.selection.active = model.layers["photo"]
    qtbot.wait(50)
    assert export.labels.layer == layer
    model.layers.selection.active = dock.labels.layer
    qtbot.waitUntil(lambda: export.labels.layer == dock.labels.layer)


def test_nothing_can_be_split_while_the_labels_are_counted(model, open_on, settle):
    model.add_labels(discs(), name="cells")
    dock = open_on(model, ObjectsWidget)
    button = dock.buttons["split"]
    assert not button.isEnabled() and "no kind is ticked" in button.toolTip()
    settle(dock)
    assert button.isEnabled()


def test_the_recipe_of_the_labels_ends_in_their_objects(dock, settle):
    problem = saf.Problem.from_image(discs() / 2.0, features="intensity", max_side=None)
    recipe = saf.SelfAssignmentFlow(max_labels=2).run(problem).recipe
    dock.labels.layer.metadata["napari_saf"] = {"recipe": recipe}
    split(dock, settle)
    dock.choices.split_form.set_values({"smallest": 33})
    settle(dock, 120)
    step = saf.ObjectStep(smallest=33, neck=NECK, kinds=(2,))
    assert recipe_of(dock.labels.layer).objects == step


def test_a_control_that_moves_shows_other_objects_at_once(dock, settle):
    split(dock, settle)
    dock.choices.split_form.set_values({"neck": 0.5})
    settle(dock, 120)
    assert dock.layer.data.max() == 2
    dock.choices.split_form.set_values({"smallest": 500})
    settle(dock, 120)
    assert dock.layer.data.max() == 1
    dock.choices.split_form.set_values({"neck": NECK})
    dock.choices.split_form.set_values({"smallest": 20})
    settle(dock, 120)
    dock.table.select([1, 2])
    dock.buttons["merge"].click()
    settle(dock)
    dock.choices.split_form.set_values({"neck": 0.5})
    settle(dock, 120)
    assert dock.layer.data.max() == 3 and "corrections" in dock.status.text


def test_rows_and_image_choose_each_other(dock, settle):
    split(dock, settle)
    dock.table.select([3])
    assert dock.layer.selected_label == 3
    number = int(dock.layer.data[20, 20])
    drag(dock, (20, 20))
    assert dock.table.selected == [number]
    drag(dock, (20, 80), modifiers=["Control"])
    assert set(dock.table.selected) == {number, 3}
    drag(dock, (1, 1))
    assert dock.table.selected == []


def test_corrections_change_image_and_table_and_go_back(dock, settle):
    layer = split(dock, settle)
    before = layer.data.copy()
    dock.table.select([1, 2])
    dock.buttons["merge"].click()
    settle(dock)
    assert set(np.unique(layer.data)) == {0, 1, 3} and dock.table.model.rowCount() == 2
    dock.buttons["cut"].click()
    assert not layer.mouse_pan
    drag(dock, (2, 30), (20, 30), (38, 30))
    settle(dock)
    assert len(np.unique(layer.data[:, :60])) == 3 and dock.table.model.rowCount() == 3
    dock.buttons["cut"].click()
    dock.table.select([3])
    dock.buttons["delete"].click()
    settle(dock)
    assert dock.table.model.rowCount() == 2
    for _ in range(3):
        dock.buttons["undo"].click()
    settle(dock)
    assert np.array_equal(layer.data, before) and not dock.buttons["undo"].isEnabled()
    dock.buttons["redo"].click()
    assert set(np.unique(layer.data)) == {0, 1, 3}


def pairs(rows=4, columns=3):
    """A grid of pairs of discs that touch, label 2, on a ground."""
    y, x = np.ogrid[: 30 * rows, : 60 * columns]
    inside = (y % 30 - 15) ** 2 + (abs(x % 60 - 30) - 8.5) ** 2 <= 100
    return np.where(inside, 2, 1).astype(np.uint8)


def test_ten_corrections_set_neck_anew_and_undo_brings_all_back(model, open_on, settle):
    model.add_labels(pairs(), name="pairs")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    dock.choices.split_form.set_values({"neck": 0.5})
    split(dock, settle)
    assert dock.tools.editor.numbers.size == 12
    corners = [(15 + 30 * row, 30 + 60 * column) for column in range(3) for row in range(4)]
    for count, (row, column) in enumerate(corners[:10], start=1):
        before = dock.layer.data.copy()
        dock.tools.cut(np.array([(row - 14, column), (row + 14, column)]))
        settle(dock)
        assert (dock.choices.split_form.read().neck == 0.5) is (count < 10)
    by_hand = dock.tools.editor.corrections.is_by_hand[dock.layer.data]
    text = dock.status.text
    assert text.startswith("neck 0.5 → ") and "10 corrections: 22 → 24 objects (Undo" in text
    assert by_hand[:, :120].sum() == (pairs()[:, :120] == 2).sum()
    dock.tools.undo()
    settle(dock)
    assert dock.choices.split_form.read().neck == 0.5 and dock.tools.editor.numbers.size == 22
    dock.tools.undo()
    settle(dock)
    assert np.array_equal(dock.layer.data, before)  # and no other lesson came


def test_a_painted_object_gets_a_row(dock, settle):
    split(dock, settle)
    dock.buttons["new"].click()
    assert dock.layer.mode == "paint"
    dock.layer.paint((5, 60), dock.layer.selected_label)
    settle(dock, 120)
    assert dock.table.model.table["object"].tolist() == [1, 2, 3, 4]


def press(layer, keys):
    layer.keymap[napari.utils.key_bindings.coerce_keybinding(keys)](layer)


def test_strokes_of_the_brush_go_back_with_their_row(dock, settle):
    layer = split(dock, settle)
    before = layer.data.copy()
    dock.table.select([3])
    dock.buttons["delete"].click()
    settle(dock)
    press(layer, "Control-Z")  # of a correction
    settle(dock, 120)
    assert np.array_equal(layer.data, before) and dock.table.model.rowCount() == 3
    dock.buttons["new"].click()
    layer.paint((5, 60), layer.selected_label)
    press(layer, "Control-Z")  # before its row came
    settle(dock, 120)
    assert np.array_equal(layer.data, before) and dock.table.model.rowCount() == 3
    dock.buttons["redo"].click()
    settle(dock, 120)
    painted = layer.data.copy()
    assert dock.table.model.table["object"].tolist() == [1, 2, 3, 4]
    dock.table.select([1, 2])
    dock.buttons["merge"].click()
    for expected in (painted, before):
        press(layer, "Control-Z")
        settle(dock, 120)
        assert np.array_equal(layer.data, expected)
    assert dock.table.model.table["object"].tolist() == [1, 2, 3]


def test_the_line_that_cuts_is_seen_while_it_is_drawn(dock, model, settle):
    layer = split(dock, settle)
    dock.buttons["cut"].click()
    line = model.layers["cut line"]
    assert model.layers.selection.active is layer
    event = Mouse(layer.data_to_world((2, 20)))
    steps = dock.canvas.on_mouse(layer, event)
    next(steps)
    event.type, event.position = "mouse_move", layer.data_to_world((38, 20))
    next(steps)
    assert np.allclose(line.data[0], [(2, 20), (38, 20)])
    assert np.allclose(line.data_to_world((2, 20)), layer.data_to_world((2, 20)))
    event.type = "mouse_release"
    next(steps, None)
    settle(dock)
    assert not line.data and dock.table.model.rowCount() == 4
    model.layers.remove(line)  # by the person
    drag(dock, (20, 66), (20, 94))
    dock.buttons["cut"].click()
    assert layer.mouse_pan and "cut line" not in model.layers
    dock.buttons["cut"].click()
    model.layers.remove(layer)
    assert "cut line" not in model.layers and not dock.buttons["cut"].isChecked()


def test_an_object_that_is_painted_on_is_measured_anew_and_stays(dock, settle, tmp_path):
    layer = split(dock, settle)
    before = dock.table.model.table["pixels"][2]
    dock.choices.kinds.item(1).setCheckState(Qt.CheckState.Unchecked)
    layer.brush_size = 30
    layer.paint((5, 80), 3)
    layer.paint((5, 60), 9)
    settle(dock, 120)
    own = np.bincount(layer.data.ravel())
    assert dock.table.model.table["pixels"].tolist() == own[own > 0][1:].tolist()
    assert own[3] > before
    dock.choices.split_form.set_values({"smallest": 30})
    settle(dock, 120)
    assert np.array_equal(np.bincount(layer.data.ravel()), own)


def test_a_table_that_is_saved_is_of_the_objects_as_they_are(dock, settle, tmp_path):
    split(dock, settle)
    dock.table.select([1, 2])
    dock.buttons["merge"].click()
    dock.save_to(str(tmp_path / "a.csv"))
    settle(dock)
    with open(tmp_path / "a.csv", newline="", encoding="utf-8") as file:
        assert [row["object"] for row in csv.DictReader(file)] == ["1", "3"]


@pytest.mark.parametrize("shape", [(40, 100), (30, 90)])
def test_other_labels_get_a_layer_of_their_own(dock, model, settle, shape):
    first = split(dock, settle)
    dock.table.select([3])
    dock.buttons["delete"].click()
    settle(dock)
    corrected = first.data.copy()
    other = model.add_labels(discs()[: shape[0], : shape[1]], name="other", scale=(2, 2))
    dock.labels.choose(other)
    settle(dock)
    second = split(dock, settle)
    assert second is not first and second.name == "other [Objects]"
    assert second.data.shape == shape and np.allclose(second.scale, 2)
    assert first in model.layers and np.array_equal(first.data, corrected)
    assert not first.mouse_drag_callbacks


@pytest.mark.parametrize("is_preview", [True, False])
def test_a_layer_that_goes_while_it_is_measured_stays_gone(
    dock, model, settle, qtbot, monkeypatch, is_preview
):
    layer, may_end, measure = split(dock, settle), threading.Event(), Source.measure

    def slow(*given):
        may_end.wait(TIMEOUT / 1000)
        return measure(*given)

    monkeypatch.setattr(Source, "measure", slow)
    if is_preview:
        dock.choices.split_form.set_values({"neck": 0.5})
    else:
        dock.table.select([3])
        dock.buttons["delete"].click()
    qtbot.waitUntil(lambda: dock.panel.is_calculating, timeout=TIMEOUT)
    model.layers.remove(layer)
    may_end.set()
    settle(dock, 120)
    assert dock.layer is None and layer.name not in model.layers


def test_a_line_across_nothing_changes_nothing(dock, settle):
    layer = split(dock, settle)
    before = layer.data.copy()
    for line in ([(0, 0), (0, 5)], [(20, 76), (20, 80)]):
        dock.tools.cut(np.array(line, float))
        assert np.array_equal(layer.data, before)


def test_files_of_all_kinds_are_saved(dock, settle, tmp_path):
    pytest.importorskip("shapely")
    layer = split(dock, settle)
    for name in ("a.csv", "a.geojson", "a.json", "a.tif", "b"):
        dock.save_to(str(tmp_path / name))
        settle(dock)
        assert "saved" in dock.status.text
    with open(tmp_path / "b.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 3
    back = saf.load_objects(tmp_path / "a.geojson", (40, 100))
    assert np.array_equal(back.labels, layer.data) and back.names == {2: "nucleus"}
    assert np.array_equal(saf.read_mask(tmp_path / "a.tif").labels, layer.data)
    dock.save_to(str(tmp_path / "nowhere" / "a.csv"))
    settle(dock)
    assert dock.status.is_error


def test_stacks_are_split_as_volumes_or_slice_by_slice(model, open_on, settle):
    model.add_labels(np.stack([discs()] * 3), name="stack")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    split(dock, settle)
    assert len(dock.table.model.table["object"]) == 3
    dock.choices.slices.setChecked(True)
    settle(dock)
    assert len(dock.table.model.table["slice"]) == 9


def test_frames_of_a_series_are_split_one_by_one_unasked(model, open_on, settle):
    frames = model.add_labels(np.stack([discs()] * 3), name="series", axis_labels=("t", "y", "x"))
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    assert dock.choices.slices.isChecked()
    model.add_labels(frames.data, name="volume")
    dock.labels.choose(model.layers["volume"])
    settle(dock)
    assert not dock.choices.slices.isChecked()


def test_frames_are_followed_into_a_layer_of_tracks(model, open_on, settle):
    pytest.importorskip("laptrack")
    frames = np.stack([np.roll(discs(), k, axis=0) for k in range(3)])
    model.add_labels(frames, name="series", scale=(1, 0.5, 0.5))
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    split(dock, settle)
    assert not dock.buttons["track"].isEnabled()  # a volume
    dock.choices.slices.setChecked(True)
    settle(dock)
    dock.choices.track_by.setCurrentText("overlap")
    dock.buttons["track"].click()
    settle(dock)
    tracks = model.layers["series [Tracks]"]
    assert len(np.unique(tracks.data[:, 0])) == 3 and len(tracks.data) == 9
    assert np.allclose(tracks.scale, (1, 0.5, 0.5))


def test_a_layer_that_goes_takes_its_objects_along(window, open_dock, settle):
    """In a window, which hands proxies of its layers to docks."""
    window.add_labels(discs(), name="cells")
    dock = open_dock(window, ObjectsWidget)
    settle(dock)
    split(dock, settle)
    window.layers.remove("cells [Objects]")
    assert dock.layer is None and dock.table.model.rowCount() == 0
    assert not dock.buttons["save"].isEnabled()
    window.layers.remove("cells")
    assert not dock.buttons["split"].isEnabled()


def test_all_rows_are_selected_without_asking_for_each(qtbot, monkeypatch):
    table, asked = ObjectTable(), []
    qtbot.addWidget(table)
    table.show()
    numbers = np.arange(1, 3001)
    table.show_table({"object": numbers, "pixels": numbers})
    count = type(table.model).rowCount
    monkeypatch.setattr(type(table.model), "rowCount", lambda *a: asked.append(1) or count(*a))
    table.view.selectAll()
    table.grab()
    assert table.selected == numbers.tolist()
    assert len(asked) < 1000
    table.select(numbers[:-1])  # rows that follow each other are one range
    assert len(table.view.selectionModel().selection()) == 1
    table.select([2, 3, 4, 8, 10])
    assert table.selected == [2, 3, 4, 8, 10]


def test_the_table_is_sorted_and_filtered_by_a_measure(qtbot):
    table = ObjectTable()
    qtbot.addWidget(table)
    numbers = np.arange(1, 101)
    table.show_table({"object": numbers, "pixels": numbers[::-1] * 2, "name": numbers.astype(str)})
    table.model.sort(1)
    assert table.shown[0] == 100
    table.select([7, 9])
    table.filter.measure.choose("pixels")
    assert len(table.shown) == 100
    table.filter.set_gate((100, 150))
    kept = [number for number in numbers if 100 <= 2 * (101 - number) <= 150]
    assert sorted(table.shown) == kept
    table.filter.measure.choose(None)
    assert len(table.shown) == 100


def test_two_measures_are_gated_by_a_polygon_which_stays_with_other_objects(qtbot):
    table = ObjectTable()
    qtbot.addWidget(table)
    numbers = np.arange(1, 101)
    measured = {"object": numbers, "pixels": numbers * 2, "extent": numbers / 100}
    table.show_table(measured)
    table.filter.measure.choose("pixels")
    table.filter.against.choose("extent")
    table.filter.set_gate([(0, 0), (101, 0), (101, 0.305), (0, 0.305)])
    assert sorted(table.shown) == [*range(1, 31)]
    table.show_table({name: values[20:] for name, values in measured.items()})
    assert sorted(table.shown) == [*range(21, 31)]
    table.filter.against.choose(None)
    assert len(table.shown) == 80


def test_the_chosen_row_stays_in_view_when_rows_are_sorted(qtbot):
    table = ObjectTable()
    qtbot.addWidget(table)
    table.resize(340, 250)
    table.show()
    numbers = np.arange(1, 1001)
    table.show_table({"object": numbers, "pixels": (numbers * 7919) % 1009})
    table.select([500])
    for column in (1, 0):
        table.model.sort(column)
        row = table.model.rows.index(499)
        view = table.view.viewport().rect()
        assert view.contains(table.view.visualRect(table.model.index(row, 0)).center())


def test_objects_have_the_colours_of_a_measure_and_their_own_again(dock, settle):
    layer, plot = split(dock, settle), dock.table.filter
    before = layer.colormap
    plot.measure.choose("pixels")
    plot.color.click()
    table = dock.table.model.table
    largest = table["object"][table["pixels"].argmax()]
    expected = ensure_colormap("viridis").map(1.0)[0]
    assert np.allclose(layer.colormap.map(np.uint32([largest]))[0], expected)
    assert not layer.colormap.map(np.uint32([0]))[0, 3]
    plot.color.click()
    assert layer.colormap == before


def test_a_click_on_a_row_flashes_its_object_also_while_painting(dock, settle, qtbot):
    layer = split(dock, settle)
    for mode, stays in (("pan_zoom", 2), ("paint", 1)):
        layer.mode, layer.selected_label = mode, 1
        dock.table.select([2])
        assert layer.selected_label == 2 and layer.show_selected_label
        qtbot.waitUntil(lambda: not layer.show_selected_label, timeout=TIMEOUT)
        assert layer.selected_label == stays
        dock.table.select([])


def test_objects_are_saved_beside_the_image(model, open_on, settle, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(objects_dock, "ask_for_path", lambda *arguments: asked.append(arguments))
    iio.imwrite(tmp_path / "cells.png", 20 * discs())
    model.open(tmp_path / "cells.png", layer_type="image", plugin="napari")
    model.add_labels(discs(), name="cells [SAF]")
    dock = open_on(model, ObjectsWidget)
    settle(dock)
    split(dock, settle)
    dock.buttons["save"].click()
    assert asked[0][2] == str(tmp_path / "cells.objects.csv")


def test_of_several_labels_of_an_image_each_goes_on_with_its_own_objects(open_on, settle):
    model, ends = ViewerModel(), np.where(np.arange(32) % 8 < 6, 1, 0)
    bars = {"cells [A]": ends + 0 * ends[:, None], "cells [B]": (2 * ends)[:, None] + 0 * ends}
    for name, pixels in bars.items():
        model.add_labels(pixels, name=name)
    dock, own = open_on(model, ObjectsWidget), {}
    for name in bars:
        dock.labels.choose(model.layers[name])
        settle(dock)
        dock.start()
        settle(dock)
        own[name] = dock.layer
    dock.shut_down()
    for name in bars:
        model.layers.selection.active = model.layers[name]
        again = open_on(model, ObjectsWidget)
        settle(again)
        assert (again.labels.layer.name, again.layer) == (name, own[name])
        again.shut_down()
