"""Images as the library takes them: read at once, or in parts, from files, URLs and arrays."""

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

from napari_saf.arrays import Region as Region
from napari_saf.arrays import as_labels, as_whole, whole_floats, whole_type
from napari_saf.errors import ComputeError, FormatError, InvalidInput, one_line
from napari_saf.features import is_rgb
from napari_saf.io._labels import Axes, label_axes, labels_of_colors
from napari_saf.io._opened import Opened, Request, Sizes, check_piece, in_order
from napari_saf.io._paths import split_series, url_of
from napari_saf.io._readers import open_file, state_of
from napari_saf.storage import format_errors

_SAMPLE = 2**20
"""Values of an array in memory by which it is seen that it changed."""


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
    origin : tuple or None
        Where the first pixel lies along these axes, in those units; None where it is 0.
    no_data : float or None
        The value of pixels without data, which are NaN in the array; None if the file has none.
    affine : array of shape (4, 4) or None
        Where a voxel (x, y, z, 1) lies in the space of the scanner; None but of NIfTI.
    georeference : tuple
        Where the pixels of a GeoTIFF lie on earth, its tags, for `save_masks`; empty for others.
    colors : dict or None
        The colours in which labels were painted, red, green, blue, each from 0 to 1, by label; None
        for labels that are numbers in the file, and for images.
    notes : tuple of str
        What a person should know, such as that planes are missing.
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
        """Return an image without axes of length 1 other than y and x, these as t, z, y, x."""
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
        """The axis of channels, None also where it is the last of RGB(A), known by its length."""
        axis = self.channel_axis
        is_last = axis == self.array.ndim - 1 and self.array.shape[-1] in (3, 4)
        return None if is_last else axis

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """Where pixels are finite in all channels, in the shape of the labels."""
        finite = np.isfinite(self.array)
        axis = self.channel_axis
        return finite if axis is None else np.asarray(finite.all(axis=axis))

    @property
    def label_axes(self) -> str:
        return self.axes.replace("c", "")


def _placement(
    axes: str, sizes: Sizes, origin: Mapping[str, float]
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None, tuple[float, ...] | None]:
    """Return scale, units and origin along axes without that of channels, None where unknown."""
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
    """Read an image; nothing in the file is executed.

    TIFF (OME, ImageJ or plain), OME-Zarr folders, also behind a URL, and NumPy arrays (``.npy``)
    are read with their axes and the size of a pixel where the file gives them, so is NIfTI
    (``.nii``, ``.nii.gz``) with nibabel, its axes as z, y, x. Other formats (PNG,
    JPEG, BMP, ...) as Pillow reads them, upright. Pictures with a palette give its colours, unless
    they are masks that napari-saf wrote, or `in_colors` is False: then they give the indices.
    What none of these knows, such as ``.czi``, is read by plug-ins of bioio. Axes come as t, z, y,
    x, lengths in the unit of x.

    A file may hold several images: ``file.tif#1`` is the second series of a TIFF, and
    ``plate.zarr/B/3/0`` a field of a plate. Pages of one size that were appended one by one are a
    stack.

    Parameters
    ----------
    path : path or URL
        The file.
    in_colors : bool
        Whether indexed pictures give their colours.
    no_data : float, optional
        The value of pixels without data, which become NaN. None: as the file says (``GDAL_NODATA``
        of a TIFF, ``_FillValue`` of a zarr).
    upright : bool
        Whether photographs are turned as EXIF says; napari's own reader does not.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it, or the images that it holds.
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
    """Return an array with NaN, or label 0, in place of a value.

    A value of 0 or above counts where all channels have it: in one it may be a colour.
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
    """Read a label image; as `read_image`, but the index of an indexed PNG is the label.

    Whole numbers that are written as floats, as Fiji and ITK do, are labels. Of a picture in colour
    each colour is a label: greys first, from black to white, then by hue, red, yellow, green, cyan,
    blue, magenta, whatever their order in the picture. 0 is what is transparent, else what most
    pixels are if that is black or white, else black, else what most pixels are.

    Raises
    ------
    FormatError
        As `read_image`, and if the file holds other than whole numbers of 0 and above, more than
        255 colours, or colours that are blends of others, as soft brushes and JPEG leave them.

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
    """An image of which parts are read when they are asked for; `open` makes it.

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
    origin : dict
        Where the first pixel lies, by the letter of the axis; 0 where there is none.
    affine, georeference : array of shape (4, 4) or None, and tuple
        As of an `ImageFile`.
    no_data : float or None
        The value of pixels without data, which are NaN when they are read.
    n_levels : int
        The image itself, and smaller ones of a pyramid.
    source : str
        Its path, or that it is an array; `finest` is the array of the image itself.
    state : dict
        What tells that the image changed.
    notes : tuple of str
        What a person should know of it.
    given : tuple
        The arguments of `open` behind the source.

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
        # Levels of which an axis is missing, or longer, are none of a pyramid.
        shapes, largest = [level.shape for level in levels], first.shape
        is_level = [len(x) == first.ndim and all(map(int.__le__, x, largest)) for x in shapes]
        self.n_levels = is_level.index(False) if False in is_level else len(levels)

    @classmethod
    def of_array(
        cls, array: Any, axes: str, name: str, channel_axis: int | None = None
    ) -> ImageSource:
        """Return an array with letters for its axes, which errors call by a name."""
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
            What `read_image` reads; TIFF in tiles, strips or one block, OME-Zarr, zarr arrays and
            ``.npy`` in parts, pictures (PNG, JPEG, ...) and other TIFF as a whole. Or an array:
            dask, zarr, NumPy, memory-mapped or not; or a list of the levels of a pyramid; or what
            this returned.
        channel_axis : int, optional
            As in `Problem.from_image`, if the file does not say it.
        are_labels : bool
            Whether a picture with a palette gives its indices, as for `read_labels`, not its
            colours, and the last axis of an array is none of channels.
        no_data : float, optional
            As in `read_image`.
        are_whole : bool
            Whether floats are labels, which are read as whole numbers.

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
        """Open the same image anew: its `state` is that of now."""
        is_named = self.is_remote or self.file is not None
        return ImageSource.open(self.source if is_named else self.finest, *self.given)

    @property
    def file(self) -> Path | None:
        """The file or folder that it is read from; None for what is in memory or behind a URL."""
        file, _ = split_series(Path(self.source))
        return file if file.exists() else None

    @property
    def is_reordered(self) -> bool:
        """Whether its axes are in another order than in the file."""
        return self._spatial != sorted(self._spatial)

    @property
    def is_remote(self) -> bool:
        """Whether it lies behind a URL, which is its `source`."""
        return "url" in self.state

    @property
    def piece(self) -> tuple[int, ...]:
        """Sides of what is read as one, without channels; 1 where any pixel is read alone."""
        chunks = getattr(self.finest, "chunks", None) or (1,) * self.finest.ndim
        sides = [max(side) if isinstance(side, tuple) else int(side) for side in chunks]
        return tuple(sides[axis] for axis in self._spatial)

    def levels(self) -> list[Any]:
        """Return the arrays of all levels."""
        return list(self._levels)

    def label_axes(self) -> Axes:
        """Return the axes of its labels, with the size of a pixel as far as it is known."""
        placement = _placement(self.axes, self.sizes, self.origin)
        return label_axes(len(self.shape), self.axes or None, *placement)

    def as_file(self) -> ImageFile:
        """Return the array of the finest level with what is known of it."""
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
            # A task of a cluster computes by itself.
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
        path = Path(root) / array.store_path.path
        return ImageSource.open(path, channel_axis, are_labels, no_data, are_whole)
    elif isinstance(array, np.memmap) and isinstance(array.filename, str | os.PathLike):
        state |= state_of(Path(array.filename))
    elif isinstance(array, np.ndarray):
        step = max(1, array.size // _SAMPLE)
        sample = array.flat[::step] if step > 1 else array
        state["digest"] = hashlib.sha256(np.ascontiguousarray(sample).tobytes()).hexdigest()[:16]
    # A last axis of labels, of 3 or 4, is no colour.
    names = "uvwtzyx"[-array.ndim :] if are_labels else ""
    are_whole &= array.dtype.itemsize <= 4  # see `as_labels`
    opened = Opened(axes=names, read=lambda: np.asarray(array), state=state, no_data=no_data)
    return ImageSource([array], opened, "the array", channel_axis, are_labels, are_whole)
