"""Readers of image files, one function per format.

A reader returns an `Opened` without reading pixels: `ImageSource` reads parts of it, `read_image`
all.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, as_path
from napari_saf.errors import FormatError, InvalidInput, SafError
from napari_saf.io._labels import in_unit_of_x
from napari_saf.io._opened import (
    Opened,
    Request,
    Sizes,
    check_piece,
    check_pieces,
    in_order,
    letters_of,
    number_of_image,
)
from napari_saf.io._paths import (
    BIOIO_SUFFIXES,
    IMAGE_SUFFIXES,
    PARTS_SUFFIXES,
    RESULT_MARKS,
    TIFF_SUFFIXES,
    file_state,
    is_plain_folder,
    is_zarr,
    mask_stem,
    mask_suffix,
    split_series,
    url_of,
)
from napari_saf.io._zarr import images_of_group, open_zarr
from napari_saf.storage import check_room, check_unpacked

PNG_MARK = ("Comment", "napari-saf label image: the index of a pixel is its label")
"""Comment of an indexed PNG whose indices, not colours, are the content."""
_METADATA = ("zarr.json", ".zarray", ".zattrs")
_PNG_HEADER = re.compile(rb"\x89PNG\r\n\x1a\n....IHDR.{8}(.)(.)", re.DOTALL)
"""Header fields of a PNG: bits per channel and colour type."""
_GEOREFERENCE_TAGS = (33550, 33922, 34264, 34735, 34736, 34737)
"""GeoTIFF tags: pixel size, tie points, transformation, keys of the coordinate system."""
_ORIENTATION = 0x0112
"""EXIF tag of the orientation."""
_NIFTI_UNITS = {"meter": "m", "mm": "mm", "micron": "µm", "sec": "s", "msec": "ms", "usec": "µs"}
_TIFF_MARKS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""First bytes of a TIFF of any suffix, such as of slide scanners, LSM and STK."""
_NO_RGB = {5: "inks (CMYK)", 8: "CIELAB colours", 9: "CIELAB colours", 10: "CIELAB colours"}
"""Unsupported colour spaces by TIFF photometric interpretation."""
_YCBCR, _NOT_CONVERTED = 6, {1, 5, 8, 32773, 32946}
"""YCbCr, and compressions that do not convert it to RGB on decoding, unlike JPEG."""
_NO_DATA_TAG = 42113
"""Tag of GDAL with the value of pixels without data, as text."""


def open_file(path: str | os.PathLike[str], request: Request) -> Opened:
    """Open an image file, a zarr folder or a URL; ``file.tif#1`` is a series."""
    url = url_of(path)
    if url is not None:
        return _open_url(url)
    file, number = split_series(as_path(path))
    if not file.exists():
        raise FormatError(f"{file}: no such file")
    if file.is_dir():
        opened = _open_folder(file, request._replace(number=number))
    else:
        opened = _reader_of(file)(file, request._replace(number=number))
        opened.state = state_of(file)
    opened.state |= {} if number is None else {"series": number}
    opened.sizes, opened.origin = in_unit_of_x(opened.sizes, opened.origin)
    return opened


def _reader_of(file: Path) -> Callable[[Path, Request], Opened]:
    """Return the reader of a file, by its suffix, or else by its first bytes."""
    suffix = mask_suffix(file, [*READERS])
    if suffix is not None:
        return READERS[suffix]
    with file.open("rb") as stream:
        begin = stream.read(4)
    if begin == b"PK\3\4":
        raise ValueError("it is an archive (zip): unpack it, and give the files in it")
    return _open_tiff if begin in _TIFF_MARKS else _open_picture


def images_in(path: Path) -> list[Path]:
    """Return the images of a file: itself, ``file.tif#0`` and on, or the folders of a plate.

    An unreadable file counts as one image, so that reading it reports the error.
    """
    file, number = split_series(path)
    if number is not None or url_of(path) is not None or not file.exists():
        return [path]
    try:
        if file.is_dir():
            import zarr

            group: Any = zarr.open(file, mode="r")
            names = images_of_group(group) if isinstance(group, zarr.Group) else []
            if names[1:] and not any(names):
                return [_of_series(file, k) for k in range(len(names))]
            return [file / name for name in names] or [path]
        n_images = 1
        if (reader := _reader_of(file)) is _open_tiff:
            import tifffile

            with tifffile.TiffFile(file) as opened:
                n_images = len(_images_of_tiff(opened))
        elif reader is _open_with_bioio:
            n_images = len(_bioio_reader(file).scenes)
        return [path] if n_images < 2 else [_of_series(file, k) for k in range(n_images)]
    except Exception:  # noqa: BLE001  (whatever a library raises for a damaged file)
        return [path]


def _of_series(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}#{number}")


def differs_in_napari(path: Path) -> bool:
    """Return whether the builtin reader of napari returns other pixels than `read_image`.

    It reads only the first series, ignores EXIF orientation, reduces 16-bit colour PNG to 8 bits,
    cannot read microscope formats, and keeps another order of axes.
    """
    file, number = split_series(path)
    if number is not None or file.suffix.lower() in BIOIO_SUFFIXES:
        return True
    from PIL import Image

    try:
        if file.suffix.lower() not in IMAGE_SUFFIXES[len(PARTS_SUFFIXES) :]:
            with contextlib.closing(open_file(file, Request(in_parts=True))) as opened:
                return in_order(opened.axes) != sorted(in_order(opened.axes))
        with Image.open(file) as picture, file.open("rb") as stream:
            is_turned = picture.getexif().get(_ORIENTATION, 1) != 1
            return is_turned or _is_deep_colour(stream.read(32))
    except Exception:  # noqa: BLE001  (whatever a library raises for a damaged file)
        return False


def _is_deep_colour(header: bytes) -> bool:
    """Return whether the header is that of a colour PNG of 16 bits per channel."""
    match = _PNG_HEADER.match(header)
    return match is not None and match[1] == b"\x10" and match[2] in (b"\x02", b"\x04", b"\x06")


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return the images in files, folders and patterns.

    A folder is expanded to the images in it, a file of several images to the series of a TIFF or
    the fields of a plate, and a path with ``*`` or ``?`` to the matching images and folders.
    Outputs of earlier runs in a folder (``name.labels``, ``name.probabilities``, ...) are skipped;
    InvalidInput if no images remain.
    """
    images: list[Path] = []
    for path in paths:
        if not path.exists() and any(sign in str(path) for sign in "*?"):
            matches = map(Path, sorted(glob.glob(str(path))))
            inside = [match for match in matches if _is_image(match) or is_plain_folder(match)]
            if not inside:
                raise InvalidInput(f"{path}: no image fits this pattern")
            images += find_images(inside)
        elif not is_plain_folder(path):
            images += images_in(path)
        else:
            inside = [file for file in sorted(path.iterdir()) if _is_image(file)]
            if not inside:
                suffixes = ", ".join(IMAGE_SUFFIXES)
                raise InvalidInput(f"{path}: expected images in the folder ({suffixes}, .zarr)")
            images += [image for file in inside for image in images_in(file)]
    return images


def _is_image(path: Path) -> bool:
    """Return whether a file in a folder is an image by its name, and no output of a run."""
    if path.name.startswith(".") or mask_stem(path).endswith(RESULT_MARKS):
        return False
    return is_zarr(path) or (not path.is_dir() and path.name.lower().endswith(IMAGE_SUFFIXES))


def _open_npy(path: Path, request: Request) -> Opened:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "Python objects" not in str(error):
            raise
        raise ValueError("it holds Python objects, which are not loaded") from error
    is_rgb = request.in_colors and array.ndim >= 3 and array.shape[-1] in (3, 4)
    n_axes = array.ndim - is_rgb
    names = "tzyx"[-n_axes:] + "c" * is_rgb if n_axes <= 4 else ""

    def read() -> NDArray[Any]:
        check_room(path.stat().st_size)
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]

    return Opened(axes=names, read=read, levels=[array], is_squeezed=False)


def _open_picture(path: Path, request: Request) -> Opened:
    """Open a picture with Pillow, upright; an indexed one as indices if they are labels."""
    from PIL import Image, UnidentifiedImageError

    try:
        opened = Image.open(path)
    except UnidentifiedImageError:
        return _open_with_bioio(path, request)
    with opened as picture:
        is_labels = not request.in_colors or picture.info.get(PNG_MARK[0]) == PNG_MARK[1]
        # Phones append further images to photographs: previews, gain maps, depth maps.
        n_frames = 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)
        is_indices = picture.mode == "P" and is_labels and n_frames == 1
        with path.open("rb") as stream:
            is_deep = _is_deep_colour(stream.read(32))
        # An animation keeps all frames; a pixel of any Pillow mode takes at most four bytes.
        n_bytes = picture.width * picture.height * (1 if is_indices else 4 * n_frames)
        n_bytes *= 2 if is_deep else 1
        mode = "RGB" if picture.mode == "CMYK" else None
        is_blended = not request.in_colors and picture.format in ("JPEG", "MPO", "JPEG2000")

    def read() -> NDArray[Any]:
        check_room(n_bytes, path.stat().st_size)
        if is_indices:
            with Image.open(path) as picture:
                return np.asarray(picture)
        if is_deep:  # Pillow would reduce 16 bits to 8
            import imagecodecs

            array = np.asarray(imagecodecs.png_decode(path.read_bytes()))
        else:
            import imageio.v3 as iio

            # By name: otherwise imageio tries every plugin, even FFmpeg.
            index: Any = ... if n_frames > 1 else 0
            rotate = request.upright and n_frames == 1
            array = iio.imread(path, index=index, plugin="pillow", mode=mode, rotate=rotate)
        n_values = len(np.unique(array)) if is_blended and array.ndim == 2 else 0
        if n_values > 2:
            raise ValueError(f"JPEG blends labels, it has {n_values} values; save PNG or TIFF")
        # Grey with alpha has two channels.
        return array[..., 0] if array.ndim == 3 and array.shape[-1] == 2 else array

    if is_indices:
        return Opened(axes="yx", read=read)
    if request.in_parts:
        check_piece((n_bytes,), 1)
    array = read()
    has_channels = array.ndim > 2 and array.shape[-1] in (3, 4)
    names = "tzyx"[-(array.ndim - has_channels) :] + "c" * has_channels
    return Opened(axes=names, read=lambda: array)


def _images_of_tiff(file: Any) -> list[list[Any]]:
    """Return the series that make up each image of a TIFF file.

    Pages appended one by one, each a series, form one stack if they have equal properties.
    """
    series = list(file.series)
    kinds = {item.kind for item in series}
    alike = {(item.shape, str(item.dtype), item.axes, item.is_pyramidal) for item in series}
    is_stack = len(series) > 1 and len(alike) == 1 and kinds <= {"shaped", "generic", "uniform"}
    return [series] if is_stack else [[item] for item in series]


def _open_tiff(path: Path, request: Request) -> Opened:
    """Open a TIFF file; a palette gives colours, or indices for labels."""
    import tifffile

    file = tifffile.TiffFile(path)
    try:
        for element in ElementTree.fromstring(file.ome_metadata).iter() if file.is_ome else ():
            name = element.get("FileName")
            if name and not (path.parent / name).resolve().is_relative_to(path.parent.resolve()):
                raise ValueError(f"its pixels are said to be outside its folder, in {name}")
        images = _images_of_tiff(file)
        if not images:
            raise ValueError("it holds no image")
        shapes = [" x ".join(map(str, several[0].shape)) for several in images]
        number = number_of_image(path, request.number, shapes)
        return _open_series(path, file, images[number], request)
    except BaseException:
        file.close()
        raise


def _open_series(path: Path, file: Any, several: Sequence[Any], request: Request) -> Opened:
    import tifffile
    import zarr

    series = several[0]
    axes = letters_of("Q" * (len(several) > 1) + series.axes)
    photometric = series.keyframe.photometric
    if photometric in _NO_RGB or (
        photometric == _YCBCR and series.keyframe.compression in _NOT_CONVERTED
    ):
        raise ValueError(f"it holds {_NO_RGB.get(photometric, 'YCbCr colours')}; save it as RGB")
    # The alpha channel of RGBA with channels last is dropped, as in any picture.
    has_alpha = {1, 2} & {*series.keyframe.extrasamples} and "S" in series.axes
    has_alpha = has_alpha and not (series.axes[-1] == "S" and series.shape[-1] == 4)
    has_palette = request.in_colors and photometric == tifffile.PHOTOMETRIC.PALETTE
    planes = list(series.pages) if file.is_ome else []
    n_missing = planes.count(None)
    handles = {page.parent.filehandle for page in planes if page} or {file.filehandle}
    n_stored = sum(int(handle.size) for handle in handles)

    def read() -> NDArray[Any]:
        check_room(sum(item.nbytes for item in several), n_stored)
        arrays = [item.asarray() for item in several]
        array = np.stack(arrays) if len(arrays) > 1 else arrays[0]
        if has_palette:  # colour tables have 16 bits per channel
            array = (series.keyframe.colormap >> 8).astype(np.uint8).T[array]
        if has_alpha:
            colors = range(array.shape[axes.index("c")] - 1)
            array = np.take(array, colors, axis=axes.index("c"))
        return np.asarray(array)

    levels: list[Any] | None = None
    if not (has_palette or has_alpha) and len(several) == 1 and len(handles) == 1:
        check_unpacked(series.nbytes, n_stored)
        if series.dataoffset is not None:
            levels = [tifffile.memmap(path, series=request.number or 0, mode="r")]
        else:
            opened = zarr.open(series.aszarr(), mode="r")
            levels = [opened]
            if isinstance(opened, zarr.Group):
                levels = [opened[name] for name in sorted(opened.array_keys(), key=int)]
    tag = file.pages[0].tags.get(_NO_DATA_TAG)
    return Opened(
        axes=axes + "c" * has_palette,
        read=read,
        levels=levels,
        sizes=_ome_sizes(file, request.number or 0) if file.is_ome else _imagej_sizes(file),
        no_data=None if tag is None else _number(tag.value),
        georeference=tuple(
            (tag.code, tag.dtype, tag.count, tag.value, True)
            for tag in map(series.keyframe.tags.get, _GEOREFERENCE_TAGS)
            if tag is not None
        ),
        notes=(f"{n_missing} of {len(planes)} planes are not there and count as 0",)
        * bool(n_missing),
        close=file.close,
    )


def _number(text: object) -> float | None:
    try:
        value = float(str(text).strip("\x00 "))
    except ValueError:
        return None
    return None if math.isinf(value) else value


def _ome_sizes(file: Any, number: int) -> Sizes:
    import tifffile

    image = tifffile.xml2dict(file.ome_metadata or "").get("OME", {}).get("Image", {})
    images = image if isinstance(image, list) else [image]
    pixels = images[min(number, len(images) - 1)].get("Pixels", {})
    sizes: Sizes = {}
    for name in "tzyx":
        key = "TimeIncrement" if name == "t" else f"PhysicalSize{name.upper()}"
        size, unit = abs(float(pixels.get(key, 0))), "s" if name == "t" else "µm"
        if 0 < size < float("inf"):
            sizes[name] = (size, str(pixels.get(f"{key}Unit", unit)))
    return sizes


def _imagej_sizes(file: Any) -> Sizes:
    metadata, tags = file.imagej_metadata or {}, file.pages[0].tags
    unit = str(metadata.get("unit", "pixel")).replace("\\u00B5", "µ")
    sizes = {"z": (float(metadata.get("spacing", 0)), unit)}
    for name, tag in (("y", "YResolution"), ("x", "XResolution")):
        count, length = tags[tag].value if tag in tags else (0, 1)
        if count and unit != "pixel":
            sizes[name] = (length / count, unit)
    sizes["t"] = (float(metadata.get("finterval", 0)), str(metadata.get("tunit", "s")))
    return {name: size for name, size in sizes.items() if 0 < size[0] < math.inf}


def library(name: str, extra: str = "objects") -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SafError(f"this needs {name}: pip install 'napari-saf[{extra}]'") from error


def _open_nifti(path: Path, request: Request) -> Opened:
    """Open a NIfTI, whose axes x, y, z, time, channels are reversed."""
    nibabel: Any = library("nibabel", "nifti")
    image = nibabel.load(path)
    header, letters = image.header, "xyztc"[: len(image.shape)]
    if len(image.shape) > 5:
        raise ValueError(f"expected up to 5 axes, got shape {image.shape}")
    space, time = header.get_xyzt_units()
    units = {"t": _NIFTI_UNITS.get(time, "s"), "c": ""}
    unit = _NIFTI_UNITS.get(space, "mm")  # the default of other programs
    zooms = zip(letters, map(float, header.get_zooms()), strict=True)
    sizes = {name: (size, units.get(name, unit)) for name, size in zooms if 0 < size < math.inf}
    sizes.pop("c", None)

    def read() -> NDArray[Any]:
        n_bytes = math.prod(image.shape) * image.dataobj.dtype.itemsize
        check_room(n_bytes, path.stat().st_size)
        return np.ascontiguousarray(np.asanyarray(image.dataobj).T)

    affine = np.asarray(image.affine, np.float64)
    return Opened(axes=letters[::-1], read=read, sizes=sizes, affine=affine)


def _open_with_bioio(path: Path, request: Request) -> Opened:
    """Open a file with a plug-in of bioio, plane by plane; its scenes are images."""
    reader = _bioio_reader(path)
    reader.set_scene(number_of_image(path, request.number, reader.scenes))
    levels: list[Any] = []
    for level in reversed(reader.resolution_levels):
        reader.set_resolution_level(level)
        pixels = _planes_of(reader)
        levels.insert(0, pixels.data)
    axes = letters_of("".join(pixels.dims))
    sizes = {
        name.lower(): (float(size), _unit_of(reader, name, path))
        for name, size in reader.physical_pixel_sizes._asdict().items()
        if size and 0 < size < math.inf
    }
    if reader.time_interval:
        sizes["t"] = (reader.time_interval.total_seconds(), "s")
    sizes = {name: size for name, size in sizes.items() if name in axes}

    def read() -> NDArray[Any]:
        check_room(levels[0].nbytes)
        return np.asarray(levels[0].compute(scheduler="synchronous"))

    return Opened(axes=axes, read=read, levels=levels, sizes=sizes)


def _bioio_reader(path: Path) -> Any:
    """Return the bioio reader of a file; raise SafError with the plug-in to install."""
    suffix, suffixes = path.suffix.lower(), ", ".join(READERS)
    plugin, is_known = BIOIO_SUFFIXES.get(suffix), suffix in IMAGE_SUFFIXES
    damaged = f"it is damaged, or no {suffix} file"
    fault = "" if plugin else f"its content is none of {suffixes} or a picture such as .png; "
    try:
        import bioio
        from bioio_base.exceptions import UnsupportedFileFormatError
    except ImportError as error:
        if is_known and not plugin:
            raise SafError(damaged) from error
        needed = f"bioio: pip install 'napari-saf[bioio]' {plugin or 'and a plug-in for the file'}"
        raise SafError(f"{fault}{'more is read by' if fault else 'this needs'} {needed}") from error
    try:
        reader = bioio.BioImage.determine_plugin(path).metadata.get_reader()
    except UnsupportedFileFormatError as error:
        lacking = f": is {plugin} installed, and the file not damaged?" if plugin else ""
        unread = f"{fault}no plug-in of bioio reads it{lacking}"
        raise SafError(damaged if is_known and not plugin else unread) from error
    try:
        return reader(path, chunk_dims=["Y", "X"])
    except TypeError:  # for readers whose chunks are always planes
        return reader(path)


def _unit_of(reader: Any, axis: str, path: Path) -> str:
    """Return the unit of an axis from the reader or its OME metadata, by default µm."""
    unit = getattr(reader.dimension_properties, axis).unit
    if unit is None and path.suffix.lower() not in BIOIO_SUFFIXES:
        with contextlib.suppress(NotImplementedError):
            pixels = reader.ome_metadata.images[reader.current_scene_index].pixels
            unit = getattr(pixels, f"physical_size_{axis.lower()}_unit").value
    return str(unit or "µm")


def _planes_of(reader: Any) -> Any:
    """Return the pixels of a scene, with mosaic tiles stitched, without axes of length 1."""
    pixels = reader.xarray_dask_data
    if "M" in pixels.dims:
        with contextlib.suppress(NotImplementedError):
            pixels = reader.mosaic_xarray_dask_data
    single = [name for name in pixels.dims if pixels.sizes[name] == 1 and name not in "YX"]
    return pixels.squeeze(single, drop=True)


def _open_folder(path: Path, request: Request) -> Opened:
    """Open a zarr array, or a multiscale image of an OME-Zarr group."""
    from napari_saf.io._checked_store import folder_store

    if not is_zarr(path):
        raise ValueError("the folder holds no OME-Zarr image")
    opened = open_zarr(folder_store(path), request.number)
    levels = opened.levels or []
    first, state = levels[0], state_of(path / levels[0].path)
    sides = zip(first.shape, first.shards or first.chunks, strict=True)
    missing = math.prod(-(-n // side) for n, side in sides) - state["n_files"]
    if request.in_parts:
        check_pieces(levels)
        if not state["n_files"]:
            raise ValueError("the zarr array has no chunk files")
        check_unpacked(first.nbytes, state["n_bytes"])
    opened.state |= state
    opened.no_data = _number(dict(first.attrs).get("_FillValue"))
    if missing > 0:
        value = f"{first.fill_value}, as zarr has it"
        opened.notes = (f"{missing} chunks are not there and count as {value}",)
    return opened


def _open_url(url: str) -> Opened:
    """Open a zarr at a URL, without counting its missing chunks."""
    from napari_saf.io._checked_store import url_store

    store = url_store(url)
    opened = open_zarr(store)
    levels = opened.levels or []
    check_pieces(levels)
    if store.is_hollow(levels[0]):
        raise ValueError("the zarr array has no chunk files")
    opened.state["url"] = re.sub("//[^/]*@", "//", url)  # no password
    return opened


def state_of(path: Path) -> JsonObject:
    """Return the state of a file, or of the chunks of an array with their number."""
    state = {key: value for key, value in file_state(path, path.parent).items() if key != "path"}
    files = [name for _, _, names in os.walk(path) for name in names]
    chunks = [name for name in files if not name.startswith(".") and name not in _METADATA]
    return {"name": path.name, **state, "n_files": len(chunks) if path.is_dir() else 1}


READERS: dict[str, Callable[[Path, Request], Opened]] = {
    **dict.fromkeys(TIFF_SUFFIXES, _open_tiff),
    ".npy": _open_npy,
    ".nii": _open_nifti,
    ".nii.gz": _open_nifti,
    **dict.fromkeys(BIOIO_SUFFIXES, _open_with_bioio),
}
"""Readers by suffix; Pillow reads pictures of other suffixes."""
