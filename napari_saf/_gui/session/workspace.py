"""What all docks of a viewer share: its project, kept from the first dock to the end."""

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
    QLabel,
    QMainWindow,
    QOpenGLWidget,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.live import show_ground
from napari_saf._gui.layers.metadata import is_regions, metadata_of
from napari_saf._gui.napari_workarounds import dims_of, is_close_question, unwrapped
from napari_saf._gui.runs.controller import RunsOfViewer
from napari_saf._gui.runs.run import Task
from napari_saf._gui.session import keeping
from napari_saf._gui.session.keeping import (
    ProjectFile,
    ask_to_discard,
    ask_to_save,
    ask_where_to_save,
)
from napari_saf._gui.session.layers import Snapshot
from napari_saf._gui.session.session import ProjectSession
from napari_saf._gui.settings import current_settings
from napari_saf.errors import SafError

KEEP_MILLISECONDS = 60_000
"""What is done right after one copy is in the next, which may take as long to be written."""
SOON, REST = 2000, 20_000
"""Milliseconds after strokes until they are kept, at least and for each second that this takes."""
PROJECT = "Project"
_CLOSING_SECONDS = 10.0
_PAINTING_SECONDS = 0.02
_PLUGIN = "napari-saf"
_workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()


class Workspace(QObject):
    """The project of a viewer, from its first dock to the end of its window.

    What is not saved is kept on its own, in case of a crash, and asked for before the window
    closes. `lost` are copies of work that others left, the newest first.
    """

    kept = Signal(bool)
    lost_changed = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.viewer = viewer
        self.session, self.file = ProjectSession(viewer), ProjectFile()
        self.runs = RunsOfViewer()
        dims_of(viewer).events.ndisplay.connect(self._show_grounds)
        self.runs.returned.connect(self._show_grounds)
        self.lost = keeping.lost_projects()
        self.joined: list[Any] = []
        self._window: Any = lambda: None
        self._task: Task | None = None
        self._said = ""  # why work is not kept
        self._is_asking = self._is_closing = self.has_ended = False
        self._soon = SOON
        self._timer = QTimer(self, interval=KEEP_MILLISECONDS)
        self._timer.timeout.connect(self._on_time)
        self._timer.start()
        QApplication.instance().aboutToQuit.connect(self.end)
        _workspaces.add(self)

    @property
    def docks(self) -> dict[str, Any]:
        return {title_of(dock): dock for dock in self.joined}

    def join(self, dock: QWidget) -> None:
        self.joined.append(dock)
        dock.destroyed.connect(partial(self.leave, id(dock)))  # where nothing else told

    def leave(self, known: int, gone: object = None) -> None:
        """Take note of a dock, by id, that was closed; once its window has, too, the work ends."""
        self.joined = [dock for dock in self.joined if id(dock) != known]
        is_open = False
        with suppress(RuntimeError):  # Qt has deleted the window
            is_open = self._window() is not None and self._window().isVisible()
        if not (self.joined or is_open):
            self.end()

    def watch(self, window: QWidget | None) -> None:
        while window is not None and not isinstance(window, QMainWindow):
            window = window.parentWidget()  # of a dock that floats
        if window is not None and window is not self._window():
            self._window = weakref.ref(window)
            self.setParent(window)  # which outlives the docks
            window.installEventFilter(self)

    def end(self) -> None:
        """Keep what is not saved for whoever comes next, and let go of the viewer."""
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
        with suppress(SafError):  # nobody is there
            # A program that closes a viewer removes all layers first: what was kept stays as it is.
            if current_settings().keeps_strokes and self.viewer.layers:
                self.file.keep(self.snapshot())
        self.file.end()
        dims_of(self.viewer).events.ndisplay.disconnect(self._show_grounds)
        self.session.release()
        self.joined.clear()

    def dock(self, title: str = PROJECT) -> Any:
        """Return the dock of a title, opened if need be; None without a window."""
        if title not in self.docks and hasattr(self.viewer, "window"):
            self.viewer.window.add_plugin_dock_widget(_PLUGIN, title, tabify=True)
        return self.docks.get(title)

    def snapshot(self) -> Snapshot:
        docks = {title: dock.values() for title, dock in self.docks.items()}
        path = self.file.path
        docks[PROJECT] = {"path": "" if path is None else str(path.absolute())}
        files = (dock.dictionary_file for dock in self.joined)
        return self.session.snapshot(docks, [one for one in files if one is not None])

    def keep(self) -> None:
        """Keep what is not saved, in a thread, also what was given up in a window that stayed."""
        self.file.take_back()
        if self._task is None and current_settings().keeps_strokes:
            snapshot = self.snapshot()
            task = self._task = Task(lambda report, cancelled: self.file.keep(snapshot))
            task.returned.connect(self._on_kept)
            task.failed.connect(self._on_failed)
            task.finished.connect(self._on_finished)
            task.start()

    def _show_grounds(self, *changed: object) -> None:
        """See through the ground of results in a 3-D view."""
        is_flat = dims_of(self.viewer).ndisplay == 2
        for layer in self.viewer.layers:
            is_result = isinstance(layer, Labels) and metadata_of(layer) and not is_regions(layer)
            if is_result and layer.ndim > 2 and type(layer.data) is np.ndarray:
                show_ground(layer, is_flat)

    def keep_soon(self) -> None:
        """Keep what is not saved in a moment: what a person painted is not to be painted again."""
        if self._timer.remainingTime() > self._soon:
            self._timer.start(self._soon)

    def _on_time(self) -> None:
        """Keep what is not saved, after what is being kept; then nothing for a minute."""
        self._timer.setInterval(KEEP_MILLISECONDS if self._task is None else self._soon)
        self.keep()

    @property
    def is_keeping(self) -> bool:
        return self._task is not None

    def may_close(self) -> bool:
        """Ask what to do with work that is not saved, if there is any; return whether to go on."""
        snapshot, window = self.snapshot(), self._window()
        try:
            if not _in_thread(lambda: self.file.is_unsaved(snapshot)):
                return True
            answer = ask_to_save(window, self.file.name)
            if answer == "save":
                path = self.file.path or ask_where_to_save(window, None)
                if path is None:
                    return False
                _in_thread(lambda: self.file.save(snapshot, path))
            elif answer == "discard":
                self.file.give_up(snapshot)
        except SafError as error:
            show_error(describe_error(error))
            return False
        return answer != "cancel"

    def forget_lost(self, path: Path) -> None:
        keeping.forget(path)
        self.lost = keeping.lost_projects()
        self.lost_changed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if self.has_ended or watched is not self._window():
            return False
        if kind == QEvent.Type.ChildPolished and is_close_question(event.child()):
            self._precede(event.child())
        elif kind == QEvent.Type.Close:
            # What a program closes no answer could stop.
            is_asked = event.spontaneous() or _has_canvas(watched)
            if is_asked and not self._ask_once():
                event.ignore()
                return True
            self._is_closing = True
            QTimer.singleShot(0, self._on_close_asked)
        elif kind == QEvent.Type.Hide and self._is_closing and not self.joined:
            self.end()  # not later: a viewer that closes itself deletes its window at once
        return False

    def _ask_once(self) -> bool:
        """Ask, unless that is under way; return whether to go on."""
        if self._is_asking:
            return False
        self._is_asking = True
        try:
            return self.may_close()
        finally:
            self._is_asking = False

    def _precede(self, question: QDialog) -> None:
        """Ask before the question of napari comes into sight, which does not where that ends it."""
        if not self._is_asking and not self._ask_once():
            question.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
            QTimer.singleShot(0, question.reject)

    def _on_close_asked(self) -> None:
        self._is_closing = False

    def _on_kept(self, is_unsaved: bool) -> None:
        self._said = ""
        self.kept.emit(is_unsaved)

    def _on_failed(self, error: Exception) -> None:
        text = f"work that is not saved cannot be kept: {describe_error(error)}"
        if text != self._said:
            show_error(text)
        self._said = text

    def _on_finished(self) -> None:
        if self._task is not None:
            self._soon = max(SOON, round(REST * self._task.seconds))
        self._task = None


def _in_thread(function: Callable[[], Any]) -> Any:
    """Return what a function returns that hashes files; the window is painted meanwhile."""
    with ThreadPoolExecutor(1, "napari-saf closing") as pool:
        future = pool.submit(function)
        while wait([future], _PAINTING_SECONDS).not_done:
            QApplication.processEvents(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
        return future.result()


def workspace_of(viewer: Any) -> Workspace:
    """Return the workspace of a viewer, a new one for its first dock."""
    own = unwrapped(viewer)
    known = (one for one in _workspaces if unwrapped(one.viewer) is own and not one.has_ended)
    return next(known, None) or Workspace(viewer)


class LostLine(QWidget):
    """A line in a dock: offers work that was not saved, until somebody has decided."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace, self.note = workspace, QLabel()
        help = "Open what was kept of it, in the Project dock."
        self.recover = create_button("Recover", help, self._recover)
        self.discard = create_button("Discard", "Delete what was kept of it.", self._discard)
        fill_layout(QVBoxLayout(self), self.note, create_row(self.recover, self.discard))
        workspace.lost_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        lost = self._workspace.lost
        self.setVisible(bool(lost))
        if lost:
            with suppress(OSError):
                time = datetime.fromtimestamp(lost[0].stat().st_mtime)
                self.note.setText(f"Work of {time:%Y-%m-%d %H:%M} was not saved")

    def _recover(self) -> None:
        dock = self._workspace.dock()
        if dock is not None and self._workspace.lost:
            dock.load(self._workspace.lost[0], is_recovered=True)

    def _discard(self) -> None:
        if self._workspace.lost and ask_to_discard(self):
            self._workspace.forget_lost(self._workspace.lost[0])


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
    """Tell whether a window is as it was: a viewer that is closed hides its canvas before."""
    center = window.centralWidget()
    canvas = None if center is None else center.findChild(QOpenGLWidget)
    return canvas is not None and bool(canvas.isVisible())
