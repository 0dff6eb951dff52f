"""Atomic writing: to a temporary name first, then rename, so no reader sees half a file."""

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


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
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
    try:
        real = Path(os.path.realpath(target)) if target.is_symlink() else target
        temporary = _temporary_name(real)
        try:
            yield temporary
            if temporary.is_dir():
                _swap_folders(temporary, real)
            elif overwrite:
                if real.exists():
                    shutil.copymode(real, temporary)
                os.replace(temporary, real)
            else:
                _rename_exclusively(temporary, real)
        finally:
            remove_path(temporary)
    except OSError as error:
        raise SafError(f"{target}: cannot be written: {error.strerror or error}") from error


def hidden_name(path: Path) -> str:
    """Return a short hidden name, a different one for each file name."""
    return f".saf-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}"


def _temporary_name(path: Path) -> Path:
    """Return a new name in the same folder with the same suffix, short enough for every system."""
    suffix = re.search(r"(\.ome)?\.[^.]{1,8}$", path.name)
    unique = f"{os.getpid()}-{secrets.token_hex(4)}{suffix[0] if suffix else ''}"
    return path.with_name(f"{hidden_name(path)}-{unique}")


def _rename_exclusively(temporary: Path, target: Path) -> None:
    """Rename a file, unless another process has made one of that name."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # some file systems have no links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already") from None
        os.replace(temporary, target)


def _swap_folders(new: Path, target: Path) -> None:
    """Put a folder in the place of another: no system can do that in one step."""
    if not target.exists():
        os.replace(new, target)
        return
    old = _temporary_name(target)
    os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        os.replace(old, target)
        raise
    remove_path(old)


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


def remove_path(path: Path) -> None:
    """Remove a file or a folder if it is there; errors do not hide the reason for clearing it."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of killed processes, or of this one, that were writing `path`."""
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    prefix = f"{hidden_name(real)}-"
    for file in real.parent.iterdir() if real.parent.is_dir() else ():
        if file.name.startswith(prefix):
            process = file.name.removeprefix(prefix).partition("-")[0]
            is_own = process == str(os.getpid())
            if is_own or (process.isdecimal() and not psutil.pid_exists(int(process))):
                remove_path(file)
