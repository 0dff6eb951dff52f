"""A dictionary at work on an image: labels, and the image made anew from atoms."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.device import resolve_device
from napari_saf.dictionary._canvas import Canvas, Placements
from napari_saf.dictionary._distance import Matches, PatchField, check_odd
from napari_saf.errors import InvalidInput
from napari_saf.flow import AssignmentField, Flow, Start
from napari_saf.graph import GridGraph, check_window
from napari_saf.methods import AssignmentFlow, Call, Cancelled, not_cancelled, run_flow, run_to_end
from napari_saf.problem import Problem
from napari_saf.result import LabelImage

if TYPE_CHECKING:
    from napari_saf.dictionary._dictionary import PatchDictionary

__all__ = ["RECONSTRUCTIONS", "PatchSegmentation", "Reconstruction", "apply_dictionary"]

Reconstruction = Literal["matched", "blended", "fitted"]
RECONSTRUCTIONS: tuple[Reconstruction, ...] = ("matched", "blended", "fitted")
_TILE_VALUES = 2**22
"""Entries of a field (n_nodes, n_atoms) of one tile; a run holds about 20 such fields."""
_LEAST_TILE = 64
_HALO = 16
"""Pixels around a tile within which its neighbours count, per radius of the window."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PatchSegmentation:
    """An image labelled with the atoms of a dictionary.

    Attributes
    ----------
    labels : array of unsigned int of shape (height, width)
        Label l is atom l - 1.
    reconstruction : array, float32
        The image made of atoms: its shape (channels last), its values.
    difference : array, float32
        The image less `reconstruction`.
    transforms : array of uint8 of shape (height, width)
        Symmetry that turns the matched patch onto the atom: k < 4 is k quarter turns
        counter-clockwise, 4 + k is a mirroring of left and right, then k turns.
    centres : array of int32 of shape (height, width, 2)
        Row and column of the centre of the matched patch.
    fit : array of float32 of shape (height, width)
        Root mean square difference of the matched patch from its atom, in scaled values.
    usage : array of int of shape (n_atoms,)
        Pixels of each atom.
    error : float
        Mean squared difference, in scaled values.
    seconds : float
        Duration.
    """

    labels: LabelImage
    reconstruction: NDArray[np.float32]
    difference: NDArray[np.float32]
    transforms: NDArray[np.uint8]
    centres: NDArray[np.int32]
    fit: NDArray[np.float32]
    usage: NDArray[np.int64]
    error: float
    seconds: float

    @property
    def psnr(self) -> float:
        """Peak signal to noise ratio in dB; the peak is the range of the dictionary's scaling."""
        return float(-10 * np.log10(max(self.error, 1e-12)))


def apply_dictionary(
    dictionary: PatchDictionary,
    image: ArrayLike,
    *,
    window: int = 3,
    channel_axis: int | None = None,
    reconstruction: Reconstruction = "blended",
    rho: float = 0.1,
    device: str = "auto",
    cancelled: Callable[[], bool] = not_cancelled,
) -> PatchSegmentation:
    """Label an image with the atoms of a dictionary and make it anew from them.

    Parameters
    ----------
    dictionary : PatchDictionary
        Atoms and how they were learned.
    image : array
        2-D, with the channels of the dictionary; the alpha of RGBA is dropped.
    window : int
        Odd side of the averaging window of the labels, the scale.
    channel_axis : int, optional
        Axis of the channels.
    reconstruction : {"matched", "blended", "fitted"}
        How the image is made from atoms; what overlaps is averaged.
        "matched": each pixel puts the atom of its label at the matched centre.
        "blended": beside that, each pixel puts its nearest atom around itself; better fits
        weigh more.
        "fitted": as "blended", and every atom put down has a brightness and a contrast of its
        own.
    rho : float
        > 0; the smaller, the more the patches count against the neighbours.
    device : str
        "auto", "cpu", "cuda" or "mps".
    cancelled : callable
        Asked often; once it returns True the work ends with `Cancelled`.

    Returns
    -------
    PatchSegmentation

    Raises
    ------
    InvalidInput
        If the image does not suit the dictionary, or an option is not possible.

    Notes
    -----
    Labels: the assignment flow on the root mean square patch distances, of interior pixels;
    a pixel at the rim has the label of the nearest interior one. "matched" is eq. (6.14) of
    Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639. Large images are
    worked off in tiles that overlap, so that the memory does not grow with the number of atoms.
    """
    began = time.perf_counter()
    check_odd("window", window, 1, None)
    if reconstruction not in RECONSTRUCTIONS:
        known = ", ".join(RECONSTRUCTIONS)
        raise InvalidInput(f"reconstruction: expected {known}, got {reconstruction!r}")
    pixels = dictionary.planes(image, channel_axis)
    check_window(window, pixels.shape[:2])
    flow = AssignmentFlow(rho=rho)
    work = _Work(dictionary, pixels, flow, window, reconstruction, device, cancelled)
    for tile in _tiles(work.shape, window, dictionary.n_atoms, dictionary.patch_size):
        work.do(tile)
    return work.finish(began, is_grey=np.ndim(image) == 2)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    """Interior pixels that are labelled together, and those among them that are kept."""

    rows: slice
    columns: slice
    kept: tuple[slice, slice]


def _tiles(shape: tuple[int, int], window: int, n_atoms: int, patch_size: int) -> Iterator[_Tile]:
    """Yield tiles that cover an image of `shape` interior pixels."""
    halo = _HALO * max(1, window // 2) + patch_size
    side = max(_LEAST_TILE, int((_TILE_VALUES / n_atoms) ** 0.5) - 2 * halo)
    if shape[0] * shape[1] * n_atoms <= _TILE_VALUES:
        side = max(shape)
    for top in range(0, shape[0], side):
        for left in range(0, shape[1], side):
            outer, kept = [], []
            for start, length in ((top, shape[0]), (left, shape[1])):
                stop = min(start + side, length)
                first = max(0, start - halo)
                outer.append(slice(first, min(length, stop + halo)))
                kept.append(slice(start - first, stop - first))
            yield _Tile(outer[0], outer[1], (kept[0], kept[1]))


class _Work:
    """An image under way."""

    def __init__(
        self,
        dictionary: PatchDictionary,
        pixels: NDArray[np.generic],
        flow: AssignmentFlow,
        window: int,
        reconstruction: Reconstruction,
        device: str,
        cancelled: Callable[[], bool],
    ) -> None:
        self._dictionary = dictionary
        self._pixels = pixels
        self._flow = flow
        self._window = window
        self._reconstruction = reconstruction
        self._device = resolve_device(device)
        self._cancelled = cancelled
        size = dictionary.patch_size
        self.shape = (pixels.shape[0] - size + 1, pixels.shape[1] - size + 1)
        atoms = torch.from_numpy(dictionary.atoms).movedim(-1, 1)
        self._atoms = atoms.to(self._device).contiguous()
        self._canvas = Canvas(pixels.shape, self._atoms)
        self._labels = np.zeros(self.shape, dtype=np.min_scalar_type(dictionary.n_atoms))
        self._transforms = np.zeros(self.shape, dtype=np.uint8)
        self._centres = np.zeros((*self.shape, 2), dtype=np.int32)
        self._fit = np.zeros(self.shape, dtype=np.float32)

    def do(self, tile: _Tile) -> None:
        """Label a tile and put its atoms on the canvas."""
        size, dictionary = self._dictionary.patch_size, self._dictionary
        rows = slice(tile.rows.start, tile.rows.stop + size - 1)
        columns = slice(tile.columns.start, tile.columns.stop + size - 1)
        scaled = dictionary.scale(self._pixels[rows, columns], channel_axis=2)
        pixels = torch.from_numpy(scaled).movedim(-1, 0).to(self._device)
        field = PatchField(pixels, size)
        here = field.at_centres(self._atoms, with_symmetries=True)
        self._raise_if_cancelled()
        within = here.within(dictionary.shift_window)
        labels = self._label(within.distances, field.shape)
        self._raise_if_cancelled()
        kept = torch.zeros(field.shape, dtype=torch.bool, device=self._device)
        kept[tile.kept] = True
        nodes = kept.flatten().nonzero()[:, 0]
        matched = _pick(within, labels[nodes], nodes)
        self._note(tile, matched, field.shape[1])
        origin = (tile.rows.start, tile.columns.start)
        if self._reconstruction == "matched":
            self._canvas.put(matched, field, origin)
            self._canvas.put_spare(_pick(here, matched.labels, nodes), field, origin)
            return
        nearest = _pick(here, here.distances.flatten(1).argmin(dim=0)[nodes], nodes)
        for placements in (matched, nearest):
            self._raise_if_cancelled()
            self._canvas.put(
                placements,
                field,
                origin,
                scale=max(dictionary.distance, 1e-12),
                fitted=self._reconstruction == "fitted",
            )

    def finish(self, began: float, *, is_grey: bool) -> PatchSegmentation:
        """Return the outcome."""
        dictionary = self._dictionary
        low, high = dictionary.scaling.low, dictionary.scaling.high
        made = self._canvas.image()
        made *= high - low
        made += low
        difference = np.subtract(self._pixels, made, dtype=np.float32, casting="unsafe")
        squares = [float(np.square(row, dtype=np.float64).sum()) for row in difference]
        error = sum(squares) / difference.size / (high - low) ** 2
        rim = dictionary.patch_size // 2
        edges = ((rim, rim), (rim, rim))
        labels = np.pad(self._labels, edges, mode="edge")
        return PatchSegmentation(
            labels=labels,
            reconstruction=made[..., 0] if is_grey else made,
            difference=difference[..., 0] if is_grey else difference,
            transforms=np.pad(self._transforms, edges, mode="edge"),
            centres=np.pad(self._centres, (*edges, (0, 0)), mode="edge"),
            fit=np.pad(self._fit, edges, mode="edge"),
            usage=np.bincount(labels.ravel(), minlength=dictionary.n_atoms + 1)[1:],
            error=error,
            seconds=time.perf_counter() - began,
        )

    def _label(self, distances: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """Return the atom of every interior pixel by the assignment flow."""
        window = min(self._window, *(side - (side + 1) % 2 for side in shape))
        graph = GridGraph(shape, window=window)
        values = self._atoms[0].numel()
        table = (distances.flatten(1).T / values).clamp_(min=0).sqrt_().contiguous()
        points = table.new_zeros(table.shape[1], 1)
        features = table.new_zeros(len(table), 1)
        problem = Problem(features.cpu().numpy(), graph)
        call = Call(problem, features, None, None, self._cancelled, time.perf_counter())

        def make_field() -> AssignmentField:
            averager = graph.averager(table.device, table.dtype)
            return AssignmentField(averager, table, points, self._flow.rho, self._cancelled)

        start = Start.at(torch.zeros_like(table))
        flow = self._flow
        ready = Flow(start, make_field, flow.stepper, flow.stop, fixed_meaning=True)
        steps = run_flow(flow, ready, call)
        labels = np.asarray(run_to_end(steps).labels).astype(np.int64) - 1
        return torch.from_numpy(labels.ravel()).to(table.device)

    def _note(self, tile: _Tile, matched: Placements, width: int) -> None:
        """Keep what a tile's pixels are."""
        rim = self._dictionary.patch_size // 2
        shape = tuple(part.stop - part.start for part in tile.kept)
        target = (
            slice(tile.rows.start + tile.kept[0].start, tile.rows.start + tile.kept[0].stop),
            slice(tile.columns.start + tile.kept[1].start, tile.columns.start + tile.kept[1].stop),
        )
        self._labels[target] = matched.labels.cpu().numpy().reshape(shape) + 1
        self._transforms[target] = matched.symmetries.cpu().numpy().reshape(shape)
        places = matched.places.cpu().numpy().reshape(shape)
        self._centres[(*target, 0)] = places // width + tile.rows.start + rim
        self._centres[(*target, 1)] = places % width + tile.columns.start + rim
        mean = (matched.distances / self._atoms[0].numel()).sqrt()
        self._fit[target] = mean.cpu().numpy().reshape(shape)

    def _raise_if_cancelled(self) -> None:
        if self._cancelled():
            raise Cancelled


def _pick(matches: Matches, labels: torch.Tensor, nodes: torch.Tensor) -> Placements:
    """Return the matches of some nodes to one atom each."""
    assert matches.symmetries is not None
    n_nodes = matches.distances[0].numel()
    flat = labels * n_nodes + nodes
    places = nodes if matches.places is None else matches.places.view(-1)[flat]
    return Placements(
        labels,
        matches.symmetries.view(-1)[flat],
        places,
        matches.distances.view(-1)[flat].clamp(min=0),
        nodes,
    )
