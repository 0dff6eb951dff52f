"""Time stepping of flows in log coordinates: fixed step, and adaptive steps by error estimates.

A scheme is a frozen dataclass of its parameters; `start` returns its integration. Geometric
integration of the assignment flow: Zeilmann, Savarino, Petra and Schnörr,
https://doi.org/10.1088/1361-6420/ab2772.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import napari_saf.flow._simplex as simplex
from napari_saf.arrays import Float64s
from napari_saf.device import Tensor, torch
from napari_saf.flow._field import AbstractField
from napari_saf.flow._fused import Fused
from napari_saf.flow._simplex import SeedConstraint
from napari_saf.parameters import check_bounds, documented, parameter

Constraint = Callable[[Tensor, slice], Tensor]
"""Function that projects rows of a state, given their slice, onto the constraints in place."""

_FIRST_STEP = 0.05
_SMALLEST_STEP = 1e-4
_LARGEST_STEP = 2.5
"""Largest step, as the mean error misses the few nodes at late fronts: with steps of 20, 93 % of
the labels agree with those of small steps, in place of 98 %."""
_SAFETY = 0.9
_ACCEPTED = 1.5


class Reading(NamedTuple):
    """Share of nodes that `changed` label, `entropy`, label `sizes`, `highest` assignments."""

    changed: float
    entropy: float
    sizes: Float64s
    highest: Tensor


class AbstractRun(ABC):
    """Integration by a `scheme`: time, and log coordinates `v`, updated in place.

    `assignment` is softmax(v) until the next call of `advance` or `keep_columns`.
    """

    n_fields: ClassVar[int]
    """Number of fields (n_nodes, n_columns) of a step besides `v`."""

    def __init__(self, field: AbstractField, v: Tensor, constrain: Constraint, scheme: Any) -> None:
        self.field, self.v, self.constrain, self.scheme = field, v, constrain, scheme
        self._constrain_all()
        self.assignment = field.assignment
        self.time = 0.0
        self.memory = [simplex.new_field(v, v.shape[1]) for _ in range(self.n_fields)]

    @abstractmethod
    def advance(self) -> None:
        """Make one accepted step; the state is unchanged if `Cancelled` is raised."""

    def read(self, labels: Tensor) -> Reading:
        """Update the preferred columns (n_nodes,) in place; return the reading."""
        changed = simplex.update_labels(labels, self.v)
        highest = self.assignment.gather(1, labels[:, None])[:, 0]
        sizes = torch.bincount(labels, minlength=self.v.shape[1]).cpu().double().numpy()
        return Reading(changed, simplex.entropy(self.assignment, self.v, highest), sizes, highest)

    def keep_columns(self, columns: Tensor) -> None:
        self.field.keep_columns(columns)
        self.v = simplex.take_columns(self.v, columns)
        self.memory = [simplex.take_columns(field, columns) for field in self.memory]
        self._constrain_all()

    def _constrain_all(self) -> None:
        for rows in simplex.row_blocks(self.v):
            self.constrain(self.v[rows], rows)


class _EulerRun(AbstractRun):
    n_fields = 1

    def advance(self) -> None:
        (slope,), step = self.memory, self.scheme.step
        self.field(self.v, slope)
        self.assignment = self.field.scratch[0]
        for rows in simplex.row_blocks(self.v):
            block = self.v[rows].add_(slope[rows], alpha=step)
            simplex.softmax(self.constrain(block, rows), out=self.assignment[rows])
        self.time += step


class _AbstractAdaptiveRun(AbstractRun):
    """Adaptive steps h <- 0.9 h (tolerance / error)^(1/3), error the L1 distance of two formulas.

    The first scratch field is the current slope, the last one the next state.
    """

    largest_growth: ClassVar[float]
    order_after: ClassVar[tuple[int, ...]]
    """Permutation of the scratch fields after a step."""

    def __init__(self, field: AbstractField, v: Tensor, constrain: Constraint, scheme: Any) -> None:
        super().__init__(field, v, constrain, scheme)
        self._step, self._previous_step = _FIRST_STEP, 0.0

    def advance(self) -> None:
        while True:
            step, tolerance = self._step, self.scheme.tolerance
            error = self._attempt(step)
            factor = _SAFETY * (tolerance / max(error, 1e-12)) ** (1 / 3)
            longer = step * min(self.largest_growth, max(0.3, factor))
            self._step = min(max(longer, _SMALLEST_STEP), _LARGEST_STEP)
            if error <= _ACCEPTED * tolerance or step <= _SMALLEST_STEP:
                break
        self._accept(step)

    def _accept(self, step: float) -> None:
        self.v, self.memory[-1] = self.memory[-1], self.v
        self.memory = [self.memory[k] for k in self.order_after]
        self._previous_step = step
        self.time += step

    @abstractmethod
    def _attempt(self, step: float) -> float:
        """Write the next state into the last field; return the error estimate."""

    def _combine(self, out: Tensor, *terms: tuple[Tensor, float]) -> Iterator[tuple[slice, Tensor]]:
        """Write the state plus weighted slopes into `out`; yield its blocks of rows."""
        (first, factor), *remaining = terms
        for rows in simplex.row_blocks(out):
            block = torch.add(self.v[rows], first[rows], alpha=factor, out=out[rows])
            for slope, weight in remaining:
                block.add_(slope[rows], alpha=weight)
            yield rows, block

    def _evaluate_at(self, *terms: tuple[Tensor, float], out: Tensor) -> None:
        """Write the right-hand side at the state plus weighted slopes into `out`."""
        for _ in self._combine(self.memory[-1], *terms):
            pass
        self.field(self.memory[-1], out)


class _AdamsRun(_AbstractAdaptiveRun):
    largest_growth = 1.6
    n_fields, order_after = 4, (2, 0, 1, 3)  # slope, previous slope, next slope, next state

    def __init__(self, field: AbstractField, v: Tensor, constrain: Constraint, scheme: Any) -> None:
        self._fused: Fused | None = None
        self._schedule = iter(scheme.steps) if isinstance(scheme, AdamsSchedule) else None
        is_supported = isinstance(constrain, SeedConstraint) and isinstance(field, AbstractField)
        if is_supported:
            self._fused = Fused.of(field, v)
        super().__init__(
            field, v if self._fused is None else simplex.columns_first_(v), constrain, scheme
        )
        if self._fused is not None:
            slope = torch.empty(v.shape[1], dtype=torch.int16)
            self.memory[:3] = (simplex.new_field(slope, len(v)).T for _ in range(3))
        self._attempt(0.0)
        self.memory[0], self.memory[2] = self.memory[2], self.memory[0]

    def advance(self) -> None:
        if self._schedule is None:
            return super().advance()
        step = next(self._schedule)
        self._attempt(step)
        self._accept(step)

    def _attempt(self, step: float) -> float:
        previous = self._previous_step
        if previous == 0:
            prediction, correction = (step, 0.0), (step / 2, step / 2, 0.0)
        else:
            half = step * step / (2 * previous)
            prediction = step + half, -half
            # integral of the polynomial through the three slopes
            correction = (
                step * (step + 3 * previous) / (6 * previous),
                step * (2 * step + 3 * previous) / (6 * (step + previous)),
                -(step**3) / (6 * previous * (step + previous)),
            )
        if self._fused is not None:
            fields = (self.v, *self.memory)
            assert isinstance(self.constrain, SeedConstraint)
            return self._fused.attempt(fields, prediction, correction, self.constrain.columns)
        slope, slope_before, slope_ahead, ahead = self.memory
        slopes = slope, slope_before
        self._evaluate_at(*zip(slopes, prediction, strict=True), out=slope_ahead)
        (self.assignment, buffer), error = self.field.scratch, 0.0
        terms = zip((slope, slope_ahead, slope_before), correction, strict=True)
        for rows, block in self._combine(ahead, *terms):
            corrected = simplex.softmax(self.constrain(block, rows), out=self.assignment[rows])
            error += _l1(corrected, self.field.assignment[rows], out=buffer[rows])
        return error / len(ahead)

    def read(self, labels: Tensor) -> Reading:
        if self._fused is None:
            return super().read(labels)
        return Reading(*self._fused.read(self.v, labels))


class _BogackiShampineRun(_AbstractAdaptiveRun):
    largest_growth = 5.0
    n_fields, order_after = 5, (3, 1, 2, 0, 4)  # the slopes of four stages, next state

    def __init__(self, field: AbstractField, v: Tensor, constrain: Constraint, scheme: Any) -> None:
        super().__init__(field, v, constrain, scheme)
        field(self.v, self.memory[0])

    def _attempt(self, step: float) -> float:
        field, (first, second, third, last, ahead) = self.field, self.memory
        self._evaluate_at((first, step / 2), out=second)
        self._evaluate_at((second, 3 * step / 4), out=third)
        higher = (first, 2 * step / 9), (second, step / 3), (third, 4 * step / 9)
        for rows, block in self._combine(ahead, *higher):
            self.constrain(block, rows)
        field(ahead, last)
        lower = (first, 7 * step / 24), (second, step / 4), (third, step / 3), (last, step / 8)
        (v, buffer), error = field.scratch, 0.0
        for rows, block in self._combine(v, *lower):
            lower_order = simplex.softmax(block, out=buffer[rows])
            error += _l1(field.assignment[rows], lower_order, out=block)
        self.assignment = field.assignment
        return error / len(v)


def _l1(a: Tensor, b: Tensor, out: Tensor) -> float:
    """Return the L1 distance; the float32 norm of torch is off by a third for long fields."""
    return float(torch.sub(a, b, out=out).abs_().sum())


class AbstractStepper(ABC):
    _run: ClassVar[type[AbstractRun]]

    def __post_init__(self) -> None:
        check_bounds(self)

    def start(
        self, field: AbstractField, v: Tensor, constrain: Constraint | None = None
    ) -> AbstractRun:
        """Return the integration from log coordinates `v`, which it overwrites."""
        return self._run(field, v, constrain or SeedConstraint(), self)


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class GeometricEuler(AbstractStepper):
    """Fixed steps of the geometric Euler scheme, V <- V + h S(V), eq. (2.34).

    Equation of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((16, 16))))
    >>> flow = saf.SelfAssignmentFlow(max_labels=2, stepper=saf.GeometricEuler(step=0.5))
    >>> times = flow.run(problem).history.time
    >>> bool(np.allclose(np.diff(times), 0.5))
    True
    """

    _run = _EulerRun

    # fmt: off
    step: float = parameter(
        0.1, label="Step", bounds=(1e-4, 10), step=0.05, advanced=True,
        help="Time step of the fixed scheme: smaller steps are more accurate and slower (h).")
    # fmt: on


# fmt: off
_tolerance_parameter = functools.partial(
    parameter, 1e-3, label="Tolerance", bounds=(1e-7, 0.1), step=5e-4, advanced=True,
    help="Error tolerance per step of the adaptive scheme: smaller is more accurate and slower.")
# fmt: on


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class AdamsBashforthMoulton(AbstractStepper):
    """Variable-step Adams pair of orders 2 and 3, with one evaluation per step.

    Notes
    -----
    The right-hand side is expensive and the solution smooth: reusing slopes takes at most half the
    evaluations of Bogacki-Shampine at the same tolerance. Mode PEC of Hairer, Nørsett and Wanner,
    Solving Ordinary Differential Equations I, section III.5.

    Examples
    --------
    >>> features = np.random.default_rng(0).random((200, 2))
    >>> problem = saf.Problem(features, saf.AffinityGraph.k_nearest(features, 8))
    >>> exact = saf.SelfAssignmentFlow(stepper=saf.AdamsBashforthMoulton(tolerance=1e-5))
    >>> exact.run(problem).n_evaluations > saf.SelfAssignmentFlow().run(problem).n_evaluations
    True
    """

    _run = _AdamsRun

    tolerance: float = _tolerance_parameter()


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class BogackiShampine(AbstractStepper):
    """Embedded Runge-Kutta pair of orders 3 and 2, whose last slope is the first of the next step.

    Notes
    -----
    Bogacki and Shampine, https://doi.org/10.1016/0893-9659(89)90079-7.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((16, 16))))
    >>> one = saf.SelfAssignmentFlow(max_labels=2, stepper=saf.BogackiShampine()).run(problem)
    >>> other = saf.SelfAssignmentFlow(max_labels=2).run(problem)
    >>> np.array_equal(one.labels, other.labels), one.n_evaluations > other.n_evaluations
    (True, True)
    """

    _run = _BogackiShampineRun

    tolerance: float = _tolerance_parameter()


@dataclasses.dataclass(frozen=True, slots=True)
class AdamsSchedule(AbstractStepper):
    """Adams pair with prescribed steps, for consistency between tiles of an image."""

    _run = _AdamsRun

    steps: tuple[float, ...]


STEPPERS: dict[str, type[AbstractStepper]] = {
    "adams": AdamsBashforthMoulton,
    "bogacki-shampine": BogackiShampine,
    "euler": GeometricEuler,
}
"""Schemes by their name in forms, on the command line and in recipes."""
