"""The model of an open project, its autosave and the work on all its images, without a window."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from project_cases import STROKES, make, pixels

import napari_saf as saf
from napari_saf.project import _autosave, project_digest
from napari_saf.project._autosave import ProjectFile
from napari_saf.project._batch import NO_THUMBNAIL, export_all, image_tasks, thumbnail_of
from napari_saf.project._files import find_files
from napari_saf.project._model import NO_PIXELS, ImageEntry, LayerState, ProjectModel

COLORS = np.linspace(0, 1, 3 * 256).reshape(256, 3)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(_autosave, "data_folder", lambda: tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def model():
    return ProjectModel()


def shown(labels=STROKES, kind="strokes", name="mine"):
    """A layer on screen, without a screen."""
    return LayerState(saf.ProjectLayer(kind, name, NO_PIXELS), name, labels, COLORS, None)


def state(model, *layers, dictionaries=()):
    """The project with these layers on the first image."""
    states = [(layers if k == 0 else (), (), {}) for k in range(len(model.entries))]
    return model.state(states, 0, {}, dictionaries, has_work=bool(layers))


def in_memory(name, image):
    return ImageEntry(name, layer=SimpleNamespace(data=image))


def autosaves(data):
    return sorted((data / "recovery").glob("*.napari-saf"))


def test_what_is_loaded_is_built_again(model, tmp_path):
    project = dataclasses.replace(make(tmp_path / "images"), applied="strokes")
    model.load(project, find_files([image.file for image in project.images], tmp_path), [[], []])
    assert project_digest(state(model).build(None)) == project_digest(project)


def test_missing_and_changed_images_wait_for_an_answer(model, tmp_path):
    project = make(tmp_path / "images")
    paths = [image.file.path for image in project.images]
    moved = paths[0].rename(tmp_path / "moved.tif")
    tifffile.imwrite(paths[1], 1 - pixels(1))
    model.load(project, find_files([image.file for image in project.images], tmp_path), [[], []])
    missing, changed = model.entries
    for entry, reason in ((missing, "is missing"), (changed, "has changed")):
        with pytest.raises(saf.InvalidInput, match=reason):
            model.check_content(entry)
    model.relocate([missing], find_files([missing.file], None, [moved.parent]))
    model.accept(changed)
    for entry in model.entries:
        model.check_content(entry)
    assert missing.path == moved
    before, after = (one.images[1].file.digest for one in (project, state(model).build(None)))
    assert before != after


def test_stored_layers_are_those_that_left_the_screen(model, tmp_path):
    model.add_files([tmp_path / "a.tif"])
    (entry,) = model.entries
    assert model.store(entry, [shown(), shown(-STROKES.astype(int), name="odd")]) == [True, False]
    (stored,) = entry.layers
    np.testing.assert_array_equal(stored.pixels.to_array(), STROKES)
    assert [painted.color for painted in stored.classes.values()] == [
        tuple(COLORS[1]),
        tuple(COLORS[2]),
    ]
    for name in ("made", "made", "other"):
        model.replace_stored(entry, saf.ProjectLayer("labels", name, stored.pixels))
    assert [(one.name, one.is_visible) for one in entry.layers] == [
        ("mine", True),
        ("made", False),
        ("other", True),
    ]


def test_images_in_memory_are_written_beside_the_project(model, tmp_path):
    """Each once, under a name of its own, again when its pixels were replaced or it moves."""
    model.entries += [in_memory("made", pixels(0)), in_memory("made", pixels(1))]
    for _ in range(2):
        built = state(model).build(tmp_path / "p.napari-saf")
        assert [image.file.path.name for image in built.images] == ["made.npy", "made_2.npy"]
    model.entries[0].layer.data = pixels(2)
    built = state(model).build(tmp_path / "p.napari-saf")
    np.testing.assert_array_equal(np.load(built.images[0].file.path), pixels(2))
    elsewhere = state(model).build(tmp_path / "q.napari-saf")
    assert elsewhere.images[0].file.path.parent == tmp_path / "q_images"
    assert not state(model).build(None).images[0].file.path.is_absolute()


def test_a_project_is_saved_where_files_are_gone(model, tmp_path):
    model.add_files([tmp_path / "gone.tif"])
    built = state(model, shown(), dictionaries=[tmp_path / "gone.safetensors"]).build(None)
    assert built.find_images()[0].state == "missing"
    assert list(built.dictionaries) == ["gone.safetensors"] and built.images[0].layers


# Autosave


def test_only_unsaved_work_is_autosaved_until_it_is_saved(model, data, tmp_path):
    file = ProjectFile()
    model.entries += [in_memory("a", pixels(0)), in_memory("b", pixels(1))]
    assert not file.autosave(state(model)) and not autosaves(data)  # nothing was done yet
    assert file.autosave(state(model, shown()))
    (path,) = autosaves(data)
    (image,) = saf.load_project(path).images  # that without layers is left out
    np.testing.assert_array_equal(image.layers[0].pixels.to_array(), STROKES)
    assert [one.name for one in path.with_name(f"{path.stem}_images").iterdir()] == ["a.npy"]
    file.save(state(model, shown()), tmp_path / "p.napari-saf")
    assert not autosaves(data) and not file.autosave(state(model, shown()))
    assert file.is_unsaved(state(model, shown(np.flipud(STROKES))))


def test_discarded_work_is_unsaved_again_once_work_goes_on(model, data):
    file = ProjectFile()
    model.entries.append(in_memory("a", pixels(0)))
    file.autosave(state(model, shown()))
    file.discard(state(model, shown()))
    assert not autosaves(data) and not file.is_unsaved(state(model, shown()))
    assert file.is_unsaved(state(model, shown(np.flipud(STROKES))))
    file.undo_discard()
    assert file.autosave(state(model, shown())) and autosaves(data)


def test_an_autosave_is_recoverable_once_its_session_is_gone(model, data, tmp_path):
    file, other = ProjectFile(), ProjectModel()
    model.entries.append(in_memory("a", pixels(0)))
    file.autosave(state(model, shown()))
    assert not _autosave.recoverable_projects()
    file.release()
    (path,) = _autosave.recoverable_projects()
    project = saf.load_project(path)
    assert _autosave.is_saved_here_before(path)
    other.load(project, project.find_images(is_trusted=True), [[]])
    other.load_copies(path.with_name(f"{path.stem}_images"))
    _autosave.remove_autosave(path)
    assert not _autosave.recoverable_projects() and not list(data.glob("recovery/*"))
    np.testing.assert_array_equal(other.entries[0].pixels(), pixels(0))


def test_only_what_was_saved_here_may_name_files_anywhere(model, data, tmp_path):
    path = saf.save_project(tmp_path / "p.napari-saf", saf.Project())
    _autosave.note_recent(path, is_saved_here=False)
    assert _autosave.recent_projects() == [path] and not _autosave.is_saved_here_before(path)
    ProjectFile().save(state(model), path)
    assert _autosave.is_saved_here_before(path)


# All images


@pytest.mark.parametrize("shape", [(9,), (1, 1), (2, 2, 9, 9), (9, 9, 3)])
def test_a_file_of_any_shape_has_a_thumbnail_or_none(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.ones(shape))
    thumbnail = thumbnail_of(tmp_path / "a.npy", lambda: False)
    assert thumbnail.shape[2:] == (3,) and (thumbnail is NO_THUMBNAIL) == (len(shape) < 2)


def test_only_masks_of_this_project_are_replaced(model, tmp_path):
    model.entries.append(in_memory("a", pixels(0)))
    labels = shown(STROKES, "labels")

    def export(folder):
        built, reports = state(model, labels).build(None), []
        tasks = image_tasks(model.entries, built, model.pixels_in_memory())
        n_done, notes = export_all(folder, tasks, built, reports.append, lambda: False)
        for file, exported in (value for _, value in reports if isinstance(value, tuple)):
            model.add_results(model.entries[0], [file], exported)
        return n_done, notes

    (tmp_path / "a.labels.tif").write_bytes(b"precious")
    n_done, notes = export(tmp_path)
    assert n_done == 0 and "is there already" in notes[0]
    assert (tmp_path / "a.labels.tif").read_bytes() == b"precious"
    assert [export(tmp_path / "out")[0] for _ in range(2)] == [1, 1]
    np.testing.assert_array_equal(saf.read_mask(tmp_path / "out" / "a.labels.tif").labels, STROKES)
