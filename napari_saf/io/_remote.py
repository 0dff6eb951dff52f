"""Zarr behind a URL, read through fsspec: metadata once, chunks where they are asked for."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import one_line
from napari_saf.io._zarr import check_chunk, chunk_keys
from napari_saf.storage import parse_json

_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zarray")
_MOST_METADATA = 2**24
_PROBED = 4
"""Chunks along each axis of which one must be there."""


class RemoteFolder:
    """A zarr store behind a URL; `metadata` by their place in it."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec

            self._files, root = fsspec.url_to_fs(url)
        except ImportError as error:
            raise ValueError(f"{error}; install it to read what is behind a URL") from error
        self._root = root.rstrip("/")
        self.metadata = self._read_metadata("")
        if not self.metadata:
            raise ValueError("no zarr store is there")
        for name in _level_names(self.metadata):
            self.metadata |= self._read_metadata(f"{name}/")

    def _read_metadata(self, folder: str) -> dict[str, bytes]:
        files = self.read([folder + name for name in _METADATA])
        if sum(map(len, files.values())) > _MOST_METADATA:
            raise ValueError(f"expected metadata of at most {_MOST_METADATA // 2**20} MiB")
        return files

    @property
    def digest(self) -> str:
        text = b"".join(name.encode() + self.metadata[name] for name in sorted(self.metadata))
        return hashlib.sha256(text).hexdigest()[:16]

    def read(self, keys: list[str]) -> dict[str, bytes]:
        """Return the content of those files that are there."""
        keys_by_path = {f"{self._root}/{key}": key for key in keys}
        content = {}
        for path, data in self._files.cat(list(keys_by_path), on_error="return").items():
            if isinstance(data, bytes):
                content[keys_by_path[path]] = data
            elif not isinstance(data, FileNotFoundError):
                raise OSError(f"{keys_by_path[path]}: {one_line(data)}") from data
        return content

    def exists(self, key: str) -> bool:
        return bool(self._files.exists(f"{self._root}/{key}"))

    def store(self, chunks: Mapping[str, bytes] | None = None) -> Any:
        """Return a store of zarr in memory, of the metadata and such chunks."""
        from zarr.buffer.cpu import Buffer
        from zarr.storage import MemoryStore

        files = self.metadata | dict(chunks or {})
        return MemoryStore({name: Buffer.from_bytes(data) for name, data in files.items()})


def _level_names(metadata: Mapping[str, bytes]) -> list[str]:
    """Return the names of the levels of an OME-Zarr that lie within it, none for an array."""
    text = metadata.get("zarr.json", metadata.get(".zattrs", b"{}"))
    plain: Any = parse_json(text)
    attributes = plain.get("attributes", plain)
    multiscales = attributes.get("ome", attributes).get("multiscales") or [{}]
    names = [dataset["path"] for dataset in multiscales[0].get("datasets", ())]
    return [name for name in names if isinstance(name, str) and ".." not in name.split("/")]


class RemoteArray:
    """An array of zarr behind a URL, of which parts are read when they are asked for.

    Their chunks are checked, as those of a file, before they are unpacked.
    """

    def __init__(self, folder: RemoteFolder, stored: Any) -> None:
        self._folder, self.stored = folder, stored
        self.shape, self.dtype, self.ndim = stored.shape, stored.dtype, stored.ndim
        self.chunks, self._prefix = stored.chunks, f"{stored.path}/" if stored.path else ""

    def is_hollow(self) -> bool:
        """Tell whether none of some chunks all over the array is there."""
        pixels = itertools.product(
            *({(2 * k + 1) * n // (2 * _PROBED) for k in range(_PROBED)} for n in self.shape)
        )
        keys = {
            key
            for pixel in pixels
            for key in chunk_keys(self.stored, [slice(k, k + 1) for k in pixel])
        }
        return not any(self._folder.exists(self._prefix + key) for key in sorted(keys))

    def __getitem__(self, region: tuple[slice, ...]) -> NDArray[Any]:
        import zarr

        keys = [self._prefix + key for key in chunk_keys(self.stored, region)]
        chunks = self._folder.read(keys)
        for key, content in chunks.items():
            check_chunk(self.stored, content, key)
        store = self._folder.store(chunks)
        return np.asarray(zarr.open_array(store, path=self.stored.path, mode="r")[region])
