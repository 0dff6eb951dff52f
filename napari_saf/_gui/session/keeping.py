"""The file of a project: saved when that is asked for, and on its own in case of a crash."""

from __future__ import annotations

import threading
from pathlib import Path

from qtpy.QtWidgets import QFileDialog, QMessageBox, QWidget

from napari_saf._gui.session import recovery
from napari_saf._gui.session.snapshot import Snapshot
from napari_saf.project import PROJECT_SUFFIX, Project, project_digest, save_project

PROJECT_FILTER = f"Project (*{PROJECT_SUFFIX})"
_ASKED = "{} is not saved."
_DETAIL = "Strokes, labels and corrections that are not saved are lost."


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
        return "Your work" if self.path is None else self.path.name

    def begin(self, path: Path | None, project: Project | None = None) -> None:
        """Go on with another project, which is as it was saved; None: with one that never was."""
        with self._writing:
            self.path = path
            self._saved = "" if project is None else project_digest(project)
            self._forget()

    def save(self, snapshot: Snapshot, path: Path) -> Project:
        """Save a project; SafError if it cannot be."""
        with self._writing:
            before = project_digest(snapshot.build(None))  # what is painted meanwhile is not saved
            project = snapshot.build(path)
            save_project(path, project)
            self.path, self._saved = path, before
            self._forget()
            recovery.note_recent(path, is_saved_here=True)
            return project

    def keep(self, snapshot: Snapshot) -> bool:
        """Keep a project in case of a crash, if something is not saved; return whether it is so."""
        with self._writing:
            digest = self._unsaved(snapshot)
            if digest and digest != self._kept:
                if self._recovery is None:
                    self._recovery = recovery.new_recovery_path()
                save_project(self._recovery, snapshot.build(self._recovery, only_touched=True))
                self._kept = digest
            elif not digest and self._kept:
                self._forget()
            return bool(digest)

    def is_unsaved(self, snapshot: Snapshot) -> bool:
        """Tell whether a project holds work that is not saved."""
        with self._writing:
            return bool(self._unsaved(snapshot))

    def give_up(self, snapshot: Snapshot) -> None:
        """Do not keep a project as it is now; work that is done after all is kept again."""
        with self._writing:
            self._given_up = self._unsaved(snapshot)
            self._forget()

    def take_back(self) -> None:
        """Note that what was given up is still there: it is unsaved as before."""
        self._given_up = ""

    def end(self) -> None:
        """Leave what was kept to whoever comes next."""
        if self._recovery is not None:
            recovery.release(self._recovery)

    def _unsaved(self, snapshot: Snapshot) -> str:
        """Return the hash of a project with work that is not saved; empty where there is none."""
        if self.path is None and not snapshot.has_work:
            return ""
        digest = project_digest(snapshot.build(None))
        return "" if digest in (self._saved, self._given_up) else digest

    def _forget(self) -> None:
        if self._recovery is not None:
            recovery.forget(self._recovery)
        self._kept = ""


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
