"""How a flow is run: from log coordinates to snapshots and a segmentation."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.errors import SafError
from napari_saf.geometry import entropy, normalize_, one_hot_, softmax
from napari_saf.integrate import AbstractStepper, Run, StoppingRule, StopWatch, VectorField
from napari_saf.methods._method import AbstractMethod, Cancelled, Iteration
from napari_saf.problem import Problem
from napari_saf.result import History, LabelImage, Record, Segmentation, Snapshot, Status

__all__ = ["Flow", "FlowField", "run_flow", "to_label_image"]


class FlowField(VectorField, Protocol):
    """A vector field that knows its objective."""

    objective: float
    overlap: torch.Tensor

    def prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        """Return the representative (n_columns, n_features) of every column."""


@dataclasses.dataclass(slots=True, eq=False)
class Flow:
    """A flow that is ready to start.

    Attributes
    ----------
    method : AbstractMethod
    problem : Problem
    start : Tensor of shape (n_nodes, n_columns)
        Log coordinates of the start.
    field : callable
        Makes the field; called after the first snapshot is out.
    seeds : Tensor of shape (n_nodes,) or None
        1, 2, ... where the label is fixed to that column.
    notes : tuple of str
        What a person should know.
    fixed_meaning : bool
        Whether label l is column l - 1, rather than the l-th largest; so it is with seeds.
    """

    method: AbstractMethod
    problem: Problem
    start: torch.Tensor
    field: Callable[[Callable[[], None]], FlowField]
    stepper: AbstractStepper
    stop: StoppingRule
    seeds: torch.Tensor | None = None
    notes: tuple[str, ...] = ()
    fixed_meaning: bool = False


def run_flow(
    flow: Flow, began: float, max_iterations: int | None, tick: Callable[[], None]
) -> Iteration:
    """Integrate a flow; see `AbstractMethod.iterate`."""
    stop = flow.stop
    if max_iterations is not None:
        stop = dataclasses.replace(stop, max_steps=max_iterations)
    state = _State(flow, began, tick)
    yield state.snapshot(0.0)
    try:
        state.begin()
        watch = StopWatch(stop, state.columns_of_nodes, state.records[-1].entropy)
        status = None
        while status is None:
            yield state.snapshot(_fraction(state.records, stop))
            state.advance()
            last = state.records[-1]
            status = watch.status(last.time, state.columns_of_nodes, last.entropy)
        yield state.snapshot(1.0)
    except Cancelled:
        status = Status.CANCELLED
    return state.finish(status)


def _fraction(records: list[Record], stop: StoppingRule) -> float:
    """Return how far the entropy is on its way down, on a scale on which it falls evenly.

    The entropy falls slowly, then exponentially: half of the bar for either part.
    """
    highest, now = records[0].entropy, records[-1].entropy
    if highest <= stop.entropy:
        return 1.0
    linear = (highest - now) / (highest - stop.entropy)
    tail = math.log(highest / max(now, 1e-12)) / math.log(highest / max(stop.entropy, 1e-6))
    return min(max(0.5 * linear + 0.5 * tail, 0.0), 1.0)


class _CountedField:
    """A field that counts its evaluations and can be interrupted."""

    def __init__(self, field: FlowField, tick: Callable[[], None]) -> None:
        self._field = field
        self._tick = tick
        self.n_evaluations = 0

    @property
    def assignment(self) -> torch.Tensor:
        return self._field.assignment

    @property
    def scratch(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._field.scratch

    def __call__(self, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self._tick()
        self.n_evaluations += 1
        self._field(v, out)
        self._tick()
        return out

    def keep_columns(self, kept: torch.Tensor) -> None:
        self._field.keep_columns(kept)


class _State:
    """A flow under way: the run of the stepper, the labels, the records."""

    def __init__(self, flow: Flow, began: float, tick: Callable[[], None]) -> None:
        self.records: list[Record] = []
        self._flow = flow
        self._began = began
        self._tick = tick
        self._n_start_columns = flow.start.shape[1]
        self._active = torch.arange(self._n_start_columns, device=flow.start.device)
        self._v = self._constrain(flow.start)
        self._labels = self._v.argmax(dim=1)
        self._run: Run | None = None
        self._n_snapshots = 0
        self._keeps_numbers = flow.fixed_meaning or flow.seeds is not None

    @property
    def columns_of_nodes(self) -> torch.Tensor:
        """Column of the start that each node prefers."""
        return self._active[self._labels]

    def begin(self) -> None:
        """Make the field and record the start."""
        self._tick()
        self._field = self._flow.field(self._tick)
        self._counted = _CountedField(self._field, self._tick)
        self._run = self._flow.stepper.start(self._counted, self._v, self._constrain)
        if not self._counted.n_evaluations:
            self._counted(self._v, self._field.scratch[0])
        self._record(changed=0.0, assignment=self._field.assignment)

    def advance(self) -> None:
        """Make a step, record it, and drop the columns that died in it."""
        assert self._run is not None
        self._run.advance()
        self._v = self._run.v
        changed = _update_labels(self._labels, self._v)
        self._tick()
        self._record(changed, self._run.assignment)
        self._drop_dead_columns()

    def snapshot(self, fraction: float) -> Snapshot:
        """Return a snapshot whose labels can be read until the next step."""
        self._n_snapshots += 1
        number = self._n_snapshots
        record = self.records[-1] if self.records else self._first_record()

        def check() -> None:
            if self._n_snapshots != number:
                raise SafError("this snapshot is out of date: read it before the run goes on")

        def read_labels() -> LabelImage | list[LabelImage]:
            check()
            return to_label_image(self._flow.problem, self.columns_of_nodes.cpu().numpy() + 1)

        def read_prototypes() -> NDArray[np.float32]:
            check()
            return _mean_features(self._flow.problem.features, self.columns_of_nodes, record)

        seconds = time.perf_counter() - self._began
        return Snapshot(record, fraction, seconds, read_labels, read_prototypes)

    def finish(self, status: Status) -> Segmentation:
        """Return what the run leaves."""
        flow = self._flow
        nodes = self.columns_of_nodes.cpu().numpy()
        sizes = np.bincount(nodes, minlength=self._n_start_columns)
        columns = np.arange(len(sizes)) if self._keeps_numbers else _by_size(sizes)
        rank = np.zeros(len(sizes), dtype=np.int64)
        rank[columns] = np.arange(1, len(columns) + 1)
        # Fresh memory would cost more than the softmax: the field no longer needs its own.
        spare = torch.empty_like(self._v) if self._run is None else self._field.scratch[0]
        assignment = softmax(self._v, out=spare)
        return Segmentation(
            labels=to_label_image(flow.problem, rank[nodes]),
            assignment=self._whole_assignment(assignment),
            prototypes=self._prototypes(assignment)[columns],
            columns=columns,
            n_labels=int(np.count_nonzero(sizes)),
            history=History.of(self.records),
            status=status,
            n_evaluations=self._counted.n_evaluations if self._run else 0,
            seconds=time.perf_counter() - self._began,
            recipe=flow.method.recipe(flow.problem),
            notes=flow.notes,
        )

    def _constrain(self, v: torch.Tensor) -> torch.Tensor:
        normalize_(v)
        if self._flow.seeds is None:
            return v
        rows = self._flow.seeds.nonzero()[:, 0]
        column_of = torch.full_like(torch.arange(self._n_start_columns + 1), -1)
        column_of[self._active.cpu() + 1] = torch.arange(len(self._active))
        return one_hot_(v, rows, column_of.to(v.device)[self._flow.seeds[rows]])

    def _record(self, changed: float, assignment: torch.Tensor) -> None:
        field, n_nodes = self._field, len(self._labels)
        mean_entropy = entropy(assignment, self._v, self._labels)
        overlap, masses = field.overlap, field.overlap.sum(dim=0)
        sizes = torch.bincount(self._labels, minlength=len(self._active)).cpu().double()
        shares = np.zeros(self._n_start_columns)
        shares[self._active.cpu().numpy()] = (sizes / n_nodes).numpy()
        self.records.append(
            Record(
                time=0.0 if self._run is None else self._run.time,
                n_evaluations=self._counted.n_evaluations,
                entropy=mean_entropy,
                objective=field.objective,
                label_shares=shares,
                rank_bound=float((overlap.diagonal() / masses.clamp(min=1e-300)).sum()),
                changed=changed,
            )
        )

    def _first_record(self) -> Record:
        sizes = np.bincount(self.columns_of_nodes.cpu().numpy(), minlength=self._n_start_columns)
        c = float(self._n_start_columns)
        return Record(0.0, 0, math.log(c), math.nan, sizes / sizes.sum(), math.nan, 0.0)

    def _drop_dead_columns(self) -> None:
        """Take out columns that no node prefers and that hold less than half a node.

        For s > 0 the gradient of such a column grows like 1 / mass: it would be pulled back
        and fall again for ever, and a share of the nodes with it. On half-size photographs
        this moved the objective by -0.4 to +0.1 %, left 99 % of the labels as they were and
        saved up to a fifth of the evaluations.
        """
        assert self._run is not None
        shares = self.records[-1].label_shares[self._active.cpu().numpy()]
        masses = self._field.overlap.sum(dim=0)
        alive = torch.from_numpy(shares > 0) | (masses >= 0.5)
        kept = alive.nonzero()[:, 0].to(self._active.device)
        if len(kept) == len(self._active):
            return
        new_number = torch.full_like(self._active, -1)
        new_number[kept] = torch.arange(len(kept), device=kept.device)
        self._labels = new_number[self._labels]
        self._active = self._active[kept]
        self._run.keep_columns(kept)
        self._v = self._run.v

    def _whole_assignment(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        own: NDArray[np.float32] = assignment.float().cpu().numpy()
        if len(self._active) == self._n_start_columns:
            return own
        whole = np.zeros((len(own), self._n_start_columns), dtype=np.float32)
        whole[:, self._active.cpu().numpy()] = own
        return whole

    def _prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        if self._run is None:
            return _mean_features(
                self._flow.problem.features, self.columns_of_nodes, self._first_record()
            )
        own = self._field.prototypes(assignment)
        whole = np.full((self._n_start_columns, own.shape[1]), np.nan, dtype=np.float32)
        whole[self._active.cpu().numpy()] = own
        return whole


def to_label_image(problem: Problem, labels: NDArray[np.integer]) -> LabelImage | list[LabelImage]:
    """Return node labels 1, 2, ... in the shape of the image, in the smallest unsigned type."""
    return problem.graph.to_image(labels.astype(np.min_scalar_type(int(labels.max()))))  # type: ignore[return-value]


def _update_labels(labels: torch.Tensor, v: torch.Tensor) -> float:
    """Update the preferred columns in place; return the share of the nodes that moved.

    Rows of `v` have a maximum of exactly 0, so only rows whose old label lost it are searched.
    """
    moved = (v.gather(1, labels[:, None])[:, 0] < 0).nonzero()[:, 0]
    labels[moved] = v[moved].argmax(dim=1)
    return len(moved) / len(labels)


def _by_size(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the non-empty columns, largest first."""
    order = np.argsort(-sizes, kind="stable")
    return order[sizes[order] > 0]


def _mean_features(
    features: NDArray[np.floating], columns: torch.Tensor, record: Record
) -> NDArray[np.float32]:
    """Return the mean feature of the nodes that prefer each column; NaN for an empty one."""
    nodes, n_columns = columns.cpu().numpy(), len(record.label_shares)
    sizes = np.bincount(nodes, minlength=n_columns)
    sums = [np.bincount(nodes, weights=f, minlength=n_columns) for f in features.T]
    with np.errstate(invalid="ignore"):
        return (np.stack(sums, axis=1) / sizes[:, None]).astype(np.float32)
