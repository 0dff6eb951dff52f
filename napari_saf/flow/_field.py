"""Right-hand sides of the flows, dV/dt = S(V) in log coordinates V of an assignment W.

S(V) = softmax(A (V + g(W) / rho)) with W = softmax(V) and A the averages over the windows: the
similarity map, eq. (2.33) of Zisler, Zern, Petra and Schnörr
(https://doi.org/10.1137/19M1298639), the weighted geometric mean of the likelihoods. For the
assignment flow g = -D, D the distances to the prototypes; for the self-assignment flow
g = grad E_s(W), eqs. (4.10) to (4.15).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import napari_saf.flow._simplex as simplex
from napari_saf.arrays import Float32s, Float64s
from napari_saf.device import Tensor, torch
from napari_saf.errors import Cancelled
from napari_saf.flow._affinity import AffinityOperator, Basis
from napari_saf.graph import Averager

_PSEUDO_INVERSE_TOLERANCE = 1e-9
"""Relative cut-off of eigenvalues of the label overlap, near rounding error: with 1e-3 the flow
would never leave the barycentre, where all labels overlap."""


def not_cancelled() -> bool:
    return False


class AbstractField(ABC):
    """Right-hand side S(V) of a flow, with its preallocated fields.

    Each evaluation sets the `assignment` W = softmax(V), the `objective`, the `masses` W'1 and the
    `squares`, the diagonal of W'W. The two fields of `scratch` may be overwritten between
    evaluations.
    """

    has_costs: ClassVar[bool]
    is_mixed = False
    """Whether the gradient has a term W times a matrix."""

    def __init__(
        self,
        averager: Averager,
        like: Tensor,
        n_columns: int,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> None:
        self.averager, self.cancelled = averager, cancelled
        self.assignment, first, second = (simplex.new_field(like, n_columns) for _ in range(3))
        self.scratch = (first, second)
        self.objective = float("nan")
        self.masses = self.squares = np.zeros(n_columns)
        self.n_evaluations = 0

    def __call__(self, v: Tensor, out: Tensor) -> Tensor:
        """Write S(V) into `out` and return it; row maxima of `v` are within 40 of 0."""
        if self.cancelled():
            raise Cancelled
        self.n_evaluations += 1
        simplex.softmax(v, out=self.assignment)  # W
        likelihood, mean = self.scratch
        self._write_likelihood(v, likelihood)
        # eq. (2.33) in log coordinates: the softmax cancels row constants
        self.averager(likelihood, mean, out)
        return simplex.shifted_softmax(mean, out)

    @abstractmethod
    def _write_likelihood(self, v: Tensor, out: Tensor) -> None:
        """Write V + g(W) / rho into `out`, set objective and sums; `scratch[1]` is free."""

    @abstractmethod
    def planes(self) -> Tensor | None:
        """Return distances or sketch in 16 bits for compiled kernels, if any; release the rest."""

    @abstractmethod
    def factors(self, sums: Float64s, coefficients: Float64s) -> tuple[ArrayLike, ArrayLike]:
        """Return the factors of the planes and of W, from sums of W and Phi'W.

        `sums` are the upper half of W'W if the field `is_mixed`, else W'1 and the diagonal of W'W.
        """

    @abstractmethod
    def prototypes(self, assignment: Tensor) -> Float32s:
        """Return the prototype of each column (n_columns, n_features)."""

    def keep_columns(self, columns: Tensor) -> None:
        """Drop all columns but those in `columns`."""
        fields = (self.assignment, *self.scratch)
        self.assignment, first, second = (
            simplex.with_columns(field, len(columns)) for field in fields
        )
        self.scratch = (first, second)


class AssignmentField(AbstractField):
    """S(V) = softmax(A (V - D / rho)) of the assignment flow, D the distances to `points`."""

    has_costs = True

    def __init__(
        self,
        averager: Averager,
        distances: Tensor,
        points: Tensor,
        rho: float,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> None:
        super().__init__(averager, distances, len(points), cancelled)
        self._distances, self._points, self._rho = distances, points, rho

    def _write_likelihood(self, v: Tensor, out: Tensor) -> None:
        # The mean distance of a node to its prototypes, sum_ij W_ij D_ij / n.
        costs = torch.mul(self.assignment, self._distances, out=self.scratch[1])
        self.objective = float(costs.sum()) / len(v)
        self.masses, self.squares = (sums.numpy() for sums in simplex.column_sums(self.assignment))
        torch.add(v, self._distances, alpha=-1 / self._rho, out=out)

    def planes(self) -> Tensor:
        return simplex.columns_first_(self._distances).T

    def factors(self, sums: Float64s, coefficients: Float64s) -> tuple[ArrayLike, ArrayLike]:
        return -1 / self._rho, np.zeros((0, 0))

    def keep_columns(self, columns: Tensor) -> None:
        super().keep_columns(columns)
        self._distances = simplex.take_columns(self._distances, columns)
        self._points = self._points[columns]

    def prototypes(self, assignment: Tensor) -> Float32s:
        return self._points.float().cpu().numpy()


class SelfAssignmentField(AbstractField):
    """S(V) = softmax(A (V + grad E_s(W) / rho)) of the self-assignment flow."""

    has_costs = False

    def __init__(
        self,
        operator: AffinityOperator,
        averager: Averager,
        features: Tensor,
        n_columns: int,
        *,
        s: float,
        rho: float,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> None:
        super().__init__(averager, features, n_columns, cancelled)
        self._operator, self._features, self._s, self._rho = operator, features, s, rho
        self._units, self.is_mixed = np.ones((1, 1)), s != 0

    def _write_likelihood(self, v: Tensor, out: Tensor) -> None:
        w = self.assignment
        product = self._operator.product(w)
        sums = simplex.gram(w) if self.is_mixed else torch.stack(simplex.column_sums(w))
        factors = self._gradient(
            sums.numpy(), product.coefficients.numpy(), product.quadratic.numpy()
        )
        affinity, shift = (torch.from_numpy(factor).to(v.dtype).to(v.device) for factor in factors)
        for rows, block in product.basis.plus(v, affinity, out):
            if self.is_mixed:
                block.addmm_(w[rows], shift)
            else:
                block.add_(shift)

    def _gradient(
        self, sums: Float64s, coefficients: Float64s, quadratic: Float64s
    ) -> tuple[Float64s, Float64s]:
        """Return the factors of the basis and of W in grad E_s / rho; set objective and sums."""
        if self.is_mixed:
            overlap, self.squares = sums, sums.diagonal()
        else:
            overlap, self.squares = np.diag(sums[0]), sums[1]
        self.masses = overlap.sum(axis=0)  # rows of W sum to 1
        gradient = self_assignment_gradient(overlap, quadratic, self._s)
        self.objective = gradient.objective
        factor = gradient.assignment_factor if self.is_mixed else gradient.assignment_factor[:1]
        return coefficients @ gradient.affinity_factor / self._rho, factor / self._rho

    def planes(self) -> Tensor | None:
        operator = self._operator
        if not isinstance(operator, Basis):
            return None
        planes, units = operator.take_planes()
        self._units = units.double().numpy()[:, None]
        return planes

    def factors(self, sums: Float64s, coefficients: Float64s) -> tuple[ArrayLike, ArrayLike]:
        coefficients = self._units * coefficients
        if self.is_mixed:
            sums = np.triu(sums) + np.triu(sums, 1).T
        affinity, shift = self._gradient(sums, coefficients, coefficients.T @ coefficients)
        return self._units * affinity, shift

    def prototypes(self, assignment: Tensor) -> Float32s:
        """Return weighted means, or (W'W)^+ W'F."""
        sums = simplex.cross_product(assignment, self._features)
        if self._s == 0:
            unit = assignment.new_ones(1, 1).expand(len(assignment), 1)
            masses = simplex.cross_product(assignment, unit)
            return np.asarray((sums / masses).float().numpy())
        overlap = simplex.gram(assignment)
        inverse = torch.linalg.pinv(overlap, rtol=_PSEUDO_INVERSE_TOLERANCE, hermitian=True)
        return np.asarray((inverse @ sums).float().numpy())


class Gradient(NamedTuple):
    """E_s(W), and dE/dW = (K W) affinity_factor + W assignment_factor, both float64."""

    objective: float
    affinity_factor: Float64s
    assignment_factor: Float64s


def self_assignment_gradient(overlap: Float64s, affinity: Float64s, s: float) -> Gradient:
    """Return E_s and its gradient from the overlap W'W and the affinity W'K W.

    With C = diag(W'1), Y = W C^(-1/2), M = Y'Y and G = Y'K Y the objective is
    E_s = tr(M^(-s) G); s = 0 and s = 1 give eqs. (4.3a) and (4.3b) of Zisler, Zern, Petra and
    Schnörr, https://doi.org/10.1137/19M1298639. With H the gradient of tr(M^(-s) G) with respect
    to M and Gamma = 2 K Y M^(-s) + 2 Y H,

        dE_s/dW = Gamma C^(-1/2) - 1 v',   v_j = C_jj^(-3/2) (W'Gamma)_jj / 2.

    As the rows of W sum to 1, 1 v' = W (1 v'): two products with c x c matrices.
    """
    scale = overlap.sum(axis=0) ** -0.5  # C^(-1/2)
    outer = scale[:, None] * scale
    g = outer * affinity
    if s == 0:
        power, h = np.eye(len(g)), np.zeros_like(g)
    else:
        power, h = _power_and_derivative(outer * overlap, g, s)
    w_gamma = 2 * affinity @ (scale[:, None] * power) + 2 * (overlap * scale) @ h
    v = scale**3 * w_gamma.diagonal() / 2
    return Gradient(float((power * g).sum()), 2 * outer * power, 2 * outer * h - v[None, :])


def _power_and_derivative(m: Float64s, g: Float64s, s: float) -> tuple[Float64s, Float64s]:
    """Return f(M) = M^(-s) and the gradient H of tr(f(M) G) with respect to M.

    H = U (F o (U'G U)) U' with the eigenpairs (lambda, U) of M and the divided differences
    F_ij = (f(lambda_i) - f(lambda_j)) / (lambda_i - lambda_j), f' if equal (Daleckii-Krein).
    """
    values, vectors = np.linalg.eigh((m + m.T) / 2)
    large = values > _PSEUDO_INVERSE_TOLERANCE * values[-1]
    values, vectors = values[large], vectors[:, large]
    f, slope = values**-s, -s * values ** (-s - 1)
    gap = values[:, None] - values
    meet = np.abs(gap) < 1e-8 * values[-1]
    quotients = (f[:, None] - f) / np.where(meet, 1.0, gap)
    differences = np.where(meet, (slope[:, None] + slope) / 2, quotients)
    h = vectors @ (differences * (vectors.T @ g @ vectors)) @ vectors.T
    return (vectors * f) @ vectors.T, h
