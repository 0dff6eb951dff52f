"""Image input: read at once, or in parts, from files, URLs and arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, as_labels, as_whole, whole_floats, whole_type
from napari_saf.arrays import Region as Region
from napari_saf.errors import ComputeError, FormatError, InvalidInput, one_line
from napari_saf.features import is_rgb
from napari_saf.io._labels import Axes, label_axes, labels_of_colors
from napari_saf.io._opened import Opened, Request, Sizes, check_piece, in_order
from napari_saf.io._paths import split_series, url_of
from napari_saf.io._readers import open_file, state_of
from napari_saf.storage import format_errors

_SAMPLE = 2**20
"""Number of sampled values of an array in memory, to detect changes."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageFile:
    """An image as read from a file.

    Attributes
    ----------
    array : array
        The pixels, without axes of length 1 other than y and x, except from ``.npy``.
    channel_axis : int or None
        Axis of the channels; None if there are none.
    axes : str
        A lower-case letter for each axis, ``c`` for the channels.
    scale, units : tuple or None
        Pixel size and unit along each axis except the channels; None if the file does not
        specify them.
    origin : tuple or None
        Position of the first pixel along these axes, in these units; None for 0.
    no_data : float or None
        Value of pixels without data, which are NaN in the array; None if undefined.
    affine : array of shape (4, 4) or None
        Transform of a voxel (x, y, z, 1) to scanner space; None except for NIfTI.
    georeference : tuple
        Geographic tags of a GeoTIFF, for `save_masks`; empty for other files.
    colors : dict or None
        Red, green and blue in [0, 1] of painted labels, by label; None for labels stored as
        numbers, and for images.
    notes : tuple of str
        Messages for the user, such as on missing planes.
    """

    array: NDArray[Any]
    channel_axis: int | None = None
    axes: str = ""
    scale: tuple[float, ...] | None = None
    units: tuple[str, ...] | None = None
    origin: tuple[float, ...] | None = None
    no_data: float | None = None
    affine: NDArray[np.float64] | None = None
    georeference: tuple[Any, ...] = ()
    colors: dict[int, tuple[float, float, float]] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        array: NDArray[Any],
        axes: str,
        sizes: Sizes | None = None,
        origin: Mapping[str, float] | None = None,
        no_data: float | None = None,
    ) -> ImageFile:
        """Return an image with axes in the order t, z, y, x; drop axes of length 1 before y, x."""
        single = [k for k, name in enumerate(axes) if array.shape[k] == 1 and name not in "yx"]
        ordered = iter([k for k in in_order(axes) if k not in single])
        several = [k for k in range(len(axes)) if k not in single]
        order = [k if axes[k] == "c" else next(ordered) for k in several]
        names = "".join(axes[k] for k in order)
        return cls(
            array.transpose([*order, *single]).reshape([array.shape[k] for k in order]),
            names.index("c") if "c" in names else None,
            names,
            *_placement(names, sizes or {}, origin or {}),
            no_data,
        )

    @property
    def stated_channel_axis(self) -> int | None:
        """The channel axis; None also for the last axis of RGB(A), recognised by its length."""
        axis = self.channel_axis
        is_last = axis == self.array.ndim - 1 and self.array.shape[-1] in (3, 4)
        return None if is_last else axis

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """Mask of pixels that are finite in all channels, in the shape of the labels."""
        finite = np.isfinite(self.array)
        axis = self.channel_axis
        return finite if axis is None else np.asarray(finite.all(axis=axis))

    @property
    def label_axes(self) -> str:
        return self.axes.replace("c", "")


def _placement(
    axes: str, sizes: Sizes, origin: Mapping[str, float]
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None, tuple[float, ...] | None]:
    """Return scale, units and origin along the axes except channels, None if unknown."""
    names = axes.replace("c", "")
    first = tuple(origin.get(name, 0.0) for name in names)
    pixels = [sizes.get(name, (1.0, "pixel")) for name in names]
    is_known = any(name in sizes for name in names)
    scale = tuple(size for size, _ in pixels) if is_known else None
    units = tuple(unit for _, unit in pixels) if is_known else None
    return scale, units, first if any(first) else None


def read_image(
    path: str | os.PathLike[str],
    *,
    in_colors: bool = True,
    no_data: float | None = None,
    upright: bool = True,
) -> ImageFile:
    """Read an image; file content is never executed.

    TIFF (OME, ImageJ or plain), OME-Zarr folders or URLs, and NumPy arrays (``.npy``) are read with
    axes and pixel sizes if the file contains them, and NIfTI (``.nii``, ``.nii.gz``) with nibabel,
    its axes as z, y, x. Other formats (PNG, JPEG, BMP, ...) are read by Pillow, upright. Indexed
    pictures are converted to colours, except masks written by napari-saf and if `in_colors` is
    False: these are read as indices. Further formats, such as ``.czi``, are read by bioio plug-ins.
    Axes are ordered t, z, y, x, lengths are in the unit of x.

    A file may contain several images: ``file.tif#1`` is the second series of a TIFF,
    ``plate.zarr/B/3/0`` a field of a plate. Pages of equal size appended one by one are a stack.

    Parameters
    ----------
    path : path or URL
        The file.
    in_colors : bool
        Whether indexed pictures are converted to colours.
    no_data : float, optional
        Value of pixels without data, which become NaN. None: from the file (``GDAL_NODATA`` of a
        TIFF, ``_FillValue`` of a zarr).
    upright : bool
        Whether to apply the EXIF orientation; the builtin reader of napari does not.

    Raises
    ------
    FormatError
        If the file is invalid, or contains several images; names the file and the fault.
    ComputeError
        If the image does not fit into memory.

    Examples
    --------
    >>> np.save("volume.npy", np.zeros((4, 16, 16)))
    >>> saf.read_image("volume.npy").array.shape
    (4, 16, 16)
    """
    with format_errors(path, "an image"):
        opened = open_file(path, Request(in_colors, upright=upright))
        with closing(opened):
            array = opened.read()
        if array.dtype.kind not in "biuf":
            raise ValueError(f"expected real numbers, got {array.dtype}")
        if array.size == 0 or array.ndim == 0:
            raise ValueError(f"expected pixels, got an array of shape {array.shape}")
        value = opened.no_data if no_data is None else no_data
        axes = opened.axes
        channels = axes.index("c") if "c" in axes else None
        array = _without(array, value, in_colors, channels)
        if not axes or not opened.is_squeezed:
            return ImageFile(array, channels, axes, no_data=value, notes=opened.notes)
        image = ImageFile.of(array, axes, opened.sizes, opened.origin, value)
        return dataclasses.replace(
            image, affine=opened.affine, georeference=opened.georeference, notes=opened.notes
        )


def _without(
    array: NDArray[Any], no_data: float | None, is_image: bool, channels: int | None
) -> NDArray[Any]:
    """Return an array with a value replaced by NaN, or by label 0.

    A value of 0 or above must occur in all channels of a pixel: in one it may be a colour.
    """
    if no_data is None:
        return array
    missing = np.isnan(array) if np.isnan(no_data) else array == no_data
    if channels is not None and no_data >= 0:
        missing = np.broadcast_to(missing.all(axis=channels, keepdims=True), array.shape)
    if not is_image:
        return np.where(missing, 0, array).astype(array.dtype)
    dtype = np.result_type(array.dtype, np.float32)
    return np.where(missing, np.nan, array).astype(dtype)


def read_labels(path: str | os.PathLike[str]) -> ImageFile:
    """Read a label image as `read_image` does, with the indices of an indexed PNG as labels.

    Whole numbers stored as floats, as by Fiji and ITK, are accepted. In a colour picture each
    colour is a label: greys first, from black to white, then by hue, red, yellow, green, cyan,
    blue, magenta. Label 0 is the transparent colour, else the most frequent one if it is black or
    white, else black, else the most frequent one.

    Raises
    ------
    FormatError
        As `read_image`, and if the file contains values other than whole numbers of 0 and above,
        more than 255 colours, or blends of others, as from soft brushes and JPEG.

    Examples
    --------
    >>> labels = np.array([[0, 1], [2, 2]])
    >>> [path] = saf.save_masks("labels.png", labels)
    >>> saf.read_labels(path).array.tolist()
    [[0, 1], [2, 2]]
    """
    image = read_image(path, in_colors=False)
    array, axis, name = image.array, image.channel_axis, os.fspath(path)
    if axis is None and array.dtype.kind == "f" and is_rgb(array.shape):  # of .npy
        axis = array.ndim - 1
    try:
        if axis is None:
            is_float = array.dtype.kind == "f"
            labels, colors = (whole_floats if is_float else as_labels)(array, "labels"), None
        else:
            labels, colors = labels_of_colors(np.moveaxis(array, axis, -1))
    except InvalidInput as error:
        raise FormatError(f"{name}: expected a label image: {error}") from error
    axes = image.label_axes
    return dataclasses.replace(image, array=labels, axes=axes, colors=colors, channel_axis=None)


class ImageSource:
    """An image read in parts on demand; created by `open`.

    Attributes
    ----------
    shape : tuple of int
        Without channels.
    n_channels : int
        Number of channels read, without the alpha of RGBA.
    axes : str
        A letter for each axis of `shape`, "" if unknown.
    sizes : dict
        Pixel size and unit by axis letter.
    origin : dict
        Position of the first pixel by axis letter; 0 if missing.
    affine, georeference : array of shape (4, 4) or None, and tuple
        As in `ImageFile`.
    no_data : float or None
        Value of pixels without data, which are read as NaN.
    n_levels : int
        Number of pyramid levels, the image itself included.
    source : str
        The path, or a description of an array; `finest` is the array of the finest level.
    state : dict
        Values that change with the image.
    notes : tuple of str
        Messages for the user.
    given : tuple
        The arguments of `open` after the source.

    Examples
    --------
    >>> np.save("stack.npy", np.zeros((4, 16, 16)))
    >>> source = saf.ImageSource.open("stack.npy")
    >>> source.shape, source.read((slice(0, 1), slice(0, 8), slice(0, 8))).shape
    ((4, 16, 16), (1, 8, 8, 1))
    """

    def __init__(
        self,
        levels: Sequence[Any],
        opened: Opened,
        source: str,
        channel_axis: int | None = None,
        are_labels: bool = False,
        are_whole: bool = False,
    ) -> None:
        first, names = levels[0], opened.axes
        if first.dtype.kind not in "biuf":
            raise InvalidInput(f"{source}: expected real numbers, got {first.dtype}")
        stated = names.index("c") if "c" in names else None
        self._axis = stated
        if channel_axis is not None:
            axis = as_whole(channel_axis)
            if axis is None or not -first.ndim <= axis < first.ndim:
                raise InvalidInput(f"channel_axis: of {first.ndim} axes, got {channel_axis!r}")
            self._axis = axis % first.ndim
        elif not names and is_rgb(first.shape):
            self._axis = first.ndim - 1
        self._spatial = [k for k in range(first.ndim) if k != self._axis]
        if names and stated == self._axis:
            self._spatial = in_order(names)
        self.shape = tuple(int(first.shape[k]) for k in self._spatial)
        if not self.shape or not math.prod(self.shape):
            raise InvalidInput(f"{source}: expected pixels, got shape {first.shape}")
        self.n_channels = 1 if self._axis is None else int(first.shape[self._axis])
        is_rgba = self._axis == first.ndim - 1 and is_rgb(first.shape) and self.n_channels == 4
        self.n_channels -= is_rgba and channel_axis is None
        is_named = names != "" and stated in (None, self._axis)
        self.axes = "".join(names[k] for k in self._spatial) if is_named else ""
        self.sizes, self.origin, self.notes = opened.sizes, opened.origin, opened.notes
        self.affine, self.georeference = opened.affine, opened.georeference
        self.no_data, self._are_labels = opened.no_data, are_labels
        self.dtype = first.dtype
        if self.no_data is not None and not are_labels:
            self.dtype = np.result_type(first.dtype, np.float32)
        self._are_whole = are_whole and first.dtype.kind == "f"
        self.dtype = whole_type(self.dtype) if are_whole else self.dtype
        self.given = (channel_axis, are_labels, opened.no_data, are_whole)
        self.finest = levels[0]
        self.source, self.state = source, opened.state
        self._levels = list(levels)
        weakref.finalize(self, opened.close)
        # Levels with a missing or longer axis do not belong to the pyramid.
        shapes, largest = [level.shape for level in levels], first.shape
        is_level = [len(x) == first.ndim and all(map(int.__le__, x, largest)) for x in shapes]
        self.n_levels = is_level.index(False) if False in is_level else len(levels)

    @classmethod
    def of_array(
        cls, array: Any, axes: str, name: str, channel_axis: int | None = None
    ) -> ImageSource:
        """Return the source of an array with axis letters; errors refer to it by `name`."""
        return cls([array], Opened(axes=axes, read=lambda: array), name, channel_axis)

    @classmethod
    def open(
        cls,
        source: Any,
        channel_axis: int | None = None,
        are_labels: bool = False,
        no_data: float | None = None,
        are_whole: bool = False,
    ) -> ImageSource:
        """Open an image without reading its pixels.

        Parameters
        ----------
        source : path, URL or array
            Any file of `read_image`; TIFF in tiles, strips or one block, OME-Zarr, zarr arrays and
            ``.npy`` in parts, pictures (PNG, JPEG, ...) and other TIFF as a whole. Or an array:
            dask, zarr, NumPy, memory-mapped or not; a list of the levels of a pyramid; or an
            `ImageSource`.
        channel_axis : int, optional
            As in `Problem.from_image`, if the file does not specify it.
        are_labels : bool
            Whether indexed pictures are read as indices, as by `read_labels`, and the last axis of
            an array is never a channel axis.
        no_data : float, optional
            As in `read_image`.
        are_whole : bool
            Whether floats are labels, to be read as whole numbers.

        Raises
        ------
        FormatError
            Naming the file and what is wrong with it.
        InvalidInput
            If an array is no image.
        """
        if isinstance(source, ImageSource):
            return source
        if isinstance(source, (list, tuple)) and source:
            first = cls.open(source[0], channel_axis, are_labels, no_data, are_whole)
            opened = Opened(axes=first.axes, read=lambda: source[0], state=first.state)
            opened.sizes, opened.no_data = first.sizes, no_data
            levels = [first.finest, *source[1:]]
            return cls(levels, opened, first.source, channel_axis, are_labels, are_whole)
        if not isinstance(source, (str, os.PathLike)):
            return _open_array(source, channel_axis, are_labels, no_data, are_whole)
        name = url_of(source) or str(Path(source))
        with format_errors(name, "an image"):
            opened = open_file(source, Request(not are_labels, in_parts=True))
            if no_data is not None:
                opened.no_data = no_data
            levels = opened.levels or []
            if not levels:
                levels = [opened.read()]
            elif hasattr(levels[0], "chunks") and not hasattr(levels[0], "shards"):
                sides = getattr(levels[0], "chunksize", levels[0].chunks)  # of dask
                check_piece(sides, levels[0].dtype.itemsize)
            return cls(levels, opened, name, channel_axis, are_labels, are_whole)

    def reopened(self) -> ImageSource:
        """Reopen the image, with its current `state`."""
        is_named = self.is_remote or self.file is not None
        return ImageSource.open(self.source if is_named else self.finest, *self.given)

    @property
    def file(self) -> Path | None:
        """The file or folder of the image; None for arrays and URLs."""
        file, _ = split_series(Path(self.source))
        return file if file.exists() else None

    @property
    def is_reordered(self) -> bool:
        """Whether the axes are in another order than in the file."""
        return self._spatial != sorted(self._spatial)

    @property
    def is_remote(self) -> bool:
        """Whether the `source` is a URL."""
        return "url" in self.state

    @property
    def piece(self) -> tuple[int, ...]:
        """Sides of a stored chunk, without channels; 1 if single pixels can be read."""
        chunks = getattr(self.finest, "chunks", None) or (1,) * self.finest.ndim
        sides = [max(side) if isinstance(side, tuple) else int(side) for side in chunks]
        return tuple(sides[axis] for axis in self._spatial)

    def levels(self) -> list[Any]:
        """Return the arrays of all levels."""
        return list(self._levels)

    def label_axes(self) -> Axes:
        """Return the axes of its labels, with known pixel sizes."""
        placement = _placement(self.axes, self.sizes, self.origin)
        return label_axes(len(self.shape), self.axes or None, *placement)

    def as_file(self) -> ImageFile:
        """Return the array of the finest level with its metadata."""
        axes = "".join(name for _, name in sorted(zip(self._spatial, self.axes, strict=False)))
        return ImageFile(
            self.levels()[0],
            self._axis,
            axes,
            *_placement(axes, self.sizes, self.origin),
            affine=self.affine,
            georeference=self.georeference,
        )

    def level_shape(self, level: int) -> tuple[int, ...]:
        """Return the shape of a level, without channels."""
        shape = self._levels[level].shape
        return tuple(int(shape[k]) for k in self._spatial)

    def read(self, region: Region, level: int = 0) -> NDArray[Any]:
        """Return the pixels of a region of a level, channels last.

        Raises
        ------
        FormatError
            Naming the region that cannot be read.
        ComputeError
            If it does not fit into memory.
        """
        stored = self._levels[level]
        index = [slice(0, self.n_channels)] * len(stored.shape)
        for axis, side in zip(self._spatial, region, strict=True):
            index[axis] = side
        try:
            part = stored[tuple(index)]
            # Tasks of a cluster compute in one thread.
            part = part.compute(scheduler="synchronous") if hasattr(part, "dask") else part
            values = np.asarray(part)
        except MemoryError as error:
            raise ComputeError(f"{self.source}: not enough memory to read a part") from error
        except Exception as error:  # whatever a library raises for a damaged file
            fault = f"{self.source}: cannot be read at {format_region(region)}"
            raise FormatError(f"{fault}: {one_line(error)}") from error
        values = _without(values, self.no_data, not self._are_labels, self._axis)
        if self._are_whole:
            with format_errors(self.source, "a label image"):
                values = whole_floats(values, format_region(region))
        channels = [] if self._axis is None else [self._axis]
        values = values.transpose([*self._spatial, *channels])
        return values if channels else values[..., None]


def format_region(region: Sequence[slice]) -> str:
    """Return a region as text, such as ``[0:256, 512:768]``."""
    return f"[{', '.join(f'{side.start}:{side.stop}' for side in region)}]"


def _open_array(
    array: Any, channel_axis: int | None, are_labels: bool, no_data: float | None, are_whole: bool
) -> ImageSource:
    """Open an array-like object; its name or sampled values serve to detect changes."""
    if not all(hasattr(array, name) for name in ("shape", "dtype", "ndim", "__getitem__")):
        raise InvalidInput(f"source: expected a path or an array, got {type(array).__name__}")
    state: JsonObject = {"shape": [int(n) for n in array.shape], "dtype": str(array.dtype)}
    if hasattr(array, "dask"):
        state["name"] = array.name
    elif hasattr(array, "store_path"):  # of zarr
        root = getattr(array.store_path.store, "root", None)
        if root is None:
            raise InvalidInput("source: expected a zarr array in a folder; give its path otherwise")
        path = Path(root) / array.store_path.path
        return ImageSource.open(path, channel_axis, are_labels, no_data, are_whole)
    elif isinstance(array, np.memmap) and isinstance(array.filename, str | os.PathLike):
        state |= state_of(Path(array.filename))
    elif isinstance(array, np.ndarray):
        step = max(1, array.size // _SAMPLE)
        sample = array.flat[::step] if step > 1 else array
        state["digest"] = hashlib.sha256(np.ascontiguousarray(sample).tobytes()).hexdigest()[:16]
    # A last axis of length 3 or 4 of labels is not a channel axis.
    names = "uvwtzyx"[-array.ndim :] if are_labels else ""
    are_whole &= array.dtype.itemsize <= 4  # see `as_labels`
    opened = Opened(axes=names, read=lambda: np.asarray(array), state=state, no_data=no_data)
    return ImageSource([array], opened, "the array", channel_axis, are_labels, are_whole)
