"""The file of a project: saved when that is asked for, and kept on its own in case of a crash."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from qtpy.QtWidgets import QFileDialog, QMessageBox, QWidget

from napari_saf._gui.session.layers import Snapshot
from napari_saf.errors import InvalidInput
from napari_saf.project import PROJECT_SUFFIX, Project, project_digest, save_project
from napari_saf.storage import (
    FileModel,
    data_folder,
    make_folder,
    read_json,
    remove_path,
    validated,
    write_json,
)

PROJECT_FILTER = f"Project (*{PROJECT_SUFFIX})"
_MOST_RECENT = 12
_MOST_LOST = 5
_END_BYTES = 64
"""Of a project: its hash."""
_numbers = itertools.count(1)
_in_use: set[Path] = set()
"""What sessions of this process keep their projects in."""


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
            note_recent(path, is_saved_here=True)
            return project

    def keep(self, snapshot: Snapshot) -> bool:
        """Keep a project in case of a crash, if something is not saved; return whether it is so."""
        with self._writing:
            digest = self._unsaved(snapshot)
            if digest and digest != self._kept:
                if self._recovery is None:
                    self._recovery = new_recovery_path()
                save_project(self._recovery, snapshot.build(self._recovery, only_touched=True))
                self._kept = digest
            elif not digest and self._kept:
                self._forget()
            return bool(digest)

    def is_unsaved(self, snapshot: Snapshot) -> bool:
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
            _in_use.discard(self._recovery)

    def _unsaved(self, snapshot: Snapshot) -> str:
        """Return the hash of a project with work that is not saved; empty where there is none."""
        if self.path is None and not snapshot.has_work:
            return ""
        digest = project_digest(snapshot.build(None))
        return "" if digest in (self._saved, self._given_up) else digest

    def _forget(self) -> None:
        if self._recovery is not None:
            forget(self._recovery)
        self._kept = ""


def ask_to_save(parent: QWidget, name: str) -> str:
    """Ask what to do with unsaved work; return ``"save"``, ``"discard"`` or ``"cancel"``."""
    kind = QMessageBox.StandardButton
    text = f"{name} is not saved.\nStrokes, labels and corrections that are not saved are lost."
    buttons = kind.Save | kind.Discard | kind.Cancel
    answer = QMessageBox.question(parent, "napari-saf", text, buttons, kind.Save)
    return {kind.Save: "save", kind.Discard: "discard"}.get(answer, "cancel")


def ask_to_discard(parent: QWidget) -> bool:
    """Ask whether what was kept of unsaved work is to be deleted."""
    kind = QMessageBox.StandardButton
    text = "Delete this work? Its strokes, labels and corrections cannot be brought back."
    answer = QMessageBox.question(
        parent, "napari-saf", text, kind.Discard | kind.Cancel, kind.Cancel
    )
    return bool(answer == kind.Discard)


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


class _Recent(FileModel):
    path: str
    digest: str


class _RecentFile(FileModel):
    projects: list[_Recent]


def recent_projects() -> list[Path]:
    """Return the projects that were opened or saved last and are still there, the newest first."""
    return [Path(one.path) for one in _read() if Path(one.path).is_file()]


def note_recent(path: Path, *, is_saved_here: bool) -> None:
    """Note that a project was used; one that was only opened may come from anywhere."""
    digest = _end_of(path) if is_saved_here or is_own(path) else ""
    own = _Recent(path=str(path.absolute()), digest=digest)
    rows = [own, *(one for one in _read() if one.path != own.path)][:_MOST_RECENT]
    make_folder(data_folder())
    write_json(_file(), _RecentFile(projects=rows).model_dump_json())


def is_own(path: Path) -> bool:
    """Tell whether a project is as it was saved here: then its paths may lead anywhere."""
    end = _end_of(path)
    known = {one.path: one.digest for one in _read()}
    is_recovery = path.absolute().parent == _recovery_folder()
    return bool(end) and (is_recovery or known.get(str(path.absolute())) == end)


def new_recovery_path() -> Path:
    """Return where a session of this process keeps what is not saved; the folder is there."""
    make_folder(_recovery_folder())
    name = f"{_process_name(os.getpid())}-{next(_numbers)}{PROJECT_SUFFIX}"
    _in_use.add(_recovery_folder() / name)
    return _recovery_folder() / name


def lost_projects() -> list[Path]:
    """Return what sessions and processes that are gone left behind, the newest first."""
    found = []
    for path in _recovery_folder().glob(f"*{PROJECT_SUFFIX}"):
        pid = path.name.partition("-")[0]
        alive = pid.isdecimal() and path.name.startswith(f"{_process_name(int(pid))}-")
        is_of_others = alive and pid != str(os.getpid())
        if path not in _in_use and not is_of_others:
            found.append(path)
    with suppress(OSError):
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[_MOST_LOST:]:
        forget(path)
    return found[:_MOST_LOST]


def forget(path: Path) -> None:
    """Remove what was kept of a project, with the images that were kept beside it."""
    remove_path(path)
    remove_path(path.with_name(f"{path.stem}_images"))


def _process_name(pid: int) -> str:
    """Return a name that no later process of the same number has; empty where there is none."""
    try:
        return f"{pid}-{psutil.Process(pid).create_time():.0f}"
    except psutil.Error:
        return "none"


def _recovery_folder() -> Path:
    return data_folder() / "recovery"


def _file() -> Path:
    return data_folder() / "projects.json"


def _read() -> list[_Recent]:
    plain: Any = None
    with suppress(OSError, ValueError):  # there is none, or it is damaged
        plain = read_json(_file())
    try:
        return [] if plain is None else validated(_RecentFile, plain).projects
    except InvalidInput:
        return []


def _end_of(path: Path) -> str:
    with suppress(OSError), path.open("rb") as stream:
        stream.seek(-_END_BYTES, os.SEEK_END)
        return stream.read().decode("ascii", "replace")
    return ""
