"""File of an open project, its autosave for recovery after a crash, and recent projects."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from napari_saf.errors import InvalidInput
from napari_saf.project._archive import PROJECT_SUFFIX, project_digest, save_project
from napari_saf.project._model import ProjectState
from napari_saf.project._project import Project
from napari_saf.storage import (
    FileModel,
    data_folder,
    make_folder,
    read_json,
    remove_path,
    validated,
    write_json,
)

_N_RECENT = 12
_N_RECOVERABLE = 5
_DIGEST_BYTES = 64
"""Length of the digest at the end of a project file."""
_numbers = itertools.count(1)
_in_use: set[Path] = set()
"""Autosave files of open projects of this process."""


class ProjectFile:
    """Where an open project is saved, and where unsaved work is autosaved.

    Methods that write may be called in any thread, one at a time.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._saved = self._autosaved = self._discarded = ""
        self._autosave: Path | None = None
        self._writing = threading.Lock()

    @property
    def name(self) -> str:
        return "Your work" if self.path is None else self.path.name

    def begin(self, path: Path | None, project: Project | None = None) -> None:
        """Continue with another project as loaded from its file; None: with an unsaved one."""
        with self._writing:
            self.path = path
            self._saved = "" if project is None else project_digest(project)
            self._remove_autosave()

    def save(self, state: ProjectState, path: Path) -> Project:
        """Save a project; SafError if that fails."""
        with self._writing:
            digest = project_digest(state.build(None))  # strokes painted meanwhile are not saved
            project = state.build(path)
            save_project(path, project)
            self.path, self._saved = path, digest
            self._remove_autosave()
            note_recent(path, is_saved_here=True)
            return project

    def autosave(self, state: ProjectState) -> bool:
        """Write unsaved work for recovery; return whether there is any."""
        with self._writing:
            digest = self._unsaved(state)
            if digest and digest != self._autosaved:
                if self._autosave is None:
                    self._autosave = new_autosave_path()
                save_project(self._autosave, state.build(self._autosave, only_with_layers=True))
                self._autosaved = digest
            elif not digest and self._autosaved:
                self._remove_autosave()
            return bool(digest)

    def is_unsaved(self, state: ProjectState) -> bool:
        with self._writing:
            return bool(self._unsaved(state))

    def discard(self, state: ProjectState) -> None:
        """Stop autosaving this state; later changes are autosaved again."""
        with self._writing:
            self._discarded = self._unsaved(state)
            self._remove_autosave()

    def undo_discard(self) -> None:
        """Count discarded work that is still on screen as unsaved again."""
        self._discarded = ""

    def release(self) -> None:
        """Keep the autosave file for recovery."""
        if self._autosave is not None:
            _in_use.discard(self._autosave)

    def _unsaved(self, state: ProjectState) -> str:
        """Return the digest of a project with unsaved work; empty if there is none."""
        if self.path is None and not state.has_work:
            return ""
        digest = project_digest(state.build(None))
        return "" if digest in (self._saved, self._discarded) else digest

    def _remove_autosave(self) -> None:
        if self._autosave is not None:
            remove_autosave(self._autosave)
        self._autosaved = ""


class _Recent(FileModel):
    path: str
    digest: str


class _RecentFile(FileModel):
    projects: list[_Recent]


def recent_projects() -> list[Path]:
    """Return existing projects that were opened or saved last, the newest first."""
    return [Path(recent.path) for recent in _read_recent() if Path(recent.path).is_file()]


def note_recent(path: Path, *, is_saved_here: bool) -> None:
    """Record the use of a project; one that was only opened is not trusted."""
    digest = _stored_digest(path) if is_saved_here or is_saved_here_before(path) else ""
    newest = _Recent(path=str(path.absolute()), digest=digest)
    previous = [recent for recent in _read_recent() if recent.path != newest.path]
    projects = [newest, *previous][:_N_RECENT]
    make_folder(data_folder())
    write_json(_recent_file(), _RecentFile(projects=projects).model_dump_json())


def is_saved_here_before(path: Path) -> bool:
    """Return whether a file is unchanged since it was saved here, so its paths can be trusted."""
    digest = _stored_digest(path)
    saved = {recent.path: recent.digest for recent in _read_recent()}
    is_autosave = path.absolute().parent == _autosave_folder()
    return bool(digest) and (is_autosave or saved.get(str(path.absolute())) == digest)


def new_autosave_path() -> Path:
    """Return a new path for the autosave of an open project of this process."""
    make_folder(_autosave_folder())
    name = f"{_process_name(os.getpid())}-{next(_numbers)}{PROJECT_SUFFIX}"
    _in_use.add(_autosave_folder() / name)
    return _autosave_folder() / name


def recoverable_projects() -> list[Path]:
    """Return the latest autosaves of closed windows and ended processes, newest first.

    Older ones are removed.
    """
    paths = []
    for path in _autosave_folder().glob(f"*{PROJECT_SUFFIX}"):
        pid = path.name.partition("-")[0]
        is_alive = pid.isdecimal() and path.name.startswith(f"{_process_name(int(pid))}-")
        is_of_other_process = is_alive and pid != str(os.getpid())
        if path not in _in_use and not is_of_other_process:
            paths.append(path)
    with suppress(OSError):
        paths.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[_N_RECOVERABLE:]:
        remove_autosave(path)
    return paths[:_N_RECOVERABLE]


def remove_autosave(path: Path) -> None:
    """Remove an autosave and the images beside it."""
    remove_path(path)
    remove_path(path.with_name(f"{path.stem}_images"))


def _process_name(pid: int) -> str:
    """Return a unique name of a process, even if its id is reused; "none" if it does not exist."""
    try:
        return f"{pid}-{psutil.Process(pid).create_time():.0f}"
    except psutil.Error:
        return "none"


def _autosave_folder() -> Path:
    return data_folder() / "recovery"


def _recent_file() -> Path:
    return data_folder() / "projects.json"


def _read_recent() -> list[_Recent]:
    plain: Any = None
    with suppress(OSError, ValueError):  # missing or damaged
        plain = read_json(_recent_file())
    try:
        return [] if plain is None else validated(_RecentFile, plain).projects
    except InvalidInput:
        return []


def _stored_digest(path: Path) -> str:
    with suppress(OSError), path.open("rb") as stream:
        stream.seek(-_DIGEST_BYTES, os.SEEK_END)
        return stream.read().decode("ascii", "replace")
    return ""
