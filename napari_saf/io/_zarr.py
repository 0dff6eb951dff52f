"""Zarr: the images of OME-Zarr groups, and the checks of chunks before they are decoded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

Sizes = dict[str, tuple[float, str]]
"""Size of a pixel and its unit, by the letter of the axis."""
_Codec = dict[str, Any]
_COMPRESSIONS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
"""Of Zarr: imagecodecs decodes no more of them than it is asked to."""
_CODECS = {
    *_COMPRESSIONS,
    *("bytes", "endian", "transpose", "sharding_indexed"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
}
"""What a Zarr array may be coded with: others execute what they decode, or are not for numbers."""
_MAX_CHUNKS = 2**16
_LEAST_CHUNK = 2**14
"""So many chunks may be smaller than so many bytes: each takes 0.1 ms, whatever it holds."""
_MOST_WIDENED = 8
_HEADER = 2**10
"""How many times larger than its pixels filters may make a chunk, and how much a header is."""


class Multiscale(NamedTuple):
    """An image of an OME-Zarr: its levels, a letter for each axis, sizes and origin of pixels."""

    levels: list[Any]
    axes: str
    sizes: Sizes
    origin: dict[str, float]


def open_zarr(path: Path | Store, number: int | None = None) -> Multiscale:
    """Return the multiscale image of an OME-Zarr group (0.1 to 0.6), or an array by itself.

    Of several that of a number. Only metadata are read: `check_chunks` comes before pixels.
    """
    import zarr

    try:
        group: Any = zarr.open(path, mode="r")
    except FileNotFoundError as error:
        raise ValueError("the folder holds no OME-Zarr image") from error
    if not isinstance(group, zarr.Group):
        return Multiscale([group], "", {}, {})
    attributes = _ome_attributes(group)
    if not attributes.get("multiscales"):
        images = images_of_group(group)
        if images:
            raise ValueError(
                f"it holds {len(images)} images, such as {images[0]}: name the folder of one"
            )
        raise ValueError("the folder holds no OME-Zarr image")
    multiscales = attributes["multiscales"]
    n_images = len(multiscales)
    if (n_images > 1 and number is None) or (number or 0) >= n_images:
        raise ValueError(f"it holds {n_images} images: name one by #0, #1, ... at the end")
    multiscale = multiscales[number or 0]
    levels: list[Any] = [_member(group, dataset["path"]) for dataset in multiscale["datasets"]]
    stored = levels[0]
    if stored.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got {stored.dtype}")
    systems = multiscale.get("coordinateSystems") or [{}]  # from 0.6 on
    axes = multiscale.get("axes", systems[0].get("axes", "tczyx"))[-stored.ndim :]
    if len(axes) != stored.ndim:
        raise ValueError(f"{len(axes)} axes are named, the array has {stored.ndim}")
    # Before version 0.4 axes were strings.
    described = [{"name": axis} if isinstance(axis, str) else axis for axis in axes]
    kinds = {"channel": "c", "time": "t"}
    names = [kinds.get(str(axis.get("type")), str(axis["name"]).lower()[:1]) for axis in described]
    scale, translation = _placement(multiscale, stored.ndim)
    sizes = {
        name: (size, str(axis.get("unit", "pixel")))
        for name, size, axis in zip(names, scale, described, strict=False)
    }
    moved = {n: first for n, first in zip(names, translation, strict=False) if first and n != "c"}
    return Multiscale(levels, "".join(names), sizes, moved)


def _ome_attributes(group: zarr.Group) -> Any:
    attributes: Any = dict(group.attrs)
    return attributes.get("ome", attributes)


def images_of_group(group: zarr.Group) -> list[str]:
    """Return where the images of a group lie: itself ("" each), or those of a plate or of a file.

    Files that bioformats2raw converted have an image for each series, plates for each field.
    """
    attributes = _ome_attributes(group)
    if attributes.get("multiscales"):
        return [""] * len(attributes["multiscales"])
    if "plate" in attributes:
        wells = [str(well["path"]) for well in attributes["plate"].get("wells", ())]
        images = []
        for well in wells:
            fields = _ome_attributes(_member(group, well)).get("well", {}).get("images", ())
            images += [f"{well}/{field['path']}" for field in fields]
        return images
    if "bioformats2raw.layout" in attributes:
        listed = _ome_attributes(group["OME"]).get("series") if "OME" in group else None
        numbers = sorted((name for name in group.group_keys() if name.isdigit()), key=int)
        return [str(name) for name in listed or numbers]
    return []


def _member(group: zarr.Group, name: object) -> Any:
    """Return an array or group within a group; a name that leads out of it is refused."""
    if not isinstance(name, str) or ".." in name.split("/") or name.startswith("/"):
        raise ValueError(f"level {name!r}: expected a place within the folder")
    return group[name]


def _placement(multiscale: Any, n_axes: int) -> tuple[list[float], list[float]]:
    """Return the size of a pixel and where the first lies along each axis; nothing if unknown."""
    scale, translation, is_known = np.ones(n_axes), np.zeros(n_axes), False
    pending = [
        transformation
        for level in (multiscale["datasets"][0], multiscale)
        for transformation in level.get("coordinateTransformations", [])
    ]
    while pending:
        transformation = pending.pop(0)
        type_ = transformation.get("type")
        if type_ == "sequence":
            pending = [*transformation["transformations"], *pending]
        elif type_ == "scale":
            factors = _numbers(transformation["scale"], "scale", n_axes)
            if not (factors > 0).all():
                raise ValueError(f"scale: expected {n_axes} sizes above 0, got {factors.tolist()}")
            scale, translation, is_known = scale * factors, translation * factors, True
        elif type_ == "translation":
            translation = translation + _numbers(
                transformation["translation"], "translation", n_axes
            )
            is_known = True
        elif type_ != "identity":
            raise ValueError(
                f"coordinate transformation {type_!r}: expected scale, translation, or a sequence"
            )
    return (scale.tolist(), translation.tolist()) if is_known else ([], [])


def _numbers(values: Any, name: str, n_axes: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=float)
    if numbers.shape != (n_axes,) or not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected {n_axes} finite numbers, got {numbers.tolist()}")
    return numbers


def check_codecs(array: zarr.Array) -> tuple[list[_Codec], _Codec]:
    """Return the codecs of chunks in the order of encoding, if all of them may be used.

    With the configuration of the shards, an empty one if there are none.
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


def check_chunks(
    array: zarr.Array,
    folder: Path,
    region: Sequence[slice] | None = None,
    checked: set[Path] | None = None,
) -> None:
    """Refuse chunks that take more time or memory than their pixels, before they are decoded.

    ValueError also for codecs that execute something. Of a `region`, its chunks alone count, and
    of those the files that are not `known`, to which they are added.
    """
    check_codecs(array)
    n_bytes = math.prod(array.chunks) * array.dtype.itemsize
    n_chunks = math.prod(-(-n // k) for n, k in zip(array.shape, array.chunks, strict=True))
    if region is None and n_chunks > _MAX_CHUNKS and n_bytes < _LEAST_CHUNK:
        raise ValueError(
            f"{n_chunks} chunks of {n_bytes} bytes: expected at most {_MAX_CHUNKS}, or larger ones"
        )
    within = [slice(0, side) for side in array.shape] if region is None else region
    for key in chunk_keys(array, within):
        file = folder / key
        if not file.exists() or (checked is not None and file in checked):
            continue
        if not file.is_file():  # such as a link to a device without an end
            raise ValueError(f"chunk {key}: expected a file")
        check_chunk(array, file.read_bytes(), file)
        if checked is not None:
            checked.add(file)


def chunk_keys(array: zarr.Array, region: Sequence[slice]) -> Iterator[str]:
    """Yield the names of the chunks, or shards, of a region."""
    sides = zip(region, array.shards or array.chunks, strict=True)
    counts = [range(extent.start // side, -(-extent.stop // side)) for extent, side in sides]
    return map(array.metadata.encode_chunk_key, itertools.product(*counts))


def check_chunk(array: zarr.Array, content: bytes, name: object) -> None:
    """Raise ValueError if a chunk, or shard, is damaged, or is more than its pixels."""
    codecs, shard = check_codecs(array)
    n_bytes = math.prod(array.chunks) * array.dtype.itemsize
    chunks, names = [content], [_name(codec) for codec in codecs]
    if shard:
        n_in_shard = math.prod(array.shards or ()) // math.prod(array.chunks)
        chunks = _chunks_of_shard(content, shard, n_in_shard)
    is_plain = {*names} <= {*_COMPRESSIONS, "bytes", "endian", "transpose"}
    least, most = (n_bytes, n_bytes) if is_plain else (0, _MOST_WIDENED * n_bytes + _HEADER)
    if not all(_is_fine(chunk, names, least, most) for chunk in chunks):
        raise ValueError(f"a chunk is damaged, or is not the {n_bytes} bytes of its pixels: {name}")


def _chunks_of_shard(content: bytes, shard: _Codec, n_chunks: int) -> list[bytes]:
    """Return the chunks of a shard: its index is a place and a length for each."""
    checksum = 4 * any(_name(codec) == "crc32c" for codec in shard["index_codecs"])
    at_end = len(content) - 16 * n_chunks - checksum
    start = 0 if shard.get("index_location") == "start" else max(at_end, 0)
    index = np.frombuffer(content[start:][: 16 * n_chunks], "<u8").reshape(n_chunks, 2).tolist()
    return [content[offset : offset + length] for offset, length in index if offset < len(content)]


def _is_fine(content: bytes, codecs: list[str], least: int, most: int) -> bool:
    """Tell whether a chunk is not damaged, and what it unpacks to neither smaller nor larger."""
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
    except RuntimeError:  # imagecodecs's, for a fault or for want of room
        return False
    return least <= len(unpacked) <= most
