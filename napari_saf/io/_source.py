"""Which file something was made from, and in what state it was then."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

__all__ = ["FileState"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """A file, or a folder that is one image, as it is at a moment.

    Attributes
    ----------
    path : str
        As seen from the folder of what is made from it, with slashes.
    n_bytes : int
        Size of all that is in it.
    modified : int
        When it was changed last, in nanoseconds since 1970.
    """

    path: str
    n_bytes: int
    modified: int

    @classmethod
    def of(cls, file: Path, folder: Path) -> FileState:
        """Return the state of a file for what goes to a folder; 0 for one that is not there."""
        inner = [*file.rglob("*"), file] if file.is_dir() else [file]
        states = [path.stat() for path in inner if path.exists()]
        return cls(
            _seen_from(folder, file),
            sum(state.st_size for state in states),
            max((state.st_mtime_ns for state in states), default=0),
        )


def _seen_from(folder: Path, file: Path) -> str:
    try:
        return Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix()
    except ValueError:  # on Windows, of two drives
        return file.absolute().as_posix()
