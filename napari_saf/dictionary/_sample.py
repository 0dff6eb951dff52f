"""Steps of dictionary learning: sampling, matching and averaging patches, and the kernel sketch.

Blocks (n, n_channels, q, q), q = p + window - 1, are patches of side p with surroundings for
shifts; labels (n,) and weights (n,) refer to blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from napari_saf.device import torch
from napari_saf.dictionary._distance import (
    INVERSE,
    N_SYMMETRIES,
    PatchField,
    all_transforms,
    centres_of,
    check_patch_fits,
    shapes,
    windows_of,
)
from napari_saf.errors import InvalidInput
from napari_saf.features import FeatureExtractor, Scaling
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.problem import Problem
from napari_saf.result import LabelImage

_CHUNK_BYTES = 2**25
_EIGENVALUE_TOLERANCE = 1e-6
_STILL = 1e-3
_MOST_UPDATES = 50


def whole_images(
    problem: Problem, patch_size: int, shift_window: int
) -> tuple[tuple[GridGraph, ...], Scaling, FeatureExtractor]:
    """Return grids, scaling and features of unmasked 2-D images; raise InvalidInput otherwise."""
    graph, options = problem.graph, problem.options
    if not isinstance(graph, GridGraph | GraphUnion):
        raise InvalidInput("problem: expected images, got another graph")
    grids = graph.grids if isinstance(graph, GraphUnion) else (graph,)
    for grid in grids:
        if len(grid.shape) != 2:
            raise InvalidInput(f"image: expected 2 axes without channels, got {len(grid.shape)}")
        if grid.mask is not None or grid.window_weights is not None:
            raise InvalidInput(
                "problem: expected unmasked images with uniform weights, got a mask or weights"
            )
        check_patch_fits(patch_size, grid.shape, shift_window)
    extractor = None if options is None else options.extractor
    if options is None or extractor is None or options.scaling is None:
        got = "none" if options is None else repr(options.features)
        raise InvalidInput(f"features: expected a name, such as 'intensity', got {got:.60}")
    reason = why_no_atoms(type(extractor))
    if reason:
        raise InvalidInput(f"features: {extractor.name!r} {reason}")
    return grids, options.scaling, extractor


def why_no_atoms(features: type[FeatureExtractor]) -> str:
    """Return why features cannot form atoms, or an empty string."""
    if not features.is_equivariant:
        return "change when a patch is shifted, rotated or reflected: atoms cannot match it"
    if features.colours is FeatureExtractor.colours:
        return "cannot be converted to colours, so no image can be reconstructed"
    return ""


class ImagePatches:
    """Interior patches of concatenated images (n_pixels, n_channels), as the nodes of a flow."""

    def __init__(
        self,
        features: torch.Tensor,
        shapes: Sequence[tuple[int, int]],
        patch_size: int,
        window: int,
    ) -> None:
        images = torch.split(features, [height * width for height, width in shapes])
        pairs = zip(images, shapes, strict=True)
        self.fields = [
            PatchField(image.T.reshape(-1, *shape), patch_size) for image, shape in pairs
        ]
        self._window = window

    def draw(self, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw at most `count` interior blocks, without replacement, and their nodes."""
        inner = [tuple(side - self._window + 1 for side in field.shape) for field in self.fields]
        ends = np.cumsum([height * width for height, width in inner])
        drawn = rng.choice(int(ends[-1]), min(count, int(ends[-1])), replace=False)
        blocks, nodes, first = [], [], 0
        for field, (height, width), end in zip(self.fields, inner, ends, strict=True):
            start, radius = end - height * width, self._window // 2
            indices = drawn[(drawn >= start) & (drawn < end)] - start
            flat = (indices // width + radius) * field.shape[1] + indices % width + radius
            chosen = torch.from_numpy(flat).to(field.image.device)
            blocks.append(field.blocks(chosen, self._window))
            nodes.append(chosen + first)
            first += field.shape[0] * field.shape[1]
        order = torch.from_numpy(rng.permutation(len(drawn))).to(nodes[0].device)
        return torch.cat(blocks)[order], torch.cat(nodes)[order]

    def distances(self, landmarks: torch.Tensor, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Return symmetric squared distances (n_nodes, n_landmarks) to blocks.

        Once `cancelled` returns True, only the first landmarks are returned, at least two.
        """
        n_nodes = sum(field.shape[0] * field.shape[1] for field in self.fields)
        columns = [landmarks.new_empty(n_nodes, 0)]
        for block in landmarks:
            if len(columns) > 2 and cancelled():
                break
            parts = [field.rough_symmetric(block, self._window).flatten() for field in self.fields]
            columns.append(torch.cat(parts)[:, None])
        return torch.cat(columns, dim=1)

    def to_images(self, labels: LabelImage | list[LabelImage]) -> LabelImage | list[LabelImage]:
        rim = self.fields[0].patch_size // 2
        if isinstance(labels, list):
            return [np.pad(image, rim, mode="edge") for image in labels]
        return np.pad(labels, rim, mode="edge")


def distances_to(
    blocks: torch.Tensor, atoms: torch.Tensor, any_contrast: bool = False
) -> torch.Tensor:
    chunks = torch.split(blocks, _chunk_length(blocks, atoms))
    tables = (_products(chunk, atoms, any_contrast)[1] for chunk in chunks)
    return torch.cat([table.flatten(2).amin(dim=2) for table in tables])


def distances_between(blocks: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Return the distances (n, n) between patches, the smaller of both directions."""
    there = distances_to(blocks, centres_of(blocks, patch_size))
    return torch.minimum(there, there.T).fill_diagonal_(0)


def _chunk_length(blocks: torch.Tensor, atoms: torch.Tensor) -> int:
    n_windows = (blocks.shape[-1] - atoms.shape[-1] + 1) ** 2
    return max(1, _CHUNK_BYTES // (4 * n_windows * atoms[0].numel()))


def _products(
    blocks: torch.Tensor, atoms: torch.Tensor, any_contrast: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inner products and squared distances, both (n, n_atoms, n_windows, 8)."""
    windows = windows_of(blocks, atoms.shape[-1]).flatten(2)
    if any_contrast:
        windows, atoms = windows - windows.mean(dim=2, keepdim=True), shapes(atoms)
    filters = all_transforms(atoms)[:, INVERSE].flatten(2)
    inner = windows @ filters.flatten(0, 1).T
    inner = inner.view(*windows.shape[:2], len(atoms), N_SYMMETRIES).transpose(1, 2)
    square = windows.square().sum(dim=2)[:, None, :, None]
    if any_contrast:
        inner = inner.clamp(min=0)
        return inner, (square - inner.square()).clamp_(min=0)
    atom_squares = atoms.flatten(1).square().sum(dim=1)[:, None, None]
    return inner, (square + atom_squares - 2 * inner).clamp_(min=0)


def update_atoms(
    blocks: torch.Tensor,
    atoms: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    any_contrast: bool = False,
) -> tuple[torch.Tensor, float]:
    """Align each patch to the atom of its label by symmetry and shift, and average.

    Also return the objective of the previous atoms, which never increases, eq. (6.13) of
    https://doi.org/10.1137/19M1298639:

        sum_i w_i min |T P_j - P*|^2 / sum_i w_i

    with j over the window of patch i and T over the symmetries. With `any_contrast` the shape of an
    atom is that of sum_i w_i g_i T P°_i, a power iteration towards the principal component.
    """
    distances = blocks.new_empty(len(blocks))
    patches = torch.empty_like(centres_of(blocks, atoms.shape[-1]))
    gains = torch.ones_like(distances)
    for label in range(len(atoms)):
        members = (labels == label).nonzero()[:, 0]
        for nodes in torch.split(members, _chunk_length(blocks, atoms)):
            chunk, rows = blocks[nodes], torch.arange(len(nodes), device=nodes.device)
            tables = _products(chunk, atoms[label : label + 1], any_contrast)
            inner, table = (table.flatten(1) for table in tables)
            distances[nodes], best = table.min(dim=1)
            if any_contrast:
                gains[nodes] = inner[rows, best]
            windows = windows_of(chunk, atoms.shape[-1])[rows, best // N_SYMMETRIES]
            patches[nodes] = all_transforms(windows)[rows, best % N_SYMMETRIES]
    objective = float((weights * distances).sum(dtype=torch.float64)) / float(weights.sum())

    def mean(values: torch.Tensor) -> torch.Tensor:
        values = values * weights[:, None, None, None]
        sums = values.new_zeros(len(atoms), *values.shape[1:]).index_add_(0, labels, values)
        return sums / masses.clamp(min=1e-12)[:, None, None, None]

    masses = torch.zeros_like(atoms[:, 0, 0, 0]).index_add_(0, labels, weights)
    if any_contrast:
        gains, brightness = gains[:, None, None, None], patches.mean(dim=(1, 2, 3), keepdim=True)
        means = mean(brightness) + mean(gains) * shapes(mean(gains * (patches - brightness)))
    else:
        means = mean(patches)
    return torch.where((masses > 0)[:, None, None, None], means, atoms), objective


def refine_atoms(
    blocks: torch.Tensor,
    atoms: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    refinements: int,
    any_contrast: bool = False,
) -> Iterator[tuple[torch.Tensor, float, float]]:
    """Yield atoms, objective and remaining share of updates after each update by eq. (6.13).

    Labels are fixed until convergence; then each refinement assigns the nearest atoms first.
    """
    most, objectives = _MOST_UPDATES + refinements, []
    for done in range(1, _MOST_UPDATES + 1):
        atoms, objective = update_atoms(blocks, atoms, labels, weights, any_contrast)
        objectives.append(objective)
        yield atoms, objective, 1 - done / most
        if done > 1 and objectives[-2] - objective <= _STILL * objectives[0]:
            break
    for remaining in reversed(range(refinements)):
        distances = distances_to(blocks, atoms, any_contrast)
        distances[:, torch.bincount(labels, minlength=len(atoms)) == 0] = torch.inf
        least, labels = distances.min(dim=1)
        atoms, objective = update_atoms(blocks, atoms, labels, torch.ones_like(least), any_contrast)
        yield atoms, objective, remaining / most


def pick_far_apart(distances: torch.Tensor, count: int) -> list[int]:
    """Return indices by farthest-first traversal from the medoid of distances (n, n)."""
    chosen = [int(distances.sum(dim=1).argmin())]
    while len(chosen) < count:
        nearest = distances[chosen].amin(dim=0)
        if float(nearest.max()) <= 0:
            break
        chosen.append(int(nearest.argmax()))
    return chosen


def sketch(columns: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """Return Phi (n_nodes, rank) with Phi Phi' close to the positive part of a kernel.

    `columns` (n_nodes, n_landmarks) are affinities, `block` those between landmarks. The kernel is
    indefinite: only eigenvalues above the magnitude of the most negative one enter the Nystroem
    pseudo-inverse.
    """
    wide = block.cpu().double()
    values, vectors = torch.linalg.eigh((wide + wide.T) / 2)
    is_large = values > max(_EIGENVALUE_TOLERANCE * float(values[-1]), -float(values[0]))
    whitening: torch.Tensor = vectors[:, is_large] / values[is_large].sqrt()
    product: torch.Tensor = columns @ whitening.to(columns.dtype).to(columns.device)
    return product


def flatten(atoms: torch.Tensor) -> NDArray[np.float32]:
    """Return atoms (n_atoms, n_channels, p, p) as rows of p, p, n_channels values."""
    return atoms.movedim(1, -1).reshape(len(atoms), -1).float().cpu().numpy().copy()
