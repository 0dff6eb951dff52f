"""Schemes that choose their step by an estimate of the error in the assignment."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import torch

from napari_saf.geometry import normalize_, softmax
from napari_saf.integrate._field import VectorField
from napari_saf.integrate._stepper import AbstractStepper, Constraint, Run
from napari_saf.parameters import check_bounds, parameter

__all__ = ["AdamsBashforthMoulton", "BogackiShampine"]

_FIRST_STEP = 0.05
_SMALLEST_STEP = 1e-4
_LARGEST_STEP = 2.5
"""Late in a run only the few nodes at fronts move, which a mean over all nodes does not see:
with steps of 20 the fronts go astray (93 % of the labels as with small steps, against 98 %)."""
_SAFETY = 0.9
_ACCEPTED = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class _AdaptiveStepper(AbstractStepper):
    """A scheme with a tolerance.

    Parameters
    ----------
    tolerance : float
        Error wanted in a step: the mean over the nodes of the L1 distance between the
        assignments of two formulas of different order.
    """

    tolerance: float = parameter(
        1e-3,
        label="Tolerance",
        help="Error allowed in one step of the adaptive scheme: smaller is more exact and slower.",
        minimum=1e-7,
        maximum=0.1,
        step=5e-4,
        advanced=True,
    )

    def __post_init__(self) -> None:
        check_bounds(self)


class _AdaptiveRun(Run):
    """Try a step, accept or shorten it."""

    order: int
    largest_growth: float

    def __init__(
        self, field: VectorField, v: torch.Tensor, constrain: Constraint, tolerance: float
    ) -> None:
        super().__init__(field, v, constrain)
        self._tolerance = tolerance
        self._step = _FIRST_STEP

    def advance(self) -> None:
        while True:
            step = self._step
            error = self._attempt(step)
            self.field.tick()
            factor = _SAFETY * (self._tolerance / max(error, 1e-12)) ** (1 / self.order)
            longer = step * min(self.largest_growth, max(0.3, factor))
            self._step = min(max(longer, _SMALLEST_STEP), _LARGEST_STEP)
            if error <= _ACCEPTED * self._tolerance or step <= _SMALLEST_STEP:
                self._accept(step)
                self.time += step
                return

    @abstractmethod
    def _attempt(self, step: float) -> float:
        """Compute the state after a step and return the estimate of its error."""

    @abstractmethod
    def _accept(self, step: float) -> None:
        """Make the attempted state the state."""


def _mean_l1(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    difference = torch.sub(left, right, out=out)
    return float(torch.linalg.vector_norm(difference, ord=1)) / len(left)


@dataclasses.dataclass(frozen=True, slots=True)
class AdamsBashforthMoulton(_AdaptiveStepper):
    """Variable-step Adams pair: one evaluation a step, predicted at order 2, corrected at 3.

    Notes
    -----
    The right-hand side is dear and the solution smooth, so remembering the last slopes pays:
    half the evaluations of Bogacki-Shampine or fewer at the same tolerance. Mode PEC of
    Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I, section III.5.
    """

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalize_) -> Run:
        """Return a run of the scheme."""
        return _AdamsRun(field, v, constrain, self.tolerance)


class _AdamsRun(_AdaptiveRun):
    order = 3
    largest_growth = 1.6

    def __init__(
        self, field: VectorField, v: torch.Tensor, constrain: Constraint, tolerance: float
    ) -> None:
        super().__init__(field, v, constrain, tolerance)
        self._slope = field(self.v, field.new_field())
        self._slope_before = field.new_field()
        self._slope_ahead = field.new_field()
        self._corrected = field.new_field()
        self._step_before = 0.0

    def _attempt(self, step: float) -> float:
        field, before = self.field, self._step_before
        half = step * step / (2 * before) if before > 0 else 0.0
        predicted = torch.add(self.v, self._slope, alpha=step + half, out=self._corrected)
        if before > 0:
            field.tick()
            predicted.sub_(self._slope_before, alpha=half)
        field(predicted, self._slope_ahead)
        self._correct(step)
        corrected = softmax(self._corrected, out=field.scratch[0])
        field.tick()
        return _mean_l1(corrected, field.assignment, out=field.scratch[1])

    def _correct(self, step: float) -> None:
        """Integrate the polynomial through the known slopes and the one ahead."""
        before = self._step_before
        if before == 0:
            torch.add(self.v, self._slope, alpha=step / 2, out=self._corrected)
            self._corrected.add_(self._slope_ahead, alpha=step / 2)
        else:
            ahead = step * (2 * step + 3 * before) / (6 * (step + before))
            here = step * (step + 3 * before) / (6 * before)
            behind = -(step**3) / (6 * before * (step + before))
            torch.add(self.v, self._slope, alpha=here, out=self._corrected)
            self.field.tick()
            self._corrected.add_(self._slope_ahead, alpha=ahead)
            self.field.tick()
            self._corrected.add_(self._slope_before, alpha=behind)
        self.constrain(self._corrected)
        self.field.tick()

    def _accept(self, step: float) -> None:
        self.v, self._corrected = self._corrected, self.v
        oldest = self._slope_before
        self._slope_before, self._slope = self._slope, self._slope_ahead
        self._slope_ahead = oldest
        self._step_before = step
        self.assignment = self.field.scratch[0]


@dataclasses.dataclass(frozen=True, slots=True)
class BogackiShampine(_AdaptiveStepper):
    """Embedded Runge-Kutta pair of orders 3 and 2; the last slope of a step begins the next.

    Notes
    -----
    Bogacki and Shampine, https://doi.org/10.1016/0893-9659(89)90079-7.
    """

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalize_) -> Run:
        """Return a run of the scheme."""
        return _BogackiShampineRun(field, v, constrain, self.tolerance)


class _BogackiShampineRun(_AdaptiveRun):
    order = 3
    largest_growth = 5.0

    def __init__(
        self, field: VectorField, v: torch.Tensor, constrain: Constraint, tolerance: float
    ) -> None:
        super().__init__(field, v, constrain, tolerance)
        self._first = field(self.v, field.new_field())
        self._second = field.new_field()
        self._third = field.new_field()
        self._last = field.new_field()
        self._ahead = field.new_field()

    def _attempt(self, step: float) -> float:
        field, first, second, third = self.field, self._first, self._second, self._third
        field(torch.add(self.v, first, alpha=step / 2, out=self._ahead), second)
        field(torch.add(self.v, second, alpha=3 * step / 4, out=self._ahead), third)
        torch.add(self.v, first, alpha=2 * step / 9, out=self._ahead)
        self._ahead.add_(second, alpha=step / 3).add_(third, alpha=4 * step / 9)
        field.tick()
        field(self.constrain(self._ahead), self._last)
        lower = torch.add(self.v, first, alpha=7 * step / 24, out=field.scratch[0])
        lower.add_(second, alpha=step / 4).add_(third, alpha=step / 3)
        field.tick()
        lower.add_(self._last, alpha=step / 8)
        other = softmax(lower, out=field.scratch[1])
        field.tick()
        return _mean_l1(field.assignment, other, out=lower)

    def _accept(self, step: float) -> None:
        self.v, self._ahead = self._ahead, self.v
        self._first, self._last = self._last, self._first
        self.assignment = self.field.assignment
