"""Projects that were used last, and what was left of those that were not saved."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from platformdirs import user_data_path

from napari_saf.errors import InvalidInput
from napari_saf.project import PROJECT_SUFFIX
from napari_saf.storage import FileModel, make_folder, read_json, remove_path, validated, write_json

_MOST_RECENT = 12
_MOST_LOST = 5
_END_BYTES = 64
"""Of a project: its hash."""
_numbers = itertools.count(1)
_in_use: set[Path] = set()
"""What sessions of this process keep their projects in."""


class _Recent(FileModel):
    path: str
    digest: str


class _RecentFile(FileModel):
    projects: list[_Recent]


def data_folder() -> Path:
    return Path(user_data_path("napari-saf", appauthor=False))


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


def release(path: Path) -> None:
    """Note that a session has ended: what it kept is offered to others."""
    _in_use.discard(path)


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
