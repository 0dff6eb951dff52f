"""Classes of objects in the Objects dock: clicked, shown, suggested, undone, saved."""

import numpy as np
import pytest
from gui_cases import read_table

import napari_saf as saf
from napari_saf._gui.layers.metadata import CLASSES_KEY, OBJECTS_KEY
from napari_saf._gui.objects import classes as section
from napari_saf._gui.objects.classes import COLORS
from napari_saf._gui.objects.dock import ObjectsWidget

pytestmark = pytest.mark.gui
N = 12


def cells(seed=0):
    """Return squares and their image: every third is large and bright."""
    rng = np.random.default_rng(seed)
    labels, image = np.ones((20, 20 * N), np.uint8), rng.normal(50, 3, (20, 20 * N))
    for k in range(N):
        side = 14 if k % 3 == 0 else 8
        at = np.s_[3 : 3 + side, 20 * k + 3 : 20 * k + 3 + side]
        labels[at] = 2
        image[at] += 120 if k % 3 == 0 else 60
    return labels, image


@pytest.fixture
def dock(model, open_on, settle, monkeypatch):
    monkeypatch.setattr(section, "_PATIENCE", 0)
    labels, image = cells()
    model.add_image(image, name="photo")
    model.add_labels(labels, name="cells")
    opened = open_on(model, ObjectsWidget)
    settle(opened)
    opened.start()
    settle(opened)
    return opened


def click(dock, k):
    """Click a cell, counted from the left, as the mouse does."""
    dock.canvas.picked.emit(number_of(dock, k), False)


def number_of(dock, k):
    return int(dock.layer.data[8, 20 * k + 8])


def classes_of(dock):
    """Return the class of each cell, from the left."""
    table = dict(zip(dock.classes.classified.numbers, dock.classes.classified.classes, strict=True))
    return [int(table[number_of(dock, k)]) for k in range(N)]


def teach(dock, settle):
    """Click two cells of each class."""
    for label, own in ((1, (1, 2)), (2, (0, 3))):
        dock.classes.choose_label(label)
        for k in own:
            click(dock, k)
            settle(dock)
    settle(dock, 100)


TRUE = [2 if k % 3 == 0 else 1 for k in range(N)]


def test_clicks_teach_all_objects_a_class_and_are_taken_back(dock, settle):
    click(dock, 4)  # no class is chosen yet
    assert dock.table.selected == [number_of(dock, 4)] and not dock.classes.clicks
    assert not dock.classes.buttons["suggest"].isEnabled()
    teach(dock, settle)
    assert classes_of(dock) == TRUE
    table = dock.table.model.table
    names = dict(zip(table["object"].tolist(), table["class"], strict=True))
    assert [names[number_of(dock, k)] for k in range(3)] == ["class 2", "class 1", "class 1"]
    assert (table["class_uncertainty"] <= 1).all()
    for k in range(N):
        shown = dock.layer.colormap.map(number_of(dock, k))
        assert np.allclose(shown[:3], COLORS[TRUE[k] - 1], atol=0.01)
    texts = [[dock.classes.table.item(row, c).text() for c in range(3)] for row in (0, 1)]
    assert texts == [["class 1", "2", "8"], ["class 2", "2", "4"]]
    dock.classes.buttons["suggest"].click()
    known = dock.classes.classified
    assert dock.table.selected == [known.numbers[known.uncertainty.argmax()]]
    before = dict(dock.classes.clicks)
    click(dock, 4)  # a small object as class 2
    settle(dock)
    assert classes_of(dock)[4] == 2
    dock.classes.buttons["undo"].click()
    settle(dock)
    assert dock.classes.clicks == before and classes_of(dock) == TRUE


def test_keys_choose_classes_while_the_section_is_open_and_a_lasso_gives_many_theirs(dock):
    def has_key(text):
        return any(str(key) == text for key in dock.layer.keymap)

    assert not has_key("3")
    dock.class_layers.fold.expand(animate=False)
    assert all(call.__name__ for call in dock.layer.keymap.values())  # which a canvas asks for
    for number in (1, 2):
        keys = dock.layer.keymap
        keys[next(key for key in keys if str(key) == str(number))](dock.layer)
    assert dock.classes.state.names == {1: "class 1", 2: "class 2"} and dock.classes.label == 2
    dock.class_layers.fold.collapse(animate=False)
    assert dock.classes.label is None and not has_key("3")
    dock.classes.choose_label(1)
    dock.classes.buttons["lasso"].click()
    dock.canvas.drawn.emit(np.array([(0, 19), (0, 60), (19, 60), (19, 19)], float))
    assert {*dock.classes.clicks} == {number_of(dock, 1), number_of(dock, 2)}
    keys = {str(key): call for key, call in dock.layer.keymap.items()}
    keys["Ctrl+Z"](dock.layer)  # of what was done last
    assert not dock.classes.clicks and not dock.tools.editor.can_redo
    dock.classes.choose_label(0)  # ends it
    assert not dock.classes.is_lasso
    assert "line" not in [layer.name for layer in dock._viewer.layers]


def test_classes_follow_corrections_of_objects_and_stay_with_the_layer(
    dock, settle, model, open_on
):
    teach(dock, settle)
    number, layer = number_of(dock, 0), dock.layer
    dock.table.select([number])
    dock.buttons["delete"].click()
    settle(dock)
    settle(dock)
    assert number not in dock.classes.classified.numbers
    assert number in dock.classes.clicks  # Undo brings the object back
    dock.buttons["undo"].click()
    settle(dock)
    settle(dock)
    assert classes_of(dock) == TRUE
    kept = {"names": {1: "class 1", 2: "class 2"}, "clicks": dock.classes.clicks}
    assert layer.metadata[CLASSES_KEY] == kept
    dock.shut_down()
    again = open_on(model, ObjectsWidget)
    again.labels.choose(model.layers["cells"])
    settle(again)
    settle(again)
    assert again.layer == layer and classes_of(again) == TRUE


def test_classes_are_saved_with_tables_and_outlines_and_loaded_for_others(
    dock, settle, tmp_path, model, open_on
):
    pytest.importorskip("shapely")
    teach(dock, settle)
    dock.classes.table.item(1, 0).setText("large")
    for name in ("a.csv", "a.geojson"):
        dock.save_to(str(tmp_path / name))
        settle(dock)
    assert [row["class"] for row in read_table(tmp_path / "a.csv")].count("large") == 4
    back = saf.load_objects(tmp_path / "a.geojson", dock.layer.data.shape)
    assert sorted(back.names.values()) == ["class 1", "large"]
    path = tmp_path / "a.classes.json"
    dock.classes.save_to(str(path))
    assert f"saved a.classes.json in {tmp_path.name}" in dock.status.text
    assert saf.load_classes(path).names[2] == "large"
    dock.labels.layer.data[:, :20] = 0  # the first cell goes, and all numbers change
    dock.start()
    settle(dock)
    settle(dock)
    assert dock.classes.clicks == {
        number_of(dock, 1): 1,
        number_of(dock, 2): 1,
        number_of(dock, 3): 2,
    }
    dock.canvas.undo_asked.emit()  # clicks on former numbers cannot be undone
    assert len(dock.classes.clicks) == 3
    table = dock.table.model.table
    shown = dict(zip(table["object"].tolist(), table["class"], strict=True))
    names = {1: "class 1", 2: "large"}
    assert [shown[number_of(dock, k)] for k in range(1, N)] == [names[k] for k in TRUE[1:]]
    for last, count in ((40, 1), (20, 0)):  # then one object, and none
        dock.labels.layer.data[:, last:] = 1
        dock.start()
        settle(dock)
        settle(dock)
        assert dock.classes.classified is None and len(dock.classes.clicks) == count
        assert "class" not in dock.table.model.table and dock.table.model.rowCount() == count
    dock.labels.layer.data[:] = cells()[0]
    dock.start()
    settle(dock)
    dock.classes.load_from(str(path))
    settle(dock)
    assert classes_of(dock) == TRUE
    dock.classes.load_from(str(tmp_path / "a.csv"))
    assert "a.csv" in dock.status.text and classes_of(dock) == TRUE


@pytest.fixture
def two_images(dock, model, settle):
    """The dock, beside another image whose cells were split, too."""
    labels, image = cells(1)
    model.add_image(image[:, ::-1], name="other")
    model.add_labels(labels[:, ::-1].copy(), name="more cells")
    first = dock.layer
    dock.labels.choose(model.layers["more cells"])
    dock.choices.image.choose(model.layers["other"])
    settle(dock)
    dock.start()
    settle(dock)
    assert dock.layer != first
    return dock, first, dock.layer


def test_clicks_on_several_images_teach_all_of_them(two_images, settle, model):
    dock, first, second = two_images
    dock.classes.choose_label(1)
    dock.canvas.picked.emit(int(second.data[8, 90]), False)  # a small one
    model.layers.selection.active = first
    settle(dock)
    assert dock.layer == first and dock.labels.layer == model.layers["cells"]
    dock.classes.choose_label(2)
    click(dock, 0)
    for _ in range(4):
        settle(dock, 50)
    assert classes_of(dock) == TRUE
    assert dock.classes.table.item(1, 2).text() == "8"  # large ones of both images
    for layer, clicked in ((first, 2), (second, 1)):
        column = 90 if clicked == 1 else 8
        assert layer.metadata[CLASSES_KEY]["clicks"] == {int(layer.data[8, column]): clicked}
    numbers = [int(second.data[8, 20 * k + 10]) for k in range(N)]
    table = second.features.set_index("index")["class"]
    assert [table[number] for number in numbers] == [f"class {k}" for k in TRUE[::-1]]
    shown = second.colormap.map(np.array(numbers, second.data.dtype))
    assert np.allclose(shown[:, :3], COLORS[np.array(TRUE[::-1]) - 1], atol=0.01)
    # back, with what was clicked and corrected there
    dock.labels.choose(model.layers["more cells"])
    settle(dock)
    assert dock.layer == second and len(dock.classes.clicks) == 1
    for _ in range(2):
        dock.classes.buttons["undo"].click()
    settle(dock)
    assert dock.classes.learned is None and not any(dock.classes.state.clicks.values())
    model.layers.remove(first)
    assert [*dock.classes.images] == [str(second.unique_id)]


def test_objects_of_a_project_are_taken_along(dock, model, settle):
    teach(dock, settle)
    labels, image = cells(1)
    model.add_image(image, name="other")
    numbers = saf.split_objects(np.where(labels == 2, 2, 0)).labels
    clicks = {int(numbers[8, 8]): 2}
    kept = {"names": {1: "class 1", 2: "class 2"}, "clicks": clicks}
    metadata = {OBJECTS_KEY: np.append(0, np.full(N, 2)), CLASSES_KEY: kept}
    other = model.add_labels(numbers, name="other [Objects]", metadata=metadata)
    dock.classes.choose_label(1)
    click(dock, 5)
    for _ in range(4):
        settle(dock, 50)
    key = str(other.unique_id)
    assert dock.classes.state.clicks[key] == clicks
    learned = dock.classes.classified_of(key)
    by_number = dict(zip(learned.numbers.tolist(), learned.classes.tolist(), strict=True))
    assert [by_number[int(numbers[8, 20 * k + 8])] for k in range(N)] == TRUE


def test_a_track_has_one_class(model, open_on, settle, monkeypatch):
    pytest.importorskip("laptrack")
    monkeypatch.setattr(section, "_PATIENCE", 0)
    labels, image = cells()
    model.add_image(np.stack([image] * 3), name="photo")
    model.add_labels(np.stack([labels] * 3), name="cells")
    dock = open_on(model, ObjectsWidget)
    dock.choices.slices.setChecked(True)
    settle(dock)
    dock.start()
    settle(dock)
    numbers = dock.layer.data[:, 8, 8::20]  # (frame, cell)
    dock.track()
    settle(dock)
    for label, k in ((1, 1), (2, 0), (1, 3)):  # the last one is large
        dock.classes.choose_label(label)
        dock.canvas.picked.emit(int(numbers[1, k]), False)
        settle(dock, 50)
    found = dock.classes.classified
    of_number = dict(zip(found.numbers.tolist(), found.classes.tolist(), strict=True))
    assert all(len({of_number[int(n)] for n in column}) == 1 for column in numbers.T)
    assert [of_number[int(n)] for n in numbers[:, 3]] == [1, 1, 1]
    dock.classes.choose_label(2)
    dock.canvas.picked.emit(int(numbers[2, 3]), False)  # another frame of the same track
    settle(dock, 50)
    assert int(numbers[1, 3]) not in dock.classes.clicks
    assert dock.classes.clicks[int(numbers[2, 3])] == 2
