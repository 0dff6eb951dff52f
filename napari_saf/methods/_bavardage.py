"""Few-shot inference by variational Bayes in an adapted projection: BAVARDAGE."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.methods._few_shot import AbstractFewShotMethod, start_of
from napari_saf.methods._sphering import given_sphering, sphered_by_seeds
from napari_saf.methods._tasks import AbstractTaskClustering, Tasks
from napari_saf.parameters import parameter
from napari_saf.points import squared_distances, weighted_means

__all__ = ["Bavardage"]

_LEAST_EIGENVALUE = 1e-10


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bavardage(AbstractFewShotMethod):
    """Give each node its most probable class, however unequal the classes: BAVARDAGE.

    Parameters
    ----------
    precision : float
        > 0; T_vb, the inverse of the variance of a class along each axis of the projection.
    concentration : float
        > 0; alpha of the Dirichlet prior of the shares of the classes. Large: equal shares.
    start_temperature : float
        > 0; T_km of the soft k-means from which the run starts.
    start_iterations : int
        Iterations of it.
    mean_weight : float
        > 0; beta, how many nodes the prior of a class mean, the mean of all nodes, counts for.
    max_scale : float
        > 0; s_max, by how much an axis along which classes are narrow is stretched at most.
    within_scatter : array of shape (n_features, n_features), optional
        Scatter within the classes, of features after `preprocessing`; symmetric, positive
        semi-definite, taken with its scale. None: from the seeds, see Notes.
    tolerance : float
        CONVERGED once an iteration moves less than this share of a node's assignment, on
        average.
    max_iterations : int
        MAX_ITERATIONS after so many variational steps.
    preprocessing, device, dtype
        As for every method that takes its classes from seeds: `AbstractFewShotMethod`.

    Notes
    -----
    Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for
    transductive few-shot classification", https://arxiv.org/abs/2209.08527. Features x, less
    their mean, are stretched to y = S R'x: R holds the eigenvectors of the scatter within the
    classes, S = min(eigenvalue^(-1/2), max_scale). With assignments o from soft k-means, each
    iteration

    1. counts N_k = sum_n o_nk, and takes m_k = sum_n o_nk y_n / (mean_weight + N_k),
       beta_k = mean_weight + N_k, and alpha_k = concentration + the count without the seeds;
    2. projects y and m to the span of m_k - m_1, of D = n_classes - 1 dimensions or, where
       there are fewer, all;
    3. takes o_nk proportional to
       exp(psi(alpha_k) - precision/2 |y_n - m_k|^2 - D / (2 beta_k)), one-hot for seeds.

    How many seeds a class was given says nothing of its share: they do not count in alpha_k.
    The objective is the negative variational bound within the projection; it falls for sure
    only while that stays the same.

    The scatter from the seeds is the covariance about the means of their classes, shrunk
    towards a multiple of the identity: by the oracle approximation (Chen et al.,
    https://doi.org/10.1109/TSP.2010.2053029), and at least as if the identity counted for as
    many seeds as there are features. Eigenvalues sum lambda^2 / sum lambda become 1, so that
    axes along which classes are widest keep their scale. With one seed a class nothing is
    stretched.
    """

    name: ClassVar[str] = "bavardage"
    title: ClassVar[str] = "Bavardage"

    tolerance: float = parameter(
        1e-4,
        label="Tolerance",
        help="Stop once an iteration moves a smaller share of the assignment than this.",
        minimum=0,
        maximum=0.1,
        step=1e-5,
        advanced=True,
    )
    max_iterations: int = parameter(
        5,
        label="Most steps",
        help="Stop after so many variational steps in any case.",
        minimum=1,
        maximum=100_000,
        advanced=True,
    )
    precision: float = parameter(
        50.0,
        label="Sharpness",
        help="How narrow classes are: a larger number makes harder borders between them (T_vb).",
        minimum=1e-3,
        maximum=1e6,
        step=5,
    )
    concentration: float = parameter(
        2.0,
        label="Evenness",
        help="How equal in size classes are expected to be: 2 hardly, 1000 very (alpha).",
        minimum=1e-3,
        maximum=1e9,
        step=1,
    )
    start_temperature: float = parameter(
        10.0,
        label="Start sharpness",
        help="How decided the start is: a larger number is more decided (T_km).",
        minimum=1e-3,
        maximum=1e6,
        step=1,
        advanced=True,
    )
    start_iterations: int = parameter(
        5,
        label="Start steps",
        help="Iterations of soft k-means at the start.",
        minimum=1,
        maximum=1000,
        advanced=True,
    )
    mean_weight: float = parameter(
        10.0,
        label="Pull of the mean",
        help="Weight of the mean of all pixels in the mean of each class, in pixels (beta).",
        minimum=1e-6,
        maximum=1e9,
        step=1,
        advanced=True,
    )
    max_scale: float = parameter(
        2.0,
        label="Largest stretch",
        help="How far a feature that varies little within classes is stretched, at most (s_max).",
        minimum=1e-3,
        maximum=1e6,
        step=0.5,
        advanced=True,
    )
    within_scatter: NDArray[np.floating] | None = parameter(
        None,
        label="Scatter",
        help="Scatter of the features within classes; none: from the seeds.",
        advanced=True,
        none="from the seeds",
        in_form=False,
    )

    def _prepare_tasks(self, tasks: Tasks) -> AbstractTaskClustering:
        return _Run(self, tasks)


class _Run(AbstractTaskClustering):
    """BAVARDAGE under way."""

    ends_by_objective = False

    def __init__(self, method: Bavardage, tasks: Tasks) -> None:
        super().__init__(tasks, tasks.n_classes)
        self._method = method
        self._sphering: NDArray[np.float64] | None = None
        if method.within_scatter is None:
            self._points = method._preprocess_turned(tasks.blocks)
        else:
            self._points = method._preprocess(tasks.blocks)
            n_features = self._points.shape[2]
            self._sphering = given_sphering(method.within_scatter, n_features, method.max_scale)
        # A product of a few rows with the turned points is several times as fast.
        self._turned = self._points.mT.contiguous()
        self._lengths = self._points.square().sum(dim=2)
        self._n_seeds = tasks.class_indicators().sum(dim=1).cpu().double()
        self._moved = torch.full((self.n_tasks,), torch.nan, dtype=torch.float64)
        self._go_near(tasks.class_means(self._points))

    def begin(self) -> None:
        start = start_of(self.tasks)
        if start is not None:
            self.move(start)
        else:
            for _ in range(self._method.start_iterations - 1):
                self.raise_if_cancelled()
                self._go_near(weighted_means(self.by_task(self.assignment), self._points))
        self.raise_if_cancelled()
        self._stretched = self._stretch()
        self._turned = self._stretched.mT.contiguous()
        self._maximise()
        self.objectives = self._free_energies()

    def advance(self) -> None:
        """Update the assignment, then the projection and the posteriors of the parameters."""
        self.raise_if_cancelled()
        squares = squared_distances(self._projected, self._means)
        v = squares.mul_(-self._method.precision / 2).add_(self._offsets()[:, None])
        before_v, before = self.v, self.assignment.clone()
        self.move(self.choose(self.active, v, self.by_task(before_v)).flatten(0, 1))
        moved = (self.assignment - before).abs_().mul_(0.5)
        self._moved = self.totals(moved) / self._points.shape[1]
        self.n_evaluations += 1
        self.raise_if_cancelled()
        self._maximise()
        if self.is_recorded:
            self.objectives = self.choose(self.active, self._free_energies(), self.objectives)

    def gains(self, before: torch.Tensor) -> torch.Tensor:
        """Return what share of the assignment the last iteration moved."""
        return self._moved

    def _go_near(self, means: torch.Tensor) -> None:
        products = (means @ self._turned).mT
        squares = self._lengths[..., None] + means.square().sum(dim=2)[:, None]
        squares.sub_(products, alpha=2).clamp_(min=0)
        self.move(squares.mul_(-self._method.start_temperature).flatten(0, 1))

    def _stretch(self) -> torch.Tensor:
        """Return the features less their mean, stretched."""
        if self._sphering is None:
            stretched = sphered_by_seeds(
                self._points,
                self.tasks.class_indicators(),
                self._method.max_scale,
                n_features=self.tasks.blocks.shape[2],
            )
        else:
            stretched = self._points @ torch.from_numpy(self._sphering).to(self._points)
        return stretched - stretched.mean(dim=1, keepdim=True)

    def _maximise(self) -> None:
        """Take the best posteriors of shares and means for the assignment, and project."""
        method, weights = self._method, self.by_task(self.assignment)
        counts = weights.sum(dim=1).cpu().double()
        self._beta = method.mean_weight + counts
        self._alpha = method.concentration + (counts - self._n_seeds).clamp_(min=0)
        sums = (weights.mT @ self._stretched).cpu().double()
        means = sums / self._beta[..., None]
        basis = _span(means)
        self._n_dimensions = min(means.shape[1] - 1, means.shape[2])
        self._projected = (basis.mT.to(self._turned) @ self._turned).mT
        self._means = (means @ basis).to(self._stretched)

    def _offsets(self) -> torch.Tensor:
        """Return what is added to -precision/2 |y - m_k|^2, of shape (n_tasks, n_classes)."""
        offsets = torch.digamma(self._alpha) - self._n_dimensions / (2 * self._beta)
        return offsets.to(self._stretched)

    def _free_energies(self) -> torch.Tensor:
        """Return the negative variational bound of each task."""
        precision, n_dimensions = self._method.precision, self._n_dimensions
        squares = squared_distances(self._projected, self._means).flatten(0, 1)
        terms = squares.mul_(precision / 2).add_(self.v).mul_(self.assignment)
        energies = self.totals(terms)
        energies += self.totals(self.assignment.amax(dim=1, keepdim=True).log_())
        n_nodes = self._points.shape[1]
        energies += n_nodes * n_dimensions / 2 * math.log(2 * math.pi / precision)
        counts = self._beta - self._method.mean_weight
        energies += (counts * n_dimensions / (2 * self._beta)).sum(dim=1)
        free = self._alpha - self._method.concentration
        energies -= (free * _mean_logarithms(self._alpha)).sum(dim=1)
        return energies + self._divergences()

    def _divergences(self) -> torch.Tensor:
        """Return the divergences of the posteriors of shares and means from their priors."""
        method, alpha, n_classes = self._method, self._alpha, self._alpha.shape[1]
        prior = torch.tensor(method.concentration, dtype=torch.float64)
        shares = (alpha - prior) * _mean_logarithms(alpha) - torch.lgamma(alpha)
        constant = n_classes * torch.lgamma(prior) - torch.lgamma(n_classes * prior)
        ratio = method.mean_weight / self._beta
        squares = self._means.cpu().double().square().sum(dim=2)
        means = self._n_dimensions * (ratio - 1 - ratio.log())
        means += method.mean_weight * method.precision * squares
        return shares.sum(dim=1) + torch.lgamma(alpha.sum(dim=1)) + constant + means.sum(dim=1) / 2


def _mean_logarithms(alpha: torch.Tensor) -> torch.Tensor:
    """Return the expected logarithms of shares with a Dirichlet posterior."""
    return torch.digamma(alpha) - torch.digamma(alpha.sum(dim=1, keepdim=True))


def _span(means: torch.Tensor) -> torch.Tensor:
    """Return an orthonormal basis (n_tasks, n_features, n_classes) of what tells means apart.

    In float64; columns beyond the rank are 0.
    """
    apart = means - means.mean(dim=1, keepdim=True)
    values, vectors = torch.linalg.eigh(apart @ apart.mT)
    kept = values > _LEAST_EIGENVALUE * values[:, -1:].clamp(min=1e-300)
    factors = torch.where(kept, values.clamp(min=1e-300).rsqrt(), 0)
    basis: torch.Tensor = apart.mT @ (vectors * factors[:, None])
    return basis
