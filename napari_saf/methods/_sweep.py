"""What fairness costs: a fair clustering at one weight after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.methods._method import AbstractMethod, Iteration, map_steps, not_cancelled
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot, Status

__all__ = [
    "SWEPT",
    "SweepIteration",
    "SweepMethod",
    "TradeOff",
    "TradeOffPoint",
    "count_points",
    "sweep",
]

SWEPT = "fairness_weight"
"""The parameter that a sweep goes through."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TradeOffPoint:
    """The solution at one fairness weight.

    Attributes
    ----------
    weight : float
        lambda.
    objective : float
        Of the hard labels, without the fairness term.
    fairness_error : float
        sum_k KL(mu || P_k) of the hard labels, in nats; infinite if a label lacks a group.
    balance : float
        Least ratio of two groups within a label, 0 to 1.
    segmentation : Segmentation
        Columns are the same in all points: with `Segmentation.columns` labels can be followed.
    """

    weight: float
    objective: float
    fairness_error: float
    balance: float
    segmentation: Segmentation

    @classmethod
    def of(cls, weight: float, segmentation: Segmentation) -> TradeOffPoint:
        """Read a point off the last record of a run."""
        last = {name: float(values[-1]) for name, values in segmentation.history.measures.items()}
        return cls(
            weight,
            last["discrete_objective"],
            last["fairness_error"],
            last["balance"],
            segmentation,
        )

    def energy(self, weight: float) -> float:
        """Return what the hard labels cost at a fairness weight."""
        return self.objective + weight * self.fairness_error if weight else self.objective


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TradeOff:
    """The outcome of a sweep over the fairness weight.

    Attributes
    ----------
    points : tuple of TradeOffPoint
        By rising weight.
    is_complete : bool
        Whether all weights were reached before the sweep was stopped.
    """

    points: tuple[TradeOffPoint, ...]
    is_complete: bool


SweepIteration = Generator[Snapshot, None, TradeOff]

_LIFT = np.exp(-5.0)

_SHARES = tuple(np.geomspace(1e-3, 10, 9))
"""Weights of a sweep in units of the objective of the plain clustering."""


def count_points(weights: Sequence[float] | None) -> int:
    """Return how many solutions a sweep over these weights has; see `sweep` for errors."""
    return 1 + len(_SHARES) if weights is None else len(_check_weights(weights))


def sweep(
    method_at: Callable[[float], AbstractMethod],
    problem: Problem,
    weights: Sequence[float] | None,
    cancelled: Callable[[], bool],
) -> SweepIteration:
    """Run a method at one fairness weight after another; see `FairClustering.iterate_sweep`."""
    wanted = [0.0] if weights is None else _check_weights(weights)
    count = count_points(weights)
    points: list[TradeOffPoint] = []
    while len(points) < len(wanted):
        weight, done = wanted[len(points)], len(points)
        point: TradeOffPoint | None = None
        for attempt, start in enumerate(_starts(points)):
            steps = method_at(weight).iterate(problem, start, cancelled=cancelled)
            result = yield from _in_part(steps, done, attempt, count)
            if result.status is Status.CANCELLED:
                return TradeOff(tuple(points), is_complete=False)
            point = TradeOffPoint.of(weight, result)
            if not points or point.energy(weight) <= points[-1].energy(weight):
                break
        assert point is not None
        points.append(point)
        if weights is None and done == 0:
            wanted += [points[0].objective * share for share in _SHARES]
    return TradeOff(tuple(points), is_complete=len(points) == count)


def _check_weights(weights: Sequence[float]) -> list[float]:
    """Return the weights by size, each once."""
    wanted = sorted({float(weight) for weight in weights})
    if not wanted or not np.isfinite(wanted).all() or wanted[0] < 0:
        raise InvalidInput(f"weights: expected numbers >= 0, got {weights}")
    return wanted


def _starts(points: list[TradeOffPoint]) -> list[NDArray[np.floating] | None]:
    """Return where to start: the solution before, a little inside the simplex, then exactly.

    From a vertex the way back is long; but what begins inside may end where the solution
    before would have been better still, and from the vertex the energy can only fall.
    """
    if not points:
        return [None]
    assignment = np.float64(points[-1].segmentation.assignment)
    lifted = np.maximum(assignment, _LIFT * assignment.max(axis=1, keepdims=True))
    hard = np.zeros_like(assignment)
    np.put_along_axis(hard, assignment.argmax(axis=1)[:, None], 1, axis=1)
    return [lifted / lifted.sum(axis=1, keepdims=True), hard]


def _in_part(steps: Iteration, done: int, attempt: int, count: int) -> Iteration:
    """Go through the steps of one of several runs, with the fraction of all of them."""

    def as_part(snapshot: Snapshot) -> Snapshot:
        fraction = 1 - (1 - snapshot.fraction) / 2**attempt
        return dataclasses.replace(snapshot, fraction=(done + fraction) / count)

    return map_steps(steps, as_part)


@runtime_checkable
class SweepMethod(Protocol):
    """A method that spreads labels over groups, at a price that can be varied."""

    def iterate_sweep(
        self,
        problem: Problem,
        weights: Sequence[float] | None = None,
        *,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> SweepIteration:
        """Cluster at one fairness weight after another; see `FairClustering.iterate_sweep`."""
        ...
