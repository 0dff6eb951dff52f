"""State shared by the docks of a viewer: project, autosave, runs, and the close dialog."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from napari.utils.notifications import show_error
from qtpy.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QApplication,
    QDialog,
    QDockWidget,
    QFileDialog,
    QLabel,
    QMainWindow,
    QMessageBox,
    QOpenGLWidget,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.live import show_ground
from napari_saf._gui.layers.metadata import is_regions, metadata_of
from napari_saf._gui.layers.placement import image_folder
from napari_saf._gui.napari_workarounds import dims_of, is_close_question, unwrapped
from napari_saf._gui.runs.controller import RunsOfViewer
from napari_saf._gui.runs.task import Task
from napari_saf._gui.session.session import ProjectSession
from napari_saf._gui.settings import current_settings
from napari_saf.arrays import JsonObject
from napari_saf.errors import SafError
from napari_saf.project import (
    PROJECT_SUFFIX,
    ProjectFile,
    ProjectState,
    recoverable_projects,
    remove_autosave,
)

AUTOSAVE_MILLISECONDS = 60_000
"""Interval between autosaves."""
SOON, REST = 2000, 20_000
"""Delay of the autosave after strokes: least milliseconds, and per second that it takes."""
PROJECT = "Project"
PROJECT_FILTER = f"Project (*{PROJECT_SUFFIX})"
_CLOSING_SECONDS = 10.0
_PAINTING_SECONDS = 0.02
_PLUGIN = "napari-saf"
_workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()


class Workspace(QObject):
    """Project, autosave and runs of a viewer, from its first dock until its window closes.

    Unsaved work is autosaved, and a dialog asks about it before the window closes. `recoverable`
    are autosaves of closed windows and ended processes, the newest first. Signals: `autosaved`,
    with whether there is unsaved work, and `recoverable_changed`.
    """

    autosaved = Signal(bool)
    recoverable_changed = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.viewer = viewer
        self.session, self.file = ProjectSession(viewer), ProjectFile()
        self.runs = RunsOfViewer()
        dims_of(viewer).events.ndisplay.connect(self._show_grounds)
        self.runs.returned.connect(self._show_grounds)
        self.runs.returned.connect(self.autosave_soon)
        self.session.changed.connect(self.autosave_soon)
        self.recoverable = recoverable_projects()
        self.joined: list[Any] = []
        self._window: Any = lambda: None
        self._task: Task | None = None
        self._shown_error = ""
        self._is_asking = self._is_closing = self.has_ended = False
        self._soon = SOON
        self._timer = QTimer(self, interval=AUTOSAVE_MILLISECONDS)
        self._timer.timeout.connect(self._on_timeout)
        self._timer.start()
        QApplication.instance().aboutToQuit.connect(self.end)
        _workspaces.add(self)

    @property
    def docks(self) -> JsonObject:
        return {title_of(dock): dock for dock in self.joined}

    def join(self, dock: QWidget) -> None:
        self.joined.append(dock)
        dock.destroyed.connect(partial(self.leave, id(dock)))  # if it was not closed by the viewer

    def leave(self, dock_id: int, destroyed: object = None) -> None:
        """Unregister a dock; end with the last one if the window is closed."""
        self.joined = [dock for dock in self.joined if id(dock) != dock_id]
        is_open = False
        with suppress(RuntimeError):  # Qt has deleted the window
            is_open = self._window() is not None and self._window().isVisible()
        if not (self.joined or is_open):
            self.end()

    def watch(self, window: QWidget | None) -> None:
        """Watch the main window of a docked or floating widget."""
        while window is not None and not isinstance(window, QMainWindow):
            window = window.parentWidget()
        if window is not None and window is not self._window():
            self._window = weakref.ref(window)
            self.setParent(window)  # outlives the docks
            window.installEventFilter(self)

    def end(self) -> None:
        """Write the autosave and disconnect from the viewer."""
        if self.has_ended:
            return
        self.has_ended = True
        window = self._window()
        if window is not None:
            with suppress(RuntimeError):  # Qt has deleted it
                window.removeEventFilter(self)
        with suppress(RuntimeError):  # Qt has deleted it with its window
            self._timer.stop()
        if self._task is not None:
            self._task.silence()
            self._task.wait(_CLOSING_SECONDS)
            self._task = None
        with suppress(SafError):  # no window to show it in
            # Closing a viewer from code removes its layers first: the last autosave is kept.
            if current_settings().keeps_strokes and self.viewer.layers:
                self.file.autosave(self.state())
        self.file.release()
        dims_of(self.viewer).events.ndisplay.disconnect(self._show_grounds)
        self.session.release()
        self.joined.clear()

    def dock(self, title: str = PROJECT) -> Any:
        """Return the dock with a title, opening it if necessary; None without a window."""
        if title not in self.docks and hasattr(self.viewer, "window"):
            self.viewer.window.add_plugin_dock_widget(_PLUGIN, title, tabify=True)
        return self.docks.get(title)

    def state(self) -> ProjectState:
        """Return the current state of the project, with the values of open docks."""
        docks = {title: dock.values() for title, dock in self.docks.items()}
        path = self.file.path
        docks[PROJECT] = {"path": "" if path is None else str(path.absolute())}
        files = [dock.dictionary_file for dock in self.joined]
        return self.session.state(docks, [file for file in files if file is not None])

    def autosave(self) -> None:
        """Autosave unsaved work in a thread, including discarded work of a window still open."""
        self.file.undo_discard()
        if self._task is None and current_settings().keeps_strokes:
            state = self.state()
            task = self._task = Task(lambda report, cancelled: self.file.autosave(state))
            task.returned.connect(self._on_autosaved)
            task.failed.connect(self._on_failed)
            task.finished.connect(self._on_finished)
            task.start()

    def autosave_soon(self, *changed: object) -> None:
        """Autosave after a short delay, for work that is expensive to repeat."""
        if self._timer.remainingTime() > self._soon:
            self._timer.start(self._soon)

    @property
    def is_autosaving(self) -> bool:
        return self._task is not None

    def _on_timeout(self) -> None:
        """Autosave, or retry soon if another autosave is in progress."""
        self._timer.setInterval(AUTOSAVE_MILLISECONDS if self._task is None else self._soon)
        self.autosave()

    def _on_autosaved(self, is_unsaved: bool) -> None:
        self._shown_error = ""
        self.autosaved.emit(is_unsaved)

    def _on_failed(self, error: Exception) -> None:
        text = f"unsaved work cannot be autosaved: {describe_error(error)}"
        if text != self._shown_error:
            show_error(text)
        self._shown_error = text

    def _on_finished(self) -> None:
        if self._task is not None:
            self._soon = max(SOON, round(REST * self._task.seconds))
        self._task = None

    def remove_recoverable(self, path: Path) -> None:
        remove_autosave(path)
        self.recoverable = recoverable_projects()
        self.recoverable_changed.emit()

    def _show_grounds(self, *changed: object) -> None:
        """Make the background label of results transparent in a 3-D view."""
        is_flat = dims_of(self.viewer).ndisplay == 2
        for layer in self.viewer.layers:
            is_result = isinstance(layer, Labels) and metadata_of(layer) and not is_regions(layer)
            if is_result and layer.ndim > 2 and type(layer.data) is np.ndarray:
                show_ground(layer, is_flat)

    def ask_where_to_save(self, parent: QWidget) -> Path | None:
        """Ask for the file of the project; None if cancelled."""
        start = self.file.path or image_folder(self.viewer) / f"project{PROJECT_SUFFIX}"
        text, _ = QFileDialog.getSaveFileName(parent, "Save project", str(start), PROJECT_FILTER)
        if not text:
            return None
        target = with_suffix(Path(text))
        if target == Path(text) or not target.exists():  # else the dialog has asked already
            return target
        button = QMessageBox.StandardButton
        text = f"{target.name} is there already. Replace it?"
        answer = QMessageBox.question(parent, "napari-saf", text, button.Yes | button.No, button.No)
        return target if answer == button.Yes else None

    def may_close(self) -> bool:
        """Ask what to do with unsaved work, if there is any; return whether to proceed."""
        state, window = self.state(), self._window()
        try:
            if not _in_thread(lambda: self.file.is_unsaved(state)):
                return True
            answer = ask_to_save(window, self.file.name)
            if answer == "save":
                path = self.file.path or self.ask_where_to_save(window)
                if path is None:
                    return False
                _in_thread(lambda: self.file.save(state, path))
            elif answer == "discard":
                self.file.discard(state)
        except SafError as error:
            show_error(describe_error(error))
            return False
        return answer != "cancel"

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        event_type = event.type()
        if self.has_ended or watched is not self._window():
            return False
        if event_type == QEvent.Type.ChildPolished and is_close_question(event.child()):
            self._precede(event.child())
        elif event_type == QEvent.Type.Close:
            # A window closed from code cannot be kept open.
            is_asked = event.spontaneous() or _has_canvas(watched)
            if is_asked and not self._ask_once():
                event.ignore()
                return True
            self._is_closing = True
            QTimer.singleShot(0, self._on_close_asked)
        elif event_type == QEvent.Type.Hide and self._is_closing and not self.joined:
            self.end()  # immediately, as `viewer.close` deletes the window
        return False

    def _on_close_asked(self) -> None:
        self._is_closing = False

    def _ask_once(self) -> bool:
        """Ask, unless a dialog is open; return whether to proceed."""
        if self._is_asking:
            return False
        self._is_asking = True
        try:
            return self.may_close()
        finally:
            self._is_asking = False

    def _precede(self, question: QDialog) -> None:
        """Ask before the close dialog of napari is shown; reject the dialog if cancelled."""
        if not self._is_asking and not self._ask_once():
            question.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
            QTimer.singleShot(0, question.reject)


def _in_thread(function: Callable[[], Any]) -> Any:
    """Return the result of a function that reads files, while the window keeps repainting."""
    with ThreadPoolExecutor(1, "napari-saf closing") as pool:
        future = pool.submit(function)
        while wait([future], _PAINTING_SECONDS).not_done:
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
        return future.result()


def workspace_of(viewer: Any) -> Workspace:
    """Return the workspace of a viewer, created for its first dock."""
    for workspace in _workspaces:
        if unwrapped(workspace.viewer) is unwrapped(viewer) and not workspace.has_ended:
            return workspace
    return Workspace(viewer)


def ask_to_save(parent: QWidget, name: str) -> str:
    """Ask what to do with unsaved work; return ``"save"``, ``"discard"`` or ``"cancel"``."""
    button = QMessageBox.StandardButton
    text = f"{name} is not saved.\nStrokes, labels and corrections that are not saved are lost."
    buttons = button.Save | button.Discard | button.Cancel
    answer = QMessageBox.question(parent, "napari-saf", text, buttons, button.Save)
    return {button.Save: "save", button.Discard: "discard"}.get(answer, "cancel")


def ask_to_discard(parent: QWidget) -> bool:
    """Ask whether to delete an autosave."""
    button = QMessageBox.StandardButton
    text = "Delete this work? Its strokes, labels and corrections cannot be restored."
    buttons = button.Discard | button.Cancel
    answer = QMessageBox.question(parent, "napari-saf", text, buttons, button.Cancel)
    return bool(answer == button.Discard)


def with_suffix(path: Path) -> Path:
    """Return a path with the suffix of projects."""
    has_suffix = path.name.lower().endswith(PROJECT_SUFFIX)
    return path if has_suffix else path.with_name(f"{path.name}{PROJECT_SUFFIX}")


class RecoveryLine(QWidget):
    """Line in a dock that offers to recover or discard unsaved work of an earlier session."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace, self.note = workspace, QLabel()
        help = "Open its autosave in the Project dock."
        self.recover = create_button("Recover", help, self._recover)
        self.discard = create_button("Discard", "Delete its autosave.", self._discard)
        fill_layout(QVBoxLayout(self), self.note, create_row(self.recover, self.discard))
        workspace.recoverable_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        recoverable = self._workspace.recoverable
        self.setVisible(bool(recoverable))
        if recoverable:
            with suppress(OSError):
                time = datetime.fromtimestamp(recoverable[0].stat().st_mtime)
                self.note.setText(f"Work of {time:%Y-%m-%d %H:%M} was not saved")

    def _recover(self) -> None:
        dock = self._workspace.dock()
        if dock is not None and self._workspace.recoverable:
            dock.load(self._workspace.recoverable[0], is_recovered=True)

    def _discard(self) -> None:
        if self._workspace.recoverable and ask_to_discard(self):
            self._workspace.remove_recoverable(self._workspace.recoverable[0])


def frame_of(dock: QWidget) -> QDockWidget | None:
    frame: QWidget | None = dock.parentWidget()
    while frame is not None and not isinstance(frame, QDockWidget):
        frame = frame.parentWidget()
    return frame


def title_of(dock: QWidget) -> str:
    frame = frame_of(dock)
    if frame is None:
        return type(dock).__name__.removesuffix("Widget")
    return str(frame.windowTitle().partition(" (")[0])


def _has_canvas(window: Any) -> bool:
    """Return whether the canvas is visible; `viewer.close` hides it first."""
    center = window.centralWidget()
    canvas = None if center is None else center.findChild(QOpenGLWidget)
    return canvas is not None and bool(canvas.isVisible())
