"""OME-Zarr folders."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import zarr
from numpy.typing import NDArray

from napari_saf.storage import check_room

_DECOMPRESS: dict[str, Callable[..., bytes | bytearray]] = {
    "blosc": imagecodecs.blosc_decode,
    "bz2": imagecodecs.bz2_decode,
    "gzip": imagecodecs.gzip_decode,
    "lz4": partial(imagecodecs.lz4_decode, header=True),
    "lzma": imagecodecs.lzma_decode,
    "zlib": imagecodecs.zlib_decode,
    "zstd": imagecodecs.zstd_decode,
}
"""Compressions; each decodes no more than it is asked to."""

_CODECS = {
    *_DECOMPRESS,
    *("bytes", "endian", "transpose", "sharding_indexed"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
}
"""What an array may be coded with. Others execute what they decode, or are not for numbers."""

_MAX_CHUNKS = 2**16
_LEAST_CHUNK = 2**14
"""So many chunks may be smaller than so many bytes: each takes 0.1 ms, whatever it holds."""

_MOST_WIDENED = 8
_HEADER = 2**10
"""How many times larger than its pixels filters may make a chunk, and how much a header is."""


def read_zarr(path: Path) -> tuple[NDArray[Any], str, dict[str, tuple[float, str]]]:
    """Read the finest level of the first multiscale image of an OME-Zarr folder (0.1 to 0.5).

    With a letter for each axis, and the size of a pixel and its unit by letter.
    """
    group = zarr.open_group(path, mode="r")
    attributes: Any = dict(group.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if not multiscales:
        raise ValueError("the folder holds no OME-Zarr image")
    multiscale = multiscales[0]
    dataset = multiscale["datasets"][0]
    stored: Any = group[dataset["path"]]
    if stored.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got {stored.dtype}")
    codecs = _checked_codecs(stored)
    check_room(stored.nbytes)
    _check_chunks(stored, codecs, path / stored.path)
    axes = multiscale.get("axes", "tczyx")[-stored.ndim :]
    if len(axes) != stored.ndim:
        raise ValueError(f"{len(axes)} axes are named, the array has {stored.ndim}")
    # Before version 0.4 axes were strings.
    described = [{"name": axis} if isinstance(axis, str) else axis for axis in axes]
    kinds = {"channel": "c", "time": "t"}
    names = [kinds.get(str(axis.get("type")), str(axis["name"]).lower()[:1]) for axis in described]
    sizes = zip(names, _scale(multiscale, dataset, stored.ndim), described, strict=False)
    units = {name: (size, str(axis.get("unit", "pixel"))) for name, size, axis in sizes}
    return np.asarray(stored), "".join(names), units


def _checked_codecs(array: zarr.Array) -> list[dict[str, Any]]:
    """Return the codecs of an array in the order of encoding, if all of them may be used."""
    metadata: Any = array.metadata.to_dict()
    used = [*(metadata.get("codecs") or ()), *(metadata.get("filters") or ())]
    used += [metadata["compressor"]] if metadata.get("compressor") else []
    names = list(_every_name(used))
    for name in names:
        if name not in _CODECS:
            raise ValueError(f"codec {name!r}: expected one of {', '.join(sorted(_CODECS))}")
    shard = next((one for one in used if _name(one) == "sharding_indexed"), None)
    index = [] if shard is None else shard["configuration"].get("index_codecs", ())
    if not {_name(one) for one in index} <= {"bytes", "crc32c"}:
        raise ValueError("index of a shard: expected bytes, and crc32c or nothing")
    if sum(name in _DECOMPRESS for name in names) > 1 or names.count("sharding_indexed") > 1:
        raise ValueError(f"codecs {', '.join(names)}: expected one compression at most")
    return used


def _every_name(codecs: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the names of codecs and of those within shards."""
    for codec in codecs:
        yield _name(codec)
        within = codec.get("configuration") or {}
        yield from _every_name([*within.get("codecs", ()), *within.get("index_codecs", ())])


def _name(codec: dict[str, Any]) -> str:
    return str(codec.get("id", codec.get("name"))).removeprefix("numcodecs.")


def _check_chunks(array: zarr.Array, codecs: list[dict[str, Any]], folder: Path) -> None:
    """Refuse chunks that take more time or memory than their pixels, before they are decoded."""
    n_bytes = math.prod(array.chunks) * array.dtype.itemsize
    n_chunks = math.prod(-(-n // k) for n, k in zip(array.shape, array.chunks, strict=True))
    if n_chunks > _MAX_CHUNKS and n_bytes < _LEAST_CHUNK:
        raise ValueError(
            f"{n_chunks} chunks of {n_bytes} bytes: expected at most {_MAX_CHUNKS}, or larger ones"
        )
    counts = [
        range(-(-n // k)) for n, k in zip(array.shape, array.shards or array.chunks, strict=True)
    ]
    for place in itertools.product(*counts):
        file = folder / array.metadata.encode_chunk_key(place)
        if not file.exists():
            continue
        if not file.is_file():  # such as a link to a device without an end
            raise ValueError(f"chunk {place}: expected a file")
        content = file.read_bytes()
        chunks, inner = iter([content]), codecs
        if array.shards is not None:
            within = next(one for one in codecs if _name(one) == "sharding_indexed")
            within = within["configuration"]
            n_within = math.prod(array.shards) // math.prod(array.chunks)
            chunks, inner = _chunks_of_shard(content, within, n_within), within["codecs"]
        for chunk in chunks:
            _check_chunk(chunk, inner, n_bytes)


def _chunks_of_shard(content: bytes, within: dict[str, Any], n_parts: int) -> Iterator[bytes]:
    """Yield the chunks of a shard: its index is a place and a length for each."""
    checksum = 4 * any(_name(codec) == "crc32c" for codec in within["index_codecs"])
    size = 16 * n_parts
    start = 0 if within.get("index_location") == "start" else len(content) - size - checksum
    index = np.frombuffer(content[max(start, 0) :][:size], "<u8").reshape(n_parts, 2).tolist()
    for place, length in index:
        if place < len(content):
            yield content[place : place + length]


def _check_chunk(content: bytes, codecs: list[dict[str, Any]], n_bytes: int) -> None:
    names = [_name(codec) for codec in codecs]
    if names[-1:] == ["crc32c"]:
        names, content = names[:-1], content[:-4]
    most = _MOST_WIDENED * n_bytes + _HEADER
    is_fine = len(content) <= most
    if is_fine and names and names[-1] in _DECOMPRESS:
        try:
            is_fine = len(_DECOMPRESS[names[-1]](content, out=most + 1)) <= most
        except RuntimeError:  # imagecodecs's, for a fault or for want of room
            is_fine = False
    if not is_fine:
        raise ValueError(f"a chunk is damaged, or more than the {n_bytes} bytes of its pixels")


def _scale(multiscale: Any, dataset: Any, n_axes: int) -> list[float]:
    """Return the size of a pixel along each axis; nothing if the folder does not say."""
    scales = [
        np.asarray(transformation["scale"], dtype=float)
        for level in (dataset, multiscale)
        for transformation in level.get("coordinateTransformations", [])
        if transformation.get("type") == "scale"
    ]
    if not scales:
        return []
    scale = math.prod(scales[1:], start=scales[0])
    if scale.shape != (n_axes,) or not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scale: expected {n_axes} sizes above 0, got {scale.tolist()}")
    return [float(size) for size in scale]
