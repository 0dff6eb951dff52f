"""Label layers of a project: their pixels by run lengths, their classes, where they lie."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import ComputeError, InvalidInput
from napari_saf.io import PaintedClass
from napari_saf.storage import check_room

_MOST_LABELS = 2**32 - 1
_BLOCK = 2**22
"""Pixels in which runs are searched at a time; none is longer."""
_RUN_BYTES = 8
_MOST_DEFLATED = 1100
"""Deflate makes at most 1,032 bytes of one."""
LayerKind = Literal["strokes", "labels"]


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedLabels:
    """A label image as the lengths and labels of its runs, compressed.

    Attributes
    ----------
    shape : tuple of int
    content : bytes
        Compressed by zlib: the lengths of all runs in row-major order, then their labels, as
        little-endian unsigned numbers of 32 bits.
    n_runs : int

    Examples
    --------
    >>> labels = np.kron([[0, 3], [1, 0]], np.ones((100, 100), int))
    >>> encoded = saf.EncodedLabels.of(labels)
    >>> np.array_equal(encoded.to_array(), labels), len(encoded.content) < 200**2
    (True, True)
    """

    shape: tuple[int, ...]
    content: bytes
    n_runs: int

    @classmethod
    def of(cls, labels: ArrayLike) -> EncodedLabels:
        """Encode a label image, which may be painted on meanwhile."""
        pixels = np.asarray(labels)
        if pixels.dtype.kind not in "biu" or not pixels.size:
            raise InvalidInput(
                f"labels: expected whole numbers, got {pixels.dtype} of shape {pixels.shape}"
            )
        flat = pixels.reshape(-1)
        lengths, values = [], []
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].copy()
            starts = np.append(0, np.flatnonzero(block[1:] != block[:-1]) + 1)
            lengths.append(np.diff(starts, append=block.size))
            values.append(block[starts])
        runs = np.concatenate(values)
        if int(runs.min()) < 0 or int(runs.max()) > _MOST_LABELS:
            raise InvalidInput(f"labels: expected 0 to {_MOST_LABELS}")
        table = np.stack([np.concatenate(lengths), runs.astype(np.int64)]).astype("<u4")
        return cls(pixels.shape, zlib.compress(table.tobytes(), 1), len(runs))

    def check(self) -> None:
        """Raise InvalidInput if these are no runs of an image of this shape."""
        self._runs()

    def to_array(self) -> NDArray[np.unsignedinteger[Any]]:
        """Return the label image, of the smallest unsigned type that holds it.

        ComputeError if it does not fit into memory.
        """
        lengths, values = self._runs()
        kind = np.min_scalar_type(int(values.max()))
        try:
            check_room(math.prod(self.shape) * kind.itemsize)
            return np.repeat(values.astype(kind), lengths).reshape(self.shape)
        except MemoryError as error:
            raise ComputeError(f"not enough memory for labels of shape {self.shape}") from error

    def labels(self) -> NDArray[np.int64]:
        """Return the labels above 0 that some pixel has, ascending."""
        found = np.unique(self._runs()[1]).astype(np.int64)
        return found[found > 0]

    def _runs(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        n_bytes = self.n_runs * _RUN_BYTES
        n_pixels = math.prod(self.shape)
        if not 0 < self.n_runs <= n_pixels or n_bytes > _MOST_DEFLATED * len(self.content):
            raise InvalidInput(f"expected as many runs as pixels at most, got {self.n_runs}")
        unpacker = zlib.decompressobj()
        table = unpacker.decompress(self.content, n_bytes + 1)
        is_whole = len(table) == n_bytes and unpacker.eof and not unpacker.unused_data
        if not is_whole:
            raise InvalidInput(f"expected the runs of {self.n_runs} labels")
        lengths, values = np.frombuffer(table, "<u4").reshape(2, -1)
        if not lengths.all() or int(lengths.sum(dtype=np.uint64)) != n_pixels:
            raise InvalidInput(f"expected runs of {n_pixels} pixels")
        return lengths, values


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ProjectLayer:
    """Strokes or labels over an image of a project.

    Parameters
    ----------
    kind : {"strokes", "labels"}
    name : str
        That of the layer in napari.
    pixels : EncodedLabels
    classes : mapping of int to PaintedClass
        Name and colour by label; not all need one.
    scale, translate : tuple of float
        Size and place of a pixel in the units of the image, for each axis; () where the layer lies
        like the image.
    place : mapping of str to object
        ``axes``, ``singletons`` and ``channels``: to which axes of the image those of the layer
        belong; empty where they are the same.
    recipe : str
        The recipe of the project that made the labels; empty if none did.
    level : float or None
        At which parts of the labels were merged into these regions; None: they are labels.
    is_edited : bool
        Whether the labels were changed by hand.
    prototypes : mapping of int to array of shape (n_own, n_features)
        What stands for each label, where that is known.
    is_visible : bool

    Examples
    --------
    >>> labels = np.kron([[1, 2]], np.ones((8, 8), int))
    >>> layer = saf.ProjectLayer("labels", "nuclei", saf.EncodedLabels.of(labels))
    >>> layer.pixels.labels().tolist()
    [1, 2]
    """

    kind: LayerKind
    name: str
    pixels: EncodedLabels
    classes: Mapping[int, PaintedClass] = dataclasses.field(default_factory=dict)
    scale: tuple[float, ...] = ()
    translate: tuple[float, ...] = ()
    place: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: str = ""
    level: float | None = None
    is_edited: bool = False
    prototypes: Mapping[int, NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    is_visible: bool = True
