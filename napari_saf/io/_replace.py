"""Write beside, then rename: a reader never sees half a file."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from napari_saf.errors import SafError

__all__ = ["hidden_name", "make_folder", "remove", "remove_leftovers", "replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Give a temporary name in the folder of `path`, and rename it to `path` at the end.

    What is written under the temporary name may be a file or a folder. If the block raises,
    or is interrupted, the temporary is removed and what was at `path` stays as it was. Where
    `path` is a link, what it points to is replaced; a file keeps its mode.

    Parameters
    ----------
    path : path
        Where the finished file shall be.
    overwrite : bool
        Whether a file that is there by then is replaced.

    Yields
    ------
    Path
        The temporary name; it ends as `path` does.

    Raises
    ------
    SafError
        If the file cannot be written, for want of space or permission, or is there already.
    """
    target = Path(path)
    with _errors_told(target):
        real = Path(os.path.realpath(target)) if target.is_symlink() else target
        temporary = _beside(real)
        try:
            yield temporary
            if temporary.is_dir():
                _swap_folders(temporary, real, _beside(real))
            elif overwrite:
                if real.exists():
                    shutil.copymode(real, temporary)
                os.replace(temporary, real)
            else:
                _move_to_free_place(temporary, real)
        finally:
            remove(temporary)


@contextmanager
def _errors_told(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SafError(f"{target}: cannot be written: {error.strerror or error}") from error


def hidden_name(path: Path) -> str:
    """Return a short name that is hidden, of its own for each name of a file."""
    return f".saf-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}"


def _beside(path: Path) -> Path:
    """Return a new name beside a path that ends alike, and is shorter than the longest may be."""
    ending = re.search(r"(\.ome)?\.[^.]{1,8}$", path.name)
    words = f"{os.getpid()}-{secrets.token_hex(4)}{ending[0] if ending else ''}"
    return path.with_name(f"{hidden_name(path)}-{words}")


def _move_to_free_place(temporary: Path, target: Path) -> None:
    """Rename a file, unless another process has made one of that name."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # some file systems have no links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already") from None
        os.replace(temporary, target)


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

    What belongs to another process that is alive stays.
    """
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    prefix = f"{hidden_name(real)}-"
    for beside in real.parent.iterdir() if real.parent.is_dir() else ():
        if beside.name.startswith(prefix):
            process = beside.name.removeprefix(prefix).partition("-")[0]
            is_own = process == str(os.getpid())
            if is_own or (process.isdecimal() and not psutil.pid_exists(int(process))):
                remove(beside)
