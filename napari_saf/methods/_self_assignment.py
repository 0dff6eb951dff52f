"""The self-assignment flow."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import torch

from napari_saf.device import float_type
from napari_saf.flow import (
    AffinityOperator,
    Flow,
    GaussianAffinity,
    KernelAffinity,
    SelfAssignmentField,
    Start,
    check_seeds_fit,
    class_means,
    count_classes,
    from_assignment,
    k_centres,
    spectral_points,
)
from napari_saf.methods._flow import AbstractFlow
from napari_saf.methods._method import AbstractMethod, Call
from napari_saf.parameters import parameter
from napari_saf.problem import Problem


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
        Where the first labels are: at nodes that are far from each other in feature
        space, or in that of the leading eigenvectors of the affinity, averaged over the
        windows, which follows whole regions rather than odd pixels; the first labels come later.
    epsilon : float
        > 0; how far from undecided the start is, per unit of distance in the space of the start.
    affinity : GaussianAffinity or KernelAffinity
        Which nodes are alike.
    seed : int
        Draws the first centre and the landmarks.
    new_labels : bool
        Whether labels besides those of the seeds may come out, up to `max_labels` together;
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
        choice_labels={"features": "most different pixels", "spectral": "spectral clusters"},
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
        rng, features, graph = np.random.default_rng(self.seed), call.features, call.problem.graph
        operator: AffinityOperator | None = None
        notes: tuple[str, ...] = ()
        if call.initial is not None:
            start = Start.at(from_assignment(call.initial, features))
            check_seeds_fit(call.seeds, start.n_columns)
        else:
            n_labels, points = self._n_columns(call.problem), features
            if self.start == "spectral":
                operator = self.affinity.bind(features, rng)
                points = spectral_points(
                    operator, features, n_labels, graph, rng, cancelled=call.cancelled
                )
            means = None if call.seeds is None else class_means(points, call.seeds)
            start = k_centres(points, n_labels, rng, means).start(points, self.epsilon)
            if start.n_columns < n_labels:
                notes = (f"labels reduced to {start.n_columns}: no more distinct features",)

        def make_field() -> SelfAssignmentField:
            return SelfAssignmentField(
                operator or self.affinity.bind(features, rng),
                graph.averager(features.device, features.dtype),
                features,
                start.n_columns,
                s=self.s,
                rho=self.rho,
                cancelled=call.cancelled,
            )

        return Flow(start, make_field, self.stepper, self.stop, notes)

    def _n_columns(self, problem: Problem) -> int:
        if problem.seeds is None:
            return self.max_labels
        n_seeded = count_classes(problem.seeds)
        return max(self.max_labels, n_seeded) if self.new_labels else n_seeded

    def _n_extra_columns(self, problem: Problem, device: torch.device) -> tuple[float, float]:
        dtype = float_type(self.dtype, device)
        return self.affinity.sketch_width(problem.features, device, dtype)


def method_for_warm_start(method: AbstractMethod) -> AbstractMethod:
    """Return the method that can start from labels edited by hand: this one, if it can.

    Otherwise the self-assignment flow, which takes labels whatever their shape in feature
    space.
    """
    if method.goes_on_from_any_labels:
        return method
    return SelfAssignmentFlow(device=method.device)
