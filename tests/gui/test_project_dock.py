"""The Project dock: images come and go with their strokes, and all of it is one file."""

import dataclasses
import shutil

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
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.objects.dock import ObjectsWidget
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf._gui.session import workspace
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


def result_on(viewer):
    (layer,) = [layer for layer in viewer.layers if layer.name.endswith("]")]
    return layer


@pytest.fixture
def save(tmp_path, settle):
    """Save the project of a dock; return what the file holds."""

    def save_to(dock):
        dock.save_to(tmp_path / "p.napari-saf")
        settle(dock)
        return saf.load_project(dock.file.path)

    return save_to


@pytest.fixture
def load(open_on, tmp_path, settle):
    """Open the saved project in another viewer, with docks of some kinds; return them all."""

    def load_with(*kinds):
        viewer = ViewerModel()
        docks = [open_on(viewer, kind) for kind in (ProjectWidget, *kinds)]
        docks[0].load(tmp_path / "p.napari-saf")
        for dock in docks:
            settle(dock)
        return viewer, *docks

    return load_with


def test_images_are_listed_and_shown_one_after_the_other(model, dock, folder):
    assert [entry.name for entry in dock.session.model.entries] == ["0.tif", "1.tif", "2.tif"]
    assert names(model) == ["0"] and stages(dock) == ["untouched"] * 3
    assert dock.images.table.chosen is dock.session.current
    for name in ("1", "2", "0"):
        dock.images.go_to_next()
        assert names(model) == [name]
    dock.images.go_to_previous()
    assert names(model) == ["2"]
    model.open(str(folder / "1.tif"), plugin="napari")
    assert len(dock.session.model.entries) == 3
    assert dock.session.model.entries[1].layer is model.layers["1"]
    shutil.copy(folder / "1.tif", folder / "by name.tif")
    model.open(str(folder / "by name.tif"), plugin="napari")
    assert dock.session.model.entries.pop().name == "by name.tif"  # as it is when it is added
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


def test_labels_that_no_project_holds_stay_and_layers_may_take_others_along(model, dock):
    """As a layer does of which a dock shows something in others."""
    model.add_labels(-np.eye(SIDE, dtype=np.int32), name="negative")
    for name in ("lower", "upper"):
        model.add_labels(np.eye(SIDE, dtype=np.uint8), name=name)

    def follow(event):
        if event.value.name == "lower":
            model.layers.remove("upper")

    model.layers.events.removed.connect(follow)
    dock.images.go_to_next()
    assert sorted(names(model)) == ["1", "negative"]


def test_saved_strokes_and_labels_are_opened_again_and_go_on(
    model, dock, scribbles, save, load, qtbot, settle
):
    before = paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    labels, shares = np.array(scribbles.result.data), share_texts(scribbles.classes)
    project = save(dock)
    assert [image.stage for image in project.images] == ["labelled", "untouched", "untouched"]
    second, other, opened = load(ScribblesWidget)
    assert not other.file.is_unsaved(other.workspace.state())
    assert ", saved " in other.name.text()
    np.testing.assert_array_equal(strokes_on(second).data, before)
    assert all(shares.values()) and share_texts(opened.classes) == shares
    np.testing.assert_array_equal(result_on(second).data, labels)
    again = recipe_of(result_on(second)).run(np.asarray(second.layers["0"].data))
    expected = project.recipe.run(np.asarray(model.layers["0"].data))
    np.testing.assert_array_equal(again.labels, expected.labels)

    assert "labels as they were kept" in opened.status.text
    assert "press Update" not in opened.status.text
    lock(opened.classes, 1)
    opened.follow.setChecked(True)
    paint(opened, c3=20)
    qtbot.wait(60)
    settle(opened)
    assert opened.result == result_on(second) and opened.result.data[20, 4] == 3
    np.testing.assert_array_equal(opened.result.data[labels == 1], 1)
    image = second.add_image(blocks(SIDE)[::-1].copy(), name="other")
    apply_to(opened, image)
    settle(opened)
    assert any(one.name.startswith("other [") for one in second.layers)


def test_opened_labels_stay_where_strokes_are_newer_or_others(dock, scribbles, save, load, settle):
    paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    paint(scribbles, c2=12)
    save(dock)
    second, other, opened = load(ScribblesWidget)
    opened.follow.setChecked(False)
    assert "press Update" in opened.status.text
    other.images.go_to_next()
    other.images.go_to_previous()
    settle(opened)
    assert "press Update" in opened.status.text
    old = result_on(second)
    labels = np.array(old.data)
    second.layers.remove(strokes_on(second))
    paint(opened, c1=24, c2=4)
    opened.start()
    settle(opened)
    np.testing.assert_array_equal(old.data, labels)
    assert opened.result is not None and opened.result != old


def test_objects_are_objects_when_they_are_opened(model, dock, open_on, save, load, settle):
    kinds = np.where(np.arange(SIDE) < 16, 1, 2) * np.ones((SIDE, 1), int)
    kinds[:, [7, 15, 16, 24]] = 0
    labels = model.add_labels(kinds.astype(np.uint8), name="cells")
    labels.metadata["class_names"] = {1: "left", 2: "right"}
    objects = open_on(model, ObjectsWidget)
    settle(objects)
    objects.choices.kinds.item(0).setCheckState(Qt.CheckState.Checked)
    objects.start()
    settle(objects)
    before = objects.table.model.table
    project = save(dock)
    assert sorted({one for layer in project.images[0].layers for one in layer.kinds}) == [0, 1, 2]
    second, other, opened = load(ObjectsWidget)
    assert opened.layer is second.layers["cells [Objects]"]
    assert opened.labels.values() == [second.layers["cells"]]
    for name in ("object", "kind", "name", "pixels"):
        np.testing.assert_array_equal(opened.table.model.table[name], before[name])
    assert not opened.buttons["undo"].isEnabled()
    opened.choices.split_form.set_values({"smallest": 10_000})
    settle(opened, 120)
    assert "press Split" in opened.status.text  # corrections may have been made before
    opened.table.select([int(before["object"][0])])
    opened.buttons["delete"].click()
    settle(opened)
    opened.layer.data_setitem((np.array([0, 0]), np.array([15, 16])), 9)
    other.images.go_to_next()
    other.images.go_to_previous()
    settle(opened, 120)
    assert opened.layer is second.layers["cells [Objects]"]
    assert opened.table.model.table["object"].tolist() == [*before["object"][1:], 9]


def test_strokes_on_all_images_teach_together_and_corrections_by_hand_are_left(
    model, dock, scribbles, save, load, tmp_path, settle, qtbot
):
    """Each image shows two of four classes; all four are found on the third one."""
    assert not dock.buttons["export_all"].isEnabled()
    dock.label_all()
    settle(dock)
    assert dock.status.is_error and "two classes" in dock.status.text
    paint(scribbles, c1=4, c2=24)
    assert not dock.status.is_error and not dock.buttons["export_all"].isEnabled()
    dock.images.go_to_next()
    paint(scribbles, c3=4, c4b=4)
    dock.label_all()
    settle(dock)
    assert "3 of 3 images labelled" in dock.status.text
    assert stages(dock) == ["labelled"] * 3 and result_on(model).visible
    project = save(dock)
    for image in project.images:
        expected = project.recipe.run(saf.read_image(image.file.path).array).labels
        stored = [layer for layer in image.layers if layer.kind == "labels"][-1]
        np.testing.assert_array_equal(stored.pixels.to_array(), expected)
    dock.images.go_to(dock.session.model.entries[2])
    labels = result_on(model).data
    assert sorted(labels[[4, 4, 28, 28], [4, 28, 4, 28]]) == [1, 2, 3, 4]
    dock.session.model.entries[2].layer.visible = False
    dock.label_all()
    settle(dock)
    assert not result_on(model).visible  # of an image that is hidden
    result_on(model).data_setitem((np.array([0]), np.array([0])), 7)
    dock.label_all()
    settle(dock)
    assert "2.tif: corrected by hand" in dock.status.text
    assert result_on(model).data[0, 0] == 7
    assert dock.buttons["export_all"].isEnabled()
    dock.export_to(tmp_path / "out")
    settle(dock)
    assert stages(dock) == ["exported"] * 3 and "exported to out" in dock.status.text
    mask = saf.read_mask(tmp_path / "out" / "2.labels.tif")
    assert mask.recipe is not None and set(np.unique(mask.labels)) == {1, 2, 3, 4, 7}
    # what is painted afterwards is not exported, nor is it after the next start
    dock.images.go_to_next()
    dock.images.go_to_previous()
    assert stages(dock) == ["exported"] * 3
    result_on(model).visible = True
    result_on(model).data_setitem((np.array([0]), np.array([1])), 7)
    qtbot.waitUntil(lambda: dock.images.table.model().index(2, 1).data() == "labelled")
    project = save(dock)
    assert [image.stage for image in project.images] == ["exported", "exported", "labelled"]
    assert len(project.images[2].results) == 1
    assert stages(load()[1]) == ["exported", "exported", "labelled"]


def test_the_newest_labels_of_an_image_are_in_sight_and_exported(
    dock, scribbles, model, save, load, tmp_path, settle
):
    """Those of a run after *Label all*, also in a project that is opened again."""

    def labels_in_sight(viewer):
        results = [x for x in viewer.layers if x.name.endswith("]") and not is_strokes(x)]
        assert len(results) == 2
        return [layer for layer in results if layer.visible]

    paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    for n_opened in range(2):
        dock.label_all()
        settle(dock)
        (of_all,) = labels_in_sight(model)
        assert of_all != scribbles.result
        if n_opened:
            save(dock)
            model, dock, scribbles = load(ScribblesWidget)
        paint(scribbles, c3=6 + n_opened)
        scribbles.start()
        settle(scribbles)
        assert labels_in_sight(model) == [scribbles.result]
        image = dock.session.current.layer
        image.visible = scribbles.result.visible = False  # as another image hides them
        dock.export_to(tmp_path / f"out{n_opened}")
        settle(dock)
        mask = saf.read_mask(tmp_path / f"out{n_opened}" / "0.labels.tif")
        np.testing.assert_array_equal(mask.labels, scribbles.result.data)
        image.visible = True
    dock.label_all()
    settle(dock)
    scribbles.new_strokes()
    assert not labels_in_sight(model)


def test_strokes_and_labels_hidden_with_their_image_are_opened_with_it(
    model, dock, scribbles, save, load, folder, settle
):
    paint(scribbles, c1=4, c2=24)
    scribbles.start()
    settle(scribbles)
    model.open(str(folder / "1.tif"), plugin="napari")
    image = model.layers["0"]
    model.layers.move(len(model.layers) - 1, 0)  # below the first one
    visibility_of(model).reveal(model.layers["1"], model.layers["1"])
    assert not any(layer.visible for layer in (image, strokes_on(model), scribbles.result))
    save(dock)
    second, other, _ = load(ScribblesWidget)
    other.images.go_to(other.session.model.entries[0])
    assert all(layer.visible for layer in second.layers) and len(second.layers) == 3


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


def test_the_least_certain_images_come_next(dock, scribbles, folder, save, settle):
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    tifffile.imwrite(folder / "2.tif", noise, photometric="rgb")
    paint(scribbles, c1=4, c2=24)
    button = dock.buttons["go_to_uncertain"]
    assert not button.isEnabled()
    dock.label_all()
    settle(dock)
    _, plain, uncertain = dock.session.model.entries
    shares = [dock.session.uncertainty(one) for one in dock.session.model.entries]
    assert shares[2] > shares[1] >= 0
    dock.images.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    entries = dock.images.table.entries
    assert next(entry for entry in entries if entry is not dock.session.current) is uncertain
    for expected in (uncertain, plain, uncertain):  # no strokes: the next after it, then around
        button.click()
        assert dock.session.current is expected
    paint(scribbles, c1=4, c2=24)
    button.click()
    assert dock.session.current is plain
    layers = [image.layers for image in save(dock).images]
    kept = [[one.uncertainty for one in own if one.kind == "labels"] for own in layers]
    assert [own[-1] for own in kept] == shares


def test_missing_images_are_looked_for_in_a_folder_or_shown_by_a_person(
    dock, save, load, tmp_path, folder, settle
):
    save(dock)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    (moved / "1.tif").rename(moved / "other.tif")
    (moved / "2.tif").rename(tmp_path / "x.tif")
    second, other = load()
    assert "3 images are missing" in other.status.text
    assert not other.images.missing.isHidden()
    other.images.look_in(moved)
    settle(other)
    entries = other.session.model.entries
    assert [entry.name for entry in entries] == ["0.tif", "other.tif", "2.tif"]
    other.images.take_file(entries[2], moved / "0.tif")
    assert entries[2].state == "changed"
    other.images.take_file(entries[2], tmp_path / "x.tif")
    assert entries[2].state == "found" and other.status.text == "all images are found"
    assert len(second.layers) == 1


def test_strokes_do_not_land_on_a_changed_image_unasked(
    dock, scribbles, save, load, folder, qtbot, monkeypatch
):
    before = paint(scribbles, c1=4, c2=24)
    save(dock)
    tifffile.imwrite(folder / "0.tif", 255 - blocks(SIDE), photometric="rgb")
    monkeypatch.setattr(workspace, "SOON", 50)
    monkeypatch.setattr(workspace, "AUTOSAVE_MILLISECONDS", 10**8)
    second, other = load()
    assert "1 image is changed" in other.status.text
    assert not [layer for layer in second.layers if is_strokes(layer)]
    entry = other.session.model.entries[0]
    other.images.go_to(entry)
    assert "has changed" in other.status.text and entry.layer is None
    other.images.table.choose(entry)
    other.buttons["use_as_it_is"].click()
    other.images.go_to(entry)
    np.testing.assert_array_equal(strokes_on(second).data, before)
    qtbot.waitUntil(lambda: "not saved" in other.name.text(), timeout=TIMEOUT)


def test_a_project_from_elsewhere_may_not_name_files_anywhere(
    dock, open_on, save, tmp_path, settle
):
    project = save(dock)
    (tmp_path / "deep").mkdir()
    path = saf.save_project(tmp_path / "deep" / "f.napari-saf", project)
    for _ in range(2):  # to be opened does not make it known
        second = open_on(ViewerModel(), ProjectWidget)
        second.load(path)
        settle(second)
        assert {entry.state for entry in second.session.model.entries} == {"missing"}
    assert _autosave.recent_projects()[0] == path


def test_an_image_without_a_file_is_recovered_and_kept_beside_the_project(
    model, open_on, save, load, tmp_path, settle, keep
):
    model.add_image(blocks(), name="made here")
    model.add_labels(np.eye(SIDE, dtype=np.uint8), name="mine")
    dock, second = open_on(model, ProjectWidget), ViewerModel()
    keep(dock)
    dock.shut_down()  # with its window, and what was not saved
    other = open_on(second, ProjectWidget)
    recover(other)
    settle(other)
    assert not other.workspace.recoverable and other.file.is_unsaved(other.workspace.state())
    np.testing.assert_array_equal(second.layers[0].data, blocks())
    project = save(other)
    assert project.images[0].file.path == tmp_path / "p_images" / "made_here.npy"
    third, _ = load()
    np.testing.assert_array_equal(third.layers[0].data, blocks())
    np.testing.assert_array_equal(third.layers["mine"].data, np.eye(SIDE))


def test_docks_are_saved_by_ctrl_s_and_come_back_in_tabs_with_their_values(
    window, open_dock, qtbot, tmp_path, settle
):
    window.add_image(blocks(), name="a")
    window.window.resize(1200, 760)
    frame = window.window._qt_window
    frame.show()
    scribbles, dock = open_dock(window, ScribblesWidget), open_dock(window, ProjectWidget)
    scribbles.input.scale.set_value(21)
    scribbles.form.set_values({"rho": 0.3})
    dock.file.path = tmp_path / "p.napari-saf"
    qtbot.keyClick(scribbles, Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier)
    settle(dock)
    titles = ("Segment", "Scribbles", "Prototypes")
    project = saf.load_project(tmp_path / "p.napari-saf")
    docks = {title: {} for title in titles} | project.docks
    saf.save_project(tmp_path / "p.napari-saf", dataclasses.replace(project, docks=docks))
    scribbles.input.scale.set_value(5)
    scribbles.form.set_values({"rho": 0.1})
    dock.load(tmp_path / "p.napari-saf")
    settle(dock, 200)
    assert scribbles.input.scale.value == 21 and scribbles.form.values()["rho"] == 0.3
    assert {*titles, "Project"} == {*dock.workspace.docks}
    assert frame.height() == 760  # no higher than the screen, as one above the other


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


def test_a_dictionary_comes_back_by_its_file(model, open_on, tmp_path, save, load, settle):
    atoms = np.random.default_rng(0).random((2, 3, 3, 1)).astype(np.float32)
    given = saf.PatchDictionary(atoms=atoms, usage=np.array([3, 1]), scaling=Scaling(0.0, 1.0))
    given.save(tmp_path / "d.safetensors")
    first, dock = open_on(model, DictionaryWidget), open_on(model, ProjectWidget)
    first.load(tmp_path / "d.safetensors")
    settle(first)
    assert save(dock).find_dictionaries()["d.safetensors"].state == "found"
    _, _, other = load(DictionaryWidget)
    np.testing.assert_array_equal(other.current.dictionary.atoms, atoms)


def test_images_that_napari_shows_otherwise_are_as_the_library_reads_them(
    open_on, model, tmp_path, save
):
    """Photographs upright, and every series of a file; found again when it is opened."""
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :8] = 255
    photo = PIL.Image.fromarray(pixels)
    exif = photo.getexif()
    exif[0x0112] = 6  # turned by a quarter
    photo.save(tmp_path / "a.jpg", exif=exif, quality=100)
    for one in (pixels[::2, ::2, 0], pixels[..., 1]):
        tifffile.imwrite(tmp_path / "a.tif", one, append=True)
    paths = [tmp_path / "a.jpg", tmp_path / "a.tif#0", tmp_path / "a.tif#1"]
    dock = open_on(model, ProjectWidget)
    dock.images.add_files([tmp_path])
    entries = dock.session.model.entries
    assert [entry.path for entry in entries] == paths
    for entry in entries:
        dock.session.go_to(entry)
        assert np.array_equal(entry.layer.data, saf.read_image(entry.path).array)
    found = save(dock).find_images()
    assert [(one.path, one.state) for one in found] == [(path, "found") for path in paths]
