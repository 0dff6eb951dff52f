"""From the states of a run to snapshots and, at the end, a segmentation."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.errors import SafError
from napari_saf.label_map import LabelMap
from napari_saf.methods._method import AbstractMethod
from napari_saf.problem import Problem
from napari_saf.result import History, LabelImage, Record, Segmentation, Snapshot, Status

_ROWS = 2**16


@dataclasses.dataclass(slots=True, eq=False)
class Reporter:
    """Makes snapshots of a run, and at the end a segmentation.

    Attributes
    ----------
    method : AbstractMethod
    problem : Problem
    n_columns : int
        Columns of the start.
    began : float
        When the run began, by `time.perf_counter`.
    columns_of_nodes : callable
        Returns the column of the start, of shape (n_nodes,), that each node prefers now.
    logarithm : callable
        Returns log coordinates of the state now, of shape (n_nodes, n_columns).
    keeps_numbers : bool
        Whether label l is column l - 1, rather than the l-th largest.
    n_possible : int, optional
        How many of the columns a node can have; None: all.
    records : list of Record
        Of the run so far.
    """

    method: AbstractMethod
    problem: Problem
    n_columns: int
    began: float
    columns_of_nodes: Callable[[], torch.Tensor]
    logarithm: Callable[[], torch.Tensor]
    _: dataclasses.KW_ONLY
    keeps_numbers: bool
    n_possible: int | None = None
    records: list[Record] = dataclasses.field(default_factory=list)
    _n_snapshots: int = 0

    def snapshot(self, fraction: float) -> Snapshot:
        """Return a snapshot whose labels can be read until the next one."""
        self._n_snapshots += 1
        number = self._n_snapshots
        record = self.records[-1] if self.records else self._first_record()

        def check() -> None:
            if self._n_snapshots != number:
                raise SafError(
                    "this snapshot is out of date: read or detach it before the run goes on"
                )

        def read_labels() -> LabelImage | list[LabelImage]:
            check()
            return self._label_image(np.arange(1, self.n_columns + 1))

        def read_prototypes() -> NDArray[np.float32]:
            check()
            return self.mean_features()

        def read_logarithm() -> NDArray[np.floating]:
            check()
            return np.asarray(self.logarithm().cpu().numpy())

        seconds = time.perf_counter() - self.began
        return Snapshot(record, fraction, seconds, read_labels, read_prototypes, read_logarithm)

    def finish(
        self,
        status: Status,
        assignment: NDArray[np.float32],
        prototypes: NDArray[np.floating],
        *,
        n_evaluations: int,
        notes: tuple[str, ...] = (),
        exemplars: NDArray[np.int64] | None = None,
        uncertainty: NDArray[np.floating] | None = None,
    ) -> Segmentation:
        """Return what the run leaves; without an uncertainty, that of the assignment.

        `assignment`, `prototypes` and `exemplars` are given for all columns of the start.
        """
        preferred = self.columns_of_nodes()
        # Whoever holds a snapshot does not hold the fields of the run.
        self.columns_of_nodes, self.logarithm = lambda: preferred, _ended
        nodes = preferred.cpu().numpy()
        sizes = np.bincount(nodes, minlength=self.n_columns)
        by_size = not self.keeps_numbers
        label_map = LabelMap.by_size(sizes) if by_size else LabelMap.identity(len(sizes))
        columns = label_map.columns
        return Segmentation(
            # the type of the labels is for those in use
            labels=self._label_image(np.where(sizes > 0, label_map.numbers, 0)),
            assignment=assignment,
            prototypes=prototypes[columns].astype(np.float32, copy=False),
            label_map=label_map,
            n_labels=int(np.count_nonzero(sizes)),
            history=History.of(self.records),
            status=status,
            n_evaluations=n_evaluations,
            seconds=time.perf_counter() - self.began,
            recipe=self.method.recipe(self.problem),
            notes=self.problem.notes + notes,
            exemplars=None if exemplars is None else exemplars[columns],
            uncertainty=_uncertainty(assignment) if uncertainty is None else uncertainty,
        )

    def mean_features(self) -> NDArray[np.float32]:
        """Return the mean feature of the nodes that prefer each column; NaN for an empty one."""
        nodes, features = self.columns_of_nodes().cpu().numpy(), self.problem.features
        sizes = np.bincount(nodes, minlength=self.n_columns)
        sums = np.zeros((self.n_columns, features.shape[1]))
        for start in range(0, len(nodes), _ROWS):
            # Weights are copied to float64: a block at a time, in memory that was used before.
            rows = slice(start, start + _ROWS)
            for k, values in enumerate(features[rows].T):
                sums[:, k] += np.bincount(nodes[rows], weights=values, minlength=self.n_columns)
        with np.errstate(invalid="ignore"):
            return (sums / sizes[:, None]).astype(np.float32)

    def _label_image(self, numbers: NDArray[np.int64]) -> LabelImage | list[LabelImage]:
        """Return the numbers of the columns that nodes prefer, in the shape of the image."""
        few = numbers.astype(np.min_scalar_type(int(numbers.max())))
        labels = few[self.columns_of_nodes().cpu().numpy()]
        return self.problem.graph.to_image(labels)  # type: ignore[return-value]

    def _first_record(self) -> Record:
        nodes = self.columns_of_nodes().cpu().numpy()
        sizes = np.bincount(nodes, minlength=self.n_columns)
        highest = math.log(self.n_possible or self.n_columns)
        return Record(0.0, 0, highest, math.nan, sizes / sizes.sum(), math.nan, 0.0)


def _ended() -> torch.Tensor:
    raise SafError("this run has ended: read the assignment of a snapshot before it goes on")


def _uncertainty(assignment: NDArray[np.float32]) -> NDArray[np.float32]:
    c = assignment.shape[1]
    return np.asarray((1 - assignment.max(axis=1)) * (c / max(c - 1, 1)))


def to_label_image(problem: Problem, labels: NDArray[np.integer]) -> LabelImage | list[LabelImage]:
    """Return node labels 1, 2, ... in the shape of the image, in the smallest unsigned type."""
    return problem.graph.to_image(labels.astype(np.min_scalar_type(int(labels.max()))))  # type: ignore[return-value]
