"""Apply a dictionary to an image: its labels, and the image rebuilt from atoms."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.device import resolve_device
from napari_saf.dictionary._atoms import PatchAtoms
from napari_saf.dictionary._distance import (
    INVERSE,
    N_SYMMETRIES,
    Matches,
    PatchField,
    all_transforms,
    check_odd,
)
from napari_saf.errors import InvalidInput
from napari_saf.flow import AssignmentField, Flow, Start
from napari_saf.graph import GridGraph, check_window
from napari_saf.methods import AssignmentFlow, Call, Cancelled, not_cancelled, run_flow, run_to_end
from napari_saf.problem import Problem
from napari_saf.result import LabelImage

Reconstruction = Literal["matched", "blended", "fitted"]
RECONSTRUCTIONS: tuple[Reconstruction, ...] = ("matched", "blended", "fitted")
_TILE_VALUES = 2**22
"""Entries of a field (n_nodes, n_atoms) of one tile; a run holds about 20 such fields."""
_LEAST_TILE = 64
_HALO = 16
"""Pixels around a tile within which its neighbours count, per radius of the window."""
_CHUNK_BYTES = 2**25
_LEAST_WEIGHT = 1e-6


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
    dictionary: PatchAtoms,
    image: ArrayLike,
    *,
    window: int = 3,
    channel_axis: int | None = None,
    reconstruction: Reconstruction = "blended",
    rho: float = 0.1,
    device: str = "auto",
    cancelled: Callable[[], bool] = not_cancelled,
) -> PatchSegmentation:
    """Label an image with the atoms of a dictionary and rebuild it from them.

    Parameters
    ----------
    dictionary : PatchAtoms
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
    AssignmentFlow(rho=rho)  # checks it
    work = _Application(dictionary, pixels, reconstruction, resolve_device(device), cancelled)
    for tile in _tiles(work.shape, window, dictionary.n_atoms, dictionary.patch_size):
        work.label(tile, window, rho)
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


class _Placements(NamedTuple):
    """Atoms to be painted, one for each node: which, how and where it fits, its distance.

    `symmetries` turn the image's patch onto the atom; `places` are flat indices of patches.
    """

    labels: torch.Tensor
    symmetries: torch.Tensor
    places: torch.Tensor
    distances: torch.Tensor

    @classmethod
    def of(cls, matches: Matches, labels: torch.Tensor, nodes: torch.Tensor) -> _Placements:
        """Return the matches of some nodes to one atom each."""
        assert matches.symmetries is not None
        flat = labels * matches.distances[0].numel() + nodes
        places = nodes if matches.places is None else matches.places.view(-1)[flat]
        distances = matches.distances.view(-1)[flat].clamp(min=0)
        return cls(labels, matches.symmetries.view(-1)[flat], places, distances)


class _Application:
    """Labels, matches and painted atoms of an image, tile after tile."""

    def __init__(
        self,
        dictionary: PatchAtoms,
        pixels: NDArray[np.generic],
        reconstruction: Reconstruction,
        device: torch.device,
        cancelled: Callable[[], bool],
    ) -> None:
        self._dictionary = dictionary
        self._pixels = pixels
        self._reconstruction = reconstruction
        self._cancelled = cancelled
        size, n_channels = dictionary.patch_size, dictionary.n_channels
        self.shape = (pixels.shape[0] - size + 1, pixels.shape[1] - size + 1)
        self._atoms = torch.from_numpy(dictionary.atoms).movedim(-1, 1).to(device).contiguous()
        # Row 8 k + T: atom k turned back by T, channels last.
        turned = all_transforms(self._atoms)[:, list(INVERSE)].flatten(0, 1)
        self._turned = turned.permute(0, 2, 3, 1).contiguous()
        # Weighted sums of painted atoms; the last column holds the weights.
        self._sums = self._atoms.new_zeros(pixels.shape[0] * pixels.shape[1], n_channels + 1)
        # The row of the atom that each pixel would paint around itself.
        self._around = torch.zeros(self.shape, dtype=torch.int32, device=device)
        self._labels = np.zeros(self.shape, dtype=np.min_scalar_type(dictionary.n_atoms))
        self._transforms = np.zeros(self.shape, dtype=np.uint8)
        self._centres = np.zeros((*self.shape, 2), dtype=np.int32)
        self._fit = np.zeros(self.shape, dtype=np.float32)

    def label(self, tile: _Tile, window: int, rho: float) -> None:
        """Label a tile and paint its atoms."""
        dictionary, rim = self._dictionary, self._dictionary.patch_size - 1
        rows = slice(tile.rows.start, tile.rows.stop + rim)
        columns = slice(tile.columns.start, tile.columns.stop + rim)
        low, high = dictionary.scaling.low, dictionary.scaling.high
        scaled = (self._pixels[rows, columns].astype(np.float64) - low) / (high - low)
        pixels = torch.from_numpy(scaled.astype(np.float32)).movedim(-1, 0).to(self._atoms.device)
        field = PatchField(pixels, dictionary.patch_size)
        here = field.at_centres(self._atoms, with_symmetries=True)
        self._raise_if_cancelled()
        within = here.within(dictionary.shift_window)
        labels = self._flow_labels(within.distances, window, rho)
        self._raise_if_cancelled()
        kept = torch.zeros(field.shape, dtype=torch.bool, device=pixels.device)
        kept[tile.kept] = True
        nodes = kept.flatten().nonzero()[:, 0]
        matched = _Placements.of(within, labels[nodes], nodes)
        self._note(tile, matched, field.shape[1])
        origin = (tile.rows.start, tile.columns.start)
        if self._reconstruction == "matched":
            self._paint(matched, field, origin)
            own = _Placements.of(here, matched.labels, nodes)
            index = (own.labels * N_SYMMETRIES + own.symmetries).to(torch.int32)
            target = _inside(tile)
            self._around[target] = index.view(self._around[target].shape)
            return
        nearest = here.distances.flatten(1).argmin(dim=0)[nodes]
        for placements in (matched, _Placements.of(here, nearest, nodes)):
            self._raise_if_cancelled()
            self._paint(placements, field, origin)

    def finish(self, began: float, *, is_grey: bool) -> PatchSegmentation:
        """Return the outcome."""
        dictionary = self._dictionary
        low, high = dictionary.scaling.low, dictionary.scaling.high
        made = self._painted()
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

    def _flow_labels(self, distances: torch.Tensor, window: int, rho: float) -> torch.Tensor:
        """Return the atom of every interior pixel by the assignment flow."""
        shape = tuple(distances.shape[1:])
        window = min(window, *(side - (side + 1) % 2 for side in shape))
        graph = GridGraph(shape, window=window)
        n_values = self._atoms[0].numel()
        table = (distances.flatten(1).T / n_values).clamp_(min=0).sqrt_().contiguous()
        features = table.new_zeros(len(table), 1)
        problem = Problem(features.cpu().numpy(), graph)
        call = Call(problem, features, None, None, self._cancelled, time.perf_counter())

        def make_field() -> AssignmentField:
            averager = graph.averager(table.device, table.dtype)
            points = table.new_zeros(table.shape[1], 1)
            return AssignmentField(averager, table, points, rho, self._cancelled)

        method, start = AssignmentFlow(rho=rho), Start.at(torch.zeros_like(table))
        flow = Flow(start, make_field, method.stepper, method.stop, fixed_meaning=True)
        labels = np.asarray(run_to_end(run_flow(method, flow, call)).labels).astype(np.int64) - 1
        return torch.from_numpy(labels.ravel()).to(table.device)

    def _note(self, tile: _Tile, matched: _Placements, width: int) -> None:
        """Keep label, symmetry, centre and fit of a tile's pixels."""
        rim, target = self._dictionary.patch_size // 2, _inside(tile)
        shape = self._labels[target].shape
        self._labels[target] = matched.labels.cpu().numpy().reshape(shape) + 1
        self._transforms[target] = matched.symmetries.cpu().numpy().reshape(shape)
        places = matched.places.cpu().numpy().reshape(shape)
        self._centres[(*target, 0)] = places // width + tile.rows.start + rim
        self._centres[(*target, 1)] = places % width + tile.columns.start + rim
        mean = (matched.distances / self._atoms[0].numel()).sqrt()
        self._fit[target] = mean.cpu().numpy().reshape(shape)

    def _paint(self, placements: _Placements, field: PatchField, origin: tuple[int, int]) -> None:
        """Add atoms, each turned back, at its place; better fits weigh more but for "matched"."""
        size, width = self._dictionary.patch_size, self._pixels.shape[1]
        scale = max(self._dictionary.distance, 1e-12)
        index = placements.labels * N_SYMMETRIES + placements.symmetries
        step = max(1, _CHUNK_BYTES // (4 * self._sums.shape[1] * size**2))
        for rows in (slice(start, start + step) for start in range(0, len(index), step)):
            places, distances = placements.places[rows], placements.distances[rows]
            patches = self._turned[index[rows]]
            if self._reconstruction == "fitted":
                patches, distances = _fit(patches, field, places)
            weights = torch.ones_like(distances)
            if self._reconstruction != "matched":
                weights = torch.exp(-distances / scale).clamp_(min=_LEAST_WEIGHT)
            weights = weights.view(-1, 1, 1, 1)
            values = torch.cat([patches * weights, weights.expand(-1, size, size, 1)], dim=3)
            corner = (places // field.shape[1] + origin[0]) * width
            corner += places % field.shape[1] + origin[1]
            for row in range(size):
                for column in range(size):
                    self._sums.index_add_(
                        0, corner + (row * width + column), values[:, row, column]
                    )

    def _painted(self) -> NDArray[np.float32]:
        """Return the averages, (height, width, n_channels); eq. (6.14).

        A pixel that no atom covers has the value of the atom of the nearest interior pixel.
        """
        weights = self._sums[:, -1:]
        bare = (weights[:, 0] == 0).nonzero()[:, 0]
        means = self._sums[:, :-1] / weights.clamp(min=1e-30)
        if len(bare):
            width, rim = self._pixels.shape[1], self._dictionary.patch_size // 2
            row, column = bare // width, bare % width
            top = (row - rim).clamp(0, self.shape[0] - 1)
            left = (column - rim).clamp(0, self.shape[1] - 1)
            means[bare] = self._turned[self._around[top, left].long(), row - top, column - left]
        return np.asarray(means.view(self._pixels.shape).float().cpu().numpy())

    def _raise_if_cancelled(self) -> None:
        if self._cancelled():
            raise Cancelled


def _inside(tile: _Tile) -> tuple[slice, slice]:
    """Return where the kept pixels of a tile are among the interior pixels of the image."""
    rows, columns = (
        slice(outer.start + kept.start, outer.start + kept.stop)
        for outer, kept in zip((tile.rows, tile.columns), tile.kept, strict=True)
    )
    return rows, columns


def _fit(
    patches: torch.Tensor, field: PatchField, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return patches (n, p, p, n_channels) with gain and offset, and squared distances."""
    wanted = field.patches(places) + field.offset.float()
    wanted = wanted.permute(0, 2, 3, 1).flatten(1)
    flat = patches.flatten(1)
    mean, own = wanted.mean(dim=1, keepdim=True), flat.mean(dim=1, keepdim=True)
    zero_mean = flat - own
    gain = ((wanted - mean) * zero_mean).sum(dim=1, keepdim=True)
    gain = (gain / zero_mean.square().sum(dim=1, keepdim=True).clamp(min=1e-12)).clamp_(min=0)
    fitted = gain * zero_mean + mean
    distances = (fitted - wanted).square().sum(dim=1)
    return fitted.view(patches.shape), distances
