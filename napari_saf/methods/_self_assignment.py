"""The self-assignment flow."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.affinity import AffinityOperator, GaussianAffinity, KernelAffinity, leading_vectors
from napari_saf.device import float_type
from napari_saf.geometry import cross_product, row_blocks, shifted_softmax, softmax
from napari_saf.graph import AbstractGraph, Averager
from napari_saf.methods._flow import FieldMemory, Flow
from napari_saf.methods._flow_method import AbstractFlow
from napari_saf.methods._method import Call, Cancelled
from napari_saf.methods._objective import PSEUDO_INVERSE_TOLERANCE, self_assignment_gradient
from napari_saf.methods._start import (
    Start,
    check_seeds_fit,
    class_means,
    count_classes,
    from_assignment,
    k_centres,
)
from napari_saf.parameters import parameter
from napari_saf.problem import Problem
from napari_saf.tick import Tick, go_on

__all__ = ["SelfAssignmentField", "SelfAssignmentFlow"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SelfAssignmentFlow(AbstractFlow):
    """Label without labels: labels and their prototypes emerge together, smooth in space.

    Parameters
    ----------
    max_labels : int
        Number of labels to start with, or of the classes of the seeds if those are more;
        labels that die out are dropped.
    s : float
        0 to 1: from smooth regions of similar size (0, a trace of averages) to fine features
        (1, a projection onto the span of the labels).
    start : {"features", "spectral"}
        Where labels are looked for first: at nodes that are far from each other in feature
        space, or in that of the leading eigenvectors of the affinity, averaged over the
        windows, which follows whole regions rather than odd pixels; the first labels come later.
    epsilon : float
        > 0; how far from undecided the start is, per unit of distance in the space of the start.
    affinity : GaussianAffinity or KernelAffinity
        Which nodes are alike.
    seed : int
        Draws the first centre and the landmarks.
    new_labels : bool
        Whether labels beside those of the seeds may come out, up to `max_labels` together;
        without seeds all labels are new.
    rho, stepper, stop, device, dtype
        As for every flow: `AbstractFlow`.

    Notes
    -----
    Zisler, Zern, Petra and Schnörr, "Self-assignment flows for unsupervised data labeling on
    graphs", SIAM J. Imaging Sci. 13 (2020), https://doi.org/10.1137/19M1298639; eqs. (4.10)
    to (4.15). In log coordinates V the flow is dV/dt = softmax(A (V + grad E_s(W) / rho)),
    W = softmax(V), A the averages over the windows.
    """

    name: ClassVar[str] = "saf"
    title: ClassVar[str] = "Self-assignment flow"

    max_labels: int = parameter(
        16,
        label="Labels up to",
        help="Most labels that may come out; the image decides how many survive (c).",
        minimum=2,
        maximum=255,
        at_start=True,
    )
    s: float = parameter(
        0.0,
        label="Detail",
        help="From smooth regions of similar size to fine features (s).",
        minimum=0,
        maximum=1,
        step=0.05,
        ends=("smooth regions", "fine features"),
    )
    start: Literal["features", "spectral"] = parameter(
        "features",
        label="Start",
        help="Where labels begin: at the most different pixels, or at spectral clusters, whose "
        "first labels come later and follow whole regions (k-centre in features or eigenvectors).",
        words={"features": "most different pixels", "spectral": "spectral clusters"},
        advanced=True,
        at_start=True,
    )
    epsilon: float = parameter(
        1.0,
        label="Head start",
        help="How decided the start is: near 0 all labels begin equal and rounding decides "
        "(epsilon).",
        minimum=1e-4,
        maximum=100,
        step=0.1,
        advanced=True,
        at_start=True,
    )
    affinity: GaussianAffinity | KernelAffinity = parameter(
        GaussianAffinity(),
        label="Affinity",
        help="Which pixels count as alike.",
        variants={"gaussian": GaussianAffinity},
        advanced=True,
    )
    seed: int = parameter(
        0,
        label="Random seed",
        help="The same seed gives the same labels.",
        minimum=0,
        maximum=2**31 - 1,
        advanced=True,
    )

    new_labels: bool = parameter(
        True,
        label="New labels",
        help="With strokes: whether labels that no stroke has may come out too.",
        advanced=True,
        for_seeds=True,
    )

    @property
    def goes_on_from_any_labels(self) -> bool:
        """Whether `initial` alone says how many labels there are: the prototypes follow it."""
        return True

    def _prepare(self, call: Call) -> Flow:
        rng, features = np.random.default_rng(self.seed), call.features
        operator: AffinityOperator | None = None
        notes: tuple[str, ...] = ()
        if call.initial is not None:
            start = Start.at(from_assignment(call.initial, features))
            check_seeds_fit(call.seeds, start.n_columns)
        else:
            n_labels, points = self._n_columns(call.problem), features
            if self.start == "spectral":
                with contextlib.suppress(Cancelled):
                    operator = self.affinity.bind(features, rng, call.raise_if_cancelled)
                    vectors = leading_vectors(
                        operator, features, n_labels, rng, call.raise_if_cancelled
                    )
                    points = _spread(vectors, call.problem.graph, call.raise_if_cancelled)
            means = None if call.seeds is None else class_means(points, call.seeds)
            centres = k_centres(points, n_labels, rng, given=means, cancelled=call.cancelled)
            start = centres.start(points, self.epsilon)
            if start.n_columns < n_labels and not call.cancelled():
                notes = (f"labels reduced to {start.n_columns}: no more distinct features",)

        def make_field(tick: Tick) -> SelfAssignmentField:
            bound = operator or self.affinity.bind(features, rng, tick)
            averager = call.problem.graph.averager(features.device, features.dtype)
            return SelfAssignmentField(bound, averager, features, start.n_columns, self, tick)

        return Flow(self, start, make_field, self.stepper, self.stop, notes)

    def _n_columns(self, problem: Problem) -> int:
        if problem.seeds is None:
            return self.max_labels
        n_seeded = count_classes(problem.seeds)
        return max(self.max_labels, n_seeded) if self.new_labels else n_seeded

    def _n_extra_columns(self, problem: Problem, device: torch.device) -> tuple[float, float]:
        dtype = float_type(self.dtype, device)
        return self.affinity.sketch_width(problem.features, device, dtype)


def _spread(vectors: torch.Tensor, graph: AbstractGraph, tick: Tick) -> torch.Tensor:
    """Return rows of length 1, averaged over the windows; takes the memory of the vectors."""
    for rows in row_blocks(vectors):
        tick()
        torch.nn.functional.normalize(vectors[rows], dim=1, out=vectors[rows])
    means = torch.empty_like(vectors)
    average = graph.averager(vectors.device, vectors.dtype)
    average(vectors, means, torch.empty_like(vectors))
    return means


class SelfAssignmentField(FieldMemory):
    """Right-hand side S(V) = softmax(A (V + grad E_s / rho)) of the self-assignment flow.

    Parameters
    ----------
    operator : AffinityOperator
    averager : Averager
    features : Tensor of shape (n_nodes, n_features)
    n_columns : int
    method : SelfAssignmentFlow
        Gives s and rho.
    tick : callable
        Called between blocks of work.
    """

    def __init__(
        self,
        operator: AffinityOperator,
        averager: Averager,
        features: torch.Tensor,
        n_columns: int,
        method: SelfAssignmentFlow,
        tick: Tick = go_on,
    ) -> None:
        super().__init__(features, n_columns, tick)
        self._operator = operator
        self._averager = averager
        self._features = features
        self._s, self._rho = method.s, method.rho

    def __call__(self, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the right-hand side at `v` into `out`."""
        w = softmax(v, out=self.assignment, tick=self.tick)
        product = self._operator.product(w)
        # Rows of W sum to 1, so the column sums of W'W are the masses.
        self.overlap = cross_product(w, w, self.tick)
        gradient = self_assignment_gradient(
            self.overlap.sum(dim=0), self.overlap, self._operator.quadratic(w, product), self._s
        )
        self.objective = gradient.objective
        basis_factor = self._small(product.coefficients @ gradient.affinity_factor)
        assignment_factor = self._small(gradient.assignment_factor)
        likelihood, mean = self.scratch
        for rows, block in product.basis.plus(v, basis_factor, likelihood):
            self.tick()
            block.addmm_(w[rows], assignment_factor)
        self._averager(likelihood, mean, out)
        return shifted_softmax(mean, out, self.tick)

    def prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        """Return the representative of every column: weighted means, or (W'W)^+ W'F."""
        sums = cross_product(assignment, self._features)
        if self._s == 0:
            ones = assignment.new_ones(1, 1).expand(len(assignment), 1)
            masses = cross_product(assignment, ones)
            return np.asarray((sums / masses).float().numpy())
        overlap = cross_product(assignment, assignment)
        inverse = torch.linalg.pinv(overlap, rtol=PSEUDO_INVERSE_TOLERANCE, hermitian=True)
        return np.asarray((inverse @ sums).float().numpy())

    def _small(self, factor: torch.Tensor) -> torch.Tensor:
        return (factor / self._rho).to(self._features.dtype).to(self._features.device)
