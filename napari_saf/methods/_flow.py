"""Base class of the flow methods, `AbstractFlow`, and the self-assignment flow."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np

from napari_saf import flow as flows
from napari_saf.arrays import Floats
from napari_saf.device import float_type, raise_if_interrupted, torch
from napari_saf.flow import (
    STEPPERS,
    AbstractStepper,
    AdamsBashforthMoulton,
    Flow,
    GaussianAffinity,
    KernelAffinity,
    StoppingRule,
)
from napari_saf.methods._method import (
    AbstractMethod,
    Call,
    Caution,
    Iteration,
    Reporter,
    map_steps,
    seed_parameter,
)
from napari_saf.parameters import documented, parameter
from napari_saf.points import global_means, sampled_means
from napari_saf.problem import Problem
from napari_saf.result import LabelMap

MOST_CHOSEN = 8
"""Largest automatic number of initial labels."""
_LEFT = 0.3
"""Residual variance of averaged features at which the automatic number of means stops."""
_N_PER_NODE = 12
"""Numbers per node besides fields: current and earlier labels, uncertainty."""
_MOST_GLOBAL = 16
"""Largest number of means for the slower global k-means."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFlow(AbstractMethod):
    """Base class of methods that integrate a flow in log coordinates."""

    _n_fields: ClassVar[int] = 12

    # fmt: off
    rho: float = parameter(
        0.1, label="Selectivity", bounds=(1e-3, 100), step=0.05, advanced=True,
        help="Weight of the neighbours relative to similarity: smaller values favour similarity "
        "(rho).")
    stepper: AbstractStepper = parameter(
        AdamsBashforthMoulton(), label="Time stepping", variants=STEPPERS, advanced=True,
        help="Integration scheme: adaptive (adams, bogacki-shampine) or fixed steps (euler).")
    stop: StoppingRule = parameter(
        StoppingRule(), label="Stop", advanced=True, variants={"flow": StoppingRule},
        help="Stopping rule of the run.")
    # fmt: on

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        # with kernels: state, next state and distances, or the start, and slopes of half the size
        is_fused = self._is_fused(problem, n_columns, device)
        fields = 5 * n_columns + _N_PER_NODE if is_fused else self._n_fields * n_columns
        return fields, fields

    def _is_fused(self, problem: Problem, n_columns: int, device: torch.device) -> bool:
        """Whether compiled kernels step the flow."""
        stepper = self.stepper
        is_known = isinstance(stepper, AdamsBashforthMoulton | flows.AdamsSchedule)
        is_known &= self.dtype == "float32"
        return is_known and flows.saves_memory(problem.graph, problem.n_nodes * n_columns, device)


def run_flow(
    method: AbstractMethod, flow: Flow, call: Call, *, of_nodes: bool = False
) -> Iteration:
    """Integrate the flow of a method; labels are (n_nodes,) with `of_nodes`, else image-shaped."""
    if call.max_iterations is not None:
        stop = dataclasses.replace(flow.stop, max_steps=call.max_iterations)
        flow = dataclasses.replace(flow, stop=stop)
    seeds, label_map = call.seeds, flow.label_map
    if seeds is not None and label_map is not None:
        columns = label_map.unpaint(seeds.cpu().numpy()).astype(np.int64)
        seeds = torch.from_numpy(columns).to(seeds.device)
    elif seeds is not None:
        label_map = LabelMap.identity(flow.start.n_columns)
    run = flows.FlowRun(flow, seeds, call.cancelled, call.previous)
    reporter = Reporter(
        method,
        call.problem,
        run.n_columns,
        call.began,
        run.columns_of_nodes,
        run.logarithm,
        label_map=label_map,
        records=run.records,
    )
    status = yield from map_steps(run.steps(), reporter.snapshot)
    assignment, prototypes, uncertainty = run.finish()
    return reporter.finish(
        status,
        assignment,
        reporter.mean_features() if prototypes is None else prototypes + call.offset.numpy(),
        n_evaluations=run.n_evaluations,
        notes=flow.notes,
        uncertainty=uncertainty,
        of_nodes=of_nodes,
    )


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SelfAssignmentFlow(AbstractFlow):
    """Unsupervised labelling by the self-assignment flow, which learns labels and prototypes.

    Notes
    -----
    Zisler, Zern, Petra and Schnörr, "Self-assignment flows for unsupervised data labeling on
    graphs", SIAM J. Imaging Sci. 13 (2020), https://doi.org/10.1137/19M1298639; eqs. (4.10)
    to (4.15). In log coordinates V the flow is dV/dt = softmax(A (V + grad E_s(W) / rho)),
    W = softmax(V), A the averages over the windows; E_s is a trace of averages for s = 0, and a
    projection onto the labels for s = 1. It starts at V = -epsilon D, D the distances to means of
    averaged features, or to k-centres in the space of features or eigenvectors.

    Examples
    --------
    >>> from napari_saf.samples import read_sample
    >>> image = read_sample("colour_wheel").array
    >>> problem = saf.Problem.from_image(image, window=5, max_side=64)
    >>> result = saf.SelfAssignmentFlow(max_labels=8).run(problem)
    >>> result.labels.shape, 2 <= result.n_labels <= 8
    ((192, 192), True)
    """

    name: ClassVar[str] = "saf"
    title: ClassVar[str] = "Self-assignment flow"
    summary: ClassVar[str] = (
        "Finds labels without strokes: similar and neighbouring pixels agree on a label, and "
        "unnecessary labels vanish."
    )
    caution: ClassVar[Caution | None] = Caution(
        "with new labels",
        "Designed to find labels without strokes: with strokes a random forest is more accurate.",
    )
    accepts_any_initial: ClassVar[bool] = True

    # fmt: off
    max_labels: int | None = parameter(
        None, label="Labels up to", bounds=(2, 65_535), at_start=True,
        help="Maximum number of labels; how many remain depends on the image, as does the initial "
        "number if this is automatic (c).")
    s: float = parameter(
        0.0, label="Detail", bounds=(0, 1), step=0.05, ends=("smooth regions", "fine features"),
        help="From smooth regions of similar size to fine features (s).")
    start: Literal["k-means", "features", "spectral"] = parameter(
        "k-means", label="Start", advanced=True, at_start=True,
        choice_labels={"k-means": "typical pixels", "features": "most different pixels",
                       "spectral": "spectral clusters"},
        help="Initial labels: means of features averaged over the windows, robust to single pixels "
        "(k-means); the most different pixels (k-centre in features); or spectral clusters, which "
        "take longer and follow whole regions (k-centre in eigenvectors).")
    epsilon: float = parameter(
        10.0, label="Initial confidence", bounds=(1e-4, 100), step=0.1, advanced=True,
        at_start=True,
        help="Certainty of the initial assignment: near 0 all labels start equal and rounding "
        "errors decide (epsilon).")
    affinity: GaussianAffinity | KernelAffinity = parameter(
        GaussianAffinity(), label="Affinity", advanced=True,
        variants={"gaussian": GaussianAffinity},
        help="Similarity of pixels.")
    seed: int = seed_parameter()
    new_labels: bool = parameter(
        True, label="New labels", advanced=True, for_seeds=True,
        help="With strokes: whether labels other than those of the strokes are allowed.")
    # fmt: on

    def _iterate(self, call: Call) -> Iteration:
        return run_flow(self, self._prepare(call), call)

    def _prepare(self, call: Call) -> Flow:
        rng, features = np.random.default_rng(self.seed), call.features
        operator: flows.AffinityOperator | None = None
        notes: tuple[str, ...] = ()
        if call.initial is not None:
            start = flows.Start.at(flows.from_assignment(call.initial, features))
            flows.check_seeds_fit(call.seeds, start.n_columns)
        else:
            if self.start == "spectral":
                operator = self.affinity.bind(features, rng)
            start = self._start_labels(call, operator, rng)
            if self.max_labels and start.n_columns < self._n_columns(call.problem):
                notes = (f"labels reduced to {start.n_columns}: no more distinct features",)

        def make_field() -> flows.SelfAssignmentField:
            # A resumed run has the same landmarks: they depend on the seed alone.
            return flows.SelfAssignmentField(
                operator or self.affinity.bind(features, np.random.default_rng(self.seed)),
                call.problem.graph.averager(features.device, features.dtype),
                features,
                start.n_columns,
                s=self.s,
                rho=self.rho,
                cancelled=call.cancelled,
            )

        return Flow(start, make_field, self.stepper, self.stop, notes)

    def _start_labels(
        self, call: Call, operator: flows.AffinityOperator | None, rng: np.random.Generator
    ) -> flows.Start:
        """Return the initial state: means or centres in the space selected by `start`."""
        features, graph, seeds = call.features, call.problem.graph, call.problem.seeds
        points, n_labels = features, self._n_columns(call.problem)
        if self.start == "k-means" or self.max_labels is None:
            points = torch.empty_like(features)
            averager = graph.averager(features.device, features.dtype)
            averager(features, points, torch.empty_like(features))
            raise_if_interrupted()
            centroids = self._means(points.cpu().numpy(), call.problem)
            n_seeded = 0 if seeds is None else flows.count_classes(seeds)
            n_labels = n_labels if self.max_labels else min(n_labels, max(len(centroids), n_seeded))
        if self.start == "spectral":
            assert operator is not None
            points = flows.spectral_points(
                operator, features, n_labels, graph, rng, cancelled=call.cancelled
            )
        elif self.start == "features":
            points = features
        if self.start == "k-means" and call.seeds is None:
            centres = torch.from_numpy(centroids).to(features)
            nearest = flows.distance_table(points, centres)[1]
        else:
            means = None if call.seeds is None else flows.class_means(points, call.seeds)
            centres, nearest = flows.k_centres(points, n_labels, rng, means)
        return flows.Start(
            nearest,
            len(centres),
            lambda: flows.normalize_(flows.distance_table(points, centres)[0].mul_(-self.epsilon)),
        )

    def _means(self, points: Floats, problem: Problem) -> Floats:
        """Return the initial means of points (n_nodes, n_features)."""
        if self.max_labels is None:
            extractor = None if problem.options is None else problem.options.extractor
            if extractor is not None and extractor.n_labels is not None:
                return global_means(points, extractor.n_labels)
            return global_means(points, MOST_CHOSEN, _LEFT)
        means = global_means if self.max_labels <= _MOST_GLOBAL else sampled_means
        return means(points, self.max_labels)

    def _n_columns(self, problem: Problem) -> int:
        most = self.max_labels or MOST_CHOSEN
        if problem.seeds is None:
            return most
        n_seeded = flows.count_classes(problem.seeds)
        return max(most, n_seeded) if self.new_labels else n_seeded

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        fields, _ = AbstractFlow._numbers_per_node(self, problem, n_columns, device)
        if not isinstance(self.affinity, GaussianAffinity):
            return fields, fields  # there is no sketch
        dtype = float_type(self.dtype, device)
        width, most = self.affinity.sketch_width(problem.features, device, dtype)
        if self._is_fused(problem, n_columns, device):
            width = max(width, most / 2)  # kernels take all rows, in 16 bits
        return fields + width, fields + most

    def _is_fused(self, problem: Problem, n_columns: int, device: torch.device) -> bool:
        if not isinstance(self.affinity, GaussianAffinity) or self.affinity.landmarks is None:
            return False
        return AbstractFlow._is_fused(self, problem, n_columns, device)


def method_for_warm_start(method: AbstractMethod) -> AbstractMethod:
    """Return `method` if it accepts any initial labels, else a self-assignment flow."""
    if method.accepts_any_initial:
        return method
    return SelfAssignmentFlow(device=method.device)
