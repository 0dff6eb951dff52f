"""What fairness costs: a fair clustering at one weight after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, runtime_checkable

from napari_saf.methods._method import never
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot

__all__ = ["SweepIteration", "SweepMethod", "TradeOff", "TradeOffPoint"]


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


@runtime_checkable
class SweepMethod(Protocol):
    """A method that spreads labels over groups, at a price that can be varied."""

    def iterate_sweep(
        self,
        problem: Problem,
        weights: Sequence[float] | None = None,
        *,
        cancelled: Callable[[], bool] = never,
    ) -> SweepIteration:
        """Cluster at one fairness weight after another; see `FairClustering.iterate_sweep`."""
        ...
