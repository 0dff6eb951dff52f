"""Labels that a person edited, and how a method goes on from them; knows no widget."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf._gui.runs.start import RunStart
from napari_saf.errors import InvalidInput
from napari_saf.graph import GridGraph
from napari_saf.io import count_labels
from napari_saf.label_map import LabelMap
from napari_saf.methods import AbstractMethod
from napari_saf.points import distances, k_means
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation

__all__ = ["Restart", "count_pixels", "free_number", "mean_points", "split_label"]

_ODDS = 10.0
"""How much more a node belongs to its label than to any other at the start."""
_MOST_SAMPLES = 20_000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Restart(RunStart):
    """Edited labels from which a run goes on.

    Attributes
    ----------
    numbers : array of int of shape (n_columns,)
        The label on screen of each column of the run, ascending; several may be of one label.
    labels : array of int, image-shaped
        As edited; 0 outside and where a label is sought.
    free : array of bool, image-shaped
        The pixels that may change.
    holds : bool
        Whether the others are seeds of the run. If not, they only start it, and keep their
        labels at the end: seeds would outweigh the features of their neighbours.
    """

    is_recorded: ClassVar[bool] = False
    numbers: NDArray[np.int64]
    labels: NDArray[Any]
    free: NDArray[np.bool_]
    holds: bool = True

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, NDArray[np.int64]]:
        """Return the problem, with seeds where other pixels hold, and the numbers of columns."""
        if self.holds and not self.free.all():
            nodes = self._nodes(problem)
            is_free = _grid(problem).from_image(self.free.astype(np.uint8)).astype(bool)
            seeds = np.where(is_free, 0, nodes + 1)
            problem = problem.with_seeds(seeds) if seeds.any() else problem
        return problem, self.numbers

    def initial(
        self, problem: Problem, numbers: NDArray[np.int64], method: AbstractMethod
    ) -> NDArray[np.float32]:
        """Return an assignment that is not sure of the labels, so that they can change."""
        nodes = self._nodes(problem)
        start = np.ones((len(nodes), len(self.numbers)), dtype=np.float32)
        known = np.flatnonzero(nodes >= 0)
        start[known, nodes[known]] = _ODDS
        return np.asarray(start / start.sum(axis=1, keepdims=True))

    def paint(self, columns: LabelImage, numbers: NDArray[np.int64]) -> LabelImage:
        """Return labels on screen; pixels that are not free keep theirs."""
        table = np.concatenate([[0], self.numbers])
        new = table.astype(np.min_scalar_type(int(table.max())))[columns]
        return np.asarray(np.where(self.free, new, self.labels), dtype=self.labels.dtype)

    def finish(self, result: Segmentation, numbers: NDArray[np.int64]) -> Segmentation:
        """Return the result with labels as on screen; row l - 1 of the prototypes is label l."""
        assert not isinstance(result.labels, list)
        by_rank = np.concatenate([[0], result.columns + 1])
        labels = self.paint(by_rank[result.labels], numbers)
        rows = np.full(
            (int(self.numbers.max()), result.prototypes.shape[1]), np.nan, dtype=np.float32
        )
        for number in np.unique(self.numbers):
            own = result.prototypes[self.numbers[result.columns] == number]
            own = own[np.isfinite(own).all(axis=1)]
            if len(own):
                rows[number - 1] = own.mean(axis=0)
        return dataclasses.replace(
            result, labels=labels, prototypes=rows, label_map=LabelMap.identity(len(rows))
        )

    def prototypes_by_label(
        self, prototypes: NDArray[np.float32], numbers: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the prototypes as they are: `finish` has put the rows in order."""
        return prototypes

    def _nodes(self, problem: Problem) -> NDArray[np.int64]:
        """Return the column of each node, -1 where it has none."""
        found = _grid(problem).from_image(self.labels).astype(np.int64)
        place = np.searchsorted(self.numbers, found).clip(max=len(self.numbers) - 1)
        return np.where(self.numbers[place] == found, place, -1)


def split_label(
    problem: Problem, labels: NDArray[Any], number: int, new: int
) -> tuple[NDArray[Any], dict[int, NDArray[np.float32]]]:
    """Return the labels with one split in two, and the prototypes of both, by label.

    Two means of the features, averaged over the window within the label: halves hang together.

    Raises
    ------
    InvalidInput
        If all pixels of the label are alike.
    """
    grid = _grid(problem)
    own = np.flatnonzero(grid.from_image(labels) == number)
    if len(own) < 2:
        raise InvalidInput(f"label {number}: expected two pixels or more, to split it")
    inside = np.zeros((problem.n_nodes, 1), dtype=np.float32)
    inside[own] = 1
    weights = grid.average(inside)[own]
    smooth = grid.average(problem.features * inside)[own] / weights
    some = smooth[:: max(1, len(own) // _MOST_SAMPLES)]
    if not (smooth != smooth[0]).any():
        raise InvalidInput(f"label {number}: all its pixels are alike, there is nothing to split")
    centres = torch.from_numpy(k_means(some, 2, n_starts=3))
    halves = distances(torch.from_numpy(smooth), centres).argmin(dim=1).numpy()
    if halves.mean() > 0.5:  # the larger half keeps the number
        halves = 1 - halves
    if halves.all() or not halves.any():
        raise InvalidInput(f"label {number}: all its pixels are alike, there is nothing to split")
    nodes = np.zeros(problem.n_nodes, dtype=np.uint8)
    nodes[own] = 1 + halves
    image = np.asarray(grid.to_image(nodes))
    found = np.where((labels == number) & (image == 2), labels.dtype.type(new), labels)
    features = problem.features[own]
    means = [features[halves == k].mean(axis=0, keepdims=True) for k in (0, 1)]
    return found, {number: means[0].astype(np.float32), new: means[1].astype(np.float32)}


def mean_points(
    problem: Problem, labels: NDArray[Any], numbers: Collection[int]
) -> dict[int, NDArray[np.float32]]:
    """Return the mean features (1, n_features) of labels, by label."""
    nodes = _grid(problem).from_image(labels)
    found = {}
    for number in numbers:
        own = problem.features[nodes == number]
        if len(own):
            found[number] = own.mean(axis=0, keepdims=True).astype(np.float32)
    return found


def count_pixels(labels: NDArray[Any]) -> dict[int, int]:
    """Return how many pixels each label above 0 has."""
    if not labels.size or labels.dtype.kind not in "iub":
        return {}
    present, sizes = count_labels(labels)
    return dict(zip(present.tolist(), sizes.tolist(), strict=True))


def free_number(taken: Collection[int], kind: np.dtype[Any]) -> int:
    """Return the smallest label that is not taken.

    Raises
    ------
    InvalidInput
        If an array of this kind holds no more.
    """
    last = int(np.iinfo(kind).max)
    found = next((n for n in range(1, min(last, len(taken) + 1) + 1) if n not in taken), None)
    if found is None:
        raise InvalidInput(f"labels: {kind} holds no more than {last} labels")
    return found


def _grid(problem: Problem) -> GridGraph:
    assert isinstance(problem.graph, GridGraph)
    return problem.graph
