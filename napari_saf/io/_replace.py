"""Write beside, then rename: a reader never sees half a file."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from napari_saf.errors import SafError

__all__ = ["make_folder", "remove", "remove_leftovers", "replacing"]

_TOKEN_BYTES = 4


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`, and rename it to `path` at the end.

    What is written under the temporary name may be a file or a folder. If the block raises,
    or is interrupted, the temporary is removed and what was at `path` stays as it was.

    Parameters
    ----------
    path : path
        Where the finished file shall be.

    Yields
    ------
    Path
        The temporary name; it ends as `path` does.

    Raises
    ------
    SafError
        If the file cannot be written, for want of space or permission.
    """
    target = Path(path)
    token = secrets.token_hex(_TOKEN_BYTES)
    temporary = target.with_name(f".{token}.{target.name}")
    try:
        yield temporary
        if temporary.is_dir():
            _swap_folders(temporary, target, target.with_name(f".{token}.old.{target.name}"))
        else:
            os.replace(temporary, target)
    except OSError as error:
        raise SafError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        remove(temporary)


def _swap_folders(new: Path, target: Path, old: Path) -> None:
    """Put a folder in the place of another: no system can do that in one step."""
    if not target.exists():
        os.replace(new, target)
        return
    os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        os.replace(old, target)
        raise
    remove(old)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where there are none.

    Raises
    ------
    SafError
        If it cannot be made, such as where a file has its name.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafError(f"{path}: cannot be made a folder: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and the system lets it go.

    What is cleared away must not hide why it has to be.
    """
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove what a killed process has left beside a file that it was writing.

    No other process may be writing the same file.
    """
    if not path.parent.is_dir():
        return
    token = rf"[0-9a-f]{{{2 * _TOKEN_BYTES}}}"
    name = re.compile(rf"\.{token}\.(old\.)?{re.escape(path.name)}")
    for beside in path.parent.iterdir():
        if name.fullmatch(beside.name):
            remove(beside)
