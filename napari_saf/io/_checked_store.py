"""Zarr stores, in folders or at URLs, whose chunks are checked before decoding.

Codecs that execute decoded content are refused, and so are chunks that decompress to more bytes
than their pixels need: zarr itself would allocate whatever size a chunk claims.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer.cpu import Buffer
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from napari_saf.arrays import JsonObject
from napari_saf.errors import one_line

_Codec = JsonObject
_COMPRESSIONS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
"""Zarr compressors that imagecodecs decodes to a bounded size."""
_CODECS = {
    *_COMPRESSIONS,
    *("bytes", "endian", "transpose", "sharding_indexed"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
}
"""Accepted Zarr codecs; others execute decoded content, or do not encode numbers."""
_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata")
_MOST_METADATA = 2**26
_MAX_CHUNKS = 2**16
_LEAST_CHUNK = 2**14
"""Maximum number of chunks below this size in bytes; each takes 0.1 ms to check."""
_MOST_WIDENED = 8
_HEADER = 2**10
"""Maximum growth factor of a chunk by filters, and the size of a header in bytes."""
_PROBED = 4
"""Chunks probed along each axis at a URL; one of them must exist."""


class CheckedStore(WrapperStore[Store]):  # type: ignore[misc]  # zarr has no types here
    """Read-only store that checks each chunk of its `arrays`, by path, once."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.arrays: dict[str, zarr.Array] = {}
        self.root = getattr(store, "root", None)  # of a folder
        self._checked: set[tuple[str, ByteRequest | None]] = set()

    def _with_store(self, store: Store) -> CheckedStore:
        copy = type(self)(store)
        copy.arrays, copy._checked = self.arrays, self._checked
        return copy

    async def get(
        self, key: str, prototype: Any, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the content of a file; raise ValueError, or OSError with its name, if damaged."""
        if self.root is not None and (self.root / key).exists():
            if not (self.root / key).is_file():  # such as a link to an endless device
                raise ValueError(f"chunk {key}: expected a file")
        try:
            content = await self._store.get(key, prototype, byte_range)
        except Exception as error:
            raise OSError(f"{key}: {one_line(error)}") from error
        if content is None or (key, byte_range) in self._checked:
            return content
        if key.rpartition("/")[2] in _METADATA:
            if len(content) > _MOST_METADATA:
                raise ValueError(f"expected metadata of at most {_MOST_METADATA // 2**20} MiB")
            return content
        for path, array in self.arrays.items():
            if not path or key.startswith(f"{path}/"):
                await asyncio.to_thread(_check_chunk, array, content.to_bytes(), key, byte_range)
        self._checked.add((key, byte_range))
        return content

    def is_hollow(self, array: zarr.Array) -> bool:
        """Return whether all of the chunks probed across an array are missing."""
        steps = range(1, 2 * _PROBED, 2)
        pixels = itertools.product(*({k * n // (2 * _PROBED) for k in steps} for n in array.shape))
        for pixel in pixels:
            array[pixel]
            if self._checked:
                return False
        return True


def folder_store(folder: Path) -> CheckedStore:
    return CheckedStore(LocalStore(folder, read_only=True))


def url_store(url: str) -> CheckedStore:
    try:
        return CheckedStore(FsspecStore.from_url(url, read_only=True))
    except ImportError as error:
        raise ValueError(f"{error}; install it to read images from URLs") from error


def check_codecs(array: zarr.Array) -> tuple[list[_Codec], _Codec]:
    """Return the codecs of chunks in encoding order, and the configuration of shards, all checked.

    The configuration is empty for an array without shards.
    """
    metadata: Any = array.metadata.to_dict()
    used = [*(metadata.get("codecs") or ()), *(metadata.get("filters") or ())]
    used += [metadata["compressor"]] if metadata.get("compressor") else []
    shards = [entry["configuration"] for entry in used if _name(entry) == "sharding_indexed"]
    shard = shards[0] if shards else {}
    within = [*shard.get("codecs", ()), *shard.get("index_codecs", ())]
    names = [_name(codec) for codec in (*used, *within)]
    for name in names:
        if name not in _CODECS:
            raise ValueError(f"codec {name!r}: expected one of {', '.join(sorted(_CODECS))}")
    if not {_name(entry) for entry in shard.get("index_codecs", ())} <= {"bytes", "crc32c"}:
        raise ValueError("index of a shard: expected bytes, and crc32c or nothing")
    if sum(name in _COMPRESSIONS for name in names) > 1 or names.count("sharding_indexed") > 1:
        raise ValueError(f"codecs {', '.join(names)}: expected one compression at most")
    return (shard["codecs"] if shards else used), shard


def _name(codec: _Codec) -> str:
    return str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")


def check_count(array: zarr.Array) -> None:
    """Raise ValueError for an array of too many small chunks."""
    n_bytes = math.prod(array.chunks) * array.dtype.itemsize
    n_chunks = math.prod(-(-n // k) for n, k in zip(array.shape, array.chunks, strict=True))
    if n_chunks > _MAX_CHUNKS and n_bytes < _LEAST_CHUNK:
        raise ValueError(f"{n_chunks} chunks of {n_bytes} bytes: expected at most {_MAX_CHUNKS}")


def _check_chunk(
    array: zarr.Array, content: bytes, name: str, byte_range: ByteRequest | None
) -> None:
    """Raise ValueError if a chunk or shard is damaged, or decodes to the wrong size."""
    codecs, shard = check_codecs(array)
    n_bytes = math.prod(array.chunks) * array.dtype.itemsize
    chunks: Sequence[bytes] = [content]
    if shard:
        n_chunks = math.prod(array.shards or ()) // math.prod(array.chunks)
        checksum = 4 * any(_name(codec) == "crc32c" for codec in shard["index_codecs"])
        index = RangeByteRequest(0, 16 * n_chunks + checksum)
        if isinstance(byte_range, SuffixByteRequest) or byte_range == index:
            return
        if byte_range is None:
            chunks = _chunks_of_shard(content, shard, n_chunks, checksum)
    names = [_name(codec) for codec in codecs]
    is_plain = {*names} <= {*_COMPRESSIONS, "bytes", "endian", "transpose"}
    least, most = (n_bytes, n_bytes) if is_plain else (0, _MOST_WIDENED * n_bytes + _HEADER)
    if not all(_is_fine(chunk, names, least, most) for chunk in chunks):
        raise ValueError(f"a chunk is damaged, or is not the {n_bytes} bytes of its pixels: {name}")


def _chunks_of_shard(content: bytes, shard: _Codec, n_chunks: int, checksum: int) -> list[bytes]:
    """Return the chunks of a shard: its index is an offset and a length for each."""
    at_end = len(content) - 16 * n_chunks - checksum
    start = 0 if shard.get("index_location") == "start" else max(at_end, 0)
    index = np.frombuffer(content[start:][: 16 * n_chunks], "<u8").reshape(n_chunks, 2).tolist()
    return [content[offset : offset + size] for offset, size in index if offset < len(content)]


def _is_fine(content: bytes, codecs: list[str], least: int, most: int) -> bool:
    """Return whether a chunk is intact and its decoded size within bounds."""
    import imagecodecs

    if codecs[-1:] == ["crc32c"]:
        codecs, content = codecs[:-1], content[:-4]
    if not codecs or codecs[-1] not in _COMPRESSIONS:
        return least <= len(content) <= most
    if len(content) > 2 * most + _HEADER:
        return False
    options = {"header": True} if codecs[-1] == "lz4" else {}
    try:
        unpacked = getattr(imagecodecs, f"{codecs[-1]}_decode")(content, out=most + 1, **options)
    except RuntimeError:  # from imagecodecs: damaged, or output buffer too small
        return False
    return least <= len(unpacked) <= most
