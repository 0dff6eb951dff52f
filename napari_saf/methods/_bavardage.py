"""Few-shot inference by variational Bayes in an adapted projection: BAVARDAGE."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import Float64s
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.methods._clustering import AbstractState, Tasks
from napari_saf.methods._few_shot import AbstractFewShotMethod, prepared, prepared_in_few_axes
from napari_saf.methods._method import Caution, limit_parameter, tolerance_parameter
from napari_saf.parameters import documented, parameter
from napari_saf.points import squared_distances, weighted_means

_LEAST_EIGENVALUE = 1e-10


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bavardage(AbstractFewShotMethod):
    """BAVARDAGE: variational Bayesian few-shot classification with unequal class sizes.

    Notes
    -----
    Hu, Pateux and Gripon, "Adaptive dimension reduction and variational inference for
    transductive few-shot classification", https://arxiv.org/abs/2209.08527. Centred features x
    are scaled to y = S R'x: R holds the eigenvectors of the within-class scatter,
    S = min(eigenvalue^(-1/2), max_scale). With assignments o from soft k-means, each iteration

    1. counts N_k = sum_n o_nk, and takes m_k = sum_n o_nk y_n / (mean_weight + N_k),
       beta_k = mean_weight + N_k, and alpha_k = concentration + the count without the seeds;
    2. projects y and m to the span of m_k - m_1, of D = n_classes - 1 dimensions, at most
       n_features;
    3. takes o_nk proportional to
       exp(psi(alpha_k) - precision/2 |y_n - m_k|^2 - D / (2 beta_k)), one-hot for seeds.

    Seeds do not count in alpha_k, as their number is no evidence of the class share. The objective
    is the negative variational bound within the projection; its descent is guaranteed only while
    the projection is fixed.

    The scatter from the seeds is the covariance about the means of their classes, shrunk
    towards a multiple of the identity: by the oracle approximation (Chen et al.,
    https://doi.org/10.1109/TSP.2010.2053029), and at least as if the identity counted for as
    many seeds as there are features. Eigenvalues of sum lambda^2 / sum lambda are scaled to 1, so
    that the axes of largest within-class scatter keep their scale. With one seed per class nothing
    is scaled. The paper, which estimates the scatter from base classes, takes 5 iterations with
    precision 50 and mean weight 10. Without base classes this is worse than the nearest prototype
    for classes of one query, which the common mean outweighs. A `within_scatter` (n_features,
    n_features) refers to preprocessed features; it is symmetric, positive semi-definite and used
    unchanged.

    Examples
    --------
    >>> classes = np.repeat([1, 2], 20)
    >>> noise = np.random.default_rng(0).normal(scale=0.1, size=(40, 5))
    >>> features, seeds = np.eye(5)[classes] + noise, np.where(np.arange(40) % 20 < 1, classes, 0)
    >>> problem = saf.Problem(features, saf.AffinityGraph.k_nearest(features, 5), seeds=seeds)
    >>> np.array_equal(saf.Bavardage().run(problem).labels, classes)  # one seed per class
    True
    """

    name: ClassVar[str] = "bavardage"
    title: ClassVar[str] = "Bavardage"
    summary: ClassVar[str] = (
        "Every pixel gets the class of the most similar strokes; the size and the spread of each "
        "class are learned from all pixels."
    )
    caution: ClassVar[Caution | None] = Caution(
        "for feature tables",
        "Designed for network features: on pixel colours a random forest is more accurate.",
    )

    # fmt: off
    tolerance: float = tolerance_parameter(
        1e-4, help="Stop once an iteration moves a smaller share of the assignment than this.")
    max_iterations: int = limit_parameter(
        10, step=None, help="Maximum number of variational steps.")
    precision: float = parameter(
        40.0, label="Sharpness", bounds=(1e-3, 1e6), step=5,
        help="Inverse variance within a class: larger values give harder borders between classes "
        "(T_vb).")
    concentration: float = parameter(
        2.0, label="Evenness", bounds=(1e-3, 1e9), step=1,
        help="Expected equality of class sizes: with 2 a class may cover nearly all pixels, with "
        "1000 all classes are about equal (alpha).")
    start_temperature: float = parameter(
        10.0, label="Start sharpness", bounds=(1e-3, 1e6), step=1, advanced=True,
        help="Certainty of the initial assignment: larger values give harder assignments (T_km).")
    start_iterations: int = parameter(
        5, label="Start steps", bounds=(1, 1000), advanced=True,
        help="Iterations of soft k-means at the start.")
    mean_weight: float = parameter(
        2.0, label="Pull of the mean", bounds=(1e-6, 1e9), step=1, advanced=True,
        help="Weight of the mean of all pixels in the mean of each class, in pixels (beta).")
    max_scale: float = parameter(
        2.0, label="Largest stretch", bounds=(1e-3, 1e6), step=0.5, advanced=True,
        help="Maximum scale factor of features that vary little within classes (s_max).")
    within_scatter: NDArray[np.floating] | None = parameter(
        None, label="Scatter", advanced=True, none="from the seeds", in_form=False,
        help="Scatter of the features within classes; none: from the seeds.")
    # fmt: on

    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        return _State(self, tasks)


class _State(AbstractState):
    def __init__(self, method: Bavardage, tasks: Tasks) -> None:
        super().__init__(tasks, tasks.n_classes)
        self._method = method
        self._whitening: Float64s | None = None
        preprocessing = method._preprocessing(tasks.blocks)
        if method.within_scatter is None:
            self._points = prepared_in_few_axes(tasks.blocks, preprocessing)
        else:
            self._points = prepared(tasks.blocks, preprocessing)
            n_features = self._points.shape[2]
            self._whitening = _given_whitening(method.within_scatter, n_features, method.max_scale)
        # Products of few rows with transposed points are several times faster.
        self._transposed = self._points.mT.contiguous()
        self._lengths = self._points.square().sum(dim=2)
        self._n_seeds = tasks.class_indicators().sum(dim=1).cpu().double()
        self._moved = torch.full((self.n_tasks,), torch.nan, dtype=torch.float64)
        self._assign_to(tasks.class_means(self._points))

    def begin(self) -> None:
        start = self.tasks.start()
        if start is not None:
            self.move(start)
        else:
            for _ in range(self._method.start_iterations - 1):
                self.raise_if_cancelled()
                self._assign_to(weighted_means(self.by_task(self.assignment), self._points))
        self.raise_if_cancelled()
        if self._whitening is not None:
            whitened = self._points @ torch.from_numpy(self._whitening).to(self._points)
        else:
            whitened = whitened_by_seeds(
                self._points,
                self.tasks.class_indicators(),
                self._method.max_scale,
                n_features=self.tasks.blocks.shape[2],
            )
        self._whitened = whitened - whitened.mean(dim=1, keepdim=True)
        self._transposed = self._whitened.mT.contiguous()
        self._update_posteriors()
        self.objectives = self._free_energies()

    def advance(self) -> None:
        self.raise_if_cancelled()
        # step 3: o_nk ~ exp(psi(alpha_k) - precision/2 |y_n - m_k|^2 - D / (2 beta_k))
        squares = squared_distances(self._projected, self._means)
        offsets = torch.digamma(self._alpha) - self._n_dimensions / (2 * self._beta)
        v = squares.mul_(-self._method.precision / 2).add_(offsets.to(squares)[:, None])
        previous = self.assignment.clone()
        self.move(self.choose(self.active, v, self.by_task(self.v)).flatten(0, 1))
        moved = (self.assignment - previous).abs_().mul_(0.5)
        self._moved = self.totals(moved) / self._points.shape[1]
        self.n_evaluations += 1
        self._update_posteriors()
        if self.is_recorded:
            self.objectives = self.choose(self.active, self._free_energies(), self.objectives)

    def gains(self, previous: torch.Tensor) -> torch.Tensor:
        return self._moved

    def _assign_to(self, means: torch.Tensor) -> None:
        """Set the soft assignment to means, softmax(-T_km |x - m|^2)."""
        products = (means @ self._transposed).mT
        squares = self._lengths[..., None] + means.square().sum(dim=2)[:, None]
        squares.sub_(products, alpha=2).clamp_(min=0)
        self.move(squares.mul_(-self._method.start_temperature).flatten(0, 1))

    def _update_posteriors(self) -> None:
        """Compute the posteriors of shares and means (step 1) and project (step 2)."""
        method, weights = self._method, self.by_task(self.assignment)
        counts = weights.sum(dim=1).cpu().double()
        self._beta = method.mean_weight + counts
        self._alpha = method.concentration + (counts - self._n_seeds).clamp_(min=0)
        sums = (weights.mT @ self._whitened).cpu().double()
        means = sums / self._beta[..., None]
        # orthonormal basis, in columns, of the differences of the means; 0 beyond the rank
        apart = means - means.mean(dim=1, keepdim=True)
        values, vectors = torch.linalg.eigh(apart @ apart.mT)
        is_significant = values > _LEAST_EIGENVALUE * values[:, -1:].clamp(min=1e-300)
        factors = torch.where(is_significant, values.clamp(min=1e-300).rsqrt(), 0)
        basis = apart.mT @ (vectors * factors[:, None])
        self._n_dimensions = min(means.shape[1] - 1, means.shape[2])
        self._projected = (basis.mT.to(self._transposed) @ self._transposed).mT
        self._means = (means @ basis).to(self._whitened)

    def _free_energies(self) -> torch.Tensor:
        """Return the negative variational bound of each task."""
        method, n_dimensions = self._method, self._n_dimensions
        alpha, beta, precision = self._alpha, self._beta, method.precision
        squares = squared_distances(self._projected, self._means).flatten(0, 1)
        # E[log q(o) - log p(y | o, m) - log p(o | shares)]
        terms = squares.mul_(precision / 2).add_(self.v).mul_(self.assignment)
        energies = self.totals(terms)
        energies += self.totals(self.assignment.amax(dim=1, keepdim=True).log_())
        n_nodes = self._points.shape[1]
        energies += n_nodes * n_dimensions / 2 * math.log(2 * math.pi / precision)
        energies += ((beta - method.mean_weight) * n_dimensions / (2 * beta)).sum(dim=1)
        # E[log share] under the Dirichlet posterior
        logarithms = torch.digamma(alpha) - torch.digamma(alpha.sum(dim=1, keepdim=True))
        energies -= ((alpha - method.concentration) * logarithms).sum(dim=1)
        # KL of the Dirichlet posterior of the shares and of the Gaussian ones of the means
        prior = torch.tensor(method.concentration, dtype=torch.float64)
        n_classes = alpha.shape[1]
        shares = (alpha - prior) * logarithms - torch.lgamma(alpha)
        constant = n_classes * torch.lgamma(prior) - torch.lgamma(n_classes * prior)
        ratio = method.mean_weight / beta
        means = n_dimensions * (ratio - 1 - ratio.log())
        means += method.mean_weight * precision * self._means.cpu().double().square().sum(dim=2)
        divergences = shares.sum(dim=1) + torch.lgamma(alpha.sum(dim=1)) + constant
        return energies + (divergences + means.sum(dim=1) / 2)


def _given_whitening(scatter: ArrayLike, n_features: int, max_scale: float) -> Float64s:
    """Return R S R', S = min(eigenvalue^(-1/2), max_scale), of a validated scatter matrix."""
    matrix = np.asarray(scatter, dtype=np.float64)
    if matrix.shape != (n_features, n_features) or not np.isfinite(matrix).all():
        raise InvalidInput(
            f"within_scatter: expected finite numbers of shape ({n_features}, {n_features}), "
            f"got shape {matrix.shape}"
        )
    largest = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-6 * largest:
        raise InvalidInput("within_scatter: expected a symmetric matrix")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if values[0] < -1e-6 * largest:
        raise InvalidInput(
            f"within_scatter: expected eigenvalues >= 0, got {values[0]:.3g} among them"
        )
    with np.errstate(divide="ignore"):
        scales = np.minimum(values.clip(min=0) ** -0.5, max_scale)
    return np.asarray((vectors * scales) @ vectors.T)


def whitened_by_seeds(
    points: torch.Tensor, class_indicators: torch.Tensor, max_scale: float, *, n_features: int
) -> torch.Tensor:
    """Return R S R' x for the shrunk and scaled scatter of the seeds.

    Points may have fewer dimensions than `n_features`, the dimension of the identity.
    """
    is_seed = class_indicators.sum(dim=2)
    counts = is_seed.sum(dim=1).cpu().double()
    order = is_seed.argsort(dim=1, descending=True, stable=True)[:, : int(counts.max()), None]
    members = class_indicators.gather(1, order.expand(-1, -1, class_indicators.shape[2]))
    seeds = points.gather(1, order.expand(-1, -1, points.shape[2]))
    means = (members.mT @ seeds) / members.sum(dim=1)[..., None]
    # within-class residuals, zero-padded, and their degrees of freedom
    residuals = (seeds - members @ means) * members.sum(dim=2, keepdim=True)
    freedom = counts - class_indicators.shape[2]
    values, axes = _principal_axes(residuals.cpu().double())
    mean = values.sum(dim=1) / n_features
    is_known = (freedom > 0) & (mean > 0)
    if not is_known.any():
        return points
    shares = values / torch.where(is_known, mean, 1)[:, None]
    # The oracle approximation shrinks too little if few of many axes hold the variance.
    squares, p = shares.square().sum(dim=1), float(n_features)
    above = (1 - 2 / p) * squares + p * p
    below = (freedom + 1 - 2 / p) * (squares - p)
    oracle = torch.where(below > above, above / below.clamp(min=1e-300), 1)
    shrinkage = torch.maximum(oracle, p / (p + freedom)).clamp(0, 1)
    shrinkage = torch.where(is_known, shrinkage, 1)
    shrunk = (1 - shrinkage)[:, None] * shares + shrinkage[:, None]
    squares = shrunk.square().sum(dim=1) + (n_features - values.shape[1]) * shrinkage.square()
    unit = squares / n_features
    scales = (unit[:, None] / shrunk).sqrt().clamp(max=max_scale)
    base_scale = (unit / shrinkage).sqrt().clamp(max=max_scale)[:, None]
    along = points @ axes.to(points)
    stretched = (along * (scales - base_scale).to(points)[:, None]) @ axes.to(points).mT
    return stretched + points * base_scale.to(points)[:, None]


def _principal_axes(residuals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the non-zero eigenvalues of E'E and their eigenvectors in columns."""
    if residuals.shape[1] >= residuals.shape[2]:
        values, axes = torch.linalg.eigh(residuals.mT @ residuals)
        return values.clamp(min=0), axes
    values, vectors = torch.linalg.eigh(residuals @ residuals.mT)
    values = torch.where(values > 1e-9 * values[:, -1:], values, 0)
    factors = torch.where(values > 0, values.clamp(min=1e-300).rsqrt(), 0)
    return values, residuals.mT @ (vectors * factors[:, None])
