"""How a flow is run: from log coordinates to snapshots and a segmentation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.geometry import (
    FLOOR,
    entropy,
    new_field,
    normalize_,
    one_hot_,
    retire,
    row_blocks,
    softmax,
    take_columns,
    with_columns,
)
from napari_saf.integrate import AbstractStepper, Run, StoppingRule, StopWatch, VectorField
from napari_saf.methods._method import AbstractMethod, Call, Cancelled, Iteration
from napari_saf.methods._reporting import Reporter, update_labels
from napari_saf.methods._start import Start
from napari_saf.result import Record, Segmentation, Snapshot, Status
from napari_saf.tick import Tick, go_on

__all__ = ["FieldMemory", "Flow", "FlowField", "run_flow"]

_VAGUE = -0.1
"""Log coordinate of what a node does not prefer, where a run ended before it could say more."""


class FlowField(VectorField, Protocol):
    """A vector field that knows its objective."""

    objective: float
    overlap: torch.Tensor

    def prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        """Return the representative (n_columns, n_features) of every column."""


class FieldMemory:
    """What the fields of all flows keep.

    Parameters
    ----------
    like : Tensor of shape (n_nodes, ...)
        Gives number of nodes, device and type.
    n_columns : int
    tick : callable
        Called between blocks of work.

    Attributes
    ----------
    assignment, scratch, tick
        As in `VectorField`.
    objective : float
        Of the last evaluation.
    overlap : Tensor of shape (n_columns, n_columns)
        W'W of the last evaluation, float64 on the CPU.
    """

    def __init__(self, like: torch.Tensor, n_columns: int, tick: Tick) -> None:
        self.tick = tick
        self.assignment, one, other = (new_field(like, n_columns, tick) for _ in range(3))
        self.scratch = (one, other)
        self.objective = float("nan")
        self.overlap = torch.zeros(n_columns, n_columns, dtype=torch.float64)

    def new_field(self) -> torch.Tensor:
        """Return memory for a field of the shape of `assignment`."""
        return new_field(self.assignment, self.assignment.shape[1], self.tick)

    def keep_columns(self, kept: torch.Tensor) -> None:
        """Forget all columns but those of the given indices."""
        fields = (self.assignment, *self.scratch)
        self.assignment, one, other = (with_columns(field, len(kept)) for field in fields)
        self.scratch = (one, other)


@dataclasses.dataclass(slots=True, eq=False)
class Flow:
    """A flow that is ready to start.

    Attributes
    ----------
    method : AbstractMethod
    start : Start
        Its log coordinates are made after the first snapshot is out.
    field : callable
        Makes the field; called after the first snapshot is out.
    notes : tuple of str
        What a person should know.
    fixed_meaning : bool
        Whether label l is column l - 1, rather than the l-th largest; so it is with seeds.
    """

    method: AbstractMethod
    start: Start
    field: Callable[[Tick], FlowField]
    stepper: AbstractStepper
    stop: StoppingRule
    notes: tuple[str, ...] = ()
    fixed_meaning: bool = False


def run_flow(flow: Flow, call: Call) -> Iteration:
    """Integrate a flow; see `AbstractMethod.iterate`."""
    stop = flow.stop
    if call.max_iterations is not None:
        stop = dataclasses.replace(stop, max_steps=call.max_iterations)
    state = _State(flow, call)
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
    retire(state)
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

    def __init__(self, field: FlowField, tick: Tick) -> None:
        self._field = field
        self.tick = tick
        self.n_evaluations = 0

    @property
    def assignment(self) -> torch.Tensor:
        return self._field.assignment

    @property
    def scratch(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._field.scratch

    def __call__(self, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self.tick()
        self.n_evaluations += 1
        self._field(v, out)
        self.tick()
        return out

    def new_field(self) -> torch.Tensor:
        return self._field.new_field()

    def keep_columns(self, kept: torch.Tensor) -> None:
        self._field.keep_columns(kept)


class _Nodes:
    """The nodes of a flow: log coordinates, columns that are left, which of them is preferred.

    Apart from the state, which keeps the stepper and the reporter: those call back here, and all
    of it is gone as soon as nobody needs it.

    Attributes
    ----------
    v : Tensor of shape (n_nodes, n_active)
        Log coordinates; made when they are first asked for.
    active : Tensor of int of shape (n_active,)
        The columns of the start that are left, ascending.
    n_possible : int
        How many there were.
    labels : Tensor of int of shape (n_nodes,)
        Which of them each node prefers.
    """

    def __init__(self, start: Start, seeds: torch.Tensor | None) -> None:
        self.n_start_columns = start.n_columns
        self.active = torch.arange(start.n_columns, device=start.labels.device)
        if start.active is not None:
            self.active = start.active
        self.n_possible = len(self.active)
        self.labels = start.labels
        if seeds is not None:
            place = torch.searchsorted(self.active, (seeds - 1).clamp(min=0))
            self.labels = torch.where(seeds > 0, place, start.labels)
        self._seeds = seeds
        self._start: Start | None = start
        self._v: torch.Tensor | None = None

    @property
    def v(self) -> torch.Tensor:
        self.make(go_on)
        assert self._v is not None
        return self._v

    @v.setter
    def v(self, v: torch.Tensor) -> None:
        self._v, self._start = v, None

    def make(self, tick: Tick) -> None:
        """Make the log coordinates if need be; an exception of `tick` leaves all as it was."""
        if self._v is None:
            assert self._start is not None
            self._v = self._hold_seeds(self._start.logarithm(tick))

    def make_vague(self, like: torch.Tensor) -> None:
        """Make log coordinates that tell little but which column each node prefers."""
        v = like.new_empty((len(self.labels), len(self.active)))
        for rows in row_blocks(v):
            _prefer_vaguely_(v[rows], self.labels[rows])
        self._v = self._hold_seeds(v)

    def tell_level(self) -> None:
        """Make nodes that prefer no column prefer the one that is shown of them, vaguely."""
        ones = self.v.new_ones(self.v.shape[1])
        for rows in row_blocks(self.v):
            block = self.v[rows]
            level = torch.mv(block, ones) == 0  # none is above 0
            if level.any():
                block[level] = _prefer_vaguely_(block[level], self.labels[rows][level])

    def columns(self) -> torch.Tensor:
        """Return the column of the start that each node prefers; valid until the next step."""
        if len(self.active) == self.n_start_columns:
            return self.labels
        return self.active[self.labels]

    def whole_logarithm(self) -> torch.Tensor:
        """Return log coordinates of all columns of the start."""
        if len(self.active) == self.n_start_columns:
            return self.v
        whole = self.v.new_full((len(self.v), self.n_start_columns), FLOOR)
        return whole.index_copy_(1, self.active, self.v)

    def constrain(self, v: torch.Tensor, rows: slice) -> torch.Tensor:
        """Normalise log coordinates of some nodes in place; seeds are of their labels."""
        return self._hold_seeds(normalize_(v), rows)

    def _hold_seeds(self, v: torch.Tensor, rows: slice = slice(None)) -> torch.Tensor:
        if self._seeds is None:
            return v
        seeds = self._seeds[rows]
        seeded = seeds.nonzero()[:, 0]
        column_of = torch.full_like(torch.arange(self.n_start_columns + 1), -1)
        column_of[self.active.cpu() + 1] = torch.arange(len(self.active))
        return one_hot_(v, seeded, column_of.to(v.device)[seeds[seeded]])

    def keep_columns(self, kept: torch.Tensor) -> None:
        """Keep only the columns of the given indices; no node prefers the others."""
        new_number = torch.full_like(self.active, -1)
        new_number[kept] = torch.arange(len(kept), device=kept.device)
        self.labels = new_number[self.labels]
        self.active = self.active[kept]


def _prefer_vaguely_(v: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return v.fill_(_VAGUE).scatter_(1, labels[:, None], 0)


class _State:
    """A flow under way: the run of the stepper, the labels, the records."""

    def __init__(self, flow: Flow, call: Call) -> None:
        self._flow = flow
        self._tick = call.raise_if_cancelled
        self._origin = call.origin
        nodes = self._nodes = _Nodes(flow.start, call.seeds)
        self._doubt = torch.zeros_like(call.features[:, 0])
        self._run: Run | None = None
        self._reporter = Reporter(
            flow.method,
            call.problem,
            nodes.n_start_columns,
            call.began,
            nodes.columns,
            nodes.whole_logarithm,
            n_possible=nodes.n_possible,
            keeps_numbers=flow.fixed_meaning or call.seeds is not None,
        )
        self.records = self._reporter.records

    @property
    def columns_of_nodes(self) -> torch.Tensor:
        """Column of the start that each node prefers."""
        return self._nodes.columns()

    def begin(self) -> None:
        """Make the field and record the start."""
        self._nodes.make(self._tick)
        self._tick()
        self._field = self._flow.field(self._tick)
        self._leave_out_empty_columns()
        self._counted = _CountedField(self._field, self._tick)
        self._run = self._flow.stepper.start(self._counted, self._nodes.v, self._nodes.constrain)
        if not self._counted.n_evaluations:
            self._counted(self._nodes.v, self._field.scratch[0])
        self._record(changed=0.0, assignment=self._field.assignment)

    def advance(self) -> None:
        """Make a step, record it, and drop the columns that died in it."""
        assert self._run is not None
        self._run.advance()
        self._nodes.v = self._run.v
        changed = update_labels(self._nodes.labels, self._nodes.v)
        self._tick()
        self._record(changed, self._run.assignment)
        self._drop_dead_columns()

    def snapshot(self, fraction: float) -> Snapshot:
        """Return a snapshot whose labels can be read until the next step."""
        return self._reporter.snapshot(fraction)

    def finish(self, status: Status) -> Segmentation:
        """Return what the run leaves."""
        try:
            self._nodes.make(self._tick)
        except Cancelled:
            self._nodes.make_vague(self._doubt)
        if self._run is None or self._run.time == 0:
            self._nodes.tell_level()
        # Fresh memory would cost more than the softmax.
        assignment = softmax(self._nodes.v, out=self._nodes.v)
        result = self._reporter.finish(
            status,
            self._whole_assignment(assignment),
            self._prototypes(assignment),
            n_evaluations=self._counted.n_evaluations if self._run else 0,
            notes=self._flow.notes,
            uncertainty=self._uncertainty(assignment),
        )
        # The last snapshot still shows labels, and would keep the field.
        self._nodes.v = assignment.new_empty(0)
        return result

    def _uncertainty(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        """Return the share of flow time that nodes took to decide; see `Segmentation`."""
        time = self.records[-1].time if self.records else 0.0
        scale = self._nodes.n_possible / max(self._nodes.n_possible - 1, 1)
        if time > 0:
            doubt = self._doubt.mul_(scale / time)
        else:
            doubt = (1 - assignment.gather(1, self._nodes.labels[:, None])[:, 0]).mul_(scale)
        return doubt.clamp_(0, 1).float().cpu().numpy()

    def _record(self, changed: float, assignment: torch.Tensor) -> None:
        field, n_nodes = self._field, len(self._nodes.labels)
        highest = assignment.gather(1, self._nodes.labels[:, None])[:, 0]
        self._tick()
        mean_entropy = entropy(assignment, self._nodes.v, highest, self._tick)
        overlap, masses = field.overlap, field.overlap.sum(dim=0)
        sizes = torch.bincount(self._nodes.labels, minlength=len(self._nodes.active)).cpu().double()
        shares = np.zeros(self._nodes.n_start_columns)
        shares[self._nodes.active.cpu().numpy()] = (sizes / n_nodes).numpy()
        time = 0.0 if self._run is None else self._run.time
        if self.records:
            self._doubt.add_(1 - highest, alpha=time - self.records[-1].time)
        self.records.append(
            Record(
                time=time,
                n_evaluations=self._counted.n_evaluations,
                entropy=mean_entropy,
                objective=field.objective,
                label_shares=shares,
                rank_bound=float((overlap.diagonal() / masses.clamp(min=1e-300)).sum()),
                changed=changed,
            )
        )

    def _leave_out_empty_columns(self) -> None:
        """Take out columns that are 0 for every node of the start: they died in a run before."""
        alive = torch.bincount(self._nodes.labels, minlength=len(self._nodes.active)) > 0
        for column in (~alive).nonzero()[:, 0]:
            # One by one: comparing all of the field takes as long as a step.
            alive[column] = (self._nodes.v[:, column] > FLOOR).any()
        kept = alive.nonzero()[:, 0]
        if len(kept) < len(self._nodes.active):
            self._field.keep_columns(kept)
            self._nodes.keep_columns(kept)
            self._nodes.v = take_columns(self._nodes.v, kept)

    def _drop_dead_columns(self) -> None:
        """Take out columns that no node prefers and that hold less than half a node.

        For s > 0 the gradient of such a column grows like 1 / mass: it would be pulled back
        and fall again for ever, and a share of the nodes with it. On half-size photographs
        this moved the objective by -0.4 to +0.1 %, left 99 % of the labels as they were and
        saved up to a fifth of the evaluations.
        """
        assert self._run is not None
        shares = self.records[-1].label_shares[self._nodes.active.cpu().numpy()]
        masses = self._field.overlap.sum(dim=0)
        alive = torch.from_numpy(shares > 0) | (masses >= 0.5)
        kept = alive.nonzero()[:, 0].to(self._nodes.active.device)
        if len(kept) == len(self._nodes.active):
            return
        self._nodes.keep_columns(kept)
        self._run.keep_columns(kept)
        self._nodes.v = self._run.v

    def _whole_assignment(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        if len(self._nodes.active) < self._nodes.n_start_columns:
            own = assignment
            if self._nodes.n_possible == self._nodes.n_start_columns:
                assignment = with_columns(self._field.scratch[0], self._nodes.n_start_columns)
            else:
                assignment = own.new_empty((len(own), self._nodes.n_start_columns))
            assignment.zero_().index_copy_(1, self._nodes.active, own)
        whole: NDArray[np.float32] = assignment.float().cpu().numpy()
        return whole

    def _prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        if self._run is None:
            return self._reporter.mean_features()
        own = self._field.prototypes(assignment) + self._origin.numpy()
        whole = np.full((self._nodes.n_start_columns, own.shape[1]), np.nan, dtype=np.float32)
        whole[self._nodes.active.cpu().numpy()] = own
        return whole
