"""Files that a project refers to: their content as a hash, and where they are now."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from napari_saf.arrays import as_path
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.io import file_state, is_zarr, split_series

WHOLE = 2**28
"""Bytes of the largest file that is hashed in full."""
BLOCK = 2**20
_N_BLOCKS = 64
_N_CHUNKS = 64
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
_LABELS = "labels"
"""The group of an OME-Zarr that labels are written to, which change while the image does not."""
FileState = Literal["found", "changed", "missing"]
Digest = Callable[[Path], str]


@dataclasses.dataclass(frozen=True, slots=True)
class FileReference:
    """A file, or a folder that is one image, by its path and its content.

    Attributes
    ----------
    path : Path
        Absolute; in the file of a project it is relative to that.
    digest : str
        See `content_digest`.
    n_bytes : int

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> np.save("copy.npy", np.eye(8))
    >>> saf.FileReference.of("image.npy").digest == saf.FileReference.of("copy.npy").digest
    True
    """

    path: Path
    digest: str
    n_bytes: int

    @classmethod
    def of(cls, path: str | os.PathLike[str], digest: Digest | None = None) -> FileReference:
        """Refer to a file that is there; InvalidInput if it cannot be read."""
        file = Path(os.path.abspath(path))
        try:
            return cls(file, (digest or content_digest)(file), _n_bytes(file))
        except OSError as error:  # such as in a folder that is written to
            raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class FoundFile:
    """Where a file of a project is now; the path is None where it is missing.

    One that has `changed` is where it was, or of the same name, with another content.
    """

    path: Path | None
    state: FileState


def content_digest(path: str | os.PathLike[str]) -> str:
    """Return a hash of the content of a file, or of a folder that is one image.

    Of a file above 256 MiB it is that of its size and of 64 blocks of it, of a zarr store that of
    its metadata, of the names and sizes of its chunks and of the content of 64 of them. Labels
    that an OME-Zarr holds do not count.

    Raises
    ------
    InvalidInput
        If the file cannot be read.
    """
    file, _ = split_series(as_path(path))
    try:
        if file.is_dir():
            return _digest_of_store(file)
        if not file.is_file():  # a device or a pipe has no end
            raise InvalidInput(f"{file}: cannot be read: it is no file")
        with file.open("rb") as stream:
            n_bytes = os.fstat(stream.fileno()).st_size
            if n_bytes > WHOLE:
                return _digest_of_blocks(stream, n_bytes)
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error


class DigestCache:
    """`content_digest` that reads a file again only when its size or time of change differ."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[object, ...], str]] = {}

    def __call__(self, path: Path) -> str:
        found = file_state(path, path.parent)
        state = (found["n_bytes"], found["modified"])
        known = self._known.get(path)
        if known is None or known[0] != state:
            known = self._known[path] = (state, content_digest(path))
        return known[1]


def find_files(
    references: Sequence[FileReference],
    home: Path | None,
    folders: Sequence[str | os.PathLike[str]] = (),
    *,
    is_trusted: bool = False,
    digest: Digest | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[FoundFile]:
    """Find the files that a project refers to.

    A file is looked for at its path, then by its content in the folders, then there by its name.

    Parameters
    ----------
    references : sequence of FileReference
        What to look for.
    home : Path or None
        The folder of the project.
    folders : sequence of paths, optional
        Those that a person named.
    is_trusted : bool
        The project was written here, so that its paths may lead anywhere. Of others, which may come
        from anywhere, nothing outside `home` and the folders is looked at.
    digest : callable, optional
        In place of `content_digest`, such as a `DigestCache`.
    cancelled : callable, optional
        Asked before each file; Cancelled is raised.
    """
    digest = digest or content_digest
    roots = [Path(os.path.abspath(one)) for one in (*filter(None, [home]), *folders)]
    open_roots = [Path(one.path.anchor) for one in references] if is_trusted else []
    found: list[FoundFile] = []
    for one in references:
        raise_if(cancelled)
        found.append(_at_path(one, home, [*roots, *open_roots], digest))
    if all(one.state == "found" for one in found) or not folders:
        return found
    inside = []
    for path in (one for folder in roots[-len(folders) :] for one in _images_in(folder)):
        raise_if(cancelled)
        inside.append(path)
    for k, one in enumerate(references):
        if found[k].state != "found":
            found[k] = _by_content(one, inside, digest, cancelled) or found[k]
    return found


def _at_path(
    one: FileReference, home: Path | None, roots: Sequence[Path], digest: Digest
) -> FoundFile:
    """Return what is at the path of a reference, if that may be looked at."""
    paths = [one.path]
    if home is not None and one.path.is_relative_to(home):
        # Written by hand, or by another program, on Windows.
        inner = str(one.path.relative_to(home)).replace("\\", "/")
        paths.append(Path(os.path.normpath(home / inner)))
    for path in paths:
        is_open = any(path.is_relative_to(root) for root in roots)
        # That of `os` is False where the system refuses the path.
        if is_open and os.path.exists(split_series(path)[0]):
            return FoundFile(path, "found" if _is_same(one, path, digest) else "changed")
    return FoundFile(None, "missing")


def _by_content(
    one: FileReference, inside: Sequence[Path], digest: Digest, cancelled: Callable[[], bool]
) -> FoundFile | None:
    """Return the file of the same content, else of the same name, in folders."""
    number = split_series(one.path)[1]
    for path in inside:
        raise_if(cancelled)
        if _is_same(one, path, digest):
            series = path.name if number is None else f"{path.name}#{number}"
            return FoundFile(path.with_name(series), "found")
    name = one.path.name.rpartition("\\")[2]
    return next((FoundFile(path, "changed") for path in inside if path.name == name), None)


def _is_same(one: FileReference, path: Path, digest: Digest) -> bool:
    """Return whether a file has the content that is referred to; its size is compared first."""
    file, _ = split_series(path)
    try:
        is_store = file.is_dir()
        return (is_store or file.stat().st_size == one.n_bytes) and digest(path) == one.digest
    except (InvalidInput, OSError):
        return False


def _n_bytes(path: Path) -> int:
    file, _ = split_series(path)
    return 0 if file.is_dir() else file.stat().st_size


def _images_in(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and those in it; a zarr store is one."""
    if is_zarr(folder):
        yield folder
        return
    for top, folders, names in os.walk(folder):
        stores = [name for name in folders if is_zarr(Path(top, name))]
        folders[:] = sorted(name for name in folders if name not in stores)
        yield from (Path(top, name) for name in sorted([*stores, *names]))


def _digest_of_blocks(stream: BinaryIO, n_bytes: int) -> str:
    total = hashlib.sha256(str(n_bytes).encode())
    for k in range(_N_BLOCKS):
        stream.seek(k * (n_bytes - BLOCK) // (_N_BLOCKS - 1))
        total.update(stream.read(BLOCK))
    return f"sampled:{total.hexdigest()}"


def _digest_of_store(folder: Path) -> str:
    total, chunks = hashlib.sha256(), []
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if Path(top) != folder or one != _LABELS)
        for name in sorted(names):
            file = Path(top, name)
            place = file.relative_to(folder).as_posix()
            if name in _METADATA:
                total.update(os.fsencode(f"{place}\0") + file.read_bytes())
            elif not name.startswith("."):
                chunks.append((place, file.stat().st_size))
    for place, size in chunks:
        total.update(os.fsencode(f"{place}\0{size}\0"))
    step = max(1, -(-len(chunks) // _N_CHUNKS))
    for place, _ in chunks[::step]:
        total.update((folder / place).read_bytes())
    return f"store:{total.hexdigest()}"
