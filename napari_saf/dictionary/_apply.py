"""Application of a dictionary: labels by the assignment flow, and reconstruction from atoms."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf import methods
from napari_saf.arrays import Region, boxes, check_window
from napari_saf.device import resolve_device, torch
from napari_saf.dictionary._atoms import PatchAtoms
from napari_saf.dictionary._distance import (
    INVERSE,
    N_SYMMETRIES,
    Matches,
    PatchField,
    all_transforms,
    check_odd,
)
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.flow import AssignmentField, Flow, Start
from napari_saf.graph import GridGraph
from napari_saf.parts import grown
from napari_saf.problem import Problem
from napari_saf.result import History, LabelImage, LabelMap, Segmentation

Reconstruction = Literal["matched", "blended", "fitted"]
RECONSTRUCTIONS: tuple[Reconstruction, ...] = ("matched", "blended", "fitted")
_TILE_VALUES = 2**22
"""Maximum entries of a field (n_nodes, n_atoms) per tile; a run holds about 20 fields."""
_LEAST_TILE = 64
_HALO = 16
"""Overlap of tiles in pixels, per radius of the window."""
_CHUNK_BYTES = 2**25
_LEAST_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PatchSegmentation:
    """Labels and reconstruction of an image by the atoms of a dictionary.

    Attributes
    ----------
    labels : array of unsigned int of shape (height, width)
        Label l is atom l - 1.
    reconstruction : array, float32
        Reconstruction, in the shape (channels last) and values of the image.
    difference : array, float32
        The image minus `reconstruction`.
    transforms : array of uint8 of shape (height, width)
        Symmetry from the matched patch to the atom: k < 4 is k quarter turns counter-clockwise,
        4 + k a left-right reflection, then k turns.
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

    Examples
    --------
    >>> stripes = np.tile(np.repeat([0.0, 1.0], 4), (48, 6))
    >>> dictionary = saf.PatchDictionary.learn(stripes, n_atoms=4, patch_size=5, n_samples=500)
    >>> found = dictionary.apply(stripes)
    >>> bool(np.allclose(found.reconstruction + found.difference, stripes, atol=1e-6))
    True
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
        """Peak signal-to-noise ratio in dB; the peak is the range of the dictionary's scaling."""
        return float(-10 * np.log10(max(self.error, 1e-12)))


def _tiles(
    shape: tuple[int, int], window: int, n_atoms: int, patch_size: int
) -> Iterator[tuple[Region, Region]]:
    """Yield overlapping tiles of interior pixels, and their cores, which partition `shape`."""
    halo = _HALO * max(1, window // 2) + patch_size
    side = max(_LEAST_TILE, int((_TILE_VALUES / n_atoms) ** 0.5) - 2 * halo)
    if shape[0] * shape[1] * n_atoms <= _TILE_VALUES:
        side = max(shape)
    for core in boxes(shape, (side, side)):
        yield grown(core, (halo, halo), shape), core


class Application:
    """Tiled labelling and reconstruction of an image (height, width, n_channels)."""

    def __init__(
        self,
        dictionary: PatchAtoms,
        pixels: NDArray[np.generic],
        reconstruction: Reconstruction,
        device: str,
        cancelled: Callable[[], bool],
    ) -> None:
        if reconstruction not in RECONSTRUCTIONS:
            names = ", ".join(RECONSTRUCTIONS)
            raise InvalidInput(f"reconstruction: expected {names}, got {reconstruction!r}")
        self._began, target = time.perf_counter(), resolve_device(device)
        self._dictionary, self._pixels = dictionary, pixels
        self._reconstruction, self._cancelled = reconstruction, cancelled
        size, n_features = dictionary.patch_size, dictionary.atoms.shape[3]
        # Intensities are scaled per tile; other features depend on surrounding pixels.
        self._features = None if dictionary.features == "intensity" else dictionary.values(pixels)
        self._shape = (pixels.shape[0] - size + 1, pixels.shape[1] - size + 1)
        self._atoms = torch.from_numpy(dictionary.atoms).movedim(-1, 1).to(target).contiguous()
        # Row 8 k + T: atom k under the inverse of T, channels last.
        turned = all_transforms(self._atoms)[:, INVERSE].flatten(0, 1)
        self._turned = turned.permute(0, 2, 3, 1).contiguous()
        # Weighted sums of painted atoms; the last column holds the weights.
        self._sums = self._atoms.new_zeros(pixels.shape[0] * pixels.shape[1], n_features + 1)
        # Row in `_turned` of the atom around each pixel, for pixels without a match.
        self._around = torch.zeros(self._shape, dtype=torch.int32, device=target)
        self._labels = np.zeros(self._shape, dtype=np.min_scalar_type(dictionary.n_atoms))
        self._transforms = np.zeros(self._shape, dtype=np.uint8)
        self._centres = np.zeros((*self._shape, 2), dtype=np.int32)
        self._fit = np.zeros(self._shape, dtype=np.float32)

    def run(self, window: int, rho: float, *, is_grey: bool) -> PatchSegmentation:
        check_odd("window", window, 1, None)
        check_window(window, self._pixels.shape[:2])
        dictionary, method = self._dictionary, methods.AssignmentFlow(rho=rho)
        for outer, core in _tiles(self._shape, window, dictionary.n_atoms, dictionary.patch_size):
            self._label(outer, core, method, window)
        low, high = dictionary.scaling.low, dictionary.scaling.high
        made = dictionary.colours(self._painted())
        made *= high - low
        made += low
        difference = np.subtract(self._pixels, made, dtype=np.float32, casting="unsafe")
        squares = [float(np.square(row, dtype=np.float64).sum()) for row in difference]
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
            error=sum(squares) / difference.size / (high - low) ** 2,
            seconds=time.perf_counter() - self._began,
        )

    def _label(
        self, outer: Region, core: Region, method: methods.AssignmentFlow, window: int
    ) -> None:
        """Label a tile, store the matches of its core, and paint their atoms."""
        size, any_contrast = self._dictionary.patch_size, self._dictionary.any_contrast
        field, matches, best = self._match(outer)
        segmentation = self._flow(best.distances, method, window)
        atoms = np.asarray(segmentation.labels).astype(np.int64).ravel() - 1
        labels = torch.from_numpy(atoms).to(self._atoms.device)
        raise_if(self._cancelled)
        pairs = zip(core, outer, strict=True)
        inner = tuple(slice(c.start - o.start, c.stop - o.start) for c, o in pairs)
        nodes = torch.arange(labels.numel(), device=labels.device).view(field.shape)[inner]
        shape, nodes = nodes.shape, nodes.flatten()
        labels = labels[nodes]
        assigned = best.of(labels, nodes)
        first = self._first_pixels(assigned.indices, field, outer)
        fit = (assigned.distances / self._atoms[0].numel()).sqrt()
        for target, values in (
            (self._labels[core], labels + 1),
            (self._transforms[core], assigned.symmetries),
            (self._centres[..., 0][core], first // self._pixels.shape[1] + size // 2),
            (self._centres[..., 1][core], first % self._pixels.shape[1] + size // 2),
            (self._fit[core], fit),
        ):
            target[...] = values.view(shape).cpu().numpy()
        if self._reconstruction != "fitted":
            self._paint(labels, assigned, field, outer)
        elif not any_contrast:
            matches = field.match(self._atoms, any_contrast=True)
        if self._reconstruction == "matched":
            index = labels * N_SYMMETRIES + matches.of(labels, nodes).symmetries
            self._around[core] = index.to(torch.int32).view(shape)
            return
        raise_if(self._cancelled)
        nearest = matches.distances.flatten(1).argmin(dim=0)[nodes]
        self._paint(nearest, matches.of(nearest, nodes), field, outer)

    def _match(self, outer: Region) -> tuple[PatchField, Matches, Matches]:
        """Return the patches of a tile, their matches, and the best matches within shifts."""
        size = self._dictionary.patch_size
        rows, columns = (slice(side.start, side.stop + size - 1) for side in outer)
        if self._features is None:
            values = self._dictionary.values(self._pixels[rows, columns])
        else:
            values = self._features[rows, columns]
        pixels = torch.from_numpy(values).movedim(-1, 0).to(self._atoms.device)
        field = PatchField(pixels, size)
        matches = field.match(self._atoms, any_contrast=self._dictionary.any_contrast)
        raise_if(self._cancelled)
        return field, matches, matches.within(self._dictionary.shift_window)

    def _first_pixels(
        self, indices: torch.Tensor, field: PatchField, outer: Region
    ) -> torch.Tensor:
        """Return the flat image indices of the first pixels of patches of a tile."""
        first: torch.Tensor = (indices // field.shape[1] + outer[0].start) * self._pixels.shape[1]
        return first.add_(indices % field.shape[1] + outer[1].start)

    def _flow(
        self, distances: torch.Tensor, method: methods.AssignmentFlow, window: int
    ) -> Segmentation:
        """Label interior pixels by the assignment flow; label l is atom l - 1."""
        shape = tuple(distances.shape[1:])
        graph = GridGraph(shape, window=min(window, *(side - (side + 1) % 2 for side in shape)))
        n_values = self._atoms[0].numel()
        table = (distances.flatten(1).T / n_values).clamp_(min=0).sqrt_().contiguous()
        features = table.new_zeros(len(table), 1)
        problem = Problem(features.cpu().numpy(), graph)
        call = methods.Call(problem, features, None, None, self._cancelled, time.perf_counter())

        def make_field() -> AssignmentField:
            averager = graph.averager(table.device, table.dtype)
            points = table.new_zeros(table.shape[1], 1)
            return AssignmentField(averager, table, points, method.rho, self._cancelled)

        start = Start.at(torch.zeros_like(table))
        named = LabelMap.identity(start.n_columns)
        flow = Flow(start, make_field, method.stepper, method.stop, label_map=named)
        return methods.run_to_end(methods.run_flow(method, flow, call))

    def _paint(
        self, labels: torch.Tensor, matches: Matches, field: PatchField, outer: Region
    ) -> None:
        """Add inversely transformed atoms at their matches, weighted by fit unless "matched"."""
        size, width = self._dictionary.patch_size, self._pixels.shape[1]
        any_contrast = self._dictionary.any_contrast
        is_fitted = self._reconstruction == "fitted" or any_contrast
        # About half of the distance to an atom is due to brightness and contrast.
        scale = max(self._dictionary.distance, 1e-12) / (1 + (is_fitted and not any_contrast))
        index = labels * N_SYMMETRIES + matches.symmetries
        step = max(1, _CHUNK_BYTES // (4 * self._sums.shape[1] * size**2))
        for start in range(0, len(index), step):
            rows = slice(start, start + step)
            indices, distances = matches.indices[rows], matches.distances[rows]
            patches = self._turned[index[rows]]
            if is_fitted:
                patches, distances = _fit(patches, field.blocks(indices))
            weights = torch.ones_like(distances)
            if self._reconstruction != "matched":
                weights = torch.exp(-distances / scale).clamp_(min=_LEAST_WEIGHT)
            weights = weights.view(-1, 1, 1, 1)
            values = torch.cat([patches * weights, weights.expand(-1, size, size, 1)], dim=3)
            first = self._first_pixels(indices, field, outer)
            for row, column in itertools.product(range(size), range(size)):
                self._sums.index_add_(0, first + (row * width + column), values[:, row, column])

    def _painted(self) -> NDArray[np.float32]:
        """Return the averages, eq. (6.14); uncovered pixels take the nearest interior atom."""
        weights = self._sums[:, -1:]
        bare = (weights[:, 0] == 0).nonzero()[:, 0]
        means = self._sums[:, :-1] / weights.clamp(min=1e-30)
        if len(bare):
            width, rim = self._pixels.shape[1], self._dictionary.patch_size // 2
            row, column = bare // width, bare % width
            y = (row - rim).clamp(0, self._shape[0] - 1)
            x = (column - rim).clamp(0, self._shape[1] - 1)
            means[bare] = self._turned[self._around[y, x].long(), row - y, column - x]
        return np.asarray(means.view(*self._pixels.shape[:2], -1).float().cpu().numpy())


def label_patches(
    dictionary: PatchAtoms, pixels: NDArray[Any], method: methods.AssignmentFlow, window: int
) -> tuple[LabelImage, History]:
    """Return the labels of all pixels, as one tile, and the history of the flow."""
    application = Application(dictionary, pixels, "fitted", method.device, methods.not_cancelled)
    best = application._match(tuple(slice(0, side) for side in application._shape))[2]
    segmentation = application._flow(best.distances, method, window)
    rim = dictionary.patch_size // 2
    return np.pad(np.asarray(segmentation.labels), rim, mode="edge"), segmentation.history


def _fit(patches: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit gain and offset of patches (n, p, p, n_channels); return fits and squared distances."""
    targets, flat = targets.permute(0, 2, 3, 1).flatten(1), patches.flatten(1)
    mean, offset = targets.mean(dim=1, keepdim=True), flat.mean(dim=1, keepdim=True)
    zero_mean = flat - offset
    gain = ((targets - mean) * zero_mean).sum(dim=1, keepdim=True)
    gain = (gain / zero_mean.square().sum(dim=1, keepdim=True).clamp(min=1e-12)).clamp_(min=0)
    fitted = gain * zero_mean + mean
    return fitted.view(patches.shape), (fitted - targets).square().sum(dim=1)
