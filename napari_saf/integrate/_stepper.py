"""Time stepping: what a scheme is, and the fixed step."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from napari_saf.geometry import normalize_, softmax, take_columns
from napari_saf.integrate._field import VectorField
from napari_saf.parameters import check_bounds, parameter

__all__ = ["AbstractStepper", "GeometricEuler", "Run"]

Constraint = Callable[[torch.Tensor], torch.Tensor]


class AbstractStepper(ABC):
    """A time stepping scheme: a frozen dataclass of its parameters."""

    @abstractmethod
    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalize_) -> Run:
        """Return a run of the scheme from log coordinates `v`, which it takes over.

        Parameters
        ----------
        field : VectorField
            Right-hand side.
        v : Tensor of shape (n_nodes, n_columns)
            Start.
        constrain : callable
            Brings a state back to where it belongs, in place, after each step.
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
        self.v = constrain(v)
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
        self.constrain(self.v)


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

    def start(self, field: VectorField, v: torch.Tensor, constrain: Constraint = normalize_) -> Run:
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
        self.constrain(self.v.add_(self._slope, alpha=self._step))
        self.time += self._step
        self.assignment = softmax(self.v, out=self.field.scratch[0])
