"""What methods have in common that take their classes from a few seeds."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput
from napari_saf.methods._clustering import AbstractAlternatingMethod, AbstractClustering
from napari_saf.methods._method import AbstractMethod, Call
from napari_saf.methods._start import from_assignment
from napari_saf.methods._tasks import AbstractTaskClustering, Tasks, check_classes, label_tasks
from napari_saf.parameters import parameter
from napari_saf.problem import Problem

__all__ = ["AbstractFewShotMethod", "Preprocessing", "start_of"]

_MOST_TURNED_NODES = 512
_TASKS_IN_CACHE = 8

Preprocessing = Literal["scaled", "centred unit", "unit", "none"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFewShotMethod(AbstractAlternatingMethod):
    """A method that spreads the labels of a few seeds over all nodes.

    The classes are those of the seeds, which keep their labels at every update; label l is
    class l.

    Parameters
    ----------
    preprocessing : {"scaled", "centred unit", "unit", "none"}
        What is done to the features, so that temperatures mean the same for all. "scaled"
        subtracts the mean of all nodes and divides by one number, after which the mean squared
        length is 1: colours keep their differences of brightness, and deep features change
        little beside "centred unit", which divides each node by its own length and is usual
        for the features of a network. "unit" does so without subtracting the mean, "none"
        leaves the features as they are.
    tolerance, max_iterations, device, dtype
        As for every method that alternates: `AbstractAlternatingMethod`.
    """

    preprocessing: Preprocessing = parameter(
        "scaled",
        label="Scaling",
        help="How features are prepared: all scaled by one factor, for colours and textures; "
        "or those of each pixel brought to unit length, for features of a network.",
        words={
            "scaled": "scaled together",
            "centred unit": "centred, unit length",
            "unit": "unit length",
            "none": "as they are",
        },
        advanced=True,
    )

    @property
    def uses_window(self) -> bool:
        """Whether it matters who is a neighbour of whom in the image: never."""
        return False

    @property
    def follows_seeds(self) -> bool:
        """Whether the labels are the classes of the seeds and no others: always."""
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
        return label_tasks(self, self._prepare_tasks, features, seeds)

    @abstractmethod
    def _prepare_tasks(self, tasks: Tasks) -> AbstractTaskClustering:
        """Return the clusterings at their start."""

    def _prepare(self, call: Call) -> AbstractClustering:
        if call.initial is not None:
            wanted = (call.problem.n_nodes, self._n_columns(call.problem))
            if np.shape(call.initial) != wanted:
                raise InvalidInput(
                    f"initial: expected shape {wanted}, a column for each class of the seeds, "
                    f"got {np.shape(call.initial)}"
                )
        return self._prepare_tasks(Tasks.of(call))

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        return self._is_centred and AbstractMethod._takes_mean(self, features, dtype)

    @property
    def _is_centred(self) -> bool:
        """Whether the mean of the features makes no difference."""
        return self.preprocessing in ("scaled", "centred unit")

    def _n_columns(self, problem: Problem) -> int:
        return check_classes(problem.seeds)

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

    def _preprocess_turned(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return the same, turned so that a task needs no more axes than it has nodes.

        Inner products stay as they are, and only two passes go over the many features that
        were given. A little is added to the squared length of each node, which keeps the
        factor of Cholesky real.
        """
        n_nodes, n_features = blocks.shape[1:]
        if n_features <= n_nodes or n_nodes > _MOST_TURNED_NODES:
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
        if self._is_centred:
            return blocks - blocks.mean(dim=1, keepdim=True)
        return blocks


def start_of(tasks: Tasks) -> torch.Tensor | None:
    """Return the log coordinates that were given to start from."""
    return None if tasks.initial is None else from_assignment(tasks.initial, tasks.features)
