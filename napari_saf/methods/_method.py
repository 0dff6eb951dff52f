"""The one shape that every method has."""

from __future__ import annotations

import importlib.metadata
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from napari_saf.parameters import to_plain
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot

__all__ = [
    "AbstractMethod",
    "Cancelled",
    "Iteration",
    "map_steps",
    "not_cancelled",
    "run_to_end",
]

S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
Iteration = Generator[Snapshot, None, Segmentation]


class Cancelled(Exception):
    """Raised inside a run that was told to end."""


def not_cancelled() -> bool:
    """Return False: the default of `cancelled`."""
    return False


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


class AbstractMethod(ABC):
    """A labelling method: a frozen dataclass of its parameters.

    Subclasses set `name`, the key in `METHODS`, and `title`, the words in the app.
    """

    name: ClassVar[str]
    title: ClassVar[str]

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

    @abstractmethod
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
            Asked often, from the thread that runs the method; once it returns True the run
            ends with what it has and `Status.CANCELLED`.

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
