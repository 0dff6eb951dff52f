"""Assignment flow from prototypes or seeds.

`AssignmentFlow` labels by distances to prototypes; with seeds, `_StrokeLearner` runs the flow in
rounds on the costs of `_stroke_costs`. Read next: `_stroke_costs`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import distance_transform_edt
from scipy.ndimage import label as label_regions

import napari_saf.methods._stroke_costs as strokes
from napari_saf import flow as flows
from napari_saf.arrays import Array, Floats, Int64s, Integers, as_array, as_whole, check_size
from napari_saf.device import torch
from napari_saf.errors import Cancelled, InvalidInput
from napari_saf.flow import AdamsBashforthMoulton, Flow
from napari_saf.graph import GridGraph
from napari_saf.methods._flow import AbstractFlow, run_flow
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parameters import documented, parameter
from napari_saf.points import distances
from napari_saf.problem import Problem
from napari_saf.result import MOST_LABELS, LabelMap, Segmentation, Snapshot, Status

_MIN_CHANGED = 0.002
"""Share of nodes that change label below which refinement ends."""
_MAX_ENTROPY, _LOOSE_TOLERANCE = 0.1, 8.0
"""Relative entropy at which rounds before the last one end, and the factor of their tolerance. On
photographs with strokes this changes 0.04 % of the pixels (median 0.02 %) and the mean agreement by
less than 0.1 %, and saves a third of the evaluations."""


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AssignmentFlow(AbstractFlow):
    """Assignment flow: spatially regularised labelling by prototypes or by seeds.

    Notes
    -----
    Åström, Petra, Schmitzer and Schnörr, "Image labeling by assignment",
    https://doi.org/10.1007/s10851-016-0702-4. In log coordinates V the flow is
    dV/dt = softmax(A (V - D / rho)), D the Euclidean distances to the prototypes (n_prototypes,
    n_features), for several prototypes of one label to the nearest, A the averages over the
    windows. The objective of the history is the mean distance of a node to its prototypes,
    sum_ij W_ij D_ij / n.

    Unless seeds are reduced to class means (`n_nearest` None), D holds costs in place of
    distances, 0.05 times the sum of

    1. d_k / (d_k + d_l), d_k the mean distance to the `n_nearest` nearest seeds of class k in
       feature space and d_l that to the nearest other class;
    2. the same ratio of the shortest path lengths to the seeds, weighted by `paths` (Bai and
       Sapiro, https://doi.org/10.1007/s11263-008-0191-z); the length of a step on a grid is the
       gradient of the blurred features, with its 90 % quantile scaled to 1, to the power
       `edge_power`, plus 0.005;
    3. from the second of at most 1 + `rounds` runs on, 1 - p_k, weighted by 3: p_k is the share
       of class k in the previous labels among the nodes of similar appearance (the same nearest
       of 64 feature means), with all classes normalised to equal size (Rother, Kolmogorov and
       Blake, "GrabCut", https://doi.org/10.1145/1015706.1015720);

    4. in place of 3, with `nearby`: d_k / (d_k + d_l), weighted by 0.5, d_k the distance in feature
       space to the mean of class k in the previous labels, in a Gaussian window of that width
       (Lankton and Tannenbaum, https://doi.org/10.1109/TIP.2008.2004611).

    With `paths`, 1 and 3 are weighted by the trust in the features, 2 a - 1 with a the accuracy
    on left-out strokes (the share of their pixels nearer to other strokes of their class), with a
    prior of two correct strokes, and at least 2 / n for n strokes: where corrections contradict
    the features, path lengths decide.

    Classes are first learned from an initial assignment, if any. With `paths` its labels are kept
    instead, except around contradicting seeds, within four times the distance of the seed to its
    class, and paths also begin at the kept labels. So a correction changes only pixels that are
    near it or similar to it.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((16, 16)))
    >>> problem = saf.Problem.from_image(image, features="intensity", scaling=(0, 1))
    >>> flow = saf.AssignmentFlow(prototypes=np.array([[0.0], [1.0]]))
    >>> np.array_equal(flow.run(problem).labels, 1 + (image > 0.5))
    True
    """

    name: ClassVar[str] = "af"
    title: ClassVar[str] = "Assignment flow"
    summary: ClassVar[str] = (
        "Every pixel gets the class of the strokes or prototypes most similar to it and its "
        "neighbours."
    )

    # fmt: off
    prototypes: NDArray[np.floating] | None = parameter(
        None, label="Prototypes",
        help="Prototype of each label, a row of features each, for example those of a result.")
    prototype_labels: NDArray[np.integer] | None = parameter(
        None, label="Labels of the prototypes", in_form=False,
        help="Label of each prototype, by default 1, 2, ...; a label may have several prototypes.")
    n_nearest: int | None = parameter(
        10, label="Stroke neighbours", bounds=(1, 1000), advanced=True, none="their mean",
        for_seeds=True,
        help="Number of the most similar stroke pixels of a label with which a pixel is compared; "
        "none: the mean of all of them.")
    paths: float = parameter(
        1.0, label="Nearness", bounds=(0, 10), step=0.1, advanced=True, for_seeds=True,
        help="Weight of the distance to a stroke relative to similarity; paths across edges are "
        "longer. 0: distance is ignored.")
    edge_power: float = parameter(
        1.0, label="Edge power", bounds=(0, 10), step=0.5, advanced=True, for_seeds=True,
        help="Power of the edge strength in path lengths: 1 suits long strokes, 3 suits clicks, "
        "whose labels stop at strong edges only.")
    rounds: int = parameter(
        4, label="Refinement rounds", bounds=(0, 20), advanced=True, for_seeds=True,
        help="Maximum number of refinements, in which labels learn from all of their pixels and "
        "not only from the strokes.")
    nearby: float = parameter(
        0.0, label="Learn nearby", bounds=(0, 1000), step=1, advanced=True, for_seeds=True,
        help="Radius, in pixels of the working size, in which labels are refined, for uneven "
        "brightness; 0: the whole image.")
    connected: bool = parameter(
        False, label="Connected to strokes", for_seeds=True,
        help="Keep only regions that a stroke touches; other regions get the label around them.")
    # fmt: on

    @property
    def follows_seeds(self) -> bool:
        return self.prototypes is None

    @property
    def labels_look_alike(self) -> bool:
        # Path lengths to strokes are computed at the reduced size only.
        return not self.follows_seeds or (self.paths == 0 and not self.connected)

    @property
    def labels_are_given(self) -> bool:
        return self.prototypes is not None

    def _iterate(self, call: Call) -> Iteration:
        if self.prototypes is None and self.n_nearest is not None and call.seeds is not None:
            result = yield from _StrokeLearner(self, call, self._points(call)).run(self.n_nearest)
        else:
            result = yield from run_flow(self, self._prepare(call), call, of_nodes=True)
            result = dataclasses.replace(result, labels=self._connect(call.problem, result.labels))
        labels = self._labels()
        if labels is not None:
            points = np.atleast_2d(np.asarray(self.prototypes, dtype=np.float32))
            numbers, counts = np.unique(labels, return_counts=True)
            several = {int(number): points[labels == number] for number in numbers[counts > 1]}
            result = dataclasses.replace(result, parts=several)
        return dataclasses.replace(result, labels=_image(call.problem, result))

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        fields, _ = AbstractFlow._numbers_per_node(self, problem, n_columns, device)
        if problem.seeds is None or self.n_nearest is None or self.prototypes is not None:
            return fields, fields
        n_cached = strokes.n_cached_numbers(problem.n_nodes, self.n_nearest, self.paths > 0)
        most = strokes.n_cached_numbers(1, self.n_nearest, self.paths > 0)
        return fields + n_columns * n_cached, fields + n_columns * most

    def _prepare(self, call: Call) -> Flow:
        points, labels = self._points(call), self._labels()
        if labels is None:
            return self._flow(call, *flows.distance_table(call.features, points), points)
        classes = np.unique(labels)
        if call.problem.seeds is not None:
            unknown = np.setdiff1d(call.problem.seeds, [0, *classes])
            if len(unknown):
                raise InvalidInput(f"seeds: class {unknown[0]} has no prototype")
        if len(classes) == len(points):
            points = points[torch.from_numpy(np.argsort(labels))]
            return self._flow(call, *flows.distance_table(call.features, points), points, classes)
        class_points = [
            points[torch.from_numpy(np.flatnonzero(labels == label))] for label in classes
        ]
        table = call.features.new_full((len(call.features), len(class_points)), torch.inf)
        for column, members in enumerate(class_points):
            for point in members:  # minimum in place, without a table of all distances
                from_point = distances(call.features, point[None])[:, 0]
                table[:, column] = torch.minimum(table[:, column], from_point)
        means = torch.stack([members.mean(dim=0) for members in class_points])
        return self._flow(call, table, table.argmin(dim=1), means, classes)

    def _flow(
        self,
        call: Call,
        table: torch.Tensor,
        nearest: torch.Tensor,
        points: torch.Tensor,
        classes: Int64s | None = None,
    ) -> Flow:
        """Return the flow for distances (n_nodes, n_points) and the nearest points (n_nodes,)."""
        n_columns = len(points)
        start = flows.Start(nearest, n_columns, lambda: flows.new_field(table, n_columns))
        if call.initial is not None:
            coordinates = _check_start(call.initial, call, n_columns)
            undecided = coordinates.amin(dim=1) == coordinates.amax(dim=1)
            labels = torch.where(undecided, nearest, coordinates.argmax(dim=1))
            start = flows.Start(labels, n_columns, lambda: coordinates)

        def make_field() -> flows.AssignmentField:
            averager = call.problem.graph.averager(call.features.device, call.features.dtype)
            return flows.AssignmentField(averager, table, points, self.rho, call.cancelled)

        named = LabelMap.identity(n_columns) if classes is None else LabelMap(classes)
        return Flow(start, make_field, self.stepper, self.stop, label_map=named)

    def _connect(self, problem: Problem, labels: Any) -> Array:
        """Reassign regions of node labels that no seed touches, if `connected`."""
        grids = grids_of(problem.graph)
        if not self.connected or problem.seeds is None or not grids:
            return np.asarray(labels)
        return np.concatenate(
            [_keep_touched(labels[nodes], problem.seeds[nodes], grid) for grid, nodes in grids]
        )

    def _points(self, call: Call) -> torch.Tensor:
        """Return the `prototypes`, or the class means, (n_prototypes, n_features)."""
        features, seeds = call.features, call.seeds
        if self.prototypes is None:
            if seeds is None:
                raise InvalidInput(
                    "prototypes: expected an array, such as the prototypes of a result, or strokes "
                    "of two or more classes"
                )
            means = flows.class_means(features, seeds)
            if len(means) < 2:
                raise InvalidInput(
                    "seeds: expected two or more classes, got one; paint a second class"
                )
            return means
        points = np.atleast_2d(np.require(self.prototypes, np.float64, ["C", "W"]))
        n_features = features.shape[1]
        is_one = len(points) < 2 and self.prototype_labels is None
        if points.ndim != 2 or points.shape[1] != n_features or is_one:
            raise InvalidInput(
                f"prototypes: expected shape (2 or more, {n_features}), got {points.shape}"
            )
        if self.prototype_labels is None:
            flows.check_seeds_fit(seeds, len(points))
        prototypes = torch.from_numpy(points)
        check_size("prototypes", points, points.shape[-1], torch.finfo(features.dtype).max)
        return (prototypes - call.offset).to(features.dtype).to(features.device)

    def _labels(self) -> Int64s | None:
        """Return the validated `prototype_labels`."""
        if self.prototype_labels is None:
            return None
        labels = np.ravel(as_array(self.prototype_labels, "prototype_labels"))
        n_prototypes = 0 if self.prototypes is None else len(np.atleast_2d(self.prototypes))
        if len(labels) != n_prototypes:
            raise InvalidInput(
                f"prototype_labels: expected one for each of {n_prototypes} prototypes, "
                f"got {len(labels)}"
            )
        numbers = [as_whole(label) for label in labels]
        if not all(number is not None and 1 <= number <= MOST_LABELS for number in numbers):
            raise InvalidInput(f"prototype_labels: expected whole numbers from 1 to {MOST_LABELS}")
        return np.array(numbers, dtype=np.int64)

    def _n_columns(self, problem: Problem) -> int:
        labels = self._labels()
        if labels is not None:
            return len(np.unique(labels))
        if self.prototypes is not None:
            return len(self.prototypes)
        return 1 if problem.seeds is None else flows.count_classes(problem.seeds)


@dataclasses.dataclass(slots=True, eq=False)
class _StrokeLearner:
    """Rounds of the flow on stroke costs, refined by the labels of the round before.

    `labels` (n_nodes,) are those to refine by, None at first; `result` joins the rounds so far.
    """

    method: AssignmentFlow
    call: Call
    points: torch.Tensor
    labels: Array | None = None
    result: Segmentation | None = None
    n_rounds: int = 1
    round: int = 0

    def run(self, n_nearest: int) -> Iteration:
        """Yield the snapshots of all rounds; return the joint result, with labels by node."""
        method, problem, n_classes = self.method, self.call.problem, len(self.points)
        self._resume()
        later_call = dataclasses.replace(self.call, initial=None, previous=None)
        call = self.call if self.labels is None else later_call
        has_paths = method.paths > 0 and bool(grids_of(problem.graph))
        trust = strokes.trust_in_features(problem) if has_paths else 1.0
        anchors = None
        if self.labels is not None and self.result is None and has_paths:
            anchors = strokes.uncontradicted_labels(problem, method._connect(problem, self.labels))
            self.labels = anchors if anchors.all() else None
        self.n_rounds = max(1, method.rounds + (self.labels is None or self.round > 0))
        by_strokes = strokes.stroke_costs(
            later_call, n_classes, n_nearest, method.paths, method.edge_power, trust, anchors
        )
        limit = self.call.max_iterations
        while self.round < self.n_rounds:
            if self.result is not None and limit is not None:
                n_left = limit - (len(self.result.history) - self.round)
                if n_left <= 0:
                    break
                call = dataclasses.replace(later_call, max_iterations=n_left)
            try:
                costs = strokes.refinement_costs(
                    problem, self.labels, n_classes, method.nearby, trust
                )
            except Cancelled:
                if self.result is None:
                    raise
                return dataclasses.replace(self.result, status=Status.CANCELLED)
            table = torch.from_numpy(by_strokes + costs).to(call.features)
            flow = method._flow(call, table, table.argmin(dim=1), self.points)
            if self.round < self.n_rounds - 1:
                flow = self._ending_early(flow)
            steps = run_flow(method, flow, call, of_nodes=True)
            result = yield from map_steps(steps, self._continued)
            if self.result is not None and result.status is Status.CANCELLED:
                return dataclasses.replace(self.result, status=Status.CANCELLED)
            has_settled = self._append(result)
            if has_settled or result.status is Status.CANCELLED:
                break
            self.round, call = self.round + 1, later_call
        assert self.result is not None
        return self.result

    def _resume(self) -> None:
        """Restore labels, result and round of a stopped run, or the initial labels."""
        call, previous = self.call, self.call.previous
        if previous is None and call.initial is not None:
            start = _check_start(call.initial, call, len(self.points))
            self.labels = start.argmax(dim=1).cpu().numpy() + 1
        elif previous is not None:
            # each round but the first begins with a time step of 0
            n_later = int((np.diff(previous.history.time) == 0).sum())
            if n_later:
                columns = previous.assignment.argmax(axis=1)
                self.labels = self.method._connect(call.problem, columns + 1)
                self.result = dataclasses.replace(previous, labels=self.labels)
                self.round = n_later + 1

    def _append(self, result: Segmentation) -> bool:
        """Append the result of a round; return whether it changed few labels."""
        previous, self.labels = self.labels, self.method._connect(self.call.problem, result.labels)
        history, n_evaluations = result.history, result.n_evaluations
        if self.result is not None:
            history = self.result.history.then(history)
            n_evaluations += self.result.n_evaluations
        self.result = dataclasses.replace(
            result, labels=self.labels, history=history, n_evaluations=n_evaluations
        )
        return previous is not None and (previous != self.labels).mean() < _MIN_CHANGED

    def _ending_early(self, flow: Flow) -> Flow:
        """Return a flow of larger tolerance that ends at low entropy if labels have changed."""
        was_asked, max_entropy = False, _MAX_ENTROPY * math.log(flow.start.n_columns)

        def is_enough(columns: torch.Tensor, entropy: float) -> bool:
            nonlocal was_asked
            if was_asked or entropy > max_entropy:
                return False
            was_asked = True
            now = self.method._connect(self.call.problem, columns.numpy(force=True) + 1)
            return self.labels is None or bool((self.labels != now).mean() >= _MIN_CHANGED)

        stepper = self.method.stepper
        if isinstance(stepper, AdamsBashforthMoulton):
            stepper = AdamsBashforthMoulton(min(0.1, _LOOSE_TOLERANCE * stepper.tolerance))
        return dataclasses.replace(flow, stepper=stepper, is_enough=is_enough)

    def _continued(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot of this round with time and counts continued from earlier rounds."""
        fraction = (self.round + snapshot.fraction) / self.n_rounds
        previous = self.result
        if previous is None:
            return dataclasses.replace(snapshot, fraction=fraction)
        record = dataclasses.replace(
            snapshot.record,
            time=snapshot.record.time + previous.history.time[-1],
            n_evaluations=snapshot.record.n_evaluations + previous.n_evaluations,
        )
        return dataclasses.replace(
            snapshot,
            fraction=fraction,
            record=record,
            _read_labels=lambda: _image(self.call.problem, previous),
            _read_prototypes=lambda: previous.prototypes,
            _read_logarithm=lambda: np.log(previous.assignment.clip(1e-10)),
        )


def _image(problem: Problem, result: Segmentation) -> Any:
    return problem.graph.to_image(np.asarray(result.labels))


def method_with_prototypes(
    prototypes: Floats, like: AbstractMethod | None = None, labels: Integers | None = None
) -> AbstractMethod:
    """Return the assignment flow for prototypes (n_prototypes, n_features).

    `labels` (n_prototypes,) are their labels, by default 1, 2, .... Parameters shared with `like`,
    such as the device, are copied.
    """
    names = [field.name for field in dataclasses.fields(AbstractFlow)]
    values = {name: getattr(like, name) for name in names if hasattr(like, name)}
    return AssignmentFlow(prototypes=prototypes, prototype_labels=labels, **values)


def _check_start(initial: ArrayLike, call: Call, n_columns: int) -> torch.Tensor:
    start = flows.from_assignment(initial, call.features)
    if start.shape[1] != n_columns:
        raise InvalidInput(f"initial: expected {n_columns} columns, got {start.shape[1]}")
    return start


def _keep_touched(nodes: Integers, seeds: Int64s, grid: GridGraph) -> Integers:
    """Relabel regions without a seed by the nearest region with a seed."""
    labels, painted = grid.spread(nodes), grid.spread(seeds)
    touched = np.zeros(labels.shape, dtype=bool)
    for label in np.unique(nodes):
        regions, count = label_regions(labels == label)
        is_touched = np.zeros(count + 1, dtype=bool)
        is_touched[regions[painted == label]] = True
        is_touched[0] = False
        touched |= is_touched[regions]
    loose = (labels != 0) & ~touched
    if not loose.any() or not touched.any():
        return nodes
    outside = loose | (labels == 0)
    nearest = distance_transform_edt(outside, return_distances=False, return_indices=True)
    return np.asarray(grid.gather(np.where(loose, labels[tuple(nearest)], labels)))
