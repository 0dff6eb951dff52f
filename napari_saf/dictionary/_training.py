"""Learning a dictionary: the self-assignment flow of patches, then the alignment of atoms."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.dictionary._distance import PatchField
from napari_saf.dictionary._sample import (
    PatchSample,
    draw_nodes,
    landmark_distances,
    pick_far_apart,
    sketch,
    update_atoms,
)
from napari_saf.errors import InvalidInput
from napari_saf.flow import Basis, Flow, SelfAssignmentField, Start, normalize_
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.methods import Call, map_steps, run_flow
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot

if TYPE_CHECKING:
    from napari_saf.dictionary._dictionary import PatchDictionaryLearning

_SAMPLE_BYTES = 2**28
_LIVE_SAMPLES = 2000
_STILL = 1e-3
_MOST_ROUNDS = 50
_SHARE_OF_FLOW = 0.8
"""Of the progress; the rest is the alignment."""


class Training:
    """A dictionary on its way.

    Parameters
    ----------
    method : PatchDictionaryLearning
    call : Call
        On the images.
    grids : sequence of GridGraph
        Of the images, 2-D, without masks.

    Attributes
    ----------
    call : Call
        On the interior pixels, whose patches are the nodes.
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
        As far as they are known.
    """

    def __init__(
        self, method: PatchDictionaryLearning, call: Call, grids: Sequence[GridGraph]
    ) -> None:
        self._method = method
        self._fields = _fields(call, grids, method.patch_size)
        self._call = _interior_call(call, self._fields, grids)
        self._first = np.cumsum([0, *(shape[0] * shape[1] for shape in self._shapes)])
        rng = np.random.default_rng(method.seed)
        count = max(method.landmarks, 2 * method.n_atoms)
        self._landmarks, _ = self._draw(count, rng)
        block = method.patch_size + method.shift_window - 1
        bytes_each = 4 * block**2 * self._fields[0].image.shape[0]
        count = min(method.n_samples, max(method.n_atoms, _SAMPLE_BYTES // bytes_each))
        self._sample, self._sample_nodes = self._draw(count, rng)
        self._columns = torch.empty(0)
        self._block = torch.empty(0)
        self._sigma2 = 1.0
        self._known: list[int] = []
        self._kernel: torch.Tensor | None = None
        self._kernel_order: list[int] = []
        self._live: torch.Tensor | None = None
        self._latest: Snapshot | None = None
        self.atoms = self._landmarks.centres[: method.n_atoms]

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return [field.shape for field in self._fields]

    def flow(self) -> Flow:
        """Return the self-assignment flow of patches, ready to start."""
        method, start = self._method, Start.at(self._start())
        notes: tuple[str, ...] = ()
        if start.n_columns < method.n_atoms and not self._call.cancelled():
            notes = (f"atoms reduced to {start.n_columns}: no more distinct patches",)

        def make_field() -> SelfAssignmentField:
            features = self._call.features
            return SelfAssignmentField(
                Basis([(self._basis(), None)]),
                self._call.problem.graph.averager(features.device, features.dtype),
                features,
                start.n_columns,
                s=method.s,
                rho=method.rho,
                cancelled=self._call.cancelled,
            )

        return Flow(start, make_field, method.stepper, method.stop, notes)

    def flow_steps(self) -> Generator[Snapshot, None, Segmentation]:
        """Run the flow; its snapshots have the size of the images, and atoms."""
        steps = run_flow(self._method, self.flow(), self._call)
        return (yield from map_steps(steps, self._with_atoms))

    def alignment_steps(
        self, assignment: NDArray[np.float32]
    ) -> Generator[Snapshot, None, list[float]]:
        """Shape the atoms of the flow's labels; return the objective of (6.13) in each round."""
        self._begin_alignment(assignment)
        objective: list[float] = []
        most = _MOST_ROUNDS + self._method.refinements
        for done in range(1, _MOST_ROUNDS + 1):
            objective.append(self._update())
            is_still = done > 1 and objective[-2] - objective[-1] <= _STILL * objective[0]
            if self._call.cancelled() or is_still:
                break
            yield self._aligned(_SHARE_OF_FLOW + (1 - _SHARE_OF_FLOW) * done / most)
        for left in reversed(range(self._method.refinements)):
            if self._call.cancelled():
                break
            self._reassign()
            objective.append(self._update())
            yield self._aligned(1 - (1 - _SHARE_OF_FLOW) * left / most)
        return objective

    def _start(self) -> torch.Tensor:
        """Return log coordinates (n_nodes, n_columns) of the start.

        From landmarks far apart; from fewer of them once the call is cancelled.
        """
        method, landmarks = self._method, self._landmarks
        there = landmarks.distances(landmarks.centres)
        block = torch.minimum(there, there.T).fill_diagonal_(0)
        off = block[block > 0]
        if not len(off):
            raise InvalidInput("image: expected differing patches, all of those sampled are equal")
        self._sigma2 = method.width * float(off.median())
        self._known = pick_far_apart(block, method.n_atoms)
        self._block = block
        self.atoms = landmarks.centres[self._known].contiguous()
        self._columns = landmark_distances(
            self._fields, landmarks[self._known], method.shift_window, self._call.cancelled
        )
        count = self._columns.shape[1]
        self._known, self.atoms = self._known[:count], self.atoms[:count]
        scale = -method.epsilon / self._sigma2**0.5
        return normalize_((self._columns.sqrt() * scale).to(self._call.features.dtype))

    def _basis(self) -> torch.Tensor:
        """Return the sketch Phi (n_nodes, rank) of the affinity."""
        rest = [k for k in range(len(self._landmarks)) if k not in set(self._known)]
        others = landmark_distances(
            self._fields, self._landmarks[rest], self._method.shift_window, self._call.cancelled
        )
        self._call.raise_if_cancelled()
        order = [*self._known, *rest]
        kernel = torch.cat([self._columns, others], dim=1).div_(-self._sigma2).exp_()
        block = (self._block[order][:, order] / -self._sigma2).exp()
        self._kernel, self._kernel_order = kernel[self._sample_nodes], order
        return sketch(kernel, block).to(self._call.features.dtype)

    def _begin_alignment(self, assignment: NDArray[np.float32]) -> None:
        """Take the labels and weights of the samples; begin each atom at a typical landmark."""
        rows = torch.from_numpy(assignment)[self._sample_nodes.cpu()]
        weights, labels = rows.max(dim=1)
        device = self.atoms.device
        self._weights, self._labels = weights.to(device), labels.to(device)
        kernel = self._kernel
        if kernel is None:
            return  # told to end before it was computed
        scores = kernel.new_zeros(len(self.atoms), kernel.shape[1])
        scores.index_add_(0, self._labels, kernel * self._weights[:, None])
        best = [self._kernel_order[k] for k in scores.argmax(dim=1).tolist()]
        self.atoms = self._landmarks.centres[best].contiguous()

    def _update(self) -> float:
        """Turn and shift the samples onto their atoms and average; return the old distance."""
        self.atoms, distance = update_atoms(self._sample, self.atoms, self._labels, self._weights)
        return distance

    def _reassign(self) -> None:
        """Give every sample to its nearest atom; atoms that nothing was like stay out."""
        used = torch.bincount(self._labels, minlength=len(self.atoms)) > 0
        distances = self._sample.distances(self.atoms)
        distances[:, ~used] = torch.inf
        least, self._labels = distances.min(dim=1)
        self._weights = torch.ones_like(least)

    def _with_atoms(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot of the flow at the size of the images, with atoms of its labels."""
        self._latest = snapshot
        return Snapshot(
            snapshot.record,
            _SHARE_OF_FLOW * snapshot.fraction,
            snapshot.seconds,
            lambda: self.to_images(snapshot.labels),
            lambda: self._live_atoms(snapshot),
        )

    def _aligned(self, fraction: float) -> Snapshot:
        """Return a snapshot with the labels of the flow and the atoms of now."""
        assert self._latest is not None
        latest, atoms = self._latest, self.atoms
        seconds = time.perf_counter() - self._call.began
        return Snapshot(
            latest.record,
            fraction,
            seconds,
            lambda: self.to_images(latest.labels),
            lambda: flat(atoms),
        )

    def to_images(self, labels: LabelImage | list[LabelImage]) -> LabelImage | list[LabelImage]:
        """Return labels of interior pixels at the size of the images."""
        rim = self._method.patch_size // 2
        if isinstance(labels, list):
            return [pad_to_image(one, rim) for one in labels]
        return pad_to_image(labels, rim)

    def _live_atoms(self, snapshot: Snapshot) -> NDArray[np.float32]:
        found = snapshot.labels
        images = found if isinstance(found, list) else [found]
        nodes = np.concatenate([image.ravel() for image in images])
        sample, device = self._sample[:_LIVE_SAMPLES], self.atoms.device
        own = self._sample_nodes[:_LIVE_SAMPLES].cpu().numpy()
        labels = torch.from_numpy(nodes[own].astype(np.int64) - 1).to(device)
        weights = torch.ones(len(labels), device=device)
        self._live, _ = update_atoms(
            sample, self.atoms if self._live is None else self._live, labels, weights
        )
        empty = torch.bincount(labels, minlength=len(self.atoms)).cpu().numpy() == 0
        atoms = flat(self._live)
        atoms[empty] = np.nan
        return atoms

    def _draw(self, count: int, rng: np.random.Generator) -> tuple[PatchSample, torch.Tensor]:
        """Return patches drawn from all images, in no order, and the nodes that they are."""
        window, size = self._method.shift_window, self._method.patch_size
        drawn = draw_nodes(self._fields, count, window, rng)
        parts = zip(self._fields, drawn, strict=True)
        blocks = torch.cat([field.blocks(own, window) for field, own in parts])
        nodes = torch.cat([own + int(k) for own, k in zip(drawn, self._first, strict=False)])
        order = torch.from_numpy(rng.permutation(len(nodes))).to(nodes.device)
        return PatchSample(blocks[order], size), nodes[order]


def pad_to_image(labels: LabelImage, rim: int) -> LabelImage:
    """Give pixels at the rim the label of the nearest interior pixel."""
    return np.pad(labels, rim, mode="edge")


def flat(atoms: torch.Tensor) -> NDArray[np.float32]:
    """Return atoms (n_atoms, n_channels, p, p) as rows of p, p, n_channels values."""
    last = atoms.movedim(1, -1).reshape(len(atoms), -1)
    return last.float().cpu().numpy().copy()


def _fields(call: Call, grids: Sequence[GridGraph], patch_size: int) -> list[PatchField]:
    fields, start = [], 0
    for grid in grids:
        own = call.features[start : start + grid.n_nodes].T.reshape(-1, *grid.shape)
        fields.append(PatchField(own, patch_size))
        start += grid.n_nodes
    return fields


def _interior_call(call: Call, fields: Sequence[PatchField], grids: Sequence[GridGraph]) -> Call:
    """Return the call on interior pixels; what their features are the flow never asks."""
    inner = [
        GridGraph(field.shape, window=grid.window)
        for field, grid in zip(fields, grids, strict=True)
    ]
    graph = inner[0] if isinstance(call.problem.graph, GridGraph) else GraphUnion(inner)
    features = call.features.new_zeros(graph.n_nodes, 1)
    problem = Problem(features.cpu().numpy(), graph)
    return Call(problem, features, None, call.max_iterations, call.cancelled, call.began)
