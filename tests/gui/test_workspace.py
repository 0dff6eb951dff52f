"""The project of a viewer is there from its first dock on, whichever that is."""

import threading

import napari.settings
import numpy as np
import pytest
from gui_cases import blocks, discard, recover
from napari._qt.dialogs.confirm_close_dialog import ConfirmCloseDialog
from napari.components import ViewerModel
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QApplication

import napari_saf as saf
from napari_saf._gui.layers.metadata import is_strokes
from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf._gui.session import workspace
from napari_saf._gui.session.workspace import RecoveryLine
from napari_saf.project import _autosave, _files

pytestmark = [pytest.mark.gui]
SIDE = 32
STROKES = np.eye(SIDE, dtype=np.uint8)


def recovered(tmp_path):
    """Return the projects that were kept."""
    return sorted((tmp_path / "data" / "recovery").glob("*.napari-saf"))


def leave_behind(folder, image):
    """Leave work on an image as a process does that was killed."""
    (folder / "data" / "recovery").mkdir(parents=True, exist_ok=True)
    np.save(folder / "a.npy", image)
    layer = saf.ProjectLayer("strokes", "mine", saf.EncodedLabels.of(STROKES))
    found = saf.ProjectImage(saf.FileReference.of(folder / "a.npy"), (layer,))
    path = folder / "data" / "recovery" / "1-1-1.napari-saf"
    return saf.save_project(path, saf.Project((found,), current=0))


@pytest.fixture
def work(model, open_on):
    """The Scribbles dock of a viewer with labels that are not saved."""
    model.add_image(blocks(), name="a")
    dock = open_on(model, ScribblesWidget)
    model.add_labels(STROKES.copy(), name="mine")
    return dock


@pytest.fixture
def flat(model, open_on, tmp_path):
    """The Scribbles dock of a viewer with an image of a file."""
    np.save(tmp_path / "a.npy", blocks()[..., 0])
    dock = open_on(model, ScribblesWidget)
    model.open(str(tmp_path / "a.npy"), plugin="napari")
    return dock


@pytest.fixture
def no_room(monkeypatch):
    """Let nothing be kept."""

    def fail():
        raise saf.SafError("no room")

    monkeypatch.setattr(_autosave, "new_autosave_path", fail)


def test_work_is_kept_while_a_dock_is_open_and_as_it_goes(model, open_on, keep, tmp_path):
    model.add_image(blocks(), name="a")
    dock = open_on(model, SegmentWidget)
    keep(dock)
    assert not recovered(tmp_path)  # nothing was done yet
    layer = model.add_labels(STROKES.copy(), name="mine")
    keep(dock)
    assert recovered(tmp_path)
    layer.data_setitem((np.array([0]), np.array([5])), 2)
    dock.shut_down()
    (path,) = recovered(tmp_path)
    assert _autosave.recoverable_projects()
    (image,) = saf.load_project(path).images
    np.testing.assert_array_equal(image.layers[0].pixels.to_array(), layer.data)


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_viewer_that_a_program_closes_leaves_what_was_not_saved(work, keep, tmp_path, is_saved):
    """Such a viewer removes all layers before its window goes."""
    keep(work)
    if is_saved:
        work.workspace.file.save(work.workspace.state(), tmp_path / "a.napari-saf")
    work.workspace.viewer.layers.clear()
    work.shut_down()
    kept = [saf.load_project(path).images[0].layers[0].name for path in recovered(tmp_path)]
    assert kept == ([] if is_saved else ["mine"])


@pytest.mark.parametrize("is_dock_first", [True, False])
def test_corrections_of_a_mask_are_work_and_the_mask_is_none(
    model, open_on, tmp_path, is_dock_first
):
    np.save(tmp_path / "a.npy", STROKES)
    model.add_image(blocks(), name="a")
    steps = [
        lambda: open_on(model, ScribblesWidget),
        lambda: model.open(str(tmp_path / "a.npy"), layer_type="labels", plugin="napari"),
    ]
    opened = [step() for step in (steps if is_dock_first else steps[::-1])]
    dock = opened[0 if is_dock_first else 1]
    assert not dock.workspace.file.is_unsaved(dock.workspace.state())
    model.layers["a [1]"].data_setitem((np.array([0]), np.array([5])), 2)
    assert dock.workspace.file.is_unsaved(dock.workspace.state())


def test_what_is_painted_while_a_file_is_written_is_not_saved(work, model, tmp_path, monkeypatch):
    save, path = _autosave.save_project, tmp_path / "p.napari-saf"

    def slow(path, project):
        model.layers["mine"].data_setitem((np.array([0]), np.array([5])), 2)
        return save(path, project)

    file = work.workspace.file
    with monkeypatch.context() as patch:
        patch.setattr(_autosave, "save_project", slow)
        file.save(work.workspace.state(), path)
    assert file.is_unsaved(work.workspace.state())
    file.save(work.workspace.state(), path)
    assert not file.is_unsaved(work.workspace.state())


def test_lost_work_is_recovered_in_any_dock_and_asked_for_as_the_window_closes(
    window, open_dock, answers, settle, tmp_path
):
    given, asked = answers
    leave_behind(tmp_path, blocks())
    dock = open_dock(window, ScribblesWidget)
    frame = dock.window()
    frame.show()
    assert "was not saved" in dock.findChild(RecoveryLine).note.text()
    recover(dock)
    project = dock.workspace.docks["Project"]
    settle(project)
    (strokes,) = [layer for layer in window.layers if is_strokes(layer)]
    np.testing.assert_array_equal(strokes.data, STROKES)
    assert dock.findChild(RecoveryLine).isHidden()
    assert project.status.text == "recovered 1 image with 1 layer: save the project to keep them"
    given += ["cancel", "save"]
    assert not frame.close() and len(asked) == 1
    project.file.path = tmp_path / "p.napari-saf"
    frame.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)  # the fixture closes it again
    assert frame.close() and len(asked) == 2
    assert saf.load_project(tmp_path / "p.napari-saf").images[0].stage == "taught"
    assert not _autosave.recoverable_projects()


def test_lost_work_can_be_discarded_in_any_dock(model, open_on, tmp_path, monkeypatch):
    leave_behind(tmp_path, blocks())
    docks = [open_on(model, kind) for kind in (ScribblesWidget, SegmentWidget)]
    discard(docks[0], monkeypatch, answer=False)
    assert recovered(tmp_path) and not docks[1].findChild(RecoveryLine).isHidden()
    discard(docks[0], monkeypatch)
    assert not recovered(tmp_path)
    assert all(dock.findChild(RecoveryLine).isHidden() for dock in docks)
    assert open_on(ViewerModel(), ScribblesWidget).findChild(RecoveryLine) is None


# The window


def test_what_was_given_up_in_a_window_that_stays_is_kept_again(work, answers, keep, tmp_path):
    """napari asks, too, and may be told to go on."""
    given, asked = answers
    given += ["discard", "cancel"]
    assert work.workspace.may_close() and work.workspace.may_close() and len(asked) == 1
    keep(work)
    assert recovered(tmp_path)
    assert not work.workspace.may_close()


def test_a_window_asks_after_its_docks_were_closed_and_before_napari_does(
    window, open_dock, answers, keep, tmp_path
):
    """Where it is answered with Cancel napari asks nothing at all."""
    given, asked = answers
    window.add_image(blocks(), name="a")
    dock, seen = open_dock(window, ScribblesWidget), []
    frame = dock.window()
    frame.show()
    window.add_labels(STROKES, name="mine")
    window.window.remove_dock_widget(dock)
    assert dock.lifetime.has_ended and not dock.workspace.has_ended
    keep(dock)
    assert recovered(tmp_path)
    napari.settings.get_settings().application.confirm_close_window = True

    def look():
        """Reject the dialog of napari once it is in sight."""
        for dialog in QApplication.topLevelWidgets():
            if isinstance(dialog, ConfirmCloseDialog) and dialog.isVisible():
                seen.append(len(asked))
                dialog.reject()

    given += ["cancel", "discard"]
    looking = QTimer(interval=50)
    looking.timeout.connect(look)
    looking.start()
    for n_asked, is_quit in ((1, True), (2, False)):
        frame.close(quit_app=is_quit, confirm_need=True)
        assert frame.isVisible() and len(asked) == n_asked
    looking.stop()
    assert seen == [2]
    frame.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)  # the fixture closes it again
    assert frame.close() and len(asked) == 2
    assert dock.workspace.has_ended and not recovered(tmp_path)


def test_that_work_cannot_be_kept_is_said_once(work, keep, no_room, monkeypatch):
    said = []
    monkeypatch.setattr(workspace, "show_error", said.append)
    keep(work)
    keep(work)
    assert said == ["unsaved work cannot be autosaved: no room"]


def test_a_window_closes_although_its_work_cannot_be_kept(model, open_on, answers, no_room):
    given, asked = answers
    model.add_image(blocks(), name="a")
    dock = open_on(model, ScribblesWidget)
    assert dock.workspace.may_close() and not asked  # there is no work
    model.add_labels(STROKES)
    given += ["cancel", "discard"]
    assert not dock.workspace.may_close()
    assert dock.workspace.may_close() and len(asked) == 2


# Images that a person removes


def test_strokes_whose_image_was_removed_wait_for_it(model, flat, keep, tmp_path):
    flat.new_strokes()
    strokes = flat.strokes.layer
    strokes.data_setitem((np.array([3]), np.array([4])), 1)
    session, notes = flat.workspace.session, []
    session.noted.connect(notes.append)
    model.layers.remove("a")
    assert session.stage(session.model.entries[0]) == "taught"
    assert notes[0].startswith("a.npy: was removed")
    strokes.data_setitem((np.array([5]), np.array([4])), 1)
    keep(flat)
    (image,) = saf.load_project(recovered(tmp_path)[0]).images
    assert image.layers[0].pixels.to_array().sum() == 2
    model.open(str(tmp_path / "a.npy"), plugin="napari")
    assert len(model.layers) == 2
    assert session.strokes(session.model.entries[0]) == strokes
    assert session.model.entries[0].layer == model.layers["a"]


def test_strokes_do_not_go_to_an_image_that_has_changed(model, flat, keep, tmp_path):
    model.add_labels(STROKES, name="mine")
    keep(flat)
    model.layers.remove("a")
    np.save(tmp_path / "a.npy", 255 - blocks()[..., 0])
    model.open(str(tmp_path / "a.npy"), plugin="napari")
    (entry,) = flat.workspace.session.model.entries
    assert entry.state == "changed" and entry.layer is None


def test_strokes_on_any_channel_of_a_file_are_kept(model, open_on, tmp_path, settle):
    """A file of several channels is several layers."""
    np.save(tmp_path / "a.npy", np.moveaxis(blocks(), -1, 0))
    dock = open_on(model, ProjectWidget)
    model.open(str(tmp_path / "a.npy"), plugin="napari", channel_axis=0)
    assert len(model.layers) == 3 and len(dock.session.model.entries) == 1
    scribbles = open_on(model, ScribblesWidget)
    scribbles.input.choose(image=model.layers[1])
    scribbles.new_strokes()
    scribbles.strokes.layer.data_setitem((np.array([3]), np.array([4])), 1)
    dock.save_to(tmp_path / "p")
    settle(dock)
    (image,) = saf.load_project(tmp_path / "p.napari-saf").images
    assert image.layers[0].pixels.to_array().sum() == 1


def test_a_workspace_ends_with_the_last_dock_also_with_one_that_qt_deletes(model, open_on, qtbot):
    docks = [ScribblesWidget(model), open_on(model, ProjectWidget)]
    other = open_on(ViewerModel(), ScribblesWidget)
    assert docks[0].workspace is docks[1].workspace is not other.workspace
    docks[1].shut_down()
    assert not docks[0].workspace.has_ended
    docks[0].lifetime.has_ended = True  # such as in a viewer that was never in sight
    docks[0].deleteLater()
    qtbot.waitUntil(lambda: not docks[0].workspace.docks)
    assert docks[0].workspace.has_ended


def test_the_window_lives_while_files_are_hashed_at_closing(model, flat, answers, monkeypatch):
    model.add_labels(STROKES, name="mine")
    alive, hash_of, lived = threading.Event(), _files.content_digest, []

    def hash_slowly(path):
        lived.append(alive.wait(5))
        return hash_of(path)

    monkeypatch.setattr(_files, "content_digest", hash_slowly)
    QTimer.singleShot(0, alive.set)
    answers[0].append("cancel")
    assert not flat.workspace.may_close()
    assert lived == [True]
