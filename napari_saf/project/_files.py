"""Files referenced by a project: content hashes, and search for moved files."""

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
"""Largest file, in bytes, that is hashed completely."""
BLOCK = 2**20
_N_BLOCKS = 64
_N_CHUNKS = 64
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
_LABELS = "labels"
"""OME-Zarr group of labels, which may change while the image does not."""
FileState = Literal["found", "changed", "missing"]
Digest = Callable[[Path], str]


@dataclasses.dataclass(frozen=True, slots=True)
class FileReference:
    """A file, or a folder that is one image, by path and content.

    Attributes
    ----------
    path : Path
        Absolute; relative in a project file.
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
        """Make a reference to an existing file; InvalidInput if it cannot be read."""
        file = Path(os.path.abspath(path))
        try:
            return cls(file, (digest or content_digest)(file), _n_bytes(file))
        except OSError as error:  # for example in a folder being written
            raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class FoundFile:
    """Current location of a file; None if missing, `changed` if only the path or name agrees."""

    path: Path | None
    state: FileState


def content_digest(path: str | os.PathLike[str]) -> str:
    """Return a hash of the content of a file, or of a folder that is one image.

    Above 256 MiB the hash covers the size and 64 blocks; for a zarr store metadata, names and sizes
    of chunks, and 64 chunks, without OME-Zarr labels. InvalidInput if the file cannot be read.
    """
    file, _ = split_series(as_path(path))
    try:
        if file.is_dir():
            return _digest_of_store(file)
        if not file.is_file():  # devices and pipes are endless
            raise InvalidInput(f"{file}: cannot be read: it is not a regular file")
        with file.open("rb") as stream:
            n_bytes = os.fstat(stream.fileno()).st_size
            if n_bytes > WHOLE:
                return _digest_of_blocks(stream, n_bytes)
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error


class DigestCache:
    """`content_digest` that rereads a file only if its size or modification time changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[object, ...], str]] = {}

    def __call__(self, path: Path) -> str:
        properties = file_state(path, path.parent)
        state = (properties["n_bytes"], properties["modified"])
        cached = self._known.get(path)
        if cached is None or cached[0] != state:
            cached = self._known[path] = (state, content_digest(path))
        return cached[1]


def find_files(
    references: Sequence[FileReference],
    home: Path | None,
    folders: Sequence[str | os.PathLike[str]] = (),
    *,
    is_trusted: bool = False,
    digest: Digest | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[FoundFile]:
    """Find files at their path, then in the folders by content, then by name.

    Unless `is_trusted` (the project was written here) only its folder `home` and `folders` are
    searched. `digest` replaces `content_digest`. `cancelled` is polled before each file.
    """
    digest = digest or content_digest
    roots = [Path(os.path.abspath(folder)) for folder in (*filter(None, [home]), *folders)]
    open_roots = [Path(reference.path.anchor) for reference in references] if is_trusted else []
    files: list[FoundFile] = []
    for reference in references:
        raise_if(cancelled)
        files.append(_at_path(reference, home, [*roots, *open_roots], digest))
    if all(file.state == "found" for file in files) or not folders:
        return files
    inside = []
    for folder in roots[-len(folders) :]:
        for path in _images_in(folder):
            raise_if(cancelled)
            inside.append(path)
    for k, reference in enumerate(references):
        if files[k].state != "found":
            files[k] = _by_content(reference, inside, digest, cancelled) or files[k]
    return files


def _at_path(
    reference: FileReference, home: Path | None, roots: Sequence[Path], digest: Digest
) -> FoundFile:
    """Look for a reference at its path, within the allowed folders."""
    paths = [reference.path]
    if home is not None and reference.path.is_relative_to(home):
        # Paths edited by hand or by another program on Windows.
        inner = str(reference.path.relative_to(home)).replace("\\", "/")
        paths.append(Path(os.path.normpath(home / inner)))
    for path in paths:
        is_open = any(path.is_relative_to(root) for root in roots)
        # os.path.exists returns False for paths that the system rejects.
        if is_open and os.path.exists(split_series(path)[0]):
            return FoundFile(path, "found" if _is_same(reference, path, digest) else "changed")
    return FoundFile(None, "missing")


def _by_content(
    reference: FileReference, inside: Sequence[Path], digest: Digest, cancelled: Callable[[], bool]
) -> FoundFile | None:
    """Return the file with the same content, or else the same name, in folders."""
    number = split_series(reference.path)[1]
    for path in inside:
        raise_if(cancelled)
        if _is_same(reference, path, digest):
            series = path.name if number is None else f"{path.name}#{number}"
            return FoundFile(path.with_name(series), "found")
    name = reference.path.name.rpartition("\\")[2]
    return next((FoundFile(path, "changed") for path in inside if path.name == name), None)


def _is_same(reference: FileReference, path: Path, digest: Digest) -> bool:
    """Return whether a file has the referenced content; sizes are compared first."""
    file, _ = split_series(path)
    try:
        is_same_size = file.is_dir() or file.stat().st_size == reference.n_bytes
        return is_same_size and digest(path) == reference.digest
    except (InvalidInput, OSError):
        return False


def _n_bytes(path: Path) -> int:
    file, _ = split_series(path)
    return 0 if file.is_dir() else file.stat().st_size


def _images_in(folder: Path) -> Iterator[Path]:
    """Yield files recursively; a zarr store counts as one."""
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
        folders[:] = sorted(name for name in folders if Path(top) != folder or name != _LABELS)
        for name in sorted(names):
            file = Path(top, name)
            relative = file.relative_to(folder).as_posix()
            if name in _METADATA:
                total.update(os.fsencode(f"{relative}\0") + file.read_bytes())
            elif not name.startswith("."):
                chunks.append((relative, file.stat().st_size))
    for relative, size in chunks:
        total.update(os.fsencode(f"{relative}\0{size}\0"))
    step = max(1, -(-len(chunks) // _N_CHUNKS))
    for relative, _ in chunks[::step]:
        total.update((folder / relative).read_bytes())
    return f"store:{total.hexdigest()}"
