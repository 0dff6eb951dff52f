"""Many small problems with seeds, labelled all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_array, own_floats
from napari_saf.device import float_type, resolve_device
from napari_saf.errors import InvalidInput
from napari_saf.graph import Averager, Neighbours, SparseProduct, nearest_neighbours, symmetric_part
from napari_saf.methods._clustering import (
    AbstractAlternatingMethod,
    AbstractClustering,
    Nodes,
)
from napari_saf.methods._method import Call, check_features
from napari_saf.methods._start import count_classes
from napari_saf.points import weighted_means

__all__ = ["AbstractTaskClustering", "TaskNeighbourhood", "Tasks", "check_classes", "label_tasks"]

_CHUNK_BYTES = 2**28
_MOST_DENSE_NODES = 4096


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Problems of the same numbers of nodes, features and classes, on the device of the run.

    Attributes
    ----------
    blocks : Tensor of shape (n_tasks, n_nodes, n_features)
        Features.
    seed_blocks : Tensor of shape (n_tasks, n_nodes), or None
        Labels 1, 2, ... that were given; 0 for none.
    initial : array of shape (n_nodes, n_columns), optional
        Assignment of the one task to start from.
    raise_if_cancelled : callable
        Raises Cancelled if the run was told to end.
    """

    blocks: torch.Tensor
    seed_blocks: torch.Tensor | None
    initial: ArrayLike | None = None
    raise_if_cancelled: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, call: Call) -> Tasks:
        """Return the one task of a call."""
        seeds = None if call.seeds is None else call.seeds[None]
        return cls(call.features[None], seeds, call.initial, call.raise_if_cancelled)

    @property
    def features(self) -> torch.Tensor:
        """Features of the nodes of all tasks, one after the other."""
        return self.blocks.flatten(0, 1)

    @property
    def seeds(self) -> torch.Tensor | None:
        """Seeds of the nodes of all tasks, one after the other."""
        return None if self.seed_blocks is None else self.seed_blocks.flatten()

    @property
    def n_classes(self) -> int:
        """Number of classes that have seeds."""
        return 0 if self.seed_blocks is None else int(self.seed_blocks.max())

    def class_indicators(self) -> torch.Tensor:
        """Return (n_tasks, n_nodes, n_classes) with 1 where a node is a seed of a class."""
        assert self.seed_blocks is not None
        classes = torch.arange(1, self.n_classes + 1, device=self.blocks.device)
        return (self.seed_blocks[..., None] == classes).to(self.blocks)

    def class_means(self, features: torch.Tensor) -> torch.Tensor:
        """Return the means (n_tasks, n_classes, n_features) of the seeds of each class."""
        return weighted_means(self.class_indicators(), features)


class AbstractTaskClustering(AbstractClustering):
    """Clusterings of several tasks under way, the rows of one after those of the other.

    Every task ends by itself: those that are no longer active stay as they are.

    Parameters
    ----------
    tasks : Tasks
    n_columns : int

    Attributes
    ----------
    n_tasks : int
    objectives : Tensor of shape (n_tasks,)
        In float64, on the CPU.
    active : Tensor of bool of shape (n_tasks,)
        On the CPU.
    is_recorded : bool
        Whether someone looks at the objectives.
    """

    ends_by_objective: ClassVar[bool] = True

    def __init__(self, tasks: Tasks, n_columns: int) -> None:
        self.n_tasks = len(tasks.blocks)
        nodes: Nodes = tasks
        super().__init__(nodes, n_columns)
        self.tasks = tasks
        self.active = torch.ones(self.n_tasks, dtype=torch.bool)
        self.is_recorded = True

    @property
    def objective(self) -> float:
        """Objective of the first task."""
        return float(self.objectives[0])

    @objective.setter
    def objective(self, value: float) -> None:
        self.objectives = torch.full((self.n_tasks,), value, dtype=torch.float64)

    def gain(self, before: float) -> float:
        return float(self.gains(torch.tensor([before], dtype=torch.float64))[0])

    def gains(self, before: torch.Tensor) -> torch.Tensor:
        """Return `gain` for every task."""
        return (before - self.objectives) / self.objectives.abs().clamp(min=1e-300)

    def prototypes(self) -> torch.Tensor:
        return weighted_means(self.assignment, self.features)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        return {}

    def solve(self, limit: int, tolerance: float) -> None:
        """Go on until every task has made `limit` iterations or gains no more."""
        self.begin()
        self.is_recorded = self.ends_by_objective
        for _ in range(limit):
            before = self.objectives
            self.advance()
            self.active &= self.gains(before) > tolerance
            if not self.active.any():
                return

    def by_task(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows as (n_tasks, n_nodes, n_columns)."""
        return rows.view(self.n_tasks, -1, rows.shape[1])

    def totals(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum of the entries of each task: of rows as they are, then in float64."""
        if rows.ndim == 2:
            rows = torch.mv(rows, rows.new_ones(rows.shape[1]))
        return rows.cpu().double().view(self.n_tasks, -1).sum(dim=1)

    def choose(self, mask: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """Return the new values of some tasks and the old ones of others."""
        if mask.all():
            return new
        own = mask.to(new.device)
        if len(new) != self.n_tasks:
            own = own.repeat_interleave(len(new) // self.n_tasks)
        return torch.where(own.view(-1, *[1] * (new.ndim - 1)), new, old)


class TaskNeighbourhood:
    """The nearest in feature space, within each task.

    Parameters
    ----------
    blocks : Tensor of shape (n_tasks, n_nodes, n_features)
    n_neighbors : int

    Attributes
    ----------
    mean_squares : Tensor of shape (n_tasks,)
        Mean squared distance to them.
    """

    def __init__(self, blocks: torch.Tensor, n_neighbors: int) -> None:
        n_tasks, n_nodes = blocks.shape[:2]
        k = min(n_neighbors, n_nodes - 1)
        if n_nodes > _MOST_DENSE_NODES:
            parts = [nearest_neighbours(block.cpu().numpy(), k) for block in blocks]
            indices = np.stack([part.indices for part in parts])
            squares = np.stack([part.squared_distances for part in parts])
        else:
            indices, squares = _nearest(blocks, k)
        self.mean_squares = torch.from_numpy(squares.mean(axis=(1, 2)))
        offsets = np.arange(n_tasks)[:, None, None] * n_nodes
        found = Neighbours((indices + offsets).reshape(-1, k), squares.reshape(-1, k))
        self._weights = symmetric_part(found.indicator())

    def operator(self, like: torch.Tensor) -> Averager:
        """Return the product with the symmetric part of the indicator of being nearest."""
        return SparseProduct(self._weights, like.device, like.dtype)


def _nearest(blocks: torch.Tensor, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    points = blocks.cpu().double()
    lengths = points.square().sum(dim=2)
    squares = torch.baddbmm(lengths[:, :, None] + lengths[:, None], points, points.mT, alpha=-2)
    squares.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    found, indices = squares.topk(k, dim=2, largest=False)
    return indices.numpy(), found.clamp_(min=0).numpy()


def label_tasks(
    method: AbstractAlternatingMethod,
    prepare: Callable[[Tasks], AbstractTaskClustering],
    features: ArrayLike,
    seeds: ArrayLike,
) -> NDArray[np.int64]:
    """Return the labels (n_tasks, n_nodes) of many tasks, in chunks of bounded memory.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, or the classes are not the same in all tasks.
    """
    points, given = _check_tasks(features, seeds)
    device = resolve_device(method.device)
    dtype = float_type(method.dtype, device)
    n_nodes, n_features = points.shape[1:]
    labels = np.empty(given.shape, dtype=np.int64)
    if len(points):
        check_features(points, dtype)
    per_node = dtype.itemsize * (6 * n_features + 10 * int(given.max(initial=0)))
    per_node += 24 * min(n_nodes, _MOST_DENSE_NODES)
    count = max(1, int(_CHUNK_BYTES / (n_nodes * per_node)))
    for first in range(0, len(points), count):
        chunk = slice(first, first + count)
        blocks = torch.from_numpy(points[chunk])
        if method._takes_mean(blocks, dtype):
            blocks = blocks - blocks.mean(dim=1, keepdim=True)
        blocks = blocks.to(dtype).to(device)
        state = prepare(Tasks(blocks, torch.from_numpy(given[chunk]).to(device)))
        state.solve(method.max_iterations, method.tolerance)
        labels[chunk] = state.by_task(state.v).argmax(dim=2).cpu().numpy() + 1
    return labels


def check_classes(seeds: NDArray[np.int64] | None) -> int:
    """Return the number of classes of the seeds (n_nodes,) of one problem.

    Raises
    ------
    InvalidInput
        If there are no seeds, those of one class only, or a class number is skipped.
    """
    if seeds is None:
        raise InvalidInput(
            "seeds: expected strokes of two or more classes, got none; mark a few pixels of each"
        )
    n_classes = count_classes(seeds)
    if n_classes < 2:
        raise InvalidInput(
            "seeds: expected strokes of two or more classes, got one; mark another one"
        )
    return n_classes


def _check_tasks(
    features: ArrayLike, seeds: ArrayLike
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    points, given = own_floats(features, "features"), as_array(seeds, "seeds")
    if points.ndim != 3 or 0 in points.shape[1:] or not np.isfinite(points).all():
        raise InvalidInput(
            "features: expected finite numbers of shape (n_tasks, n_nodes, n_features), "
            f"got shape {points.shape}"
        )
    if given.dtype.kind not in "biu" or given.shape != points.shape[:2]:
        raise InvalidInput(
            f"seeds: expected whole numbers of shape {points.shape[:2]}, "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not len(given):
        return points, given.astype(np.int64)
    if given.min() < 0:
        raise InvalidInput(f"seeds: expected 0, 1, 2, ..., got {given.min()}")
    n_classes = max(int(given.max()), 2)
    for label in range(1, n_classes + 1):
        missing = ~(given == label).any(axis=1)
        if missing.any():
            raise InvalidInput(
                f"seeds: expected classes 1 to {n_classes} in every task, "
                f"task {int(missing.argmax())} has none of class {label}"
            )
    return points, given.astype(np.int64)
