"""Laplacian regularised few-shot inference."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch

from napari_saf.methods._few_shot import AbstractFewShotMethod
from napari_saf.methods._laplacian import AbstractLaplacianState, nearest_operator
from napari_saf.methods._state import AbstractState, Tasks
from napari_saf.parameters import parameter
from napari_saf.points import squared_distances, weighted_means


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LaplacianShot(AbstractFewShotMethod):
    """Give each node the nearest class, and those that look alike the same: LaplacianShot.

    Parameters
    ----------
    laplacian_weight : float
        >= 0; lambda, how much the labels of the nearest nodes count.
    n_neighbors : int
        How many nodes, the nearest in feature space, each has as its neighbours.
    rectification : float, optional
        > 0; temperature by which the prototypes take in the other nodes. None: prototypes
        are the means of the seeds.
    preprocessing, tolerance, max_iterations, device, dtype
        As for every method that takes its classes from seeds: `AbstractFewShotMethod`.

    Notes
    -----
    Ziko, Dolz, Granger and Ben Ayed, "Laplacian regularized few-shot learning", ICML 2020,
    https://arxiv.org/abs/2006.15486. Assignments y descend

        E(y) = sum_pk y_pk a_pk - lambda/2 sum_k y_k'W y_k + sum_pk y_pk log y_pk

    with a_pk = |x_p - m_k|^2 by y <- softmax(-a + lambda W y), the rows of seeds one-hot. W is
    the symmetric part of the indicator of being among the `n_neighbors` nearest. Where it is
    not positive semi-definite, an update under which E would rise is made shorter, as in `SLK`.

    Prototypes start as the means c_k of the seeds and are rectified once: m_k is the mean of
    all nodes, weighted by softmax_k(rectification cos(x_p, c_k)), seeds by 1 for their class.
    """

    name: ClassVar[str] = "laplacianshot"
    title: ClassVar[str] = "LaplacianShot"

    laplacian_weight: float = parameter(
        1.0,
        label="Agreement",
        help="How much the labels of the most similar pixels count (lambda).",
        minimum=0,
        maximum=1000,
        step=0.1,
    )
    n_neighbors: int = parameter(
        3,
        label="Nearest",
        help="Number of nearest neighbours in feature space (k).",
        minimum=1,
        maximum=100,
        advanced=True,
    )
    rectification: float | None = parameter(
        10.0,
        label="Rectification",
        help="How strictly a class takes in only pixels that look like its strokes "
        "(temperature); none: the strokes alone say what it looks like.",
        minimum=1e-3,
        maximum=1e6,
        advanced=True,
        none="seeds alone",
    )

    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        return _State(self, tasks)


class _State(AbstractLaplacianState):
    """LaplacianShot under way."""

    def __init__(self, method: LaplacianShot, tasks: Tasks) -> None:
        super().__init__(tasks, tasks.n_classes, method.laplacian_weight, method.tolerance)
        self._method = method
        self._points = method._preprocess_factored(tasks.blocks)
        self._means = tasks.class_means(self._points)
        self.move(self._unaries(self._means))

    def begin(self) -> None:
        self.raise_if_cancelled()
        product, _ = nearest_operator(self._points, self._method.n_neighbors, self.features)
        self.begin_at(self._unaries(self._rectified_means()), product)

    def advance(self) -> None:
        self.relax(1)

    def _unaries(self, prototypes: torch.Tensor) -> torch.Tensor:
        return squared_distances(self._points, prototypes).neg_().flatten(0, 1)

    def _rectified_means(self) -> torch.Tensor:
        """Return m_k: means of all nodes weighted by softmax_k(rectification cos(x_p, c_k))."""
        if self._method.rectification is None:
            return self._means
        lengths = torch.linalg.vector_norm(self._points, dim=2, keepdim=True).clamp(min=1e-30)
        directions = torch.nn.functional.normalize(self._means, dim=2)
        cosines = (self._points @ directions.mT) / lengths
        weights = torch.softmax(self._method.rectification * cosines, dim=2)
        given = self.tasks.class_indicators()
        is_seed = given.sum(dim=2, keepdim=True) > 0
        return weighted_means(torch.where(is_seed, given, weights), self._points)
