"""What every method is: a frozen dataclass of its parameters that yields snapshots."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_whole, check_size
from napari_saf.device import (
    DeviceName,
    FloatName,
    check_memory,
    float_type,
    memory_errors_translated,
    resolve_device,
)
from napari_saf.errors import InvalidInput
from napari_saf.flow import Cancelled, not_cancelled
from napari_saf.parameters import check_bounds, parameter, to_plain
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot

S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
Iteration = Generator[Snapshot, None, Segmentation]


def map_steps(steps: Generator[S, None, T], change: Callable[[S], U]) -> Generator[U, None, T]:
    """Yield `change` of every step of a generator, and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        yield change(step)


def run_to_end(steps: Generator[S, None, T], on_step: Callable[[S], object] | None = None) -> T:
    """Exhaust a generator, call `on_step` with every step, and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if on_step is not None:
            on_step(step)


def check_features(features: NDArray[np.floating], dtype: torch.dtype) -> None:
    """Refuse features so large or so small that a type does not hold the squares of differences.

    Of the largest feature, differences down to the root of the precision count.

    Raises
    ------
    InvalidInput
        Naming the bound.
    """
    kind = torch.finfo(dtype)
    check_size("features", features, features.shape[-1], kind.max, kind.tiny / kind.eps)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of `iterate`, checked and on its device.

    Attributes
    ----------
    problem : Problem
    features : Tensor of shape (n_nodes, n_features)
        Those of the problem less `offset`, on the device of the run.
    initial : array of shape (n_nodes, n_columns) or None
        Assignment to start from.
    max_iterations : int or None
    cancelled : callable
    began : float
        By `time.perf_counter`.
    offset : Tensor of float64 of shape (n_features,)
        On the CPU; what prototypes lack to be those of the problem's features.
    """

    problem: Problem
    features: torch.Tensor
    initial: ArrayLike | None
    max_iterations: int | None
    cancelled: Callable[[], bool]
    began: float
    offset: torch.Tensor = dataclasses.field(
        default_factory=lambda: torch.zeros(1, dtype=torch.float64)
    )

    @property
    def seeds(self) -> torch.Tensor | None:
        """Labels 1, 2, ... that a person gave, on the device."""
        if self.problem.seeds is None:
            return None
        return torch.from_numpy(self.problem.seeds).to(self.features.device)

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the run was cancelled."""
        if self.cancelled():
            raise Cancelled


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractMethod(ABC):
    """A labelling method: a frozen dataclass of its parameters.

    Subclasses set `name`, the key in `METHODS`, and `title`, the name in the app. Their state is
    a field (n_nodes, n_columns) on a torch device.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda", "mps"}
        Where to compute.
    dtype : {"float32", "float64"}
        Precision of the fields.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    device: DeviceName = parameter(
        "auto",
        label="Device",
        help="Where to compute; auto takes the graphics card if there is one.",
        advanced=True,
    )
    dtype: FloatName = parameter(
        "float32",
        label="Precision",
        help="float64 takes twice the memory and time.",
        advanced=True,
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def uses_window(self) -> bool:
        """Whether it matters who is a neighbour of whom in the image."""
        return True

    @property
    def follows_seeds(self) -> bool:
        """Whether the labels are the classes of the seeds and no others."""
        return False

    @property
    def labels_are_given(self) -> bool:
        """Whether its parameters say what each label means, with or without seeds."""
        return False

    @property
    def goes_on_from_any_labels(self) -> bool:
        """Whether `initial` alone says how many labels there are, with or without seeds."""
        return False

    def iterate(
        self,
        problem: Problem,
        initial: ArrayLike | None = None,
        *,
        max_iterations: int | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> Iteration:
        """Label the nodes of a problem, a snapshot a recorded step.

        Parameters
        ----------
        problem : Problem
            What to label.
        initial : array of shape (n_nodes, n_columns), optional
            Assignment to start from, rows summing to 1. In a flow a column that is 0 for every
            node takes no part.
        max_iterations : int, optional
            >= 1; stop after so many recorded steps, whatever the method's own rule says. The
            history has one record more, that of the start.
        cancelled : callable
            Asked at every evaluation, from the thread that runs the method; once it returns True
            the run ends with what it has and `Status.CANCELLED`.

        Yields
        ------
        Snapshot

        Returns
        -------
        Segmentation

        Raises
        ------
        InvalidInput
            If the problem or the start does not suit the method.
        ComputeError
            If memory or a device is missing.
        """
        with memory_errors_translated():
            call = self._checked(problem, initial, max_iterations, cancelled)
            return (yield from self._iterate(call))

    def run(
        self,
        problem: Problem,
        initial: ArrayLike | None = None,
        max_iterations: int | None = None,
    ) -> Segmentation:
        """Label the nodes of a problem; see `iterate` for parameters and errors."""
        return run_to_end(self.iterate(problem, initial, max_iterations=max_iterations))

    def recipe(self, problem: Problem) -> dict[str, Any]:
        """Return what repeats a run of this method on a problem, as values JSON can hold."""
        return {
            "schema": 1,
            "method": self.name,
            "parameters": to_plain(self),
            "input": None if problem.options is None else problem.options.to_plain(),
            "versions": {
                "napari-saf": importlib.metadata.version("napari-saf"),
                "numpy": np.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
        }

    def _checked(
        self,
        problem: Problem,
        initial: ArrayLike | None,
        max_iterations: int | None,
        cancelled: Callable[[], bool],
    ) -> Call:
        began = time.perf_counter()
        if not isinstance(problem, Problem):
            raise InvalidInput(
                "problem: expected a Problem, such as Problem.from_image makes of an image, "
                f"got {type(problem).__name__}"
            )
        limit = as_whole(max_iterations)
        if max_iterations is not None and (limit is None or limit < 1):
            raise InvalidInput(
                f"max_iterations: expected at least 1, a whole number, got {max_iterations!r}"
            )
        device = resolve_device(self.device)
        dtype = float_type(self.dtype, device)
        if initial is not None and np.ndim(initial) != 2:
            raise InvalidInput(
                f"initial: expected shape ({problem.n_nodes}, n_labels), got {np.shape(initial)}"
            )
        given = torch.from_numpy(problem.features)
        check_features(problem.features, dtype)
        self._check_memory(problem, initial, device, dtype.itemsize)
        offset = torch.zeros(given.shape[1], dtype=torch.float64)
        if self._takes_mean(given, dtype):
            offset = given.double().mean(dim=0)
            given = given - offset.to(given.dtype)
        features = given.to(dtype).to(device)
        return Call(problem, features, initial, limit, cancelled, began, offset)

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        """Return whether the mean is taken from the features, which a narrower type needs."""
        return features.dtype.itemsize > dtype.itemsize

    @abstractmethod
    def _iterate(self, call: Call) -> Iteration:
        """Label the nodes of a problem that was checked."""

    @abstractmethod
    def _n_columns(self, problem: Problem) -> int:
        """Return the number of columns that the run will start with."""

    @abstractmethod
    def _n_fields(self) -> int:
        """Return how many fields (n_nodes, n_columns) a run holds at most."""

    def _n_extra_columns(self, problem: Problem, device: torch.device) -> tuple[float, float]:
        """Return about how many numbers a node takes besides fields and features, and at most."""
        return 0, 0

    def _check_memory(
        self, problem: Problem, initial: ArrayLike | None, device: torch.device, itemsize: int
    ) -> None:
        if initial is None or self.labels_are_given:
            n_columns = self._n_columns(problem)
        else:
            n_columns = np.shape(initial)[-1]
        per_node = self._n_fields() * n_columns + 4 * problem.features.shape[1]
        extra, most = self._n_extra_columns(problem, device)
        need = itemsize * problem.n_nodes * (per_node + extra)
        # What is reduced has more distinct features.
        ratio = (per_node + extra) / (per_node + most)
        message = "use fewer labels, a mask, or "
        check_memory(need, device, lambda share: message + problem.graph.smaller(share * ratio))
