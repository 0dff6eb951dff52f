"""The file of a project: saved when that is asked for, and on its own in case of a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qtpy.QtCore import QEvent, QObject
from qtpy.QtWidgets import QFileDialog, QMainWindow, QMessageBox, QOpenGLWidget, QWidget

from napari_saf._gui.project import recovery
from napari_saf._gui.project.session import Build
from napari_saf.errors import SafError
from napari_saf.project import PROJECT_SUFFIX, Project, project_digest, save_project

PROJECT_FILTER = f"Project (*{PROJECT_SUFFIX})"
_ASKED = "{} is not saved."
_DETAIL = "Strokes, labels or corrections were made since. What is not saved is lost."


class ProjectFile:
    """Where a project is saved, and where it is kept on its own meanwhile.

    The methods that write are for any thread, one at a time.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._saved = self._kept = self._given_up = ""
        self._recovery: Path | None = None
        self._writing = threading.Lock()

    @property
    def name(self) -> str:
        return "The project" if self.path is None else self.path.name

    @property
    def recovery_path(self) -> Path:
        if self._recovery is None:
            self._recovery = recovery.new_recovery_path()
        return self._recovery

    def begin(self, path: Path | None, project: Project | None = None) -> None:
        """Go on with another project, which is as it was saved; None: with one that never was."""
        with self._writing:
            self.path = path
            self._saved = "" if project is None else project_digest(project)
            self._forget()

    def save(self, build: Build, path: Path) -> Project:
        """Save a project; SafError if it cannot be."""
        with self._writing:
            project = build(path)
            save_project(path, project)
            self.path, self._saved = path, project_digest(project)
            self._forget()
            recovery.note_recent(path, is_saved_here=True)
            return project

    def keep(self, build: Build) -> bool:
        """Keep a project in case of a crash, if something is not saved; return whether it is so."""
        with self._writing:
            project, digest, is_unsaved = self._built(build)
            if is_unsaved and digest != self._kept:
                save_project(self.recovery_path, project)
                self._kept = digest
            elif not is_unsaved:
                self._forget()
            return is_unsaved

    def is_unsaved(self, build: Build) -> bool:
        """Tell whether a project holds work that is not saved, or cannot be kept."""
        with self._writing:
            try:
                return self._built(build)[2]
            except SafError:
                return True

    def give_up(self, build: Build) -> None:
        """Do not keep a project as it is now; work that is done after all is kept again."""
        with self._writing, suppress(SafError):
            self._given_up = self._built(build)[1]
            self._forget()

    def end(self, build: Build) -> None:
        """Keep what is not saved for whoever comes next; SafError if that fails."""
        try:
            self.keep(build)
        finally:
            recovery.release(self.recovery_path)

    def _built(self, build: Build) -> tuple[Project, str, bool]:
        """Return a project, its hash, and whether it holds work that is not saved."""
        project = build(self.recovery_path)
        digest = project_digest(project)
        is_worth = self.path is not None or any(image.layers for image in project.images)
        return project, digest, is_worth and digest not in (self._saved, self._given_up)

    def _forget(self) -> None:
        if self._recovery is not None:
            recovery.forget(self._recovery)
        self._kept = ""


class CloseGuard(QObject):
    """Asks before a window closes; not where a program closes it, which no answer could stop."""

    def __init__(self, parent: QObject, may_close: Callable[[], bool]) -> None:
        super().__init__(parent)
        self._may_close, self._is_asking = may_close, False
        self._has_ended = False

    def watch(self, window: QWidget) -> None:
        window.removeEventFilter(self)
        window.installEventFilter(self)

    def end(self) -> None:
        """Ask no more."""
        self._has_ended = True

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        is_closing = event.type() == QEvent.Type.Close and not self._has_ended
        if not is_closing or not isinstance(watched, QMainWindow):
            return False
        if self._is_asking:
            event.ignore()
            return True
        if not event.spontaneous() and not _has_canvas(watched):
            return False
        self._is_asking = True
        try:
            may_close = self._may_close()
        finally:
            self._is_asking = False
        if not may_close:
            event.ignore()
        return not may_close


def _has_canvas(window: QMainWindow) -> bool:
    """Tell whether a window is as it was: a viewer that is closed hides its canvas before."""
    center = window.centralWidget()
    canvas = None if center is None else center.findChild(QOpenGLWidget)
    return canvas is not None and bool(canvas.isVisible())


def ask_to_save(parent: QWidget, name: str) -> str:
    """Ask what to do with unsaved work; return ``"save"``, ``"discard"`` or ``"cancel"``."""
    kind = QMessageBox.StandardButton
    text = f"{_ASKED.format(name)}\n{_DETAIL}"
    buttons = kind.Save | kind.Discard | kind.Cancel
    answer = QMessageBox.question(parent, "napari-saf", text, buttons, kind.Save)
    return {kind.Save: "save", kind.Discard: "discard"}.get(answer, "cancel")


def ask_where_to_save(parent: QWidget, path: Path | None) -> Path | None:
    """Ask where to save, at first where it was; None: nowhere, or not over what is there."""
    start = path or Path.cwd() / f"project{PROJECT_SUFFIX}"
    text, _ = QFileDialog.getSaveFileName(parent, "Save project", str(start), PROJECT_FILTER)
    if not text:
        return None
    found = with_suffix(Path(text))
    if found == Path(text) or not found.exists():  # else the dialog has asked
        return found
    kind = QMessageBox.StandardButton
    text = f"{found.name} is there already. Replace it?"
    answer = QMessageBox.question(parent, "napari-saf", text, kind.Yes | kind.No, kind.No)
    return found if answer == kind.Yes else None


def with_suffix(path: Path) -> Path:
    """Return a path that ends as projects do."""
    is_whole = path.name.lower().endswith(PROJECT_SUFFIX)
    return path if is_whole else path.with_name(f"{path.name}{PROJECT_SUFFIX}")
