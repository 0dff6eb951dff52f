"""Schemes that choose their step by an estimate of the error in the assignment."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator

import torch

from napari_saf.geometry import row_blocks, softmax
from napari_saf.integrate._field import VectorField
from napari_saf.integrate._stepper import AbstractStepper, Constraint, Run, normalized
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

    def _combine(self, out: torch.Tensor, *terms: tuple[torch.Tensor, float]) -> torch.Tensor:
        """Write the state plus slopes times factors into `out`."""
        for _ in self._combined(out, *terms):
            pass
        return out

    def _combined(self, out: torch.Tensor, *terms: tuple[torch.Tensor, float]) -> Iterator[slice]:
        """Do so block by block of rows; yield each block once it is written."""
        (first, factor), *others = terms
        for rows in row_blocks(out):
            self.field.tick()
            block = torch.add(self.v[rows], first[rows], alpha=factor, out=out[rows])
            for slope, weight in others:
                block.add_(slope[rows], alpha=weight)
            yield rows


def _l1(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
    """Return the L1 distance; torch's norm of a long field in float32 is off by a third."""
    return float(torch.sub(left, right, out=out).abs_().sum())


@dataclasses.dataclass(frozen=True, slots=True)
class AdamsBashforthMoulton(_AdaptiveStepper):
    """Variable-step Adams pair: one evaluation a step, predicted at order 2, corrected at 3.

    Notes
    -----
    The right-hand side is dear and the solution smooth, so remembering the last slopes pays:
    half the evaluations of Bogacki-Shampine or fewer at the same tolerance. Mode PEC of
    Hairer, Nørsett and Wanner, Solving Ordinary Differential Equations I, section III.5.
    """

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalized) -> Run:
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
        prediction = [(self._slope, step + half)]
        if before > 0:
            prediction.append((self._slope_before, -half))
        self._combine(self._corrected, *prediction)
        field(self._corrected, self._slope_ahead)
        (assignment, memory), error = field.scratch, 0.0
        for rows in self._combined(self._corrected, *self._correction(step)):
            block = self.constrain(self._corrected[rows], rows)
            corrected = softmax(block, out=assignment[rows])
            error += _l1(corrected, field.assignment[rows], out=memory[rows])
        return error / len(assignment)

    def _correction(self, step: float) -> list[tuple[torch.Tensor, float]]:
        """Return factors that integrate the polynomial through the known slopes and that ahead."""
        before = self._step_before
        if before == 0:
            return [(self._slope, step / 2), (self._slope_ahead, step / 2)]
        return [
            (self._slope, step * (step + 3 * before) / (6 * before)),
            (self._slope_ahead, step * (2 * step + 3 * before) / (6 * (step + before))),
            (self._slope_before, -(step**3) / (6 * before * (step + before))),
        ]

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

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalized) -> Run:
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
        field(self._combine(self._ahead, (first, step / 2)), second)
        field(self._combine(self._ahead, (second, 3 * step / 4)), third)
        higher = (first, 2 * step / 9), (second, step / 3), (third, 4 * step / 9)
        for rows in self._combined(self._ahead, *higher):
            self.constrain(self._ahead[rows], rows)
        field(self._ahead, self._last)
        lower = (
            (first, 7 * step / 24),
            (second, step / 4),
            (third, step / 3),
            (self._last, step / 8),
        )
        (v, assignment), error = field.scratch, 0.0
        for rows in self._combined(v, *lower):
            other = softmax(v[rows], out=assignment[rows])
            error += _l1(field.assignment[rows], other, out=v[rows])
        return error / len(v)

    def _accept(self, step: float) -> None:
        self.v, self._ahead = self._ahead, self.v
        self._first, self._last = self._last, self._first
        self.assignment = self.field.assignment
