"""The patches of images: drawn, matched to atoms, averaged into atoms, landmarks of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from napari_saf.dictionary._distance import (
    INVERSE,
    N_SYMMETRIES,
    PatchField,
    all_transforms,
)
from napari_saf.result import LabelImage

_CHUNK_BYTES = 2**25
_EIGENVALUE_TOLERANCE = 1e-6
_STILL = 1e-3
_MOST_UPDATES = 50


class PatchSample:
    """Patches of side p with what lies within a window of centres around them.

    `blocks` has shape (n, n_channels, q, q), q = p + window - 1.
    """

    def __init__(self, blocks: torch.Tensor, patch_size: int) -> None:
        self.blocks = blocks
        self.patch_size = patch_size

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, indices: slice | list[int]) -> PatchSample:
        return PatchSample(self.blocks[indices], self.patch_size)

    @property
    def centres(self) -> torch.Tensor:
        """The patches themselves, of shape (n, n_channels, p, p)."""
        rim = (self.blocks.shape[-1] - self.patch_size) // 2
        return self.blocks[..., rim : rim + self.patch_size, rim : rim + self.patch_size]

    def distances(self, atoms: torch.Tensor) -> torch.Tensor:
        """Return the least squared distances (n, n_atoms) over symmetries and centres."""
        rows = [self._squared_distances(nodes, atoms) for nodes in self._chunks()]
        return torch.cat([table.flatten(2).amin(dim=2) for table in rows])

    def distances_of_all(self) -> torch.Tensor:
        """Return the distances (n, n) of the patches to each other, the smaller of both ways."""
        there = self.distances(self.centres)
        return torch.minimum(there, there.T).fill_diagonal_(0)

    def align(self, atoms: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Match patch i to atom ``labels[i]``.

        Returns the least squared distances (n,) over symmetries and centres, and the matched
        patches (n, n_channels, p, p), turned onto their atoms.
        """
        distances = self.blocks.new_empty(len(self))
        patches = torch.empty_like(self.centres)
        for label in range(len(atoms)):
            own = (labels == label).nonzero()[:, 0]
            for nodes in self._chunks(own):
                table = self._squared_distances(nodes, atoms[label : label + 1])[:, 0].flatten(1)
                distances[nodes], place = table.min(dim=1)
                rows = torch.arange(len(nodes), device=nodes.device)
                found = self._windows(nodes)[rows, place // N_SYMMETRIES]
                patches[nodes] = all_transforms(found)[rows, place % N_SYMMETRIES]
        return distances, patches

    def _chunks(self, nodes: torch.Tensor | None = None) -> Iterator[torch.Tensor]:
        nodes = torch.arange(len(self), device=self.blocks.device) if nodes is None else nodes
        n_windows = (self.blocks.shape[-1] - self.patch_size + 1) ** 2
        values = n_windows * self.blocks.shape[1] * self.patch_size**2
        step = max(1, _CHUNK_BYTES // (4 * values))
        return (nodes[start : start + step] for start in range(0, len(nodes), step))

    def _windows(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return all patches (n, n_windows, n_channels, p, p) of some blocks."""
        p = self.patch_size
        found = self.blocks[nodes].unfold(2, p, 1).unfold(3, p, 1)
        return found.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)

    def _squared_distances(self, nodes: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
        """Return squared distances (n, n_atoms, n_windows, 8)."""
        windows = self._windows(nodes).flatten(2)
        filters = all_transforms(atoms)[:, list(INVERSE)].flatten(2)
        inner = windows @ filters.flatten(0, 1).T
        inner = inner.view(*windows.shape[:2], len(atoms), N_SYMMETRIES).transpose(1, 2)
        square = windows.square().sum(dim=2)[:, None, :, None]
        own = atoms.flatten(1).square().sum(dim=1)[:, None, None]
        return (square + own - 2 * inner).clamp_(min=0)


class ImagePatches:
    """The interior patches of one or several images, counted through: the nodes of a flow.

    `features` (n_pixels, n_channels) are the images of these shapes behind each other, `window`
    is the side of the window of centres within which a patch may shift.
    """

    def __init__(
        self,
        features: torch.Tensor,
        shapes: Sequence[tuple[int, int]],
        patch_size: int,
        window: int,
    ) -> None:
        self.fields, self._window, start = [], window, 0
        for height, width in shapes:
            own = features[start : start + height * width].T.reshape(-1, height, width)
            self.fields.append(PatchField(own, patch_size))
            start += height * width

    def draw(self, count: int, rng: np.random.Generator) -> tuple[PatchSample, torch.Tensor]:
        """Draw at most `count` patches of which all shifts are interior, and their nodes.

        Without replacement, in no order.
        """
        inner = [tuple(side - self._window + 1 for side in field.shape) for field in self.fields]
        ends = np.cumsum([height * width for height, width in inner])
        drawn = rng.choice(int(ends[-1]), min(count, int(ends[-1])), replace=False)
        blocks, nodes, first = [], [], 0
        for field, (height, width), end in zip(self.fields, inner, ends, strict=True):
            start, radius = end - height * width, self._window // 2
            own = drawn[(drawn >= start) & (drawn < end)] - start
            flat = (own // width + radius) * field.shape[1] + own % width + radius
            places = torch.from_numpy(flat).to(field.image.device)
            blocks.append(field.blocks(places, self._window))
            nodes.append(places + first)
            first += field.shape[0] * field.shape[1]
        order = torch.from_numpy(rng.permutation(len(drawn))).to(nodes[0].device)
        sample = PatchSample(torch.cat(blocks)[order], self.fields[0].patch_size)
        return sample, torch.cat(nodes)[order]

    def distances(self, landmarks: PatchSample, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Return the symmetric squared distances (n_nodes, n_landmarks) of all patches.

        The smaller of both directions: a patch of the window around the node moved onto the
        landmark, and one of the window around the landmark moved onto the node. Once `cancelled`
        returns True, only the first landmarks are there, two at least.
        """
        columns: list[torch.Tensor] = []
        for block in landmarks.blocks:
            if len(columns) >= 2 and cancelled():
                break
            own = [field.rough_symmetric(block, self._window).flatten() for field in self.fields]
            columns.append(torch.cat(own))
        if not columns:
            n_nodes = sum(field.shape[0] * field.shape[1] for field in self.fields)
            return self.fields[0].image.new_empty(n_nodes, 0)
        return torch.stack(columns, dim=1)

    def to_images(self, labels: LabelImage | list[LabelImage]) -> LabelImage | list[LabelImage]:
        """Return labels at the size of the images; the rim has those of the nearest patches."""
        rim = self.fields[0].patch_size // 2
        if isinstance(labels, list):
            return [np.pad(one, rim, mode="edge") for one in labels]
        return np.pad(labels, rim, mode="edge")


def update_atoms(
    sample: PatchSample, atoms: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Turn and shift each patch onto the atom of its label as well as it fits, and average.

    Atoms of empty labels stay. The second value is the objective of the atoms that were given,
    eq. (6.13) of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639,

        sum_i w_i min |T P_j - P*|^2 / sum_i w_i

    with j over the window of patch i and T over the symmetries. It never rises from one
    update to the next: the best fit lowers it, and so does the mean.
    """
    distances, patches = sample.align(atoms, labels)
    objective = float((weights * distances).sum(dtype=torch.float64)) / float(weights.sum())
    sums = torch.zeros_like(atoms)
    sums.index_add_(0, labels, patches * weights[:, None, None, None])
    masses = torch.zeros_like(atoms[:, 0, 0, 0]).index_add_(0, labels, weights)
    means = sums / masses.clamp(min=1e-12)[:, None, None, None]
    return torch.where((masses > 0)[:, None, None, None], means, atoms), objective


def refine_atoms(
    sample: PatchSample,
    atoms: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    refinements: int,
) -> Iterator[tuple[torch.Tensor, float, float]]:
    """Yield the atoms of every update by (6.13), its objective, and the share of updates left.

    Labels and weights are fixed until the objective stands still; in the refinements every patch
    goes to its nearest atom before the update. Atoms that no patch was nearest to stay out.
    """
    most, objectives = _MOST_UPDATES + refinements, []
    for done in range(1, _MOST_UPDATES + 1):
        atoms, objective = update_atoms(sample, atoms, labels, weights)
        objectives.append(objective)
        yield atoms, objective, 1 - done / most
        if done > 1 and objectives[-2] - objective <= _STILL * objectives[0]:
            break
    for left in reversed(range(refinements)):
        used = torch.bincount(labels, minlength=len(atoms)) > 0
        distances = sample.distances(atoms)
        distances[:, ~used] = torch.inf
        least, labels = distances.min(dim=1)
        weights = torch.ones_like(least)
        atoms, objective = update_atoms(sample, atoms, labels, weights)
        yield atoms, objective, left / most


def pick_far_apart(distances: torch.Tensor, count: int) -> list[int]:
    """Return indices of distinct points, the central one first, then each the farthest.

    `distances` has shape (n, n); fewer than `count` where all others are at distance 0.
    """
    chosen = [int(distances.sum(dim=1).argmin())]
    nearest = distances[:, chosen[0]].clone()
    while len(chosen) < count:
        farthest = int(nearest.argmax())
        if float(nearest[farthest]) <= 0:
            break
        chosen.append(farthest)
        nearest = torch.minimum(nearest, distances[:, farthest])
    return chosen


def sketch(columns: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """Return Phi (n_nodes, rank) with Phi Phi' close to the positive part of a kernel.

    `columns` (n_nodes, n_landmarks) are the affinities exp(-d / sigma^2) of all nodes to the
    landmarks, d the symmetric distance, and `block` those of the landmarks to each other. The
    kernel of a distance with a minimum in it is not positive semi-definite, and the
    pseudo-inverse of the Nystroem method would divide by its negative eigenvalues. Kept are
    those above the size of the most negative one: what is smaller is no better known.
    """
    wide = block.cpu().double()
    values, vectors = torch.linalg.eigh((wide + wide.T) / 2)
    floor = max(_EIGENVALUE_TOLERANCE * float(values[-1]), -float(values[0]))
    is_large = values > floor
    whitening: torch.Tensor = vectors[:, is_large] / values[is_large].sqrt()
    product: torch.Tensor = columns @ whitening.to(columns.dtype).to(columns.device)
    return product
