"""Few-shot inference: methods that take their classes from seeds, and many tasks at once."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_array, own_floats
from napari_saf.device import float_type, resolve_device
from napari_saf.errors import InvalidInput
from napari_saf.flow import count_classes
from napari_saf.methods._clustering import limit_parameter, run_clustering, tolerance_parameter
from napari_saf.methods._method import AbstractMethod, Call, Iteration, check_features
from napari_saf.methods._state import AbstractState, Tasks
from napari_saf.parameters import parameter
from napari_saf.problem import Problem

_CHUNK_BYTES = 2**28
_NEIGHBOUR_BYTES = 24
_MAX_DENSE_NODES = 4096
_MAX_FACTORED_NODES = 512
_TASKS_IN_CACHE = 8

Preprocessing = Literal["scaled", "centred unit", "unit", "none"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFewShotMethod(AbstractMethod):
    """A method that spreads the labels of a few seeds over all nodes.

    The classes are those of the seeds, which keep their labels at every update; label l is
    class l.

    Parameters
    ----------
    tolerance : float
        CONVERGED once an iteration lowers the objective by less than this share.
    max_iterations : int
        MAX_ITERATIONS after so many outer iterations.
    preprocessing : {"scaled", "centred unit", "unit", "none"}
        What is done to the features, so that temperatures mean the same for all. "scaled"
        subtracts the mean of all nodes and divides by one number, after which the mean squared
        length is 1: colours keep their differences of brightness, and deep features change
        little compared to "centred unit", which divides each node by its own length and is usual
        for the features of a network. "unit" does so without subtracting the mean, "none"
        leaves the features as they are.
    device, dtype
        As for every method: `AbstractMethod`.
    """

    tolerance: float = tolerance_parameter(1e-4)
    max_iterations: int = limit_parameter(100)
    preprocessing: Preprocessing = parameter(
        "scaled",
        label="Scaling",
        help="How features are prepared: all scaled by one factor, for colours and textures; "
        "or those of each pixel brought to unit length, for features of a network.",
        choice_labels={
            "scaled": "scaled together",
            "centred unit": "centred, unit length",
            "unit": "unit length",
            "none": "as they are",
        },
        advanced=True,
    )

    @property
    def uses_window(self) -> bool:
        """Whether it matters who is a neighbour of whom in the image."""
        return False

    @property
    def follows_seeds(self) -> bool:
        """Whether the labels are the classes of the seeds and no others."""
        return True

    def run_tasks(self, features: ArrayLike, seeds: ArrayLike) -> NDArray[np.int64]:
        """Label many small problems at once.

        Parameters
        ----------
        features : array of shape (n_tasks, n_nodes, n_features)
            Finite numbers.
        seeds : array of int of shape (n_tasks, n_nodes)
            Labels 1, 2, ..., the same in every task, 0 where none was given.

        Returns
        -------
        array of int of shape (n_tasks, n_nodes)
            The labels that `run` gives each task by itself.

        Raises
        ------
        InvalidInput
            If shapes disagree, features are not finite, or a task lacks seeds of a class.
        ComputeError
            If the device is missing.
        """
        limits = self.max_iterations, self.tolerance
        return label_tasks(self, self._start_tasks, features, seeds, limits)

    @abstractmethod
    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        """Return the state in which the tasks start."""

    def _start(self, call: Call) -> AbstractState:
        wanted = (call.problem.n_nodes, self._n_columns(call.problem))
        if call.initial is not None and np.shape(call.initial) != wanted:
            raise InvalidInput(
                f"initial: expected shape {wanted}, a column for each class of the seeds, "
                f"got {np.shape(call.initial)}"
            )
        return self._start_tasks(Tasks.of(call))

    def _iterate(self, call: Call) -> Iteration:
        return run_clustering(self, call, self._start, self.tolerance, self.max_iterations)

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        return self._is_centred and AbstractMethod._takes_mean(self, features, dtype)

    @property
    def _is_centred(self) -> bool:
        """Whether the mean of the features makes no difference."""
        return self.preprocessing in ("scaled", "centred unit")

    def _n_columns(self, problem: Problem) -> int:
        if problem.seeds is None:
            raise InvalidInput(
                "seeds: expected strokes of two or more classes, got none; mark a few pixels of "
                "each"
            )
        n_classes = count_classes(problem.seeds)
        if n_classes < 2:
            raise InvalidInput(
                "seeds: expected strokes of two or more classes, got one; mark another one"
            )
        return n_classes

    def _n_fields(self) -> int:
        return 10

    def _n_extra_columns(self, problem: Problem, device: torch.device) -> tuple[float, float]:
        count = 3 * problem.features.shape[1]
        return count, count

    def _preprocess(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return the features (n_tasks, n_nodes, n_features) on which the method works."""
        blocks = self._centred(blocks)
        if self.preprocessing == "scaled":
            squares = blocks.square().sum(dim=2).mean(dim=1)
            blocks = blocks / squares.sqrt().clamp(min=1e-30)[:, None, None]
        elif self.preprocessing != "none":
            blocks = blocks / torch.linalg.vector_norm(blocks, dim=2, keepdim=True).clamp(min=1e-30)
        return blocks

    def _preprocess_factored(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return the same up to a rotation, with no more axes than a task has nodes.

        The Cholesky factor of the inner products X X' has the same inner products, and only two
        passes go over the many features that were given. A little is added to the squared
        length of each node, which keeps the factor real.
        """
        n_nodes, n_features = blocks.shape[1:]
        if n_features <= n_nodes or n_nodes > _MAX_FACTORED_NODES:
            return self._preprocess(blocks)
        products = blocks.new_empty((len(blocks), n_nodes, n_nodes), dtype=torch.float64)
        parts = (torch.split(whole, _TASKS_IN_CACHE) for whole in (blocks, products))
        for some, own in zip(*parts, strict=True):
            centred = self._centred(some)
            own.copy_(centred @ centred.mT)
        diagonal = products.diagonal(dim1=1, dim2=2)
        if self.preprocessing == "scaled":
            products /= diagonal.mean(dim=1).clamp(min=1e-60)[:, None, None]
        elif self.preprocessing != "none":
            lengths = diagonal.sqrt().clamp(min=1e-30)
            products /= lengths[:, :, None] * lengths[:, None]
        least = 50 * torch.finfo(blocks.dtype).eps
        diagonal += least * diagonal.mean(dim=1, keepdim=True).clamp(min=1e-300)
        factors, faults = torch.linalg.cholesky_ex(products)
        return self._preprocess(blocks) if faults.any() else factors.to(blocks)

    def _centred(self, blocks: torch.Tensor) -> torch.Tensor:
        return blocks - blocks.mean(dim=1, keepdim=True) if self._is_centred else blocks


def label_tasks(
    method: AbstractMethod,
    start: Callable[[Tasks], AbstractState],
    features: ArrayLike,
    seeds: ArrayLike,
    limits: tuple[int, float],
) -> NDArray[np.int64]:
    """Return the labels (n_tasks, n_nodes) of many tasks, in chunks of bounded memory.

    `limits` are the largest number of iterations and the tolerance.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, or the classes are not the same in all tasks.
    """
    points, given = _check_tasks(features, seeds)
    device = resolve_device(method.device)
    dtype = float_type(method.dtype, device)
    n_nodes, n_features = points.shape[1:]
    labels = np.empty(given.shape, dtype=np.int64)
    if len(points):
        check_features(points, dtype)
    per_node = dtype.itemsize * (6 * n_features + 10 * int(given.max(initial=0)))
    per_node += 24 * min(n_nodes, _MAX_DENSE_NODES)
    count = max(1, int(_CHUNK_BYTES / (n_nodes * per_node)))
    for first in range(0, len(points), count):
        chunk = slice(first, first + count)
        blocks = torch.from_numpy(points[chunk])
        if method._takes_mean(blocks, dtype):
            blocks = blocks - blocks.mean(dim=1, keepdim=True)
        blocks = blocks.to(dtype).to(device)
        state = start(Tasks(blocks, torch.from_numpy(given[chunk]).to(device)))
        _solve(state, *limits)
        labels[chunk] = state.by_task(state.v).argmax(dim=2).cpu().numpy() + 1
    return labels


def _solve(state: AbstractState, max_iterations: int, tolerance: float) -> None:
    """Iterate until every task has made all iterations or gains no more."""
    state.begin()
    state.is_recorded = False
    for _ in range(max_iterations):
        before = state.objectives
        state.advance()
        state.active &= state.gains(before) > tolerance
        if not state.active.any():
            return


def _check_tasks(
    features: ArrayLike, seeds: ArrayLike
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    points, given = own_floats(features, "features"), as_array(seeds, "seeds")
    if points.ndim != 3 or 0 in points.shape[1:] or not np.isfinite(points).all():
        raise InvalidInput(
            "features: expected finite numbers of shape (n_tasks, n_nodes, n_features), "
            f"got shape {points.shape}"
        )
    if given.dtype.kind not in "biu" or given.shape != points.shape[:2]:
        raise InvalidInput(
            f"seeds: expected whole numbers of shape {points.shape[:2]}, "
            f"got {given.dtype} of shape {given.shape}"
        )
    if not len(given):
        return points, given.astype(np.int64)
    if given.min() < 0:
        raise InvalidInput(f"seeds: expected 0, 1, 2, ..., got {given.min()}")
    n_classes = max(int(given.max()), 2)
    for label in range(1, n_classes + 1):
        missing = ~(given == label).any(axis=1)
        if missing.any():
            raise InvalidInput(
                f"seeds: expected classes 1 to {n_classes} in every task, "
                f"task {int(missing.argmax())} has none of class {label}"
            )
    return points, given.astype(np.int64)
