"""Images from files: TIFF, OME-Zarr, NumPy arrays, and pictures as Pillow reads them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError
from napari_saf.storage import check_room, format_errors

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

PNG_MARK = ("Comment", "napari-saf label image: the index of a pixel is its label")
"""Note in an indexed PNG whose indices count, not its colours."""
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageFile:
    """An image as read from a file.

    Attributes
    ----------
    array : array
        The pixels; axes of length 1 other than y and x are left out, but for those of ``.npy``.
    channel_axis : int or None
        Axis of the channels; None if there are none.
    axes : str
        A lower-case letter for each axis, ``c`` for the channels.
    scale, units : tuple or None
        Size of a pixel along each axis except the channels, and its unit; None if the file does
        not say.
    """

    array: NDArray[Any]
    channel_axis: int | None = None
    axes: str = ""
    scale: tuple[float, ...] | None = None
    units: tuple[str, ...] | None = None

    @classmethod
    def of(cls, array: NDArray[Any], axes: str, sizes: Sizes | None = None) -> ImageFile:
        """Return an image without axes of length 1 other than y and x."""
        places = [k for k, name in enumerate(axes) if array.shape[k] > 1 or name in "yx"]
        names = "".join(axes[k] for k in places)
        found = [(sizes or {}).get(name) for name in names.replace("c", "")]
        scale = units = None
        if any(found):
            scale = tuple(size[0] if size else 1.0 for size in found)
            units = tuple(size[1] if size else "pixel" for size in found)
        pixels = array.reshape([array.shape[k] for k in places])
        return cls(pixels, names.index("c") if "c" in names else None, names, scale, units)

    @property
    def stated_channel_axis(self) -> int | None:
        """The axis of channels, None also where it is the last of RGB(A), known by its length."""
        axis = self.channel_axis
        is_last = axis == self.array.ndim - 1 and self.array.shape[-1] in (3, 4)
        return None if is_last else axis

    @property
    def label_axes(self) -> str:
        return self.axes.replace("c", "")


def read_image(path: str | os.PathLike[str], *, in_colors: bool = True) -> ImageFile:
    """Read an image; nothing in the file is executed.

    TIFF (OME, ImageJ or plain), OME-Zarr folders and NumPy arrays (``.npy``) are read with
    their axes and the size of a pixel where the file gives them, other formats (PNG, JPEG,
    BMP, ...) as Pillow reads them. Pictures with a palette give its colours, unless they are
    masks that napari-saf wrote, or `in_colors` is False: then they give the indices.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    ComputeError
        If the image does not fit into memory.

    Examples
    --------
    >>> np.save("volume.npy", np.zeros((4, 16, 16)))
    >>> saf.read_image("volume.npy").array.shape
    (4, 16, 16)
    """
    file = Path(path)
    if not file.exists():
        raise FormatError(f"{file}: no such file")
    with format_errors(file, "an image"):
        if file.is_dir():
            image = _read_zarr(file)
        else:
            image = _READERS.get(file.suffix.lower(), _read_picture)(file, in_colors)
        if image.array.dtype.kind not in "biuf":
            raise ValueError(f"expected real numbers, got {image.array.dtype}")
        if image.array.size == 0 or image.array.ndim == 0:
            raise ValueError(f"expected pixels, got an array of shape {image.array.shape}")
        return image


def read_labels(path: str | os.PathLike[str]) -> ImageFile:
    """Read a label image; as `read_image`, but the index of an indexed PNG is the label.

    Raises
    ------
    FormatError
        As `read_image`, and if the file holds other than whole numbers of 0 and above.

    Examples
    --------
    >>> labels = np.array([[0, 1], [2, 2]])
    >>> [path] = saf.save_masks("labels.png", labels)
    >>> saf.read_labels(path).array.tolist()
    [[0, 1], [2, 2]]
    """
    image = read_image(path, in_colors=False)
    array = image.array
    if array.dtype.kind not in "biu" or array.min() < 0 or image.channel_axis is not None:
        raise FormatError(
            f"{os.fspath(path)}: expected a label image, whole numbers of 0 and above, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return image


def _read_npy(path: Path, in_colors: bool) -> ImageFile:
    check_room(path.stat().st_size)
    with path.open("rb") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    is_rgb = array.ndim >= 3 and array.shape[-1] in (3, 4)
    names = "tzyx"[-(array.ndim - is_rgb) :] if array.ndim - is_rgb <= 4 else ""
    return ImageFile(array, array.ndim - 1 if is_rgb else None, names + "c" * is_rgb)


def _read_picture(path: Path, in_colors: bool) -> ImageFile:
    """Read what Pillow knows; an indexed picture as indices if they are labels."""
    import imageio.v3 as iio
    from PIL import Image, UnidentifiedImageError

    try:
        opened = Image.open(path)
    except UnidentifiedImageError as error:
        known = ", ".join(_READERS)
        text = f"its content is none of {known} or a picture such as .png or .jpg"
        raise ValueError(text) from error
    with opened as picture:
        is_labels = not in_colors or picture.info.get(PNG_MARK[0]) == PNG_MARK[1]
        if picture.mode == "P" and is_labels:
            check_room(picture.width * picture.height, path.stat().st_size)
            return ImageFile(np.asarray(picture), None, "yx")
        # Of an animation imageio keeps all frames; four bytes hold a pixel of any mode.
        n_pixels = picture.width * picture.height * getattr(picture, "n_frames", 1)
        check_room(4 * n_pixels, path.stat().st_size)
        mode = "RGB" if picture.mode == "CMYK" else None
    # By name: left to itself imageio offers the file to every plugin it has, FFmpeg included.
    array = iio.imread(path, plugin="pillow", mode=mode)
    if array.ndim == 3 and array.shape[-1] == 2:  # grey with alpha
        array = array[..., 0]
    has_channels = array.ndim > 2 and array.shape[-1] in (3, 4)
    return ImageFile.of(array, "tzyx"[-(array.ndim - has_channels) :] + "c" * has_channels)


def _read_tiff(path: Path, in_colors: bool) -> ImageFile:
    """Read the first series of a TIFF file; a palette gives colours, or indices for labels."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        for element in ElementTree.fromstring(file.ome_metadata).iter() if file.is_ome else ():
            name = element.get("FileName")
            if name and not (path.parent / name).resolve().is_relative_to(path.parent.resolve()):
                raise ValueError(f"its pixels are said to be outside its folder, in {name}")
        if not file.series:
            raise ValueError("it holds no image")
        series = file.series[0]
        axes = letters_of(series.axes)
        kind = series.keyframe.photometric
        if kind == tifffile.PHOTOMETRIC.SEPARATED:
            raise ValueError("it holds inks (CMYK); save it as RGB")
        pages = [page for page in series.pages if page is not None] if file.is_ome else []
        handles = {page.parent.filehandle for page in pages} or {file.filehandle}
        check_room(series.nbytes, sum(int(handle.size) for handle in handles))
        array = series.asarray()
        if in_colors and kind == tifffile.PHOTOMETRIC.PALETTE:
            # Tables hold 16 bits a channel.
            array = (series.keyframe.colormap >> 8).astype(np.uint8).T[array]
            axes += "c"
        sizes = ome_sizes(file) if file.is_ome else imagej_sizes(file)
    return ImageFile.of(array, axes, sizes)


def letters_of(axes: str) -> str:
    """Return a letter for each axis: unknown ones become those of t, z, y, x that are free."""
    if axes.count("S") + axes.count("C") > 1:
        raise ValueError(f"axes {axes}: expected one axis of channels")
    known = {"S": "c", "C": "c", "T": "t", "Z": "z", "Y": "y", "X": "x"}
    names = [known.get(axis, "") for axis in axes]
    free = [name for name in "ztyxuvw" if name not in names]
    return "".join(reversed([name or free.pop(0) for name in reversed(names)]))


def ome_sizes(file: Any) -> Sizes:
    import tifffile

    image = tifffile.xml2dict(file.ome_metadata or "").get("OME", {}).get("Image", {})
    pixels = (image[0] if isinstance(image, list) else image).get("Pixels", {})
    sizes: Sizes = {}
    for name in "tzyx":
        key = "TimeIncrement" if name == "t" else f"PhysicalSize{name.upper()}"
        size, unit = float(pixels.get(key, 0)), "s" if name == "t" else "µm"
        if 0 < size < float("inf"):
            sizes[name] = (size, str(pixels.get(f"{key}Unit", unit)))
    return sizes


def imagej_sizes(file: Any) -> Sizes:
    metadata, tags = file.imagej_metadata or {}, file.pages[0].tags
    unit = str(metadata.get("unit", "pixel")).replace("\\u00B5", "µ")
    sizes = {"z": float(metadata.get("spacing", 0))}
    for name, tag in (("y", "YResolution"), ("x", "XResolution")):
        count, length = tags[tag].value if tag in tags else (0, 1)
        if count and unit != "pixel":
            sizes[name] = length / count
    return {name: (size, unit) for name, size in sizes.items() if 0 < size < float("inf")}


def _read_zarr(path: Path) -> ImageFile:
    """Read the finest level of the first multiscale image of an OME-Zarr folder (0.1 to 0.5)."""
    levels, names, sizes = open_zarr(path)
    stored = levels[0]
    check_room(stored.nbytes)
    check_chunks(stored, path / stored.path)
    return ImageFile.of(np.asarray(stored), names, sizes)


def open_zarr(path: Path | Store) -> tuple[list[zarr.Array], str, Sizes]:
    """Return the levels of the first multiscale image of an OME-Zarr, its axes and sizes.

    Only metadata are read: `check_chunks` comes before pixels.
    """
    import zarr

    try:
        group: Any = zarr.open(path, mode="r")
    except FileNotFoundError as error:
        raise ValueError("the folder holds no OME-Zarr image") from error
    if not isinstance(group, zarr.Group):
        raise ValueError("it is a zarr array by itself, which is read in tiles only; give --tile")
    attributes: Any = dict(group.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if not multiscales:
        raise ValueError("the folder holds no OME-Zarr image")
    multiscale = multiscales[0]
    levels: list[Any] = [_member(group, dataset["path"]) for dataset in multiscale["datasets"]]
    stored = levels[0]
    if stored.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got {stored.dtype}")
    axes = multiscale.get("axes", "tczyx")[-stored.ndim :]
    if len(axes) != stored.ndim:
        raise ValueError(f"{len(axes)} axes are named, the array has {stored.ndim}")
    # Before version 0.4 axes were strings.
    described = [{"name": axis} if isinstance(axis, str) else axis for axis in axes]
    kinds = {"channel": "c", "time": "t"}
    names = [kinds.get(str(axis.get("type")), str(axis["name"]).lower()[:1]) for axis in described]
    scale = _scale(multiscale, multiscale["datasets"][0], stored.ndim)
    found = zip(names, scale, described, strict=False)
    units = {name: (size, str(axis.get("unit", "pixel"))) for name, size, axis in found}
    return levels, "".join(names), units


def _member(group: zarr.Group, name: object) -> Any:
    """Return an array within a group; a name that leads out of it is refused."""
    if not isinstance(name, str) or ".." in name.split("/") or name.startswith("/"):
        raise ValueError(f"level {name!r}: expected a place within the folder")
    return group[name]


def check_codecs(array: zarr.Array) -> tuple[list[_Codec], _Codec]:
    """Return the codecs of chunks in the order of encoding, if all of them may be used.

    With the configuration of the shards, an empty one if there are none.
    """
    metadata: Any = array.metadata.to_dict()
    used = [*(metadata.get("codecs") or ()), *(metadata.get("filters") or ())]
    used += [metadata["compressor"]] if metadata.get("compressor") else []
    shards = [one["configuration"] for one in used if _name(one) == "sharding_indexed"]
    shard = shards[0] if shards else {}
    within = [*shard.get("codecs", ()), *shard.get("index_codecs", ())]
    names = [_name(codec) for codec in (*used, *within)]
    for name in names:
        if name not in _CODECS:
            raise ValueError(f"codec {name!r}: expected one of {', '.join(sorted(_CODECS))}")
    if not {_name(one) for one in shard.get("index_codecs", ())} <= {"bytes", "crc32c"}:
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
    known: set[Path] | None = None,
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
        if not file.exists() or (known is not None and file in known):
            continue
        if not file.is_file():  # such as a link to a device without an end
            raise ValueError(f"chunk {key}: expected a file")
        check_chunk(array, file.read_bytes(), file)
        if known is not None:
            known.add(file)


def chunk_keys(array: zarr.Array, region: Sequence[slice]) -> Iterator[str]:
    """Yield the names of the chunks, or shards, of a region."""
    sides = zip(region, array.shards or array.chunks, strict=True)
    counts = [range(one.start // side, -(-one.stop // side)) for one, side in sides]
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
    return [content[place : place + length] for place, length in index if place < len(content)]


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


_READERS: dict[str, Callable[[Path, bool], ImageFile]] = {
    ".tif": _read_tiff,
    ".tiff": _read_tiff,
    ".npy": _read_npy,
}
