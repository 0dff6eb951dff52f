"""The Project dock: images come and go with their strokes, and all of it is one file."""

import shutil
import threading
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tifffile
from gui_cases import TIMEOUT, apply_to, blocks, lock, recover, share_texts
from napari.components import ViewerModel
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.layers.metadata import class_names, is_strokes, recipe_of
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.scribbles import results as stroke_results
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.scribbles.result import shares_of
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf.features import Scaling
from napari_saf.project import _autosave

pytestmark = [pytest.mark.gui]
SIDE = 32


@pytest.fixture
def folder(tmp_path):
    """Three images of four squares; the squares of the second one are turned."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(3):
        tifffile.imwrite(folder / f"{k}.tif", np.rot90(blocks(SIDE), k), photometric="rgb")
    return folder


@pytest.fixture
def dock(model, open_on, folder, settle):
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([folder])
    settle(dock)
    return dock


@pytest.fixture
def scribbles(model, open_on):
    dock = open_on(model, ScribblesWidget)
    dock.follow.setChecked(False)
    return dock


def paint(scribbles, **rows):
    """Paint a short line of each class in its row of the image on screen."""
    if scribbles.strokes.layer is None:
        scribbles.new_strokes()
    for name, row in rows.items():
        pixels = (np.full(5, row), np.arange(3, 8) + (16 if name.endswith("b") else 0))
        scribbles.strokes.layer.data_setitem(pixels, int(name[1]))
    return np.array(scribbles.strokes.layer.data)


def stages(dock):
    return [dock.session.stage(entry) for entry in dock.session.model.entries]


def names(viewer):
    return [layer.name for layer in viewer.layers]


def strokes_on(viewer):
    (layer,) = [layer for layer in viewer.layers if is_strokes(layer)]
    return layer


def save(dock, path, settle):
    dock.save_to(path)
    settle(dock)
    return saf.load_project(dock.file.path)


def test_files_are_listed_and_the_first_is_shown(model, dock):
    assert [entry.name for entry in dock.session.model.entries] == ["0.tif", "1.tif", "2.tif"]
    assert names(model) == ["0"]
    assert stages(dock) == ["untouched"] * 3
    assert dock.images.table.chosen is dock.session.current


def test_images_that_are_opened_are_part_of_it(model, dock, folder):
    model.open(str(folder / "1.tif"), plugin="napari")
    assert len(dock.session.model.entries) == 3
    assert dock.session.model.entries[1].layer is model.layers["1"]
    model.add_image(blocks(), name="made here")
    assert [entry.name for entry in dock.session.model.entries][3:] == ["made here"]
    model.layers.remove("made here")
    assert len(dock.session.model.entries) == 3


def test_strokes_go_and_come_back_with_their_image(model, dock, scribbles):
    before = paint(scribbles, c1=4, c2=24)
    scribbles.strokes.rename(2, "sky")
    scribbles.strokes.set_color(2, (0.0, 0.5, 1.0))
    dock.images.go_to_next()
    assert names(model) == ["1"]
    assert stages(dock) == ["taught", "untouched", "untouched"]
    assert scribbles.input.strokes is None
    dock.images.go_to_previous()
    np.testing.assert_array_equal(strokes_on(model).data, before)
    assert class_names(strokes_on(model))[2] == "sky"
    assert scribbles.strokes.layer is strokes_on(model)
    np.testing.assert_allclose(scribbles.strokes.color(2), (0, 0.5, 1, 1), atol=0.01)


def test_layers_are_put_away_at_once(model, dock):
    """napari collects garbage after each removal, or each batch of them."""
    model.add_labels(np.eye(SIDE, dtype=np.uint8), name="mine")
    batches = []
    model.layers.events.end_batch.connect(lambda event: batches.append(len(model.layers)))
    dock.images.go_to_next()
    assert batches == [0] and names(model) == ["1"]


def test_labels_that_no_project_holds_stay_in_the_viewer(model, dock):
    model.add_labels(-np.eye(SIDE, dtype=np.int32), name="negative")
    model.add_labels(np.eye(SIDE, dtype=np.uint8), name="mine")
    dock.images.go_to_next()
    assert sorted(names(model)) == ["1", "negative"]


def test_layers_that_go_with_others_are_no_fault(model, dock):
    """Such as what a dock shows of a result."""
    for name in ("lower", "upper"):
        model.add_labels(np.eye(SIDE, dtype=np.uint8), name=name)

    def follow(event):
        if event.value.name == "lower":
            model.layers.remove("upper")

    model.layers.events.removed.connect(follow)
    dock.images.go_to_next()
    assert names(model) == ["1"]


def test_next_and_previous_go_around_the_ends(model, dock):
    for name in ("1", "2", "0"):
        dock.images.go_to_next()
        assert names(model) == [name]
    dock.images.go_to_previous()
    assert names(model) == ["2"]


def test_what_is_saved_is_opened_again(model, dock, scribbles, open_on, tmp_path, settle):
    before = paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    labels = np.array(scribbles.result.data)
    shares = share_texts(scribbles.classes)
    project = save(dock, tmp_path / "p", settle)
    assert dock.file.path == tmp_path / "p.napari-saf"
    assert [image.stage for image in project.images] == ["labelled", "untouched", "untouched"]
    second = ViewerModel()
    other, opened = open_on(second, ProjectWidget), open_on(second, ScribblesWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    np.testing.assert_array_equal(strokes_on(second).data, before)
    assert all(shares.values()) and share_texts(opened.classes) == shares
    (result,) = [one for one in second.layers if one.name.endswith("]")]
    np.testing.assert_array_equal(result.data, labels)
    again = recipe_of(result).run(np.asarray(second.layers["0"].data))
    expected = project.recipe.run(np.asarray(model.layers["0"].data))
    np.testing.assert_array_equal(again.labels, expected.labels)
    assert other.name.text() == "p.napari-saf"
    build = other.workspace.state()
    assert not other.file.is_unsaved(build)


@pytest.fixture
def reopened(request, model, dock, scribbles, open_on, tmp_path, settle):
    """Open a project with strokes and labels in another viewer; return both and its strokes.

    With True as its parameter one stroke is newer than the labels.
    """
    paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    if getattr(request, "param", False):
        paint(scribbles, c2=12)
    save(dock, tmp_path / "p", settle)
    second = ViewerModel()
    other, opened = open_on(second, ProjectWidget), open_on(second, ScribblesWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    settle(opened)
    return second, other, opened


def test_strokes_go_on_in_the_labels_that_were_opened(reopened, qtbot, settle):
    second, _, opened = reopened
    opened.result.visible = False
    before = names(second)
    opened.follow.setChecked(True)
    paint(opened, c2=12)
    qtbot.wait(60)
    settle(opened)
    assert names(second) == before
    assert opened.result.name.endswith("[from strokes]")
    assert opened.result.data[12, 4] == 2


def test_opened_labels_are_counted_in_no_thread_that_waits(reopened, settle, monkeypatch):
    _, project, opened = reopened
    threads, known = [], share_texts(opened.classes)

    def count(labels):
        threads.append(threading.current_thread())
        return shares_of(labels)

    monkeypatch.setattr(stroke_results, "shares_of", count)
    project.images.go_to_next()
    project.images.go_to_previous()
    settle(opened)
    assert threads and threading.main_thread() not in threads
    assert share_texts(opened.classes) == known


def test_what_was_opened_is_locked_and_applied_as_it_is(reopened, qtbot, settle):
    second, _, opened = reopened
    labels = np.array(opened.result.data)
    lock(opened.classes, 1)
    paint(opened, c3=10)
    opened.start()
    settle(opened)
    np.testing.assert_array_equal(opened.result.data[labels == 1], 1)
    image = second.add_image(blocks(SIDE)[::-1].copy(), name="other")
    apply_to(opened, image)
    settle(opened)
    assert any(one.name.startswith("other [") for one in second.layers)


@pytest.mark.parametrize(
    ("reopened", "is_painted_on"),
    [pytest.param(False, False, marks=pytest.mark.exhaustive), (True, True)],
    indirect=["reopened"],
)
def test_labels_that_were_opened_follow_the_strokes_that_they_came_of(
    reopened, settle, is_painted_on
):
    _, other, opened = reopened
    assert "labels as they were kept" in opened.status.text
    assert ("press Update" in opened.status.text) == is_painted_on
    other.images.go_to_next()
    other.images.go_to_previous()
    settle(opened)
    assert ("press Update" in opened.status.text) == is_painted_on


def test_objects_are_objects_when_they_are_opened(model, dock, open_on, tmp_path, settle):
    kinds = np.where(np.arange(SIDE) < 16, 1, 2) * np.ones((SIDE, 1), int)
    kinds[:, [7, 15, 16, 24]] = 0
    labels = model.add_labels(kinds.astype(np.uint8), name="cells")
    labels.metadata["class_names"] = {1: "left", 2: "right"}
    objects = open_on(model, ObjectsWidget)
    settle(objects)
    objects.choices.kinds.item(0).setCheckState(Qt.CheckState.Checked)
    objects.start()
    settle(objects)
    objects.table.select([1])
    objects.buttons["delete"].click()
    settle(objects)
    before = objects.table.model.table
    project = save(dock, tmp_path / "p", settle)
    assert sorted({one for layer in project.images[0].layers for one in layer.kinds}) == [0, 1, 2]
    second = ViewerModel()
    opened, other = open_on(second, ObjectsWidget), open_on(second, ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    settle(opened)
    assert opened.layer is second.layers["cells [Objects]"]
    assert opened.labels.values() == [second.layers["cells"]]
    for name in ("object", "kind", "name", "pixels"):
        np.testing.assert_array_equal(opened.table.model.table[name], before[name])
    opened.table.select([int(before["object"][0])])
    opened.buttons["delete"].click()
    settle(opened)
    assert opened.table.model.rowCount() == len(before["object"]) - 1
    opened.layer.data_setitem((np.array([0, 0]), np.array([15, 16])), 9)
    other.images.go_to_next()
    other.images.go_to_previous()
    settle(opened, 120)
    assert opened.layer is second.layers["cells [Objects]"]
    left = opened.table.model.table["object"]
    assert left.tolist() == [*before["object"][1:], 9]
    opened.shut_down()
    again = open_on(second, ObjectsWidget)
    settle(again, 60)
    np.testing.assert_array_equal(again.table.model.table["object"], left)


def test_new_strokes_leave_labels_that_were_opened(reopened, qtbot, settle):
    second, _, opened = reopened
    (old,) = [one for one in second.layers if one.name.endswith("[from strokes]")]
    labels = np.array(old.data)
    second.layers.remove(strokes_on(second))
    paint(opened, c1=24, c2=4)
    opened.start()
    settle(opened)
    np.testing.assert_array_equal(old.data, labels)
    assert opened.result is not None and opened.result != old


def test_the_docks_of_a_project_open_in_tabs(window, open_dock, folder, tmp_path, settle, qtbot):
    """Above one another they would make the window higher than the screen."""
    image = saf.ProjectImage(saf.FileReference.of(folder / "0.tif"))
    titles = ("Segment", "Scribbles", "Prototypes", "Export", "Diagnostics", "Patch dictionary")
    project = saf.Project((image,), docks={title: {} for title in titles})
    saf.save_project(tmp_path / "p.napari-saf", project)
    window.window.resize(1200, 760)
    frame = window.window._qt_window
    frame.show()
    dock = open_dock(window, ProjectWidget)
    dock.load(tmp_path / "p.napari-saf")
    settle(dock, 200)
    assert {*titles, "Project"} == {*dock.workspace.docks}
    assert frame.height() == 760
    assert not dock.visibleRegion().isEmpty()


def test_strokes_on_all_images_teach_together(model, dock, scribbles, tmp_path, settle):
    """Each image shows two of four classes; all four are found on the third one."""
    paint(scribbles, c1=4, c2=24)
    dock.images.go_to_next()
    paint(scribbles, c3=4, c4b=4)
    dock.label_all()
    settle(dock)
    assert "3 of 3 images labelled" in dock.status.text
    assert stages(dock) == ["labelled"] * 3
    dock.images.go_to(dock.session.model.entries[2])
    labels = model.layers[-1].data
    corners = [labels[4, 4], labels[4, 28], labels[28, 4], labels[28, 28]]
    assert sorted(np.unique(corners)) == [1, 2, 3, 4]
    project = save(dock, tmp_path / "p", settle)
    for image in project.images:
        expected = project.recipe.run(saf.read_image(image.file.path).array).labels
        stored = [layer for layer in image.layers if layer.kind == "labels"][-1]
        np.testing.assert_array_equal(stored.pixels.to_array(), expected)


def test_labels_by_the_recipe_of_an_image_carry_it(model, dock, open_on, settle):
    segment = open_on(model, SegmentWidget)
    segment.form.set_values({"max_labels": 3})
    segment.start()
    settle(segment)
    expected = recipe_of(model.layers[-1])
    dock.label_all()
    settle(dock)
    dock.images.go_to_next()
    assert names(model) == ["1", "1 [SAF]"]
    assert recipe_of(model.layers["1 [SAF]"]).plain == expected.plain


def test_the_least_certain_images_come_next(model, dock, scribbles, folder, tmp_path, settle):
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    tifffile.imwrite(folder / "2.tif", noise, photometric="rgb")
    paint(scribbles, c1=4, c2=24)
    assert not dock.buttons["go_to_uncertain"].isEnabled()
    dock.label_all()
    settle(dock)
    _, plain, uncertain = dock.session.model.entries
    shares = [dock.session.uncertainty(one) for one in dock.session.model.entries]
    assert shares[2] > shares[1] >= 0
    dock.images.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    entries = dock.images.table.entries
    assert next(entry for entry in entries if entry is not dock.session.current) is uncertain
    button = dock.buttons["go_to_uncertain"]
    button.click()
    assert dock.session.current is uncertain
    button.click()  # no strokes: the next one after it, then around
    assert dock.session.current is plain
    button.click()
    paint(scribbles, c1=4, c2=24)
    button.click()
    assert dock.session.current is plain
    layers = [image.layers for image in save(dock, tmp_path / "p", settle).images]
    kept = [[one.uncertainty for one in own if one.kind == "labels"] for own in layers]
    assert [own[-1] for own in kept] == shares


def test_what_was_corrected_by_hand_is_left(model, dock, scribbles, settle):
    paint(scribbles, c1=4, c2=24)
    dock.label_all()
    settle(dock)
    result = next(one for one in model.layers if one.name.endswith("]"))
    result.data_setitem((np.array([0]), np.array([0])), 7)
    dock.label_all()
    settle(dock)
    assert "0.tif: corrected by hand" in dock.status.text
    assert next(one for one in model.layers if one.name.endswith("]")).data[0, 0] == 7


def test_masks_of_all_images_are_exported(dock, scribbles, tmp_path, settle):
    paint(scribbles, c1=4, c2=24)
    dock.label_all()
    settle(dock)
    dock.export_to(tmp_path / "out")
    settle(dock)
    assert stages(dock) == ["exported"] * 3
    mask = saf.read_mask(tmp_path / "out" / "0.labels.tif")
    assert mask.recipe is not None and set(np.unique(mask.labels)) == {1, 2}


def test_an_image_without_a_file_is_kept_beside_the_project(open_on, tmp_path, settle):
    first, second = ViewerModel(), ViewerModel()
    first.add_image(blocks(), name="made here")
    dock = open_on(first, ProjectWidget)
    layer = first.add_labels(np.eye(SIDE, dtype=np.uint8), name="mine")
    save(dock, tmp_path / "p", settle)
    assert [path.name for path in (tmp_path / "p_images").iterdir()] == ["made_here.npy"]
    dock.file.begin(None)
    other = open_on(second, ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    np.testing.assert_array_equal(second.layers[0].data, blocks())
    np.testing.assert_array_equal(second.layers["mine"].data, layer.data)


def test_what_is_missing_is_looked_for_in_a_folder(model, dock, open_on, tmp_path, folder, settle):
    save(dock, tmp_path / "p", settle)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    (moved / "1.tif").rename(moved / "other.tif")
    second = ViewerModel()
    other = open_on(second, ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    assert "3 images are missing" in other.status.text
    assert not other.images.missing.isHidden()
    other.images.look_in(moved)
    settle(other)
    assert [entry.name for entry in other.session.model.entries] == ["0.tif", "other.tif", "2.tif"]
    assert other.images.missing.isHidden()
    assert len(second.layers) == 1


def test_strokes_do_not_land_on_a_changed_image_unasked(
    dock, scribbles, open_on, tmp_path, folder, settle
):
    before = paint(scribbles, c1=4, c2=24)
    save(dock, tmp_path / "p", settle)
    tifffile.imwrite(folder / "0.tif", 255 - blocks(SIDE), photometric="rgb")
    second = ViewerModel()
    other = open_on(second, ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    assert "1 image is changed" in other.status.text
    assert not [layer for layer in second.layers if is_strokes(layer)]
    entry = other.session.model.entries[0]
    other.images.go_to(entry)
    assert "has changed" in other.status.text and entry.layer is None
    other.images.table.choose(entry)
    other.buttons["use_as_it_is"].click()
    other.images.go_to(entry)
    np.testing.assert_array_equal(strokes_on(second).data, before)


def test_one_image_is_found_by_a_person(dock, open_on, tmp_path, folder, settle):
    save(dock, tmp_path / "p", settle)
    (folder / "1.tif").rename(tmp_path / "x.tif")
    other = open_on(ViewerModel(), ProjectWidget)
    other.load(tmp_path / "p.napari-saf")
    settle(other)
    entry = other.session.model.entries[1]
    other.images.take_file(entry, folder / "0.tif")
    assert entry.state == "changed"
    other.images.take_file(entry, tmp_path / "x.tif")
    assert entry.state == "found"


def test_a_project_from_elsewhere_may_not_name_files_anywhere(dock, open_on, tmp_path, settle):
    project = save(dock, tmp_path / "p", settle)
    (tmp_path / "deep").mkdir()
    path = saf.save_project(tmp_path / "deep" / "f.napari-saf", project)
    for _ in range(2):  # to be opened does not make it known
        second = open_on(ViewerModel(), ProjectWidget)
        second.load(path)
        settle(second)
        assert {entry.state for entry in second.session.model.entries} == {"missing"}
    assert _autosave.recent_projects()[0] == path


# What is kept in case of a crash


def recovery_files(tmp_path):
    return sorted((tmp_path / "data" / "recovery").glob("*.napari-saf"))


def test_what_is_not_saved_is_kept_and_offered(dock, scribbles, open_on, tmp_path, settle, keep):
    before = paint(scribbles, c1=4, c2=24)
    keep(dock)
    (kept,) = recovery_files(tmp_path)
    lost = kept.with_name("1-1-1.napari-saf")  # of a process that is gone
    shutil.copy(kept, lost)
    second = ViewerModel()
    other = open_on(second, ProjectWidget)
    assert other.workspace.recoverable
    recover(other)
    settle(other)
    np.testing.assert_array_equal(strokes_on(second).data, before)
    assert not other.workspace.recoverable and not lost.exists()
    assert other.file.is_unsaved(other.workspace.state())


def test_an_image_without_a_file_is_recovered(open_on, tmp_path, settle, keep):
    first, second = ViewerModel(), ViewerModel()
    first.add_image(blocks(), name="made here")
    first.add_labels(np.eye(SIDE, dtype=np.uint8), name="mine")
    dock = open_on(first, ProjectWidget)
    keep(dock)
    dock.shut_down()  # with its window, and what was not saved
    other = open_on(second, ProjectWidget)
    recover(other)
    settle(other)
    np.testing.assert_array_equal(second.layers[0].data, blocks())
    project = save(other, tmp_path / "p", settle)
    assert project.images[0].file.path == tmp_path / "p_images" / "made_here.npy"


# The window


def test_work_is_saved_where_that_is_the_answer(model, open_on, answers, tmp_path):
    given, asked = answers
    dock = open_on(model, ProjectWidget)
    model.add_image(blocks(), name="a")
    model.add_labels(np.eye(SIDE, dtype=np.uint8))
    dock.file.path = tmp_path / "p.napari-saf"
    given += ["save"]
    assert dock.workspace.may_close()
    assert saf.load_project(tmp_path / "p.napari-saf").images[0].stage == "labelled"
    assert dock.workspace.may_close() and len(asked) == 1


def test_ctrl_s_in_any_dock_saves_the_project(window, open_dock, qtbot, tmp_path):
    window.add_image(blocks(), name="a")
    scribbles, dock = open_dock(window, ScribblesWidget), open_dock(window, ProjectWidget)
    dock.file.path = tmp_path / "p.napari-saf"
    qtbot.keyClick(scribbles, Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: not dock.panel.is_calculating, timeout=TIMEOUT)
    assert Path(tmp_path / "p.napari-saf").exists()


def test_docks_come_back_with_their_values(window, open_dock, tmp_path, settle):
    window.add_image(blocks(), name="a")
    scribbles, dock = open_dock(window, ScribblesWidget), open_dock(window, ProjectWidget)
    scribbles.input.scale.set_value(21)
    scribbles.form.set_values({"rho": 0.3})
    save(dock, tmp_path / "p", settle)
    scribbles.input.scale.set_value(5)
    scribbles.form.set_values({"rho": 0.1})
    dock.load(tmp_path / "p.napari-saf")
    settle(dock)
    assert scribbles.input.scale.value == 21
    assert scribbles.form.values()["rho"] == 0.3


ODD = (None, True, -3, 10**30, 1e308, "x" * 300, [1], {"a": 1}, [[]])


def test_odd_values_of_docks_are_left_out(model, scribbles):
    model.add_image(blocks(), name="a")
    before = scribbles.form.method
    names = ("image", "channels", "extent", "features", "weights", "max_side", "none")
    for odd in ODD:
        parameters = dict.fromkeys([*scribbles.form.fields, "none"], odd)
        values = {"method": odd, "scale": odd, "choices": dict.fromkeys(names, odd)}
        scribbles.show_values(values | {"parameters": parameters})
        scribbles.show_values(values | {"method": "af", "parameters": parameters})
        scribbles.show_values({"choices": odd, "parameters": odd})
        assert scribbles.form.method is before, odd
        assert scribbles.input.image is model.layers["a"], odd


def test_a_dictionary_comes_back_by_its_file(model, open_on, tmp_path, settle):
    atoms = np.random.default_rng(0).random((2, 3, 3, 1)).astype(np.float32)
    given = saf.PatchDictionary(atoms=atoms, usage=np.array([3, 1]), scaling=Scaling(0.0, 1.0))
    given.save(tmp_path / "d.safetensors")
    first = open_on(model, DictionaryWidget)
    dock = open_on(model, ProjectWidget)
    first.load(tmp_path / "d.safetensors")
    settle(first)
    project = save(dock, tmp_path / "p", settle)
    assert project.find_dictionaries()["d.safetensors"].state == "found"
    second = ViewerModel()
    other, opened = open_on(second, DictionaryWidget), open_on(second, ProjectWidget)
    opened.load(tmp_path / "p.napari-saf")
    settle(opened)
    settle(other)
    np.testing.assert_array_equal(other.current.dictionary.atoms, atoms)
    assert saf.load_project(tmp_path / "p.napari-saf").dictionaries.keys() == {"d.safetensors"}


@pytest.mark.parametrize("kind", ["turned", "series"])
def test_images_that_napari_shows_otherwise_are_as_the_library_reads_them(
    open_on, model, tmp_path, settle, kind
):
    """Photographs upright, and every series of a file; found again when it is opened."""
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :8] = 255
    if kind == "turned":
        photo = PIL.Image.fromarray(pixels)
        exif = photo.getexif()
        exif[0x0112] = 6
        photo.save(tmp_path / "a.jpg", exif=exif, quality=100)
        paths = [tmp_path / "a.jpg"]
    else:
        for one in (pixels[::2, ::2, 0], pixels[..., 1]):
            tifffile.imwrite(tmp_path / "a.tif", one, append=True)
        paths = [tmp_path / "a.tif#0", tmp_path / "a.tif#1"]
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([tmp_path])
    entries = dock.session.model.entries
    assert [entry.path for entry in entries] == paths
    for entry in entries:
        dock.session.go_to(entry)
        assert np.array_equal(entry.layer.data, saf.read_image(entry.path).array)
    dock.save_to(tmp_path / "p.napari-saf")
    settle(dock)
    found = saf.load_project(tmp_path / "p.napari-saf").find_images()
    assert [one.path for one in found] == paths
    assert {one.state for one in found} == {"found"}
