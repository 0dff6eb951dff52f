"""Time stepping: what a scheme is, and the fixed step."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from napari_saf.geometry import normalize_, row_blocks, softmax, take_columns
from napari_saf.integrate._field import VectorField
from napari_saf.parameters import check_bounds, parameter

__all__ = ["AbstractStepper", "Constraint", "GeometricEuler", "Run", "normalized"]

Constraint = Callable[[torch.Tensor, slice], torch.Tensor]
"""Brings some rows of a state, and which they are, back to where they belong, in place."""


def normalized(v: torch.Tensor, rows: slice) -> torch.Tensor:
    """Normalise rows of log coordinates, the same way whichever they are."""
    return normalize_(v)


class AbstractStepper(ABC):
    """A time stepping scheme: a frozen dataclass of its parameters."""

    @abstractmethod
    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalized) -> Run:
        """Return a run of the scheme from log coordinates `v`, which it takes over.

        Parameters
        ----------
        field : VectorField
            Right-hand side.
        v : Tensor of shape (n_nodes, n_columns)
            Start.
        constrain : callable
            Brings rows of a state back to where they belong, in place, after each step.
        """


class Run(ABC):
    """A scheme under way.

    Attributes
    ----------
    v : Tensor of shape (n_nodes, n_columns)
        Log coordinates of the state.
    assignment : Tensor of shape (n_nodes, n_columns)
        softmax(v), valid until the next call of `advance`.
    time : float
        Flow time.
    """

    v: torch.Tensor
    assignment: torch.Tensor
    time: float

    def __init__(self, field: VectorField, v: torch.Tensor, constrain: Constraint) -> None:
        self.field = field
        self.constrain = constrain
        self.v = v
        self._constrain_all()
        self.assignment = field.assignment
        self.time = 0.0

    @abstractmethod
    def advance(self) -> None:
        """Make one step that is accepted."""

    def keep_columns(self, kept: torch.Tensor) -> None:
        """Forget all columns but those of the given indices."""
        self.field.keep_columns(kept)
        for name, value in list(vars(self).items()):
            if isinstance(value, torch.Tensor):
                setattr(self, name, take_columns(value, kept))
        self._constrain_all()

    def _constrain_all(self) -> None:
        for rows in row_blocks(self.v):
            self.constrain(self.v[rows], rows)


@dataclasses.dataclass(frozen=True, slots=True)
class GeometricEuler(AbstractStepper):
    """Fixed steps of the geometric Euler scheme, V <- V + h S(V).

    Parameters
    ----------
    step : float
        Step size h in flow time, > 0.

    Notes
    -----
    Zeilmann, Savarino, Petra and Schnörr, "Geometric numerical integration of the assignment
    flow", https://doi.org/10.1088/1361-6420/ab2772.
    """

    step: float = parameter(
        0.1,
        label="Step",
        help="Time step of the fixed scheme: smaller is more exact and slower (h).",
        minimum=1e-4,
        maximum=10,
        step=0.05,
        advanced=True,
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalized) -> Run:
        """Return a run of the scheme."""
        return _EulerRun(field, v, constrain, self.step)


class _EulerRun(Run):
    def __init__(
        self, field: VectorField, v: torch.Tensor, constrain: Constraint, step: float
    ) -> None:
        super().__init__(field, v, constrain)
        self._step = step
        self._slope = field.new_field()

    def advance(self) -> None:
        self.field(self.v, self._slope)
        self.assignment = self.field.scratch[0]
        for rows in row_blocks(self.v):  # in place, so not to be ended in between
            block = self.v[rows].add_(self._slope[rows], alpha=self._step)
            softmax(self.constrain(block, rows), out=self.assignment[rows])
        self.time += self._step
