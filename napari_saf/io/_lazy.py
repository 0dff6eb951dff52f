"""Images of which only the parts that are asked for are read: zarr, TIFF, NumPy, dask."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import as_whole
from napari_saf.errors import ComputeError, FormatError, InvalidInput, one_line
from napari_saf.features import is_rgb
from napari_saf.io._image import (
    ImageFile,
    Sizes,
    check_chunks,
    check_codecs,
    imagej_sizes,
    letters_of,
    ome_sizes,
    open_zarr,
    read_image,
)
from napari_saf.io._labels import Axes, label_axes
from napari_saf.io._paths import file_state, is_zarr
from napari_saf.io._remote import RemoteArray, RemoteFolder, url_of
from napari_saf.parts import Region as Region
from napari_saf.storage import check_unpacked, format_errors

"""A part of an image, without channels; its ends lie within the image."""
MOST_PIECE = 2**28
"""Bytes of a piece that is stored as one: more would have to be decoded for every part of it."""
_SAMPLE = 2**20
_METADATA = ("zarr.json", ".zarray", ".zattrs")


class LazyImage:
    """An image, channels last or none, of which parts are read when they are asked for.

    Attributes
    ----------
    shape : tuple of int
        Without channels.
    n_channels : int
        Channels that are read; the alpha of RGBA is left out.
    axes : str
        A letter for each axis of `shape`, "" if they are not known.
    sizes : dict
        Size of a pixel and its unit by the letter of the axis.
    n_levels : int
        The image itself, and smaller ones of a pyramid.
    source : str
        Its path, or that it is an array; `finest` is the array of the image itself.
    state : dict
        What tells that the image changed.
    notes : tuple of str
        What a person should know of it.
    given : tuple
        The arguments of `open_lazily` behind the source.
    """

    def __init__(
        self,
        levels: Sequence[Any],
        names: str,
        sizes: Sizes,
        channel_axis: int | None,
        source: str,
        state: dict[str, Any],
        folder: Path | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        first = levels[0]
        if first.dtype.kind not in "biuf":
            raise InvalidInput(f"{source}: expected real numbers, got {first.dtype}")
        axis = as_whole(channel_axis) if channel_axis is not None else None
        if channel_axis is not None and (axis is None or not -first.ndim <= axis < first.ndim):
            raise InvalidInput(
                f"channel_axis: the image has {first.ndim} axes, got {channel_axis!r}"
            )
        stated = names.index("c") if "c" in names else None
        is_last = stated in (None, first.ndim - 1) and is_rgb(first.shape)
        if axis is None and names and stated is None:
            is_last = False
        self._axis = axis % first.ndim if axis is not None else stated
        if self._axis is None and is_last:
            self._axis = first.ndim - 1
        kept = [k for k in range(first.ndim) if k != self._axis]
        self.shape = tuple(int(first.shape[k]) for k in kept)
        if not self.shape or not math.prod(self.shape):
            raise InvalidInput(f"{source}: expected pixels, got shape {first.shape}")
        n_channels = 1 if self._axis is None else int(first.shape[self._axis])
        self.n_channels = 3 if is_last and axis is None and n_channels == 4 else n_channels
        own = "".join(names[k] for k in kept) if names else ""
        self.axes = own if stated == self._axis or stated is None else ""
        self.sizes, self.dtype, self.notes = sizes, first.dtype, notes
        self.given, self.finest = (channel_axis, False), levels[0]
        self.source, self.state = source, state
        self._levels, self._folder = list(levels), folder
        self._known: set[Path] = set()
        # Levels of which an axis is missing, or longer, are none of a pyramid.
        is_level = [
            len(one.shape) == first.ndim and all(map(int.__le__, one.shape, first.shape))
            for one in levels
        ]
        self.n_levels = is_level.index(False) if False in is_level else len(levels)

    def reopened(self) -> LazyImage:
        is_named = self.is_remote or os.path.exists(self.source)
        return open_lazily(self.source if is_named else self.finest, *self.given)

    @property
    def is_remote(self) -> bool:
        """Whether it lies behind a URL, which is its `source`."""
        return isinstance(self.finest, RemoteArray)

    @property
    def piece(self) -> tuple[int, ...]:
        """Sides of what is read as one, without channels; 1 where any pixel is read alone."""
        chunks = getattr(self.finest, "chunks", None) or (1,) * self.finest.ndim
        sides = [max(one) if isinstance(one, tuple) else int(one) for one in chunks]
        return tuple(side for axis, side in enumerate(sides) if axis != self._axis)

    def levels(self) -> list[Any]:
        """Return the arrays of all levels, none of which has a codec that is not known."""
        for one in self._levels if self._folder is not None else ():
            check_codecs(one)
        return list(self._levels)

    def label_axes(self) -> Axes:
        """Return the axes of its labels, with the size of a pixel as far as it is known."""
        known = [self.sizes.get(name, (1.0, "pixel")) for name in self.axes] if self.sizes else None
        scale, units = zip(*known, strict=True) if known else (None, None)
        return label_axes(len(self.shape), self.axes or None, scale, units)

    def as_file(self) -> ImageFile:
        """Return the array of the finest level with what is known of it."""
        sizes = [self.sizes[name] for name in self.axes if name in self.sizes]
        is_known = bool(sizes) and len(sizes) == len(self.axes)
        scale = tuple(size for size, _ in sizes) if is_known else None
        units = tuple(unit for _, unit in sizes) if is_known else None
        return ImageFile(self.levels()[0], self._axis, self.axes, scale, units)

    def level_shape(self, level: int) -> tuple[int, ...]:
        shape = self._levels[level].shape
        return tuple(int(n) for k, n in enumerate(shape) if k != self._axis)

    def read(self, region: Region, level: int = 0) -> NDArray[Any]:
        """Return the pixels of a region of a level, channels last.

        Raises
        ------
        FormatError
            Naming the region that cannot be read.
        ComputeError
            If it does not fit into memory.
        """
        stored, whole = self._levels[level], list(region)
        if self._axis is not None:
            whole.insert(self._axis, slice(0, self.n_channels))
        try:
            if self._folder is not None:
                check_chunks(stored, self._folder / stored.path, whole, self._known)
            part = stored[tuple(whole)]
            # A task of a cluster computes by itself.
            values = np.asarray(
                part.compute(scheduler="synchronous") if hasattr(part, "dask") else part
            )
        except MemoryError as error:
            raise ComputeError(f"{self.source}: not enough memory to read a part") from error
        except Exception as error:  # whatever a library raises for a damaged file
            raise FormatError(
                f"{self.source}: cannot be read at {spelled(region)}: {one_line(error)}"
            ) from error
        if self._axis is None:
            return values[..., None]
        return np.moveaxis(values, self._axis, -1)


def spelled(region: Sequence[slice]) -> str:
    """Return a region in words, such as ``[0:256, 512:768]``."""
    return f"[{', '.join(f'{one.start}:{one.stop}' for one in region)}]"


def open_lazily(
    source: Any, channel_axis: int | None = None, are_labels: bool = False
) -> LazyImage:
    """Open an image without reading its pixels.

    Parameters
    ----------
    source : path, URL or array
        OME-Zarr (0.1 to 0.5), a zarr array, also behind a URL that fsspec knows; a TIFF file in
        tiles, strips or one block, ``.npy``; pictures (PNG, JPEG, ...), which are read whole;
        or an array: dask, zarr, NumPy, memory-mapped or not; or a list of the levels of a pyramid;
        or what this returned.
    channel_axis : int, optional
        As in `Problem.from_image`, if the file does not say it.
    are_labels : bool
        Whether a picture with a palette gives its indices, as for `read_labels`, not its colours,
        and the last axis of an array is none of channels.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    InvalidInput
        If an array is no image.
    """
    if isinstance(source, LazyImage):
        return source
    found = _open(source, channel_axis, are_labels)
    found.given = channel_axis, are_labels
    return found


def _open(source: Any, channel_axis: int | None, are_labels: bool) -> LazyImage:
    if isinstance(source, (list, tuple)) and source:
        found = _open_array(source[0], channel_axis, are_labels)
        levels = [found.finest, *source[1:]]
        return LazyImage(levels, found.axes, found.sizes, channel_axis, found.source, found.state)
    if not isinstance(source, (str, os.PathLike)):
        return _open_array(source, channel_axis, are_labels)
    url = url_of(source)
    if url is not None:
        with format_errors(url, "an image"):
            return _open_url(url, channel_axis)
    path = Path(source)
    if not path.exists():
        raise FormatError(f"{path}: no such file")
    with format_errors(path, "an image"):
        if path.is_dir():
            return _open_folder(path, channel_axis)
        if path.suffix.lower() in (".tif", ".tiff"):
            return _open_tiff(path, channel_axis, are_labels)
        if path.suffix.lower() == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            names = _letters(array, are_labels)
            return LazyImage([array], names, {}, channel_axis, str(path), _state_of(path))
        return _open_picture(path, channel_axis, are_labels)


def _letters(array: Any, are_labels: bool) -> str:
    """Return the axes of an array by itself; a last one of labels, of 3 or 4, is no colour."""
    return "uvwtzyx"[-array.ndim :] if are_labels else ""


def _open_array(array: Any, channel_axis: int | None, are_labels: bool) -> LazyImage:
    """Open what is sliced as an array: its name, or its values, tell whether it changed."""
    if not all(hasattr(array, name) for name in ("shape", "dtype", "ndim", "__getitem__")):
        raise InvalidInput(f"source: expected a path or an array, got {type(array).__name__}")
    state: dict[str, Any] = {"shape": [int(n) for n in array.shape], "dtype": str(array.dtype)}
    if hasattr(array, "dask"):
        state["name"] = array.name
    elif hasattr(array, "store_path"):  # of zarr
        root = getattr(array.store_path.store, "root", None)
        if root is None:
            raise InvalidInput("source: expected a zarr array in a folder; give its path otherwise")
        return open_lazily(Path(root) / array.store_path.path, channel_axis, are_labels)
    elif isinstance(array, np.memmap) and isinstance(array.filename, str | os.PathLike):
        state |= _state_of(Path(array.filename))
    elif isinstance(array, np.ndarray):
        step = max(1, array.size // _SAMPLE)
        sample = array.flat[::step] if step > 1 else array
        state["digest"] = hashlib.sha256(np.ascontiguousarray(sample).tobytes()).hexdigest()[:16]
    names = _letters(array, are_labels)
    return LazyImage([array], names, {}, channel_axis, "the array", state)


def _open_folder(path: Path, channel_axis: int | None) -> LazyImage:
    import zarr

    if not is_zarr(path) and not (path / ".zarray").exists():
        raise ValueError("the folder is no zarr store")
    opened = zarr.open(path, mode="r")
    names, sizes, folder = "", Sizes(), path
    levels: list[Any] = [opened]
    if isinstance(opened, zarr.Group):
        levels, names, sizes = open_zarr(path)
    first = levels[0]
    _check_pieces(levels)
    state = _state_of(path / first.path)
    text = json.dumps(first.metadata.to_dict(), sort_keys=True, default=str)
    state["metadata"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    if not state["n_files"]:
        raise ValueError("no chunk of it is there")
    check_unpacked(first.nbytes, state["n_bytes"])
    sides = zip(first.shape, first.shards or first.chunks, strict=True)
    missing = math.prod(-(-n // side) for n, side in sides) - state["n_files"]
    notes: tuple[str, ...] = ()
    if missing > 0:
        value = first.fill_value
        notes = (f"{path}: {missing} chunks are not there and count as {value}, as zarr has it",)
    return LazyImage(levels, names, sizes, channel_axis, str(path), state, folder, notes)


def _open_url(url: str, channel_axis: int | None) -> LazyImage:
    """Open a zarr behind a URL: how many of its chunks are there is not known."""
    import zarr

    folder = RemoteFolder(url)
    opened = zarr.open(folder.store(), mode="r")
    levels, names, sizes = [opened], "", Sizes()
    if isinstance(opened, zarr.Group):
        levels, names, sizes = open_zarr(folder.store())
    _check_pieces(levels)
    arrays = [RemoteArray(folder, one) for one in levels]
    if arrays[0].is_hollow():
        raise ValueError("no chunk of it is there")
    state = {"url": re.sub("//[^/]*@", "//", url), "metadata": folder.digest}  # no password
    return LazyImage(arrays, names, sizes, channel_axis, url, state)


def _open_tiff(path: Path, channel_axis: int | None, are_labels: bool) -> LazyImage:
    import tifffile
    import zarr

    file = tifffile.TiffFile(path)
    try:
        series = file.series[0]
        pages = [page for page in series.pages if page is not None]
        if len({page.parent for page in pages}) > 1:
            raise ValueError("its pixels are in several files; save it as one")
        names, kind = letters_of(series.axes), series.keyframe.photometric
        has_palette = kind == tifffile.PHOTOMETRIC.PALETTE and not are_labels
        if has_palette or kind == tifffile.PHOTOMETRIC.SEPARATED:
            raise ValueError("it holds inks or a palette; save it as RGB")
        sizes = ome_sizes(file) if file.is_ome else imagej_sizes(file)
        check_unpacked(series.nbytes, path.stat().st_size)
        if series.dataoffset is not None:
            levels: list[Any] = [tifffile.memmap(path, series=0, mode="r")]
        else:
            opened = zarr.open(series.aszarr(), mode="r")
            levels = [opened]
            if isinstance(opened, zarr.Group):
                levels = [opened[name] for name in sorted(opened.array_keys(), key=int)]
            _check_piece(levels[0].chunks, levels[0].dtype.itemsize)
        image = LazyImage(levels, names, sizes, channel_axis, str(path), _state_of(path))
    except BaseException:
        file.close()
        raise
    weakref.finalize(image, file.close)
    return image


def _open_picture(path: Path, channel_axis: int | None, are_labels: bool) -> LazyImage:
    """Read what cannot be read in parts, such as PNG."""
    from PIL import Image

    with Image.open(path) as picture:
        _check_piece((picture.width, picture.height, getattr(picture, "n_frames", 1)), 4)
    found = read_image(path, in_colors=not are_labels)
    return LazyImage([found.array], found.axes, {}, channel_axis, str(path), _state_of(path))


def _check_pieces(levels: Sequence[Any]) -> None:
    """Refuse levels that take more memory than what is read of them, by their metadata."""
    for level in levels:
        check_codecs(level)
        _check_piece(level.shards or level.chunks, level.dtype.itemsize)


def _check_piece(sides: Sequence[int], itemsize: int) -> None:
    n_bytes = math.prod(sides) * itemsize
    if n_bytes > MOST_PIECE:
        raise ValueError(
            f"it is stored in pieces of {n_bytes / 2**20:.0f} MiB, expected at most "
            f"{MOST_PIECE // 2**20}; save it in tiles"
        )


def _state_of(path: Path) -> dict[str, Any]:
    """Return the state of a file, or of the chunks of an array, and how many files it has."""
    state = {key: value for key, value in file_state(path, path.parent).items() if key != "path"}
    n_files = 1
    if path.is_dir():
        n_files = sum(
            not name.startswith(".") and name not in _METADATA
            for _, _, names in os.walk(path)
            for name in names
        )
    return {"name": path.name, **state, "n_files": n_files}
