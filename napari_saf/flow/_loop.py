"""Integration of a flow: steps, records, removal of empty columns, stopping rule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Sequence

import numpy as np

import napari_saf.flow._simplex as simplex
from napari_saf.arrays import Float32s
from napari_saf.device import Tensor, torch
from napari_saf.errors import Cancelled
from napari_saf.flow._field import AbstractField
from napari_saf.flow._simplex import SeedConstraint, Start
from napari_saf.flow._steppers import AbstractRun, AbstractStepper
from napari_saf.parameters import check_bounds, documented, parameter
from napari_saf.result import LabelMap, Record, Segmentation, Status

_UNDECIDED = -0.1
"""Log coordinate of other columns at undecided nodes of a run that has made few steps."""
_PATIENCE = 50.0
_LONGEST = 300.0
"""Flow time after which data are negligible: they move borders by about window / (rho t)."""


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class StoppingRule:
    """Stopping rule of a flow: entropy, change of labels, number of steps.

    Notes
    -----
    A run is STALLED if, over a tenth of the flow time and at least one unit, the share of nodes
    that change label is below `changed` per unit, or labels return to an earlier state up to that
    share, and the entropy decreases by less than 1 % per unit. As changes near the barycentre are
    small too, this requires half of the initial entropy or less, or 50 units. After 300 units a run
    is STALLED if the entropy is below a tenth of its initial value.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((16, 16))))
    >>> soon = saf.StoppingRule(max_steps=3)
    >>> saf.SelfAssignmentFlow(max_labels=2, stop=soon).run(problem).status
    <Status.MAX_ITERATIONS: 'max_iterations'>
    """

    # fmt: off
    entropy: float = parameter(
        1e-3, label="Stop at entropy", bounds=(0, 1), step=1e-3, advanced=True,
        help="Stop once the mean entropy of the labels, in nats, is below this; 0: every pixel has "
        "one label with certainty.")
    changed: float = parameter(
        1e-4, label="Stop at change", bounds=(0, 1), step=1e-4, advanced=True,
        help="Stop once the share of pixels that change their label is below this, and labels no "
        "longer become more certain.")
    max_steps: int = parameter(
        2000, label="Most steps", bounds=(1, 1_000_000), step=100, advanced=True,
        help="Maximum number of steps.")
    # fmt: on

    def __post_init__(self) -> None:
        check_bounds(self)


class StopWatch:
    """State of a stopping rule over one run, possibly resumed from `records`.

    Cycles of labels are found by Brent's method, https://doi.org/10.1007/BF01933190.
    """

    def __init__(
        self, rule: StoppingRule, labels: Tensor, entropy: float, records: Sequence[Record] = ()
    ) -> None:
        self._rule = rule
        self._since = records[-1].time if records else 0.0
        self._labels = self._earlier = labels.numpy(force=True).copy()
        self._n_examined = 0
        self._entropy = entropy
        self._first_entropy = records[0].entropy if records else entropy
        self._n_steps = max(len(records) - 1, 0)

    def status(self, time: float, labels: Tensor, entropy: float) -> Status | None:
        """Return the reason to stop after a step, or None."""
        self._n_steps += 1
        if entropy < self._rule.entropy:
            return Status.CONVERGED
        if self._rule.changed > 0 and self._stands_still(time, labels, entropy):
            return Status.STALLED
        return Status.MAX_ITERATIONS if self._n_steps >= self._rule.max_steps else None

    def _stands_still(self, time: float, labels: Tensor, entropy: float) -> bool:
        if time >= _LONGEST and entropy < self._first_entropy / 10:
            return True
        span = time - self._since
        # Rates decrease slowly late in a flow and may be low by chance over a single unit.
        if span < max(1, time / 10):
            return False
        now = labels.numpy(force=True).copy()
        changed = min(
            float((now != self._labels).mean()) / span, float((now != self._earlier).mean())
        )
        still = changed < self._rule.changed and entropy > self._entropy * 0.99**span
        self._since, self._entropy = time, entropy
        self._labels = now
        self._n_examined += 1
        if self._n_examined.bit_count() == 1:
            self._earlier = now
        return still and (entropy < self._first_entropy / 2 or time >= _PATIENCE)


@dataclasses.dataclass(slots=True, eq=False)
class Flow:
    """Flow before integration; `label_map` None numbers labels by size, `is_enough` ends early."""

    start: Start
    make_field: Callable[[], AbstractField]
    stepper: AbstractStepper
    stop: StoppingRule
    notes: tuple[str, ...] = ()
    label_map: LabelMap | None = None
    is_enough: Callable[[Tensor, float], bool] = lambda columns, entropy: False


class FlowRun:
    """Integration of a flow: log coordinates, active columns, labels, records.

    `seeds` (n_nodes,) are column + 1, 0 for none. `n_columns` counts the initial columns.
    """

    def __init__(
        self,
        flow: Flow,
        seeds: Tensor | None,
        cancelled: Callable[[], bool],
        previous: Segmentation | None = None,
    ) -> None:
        start = flow.start
        self.records = [] if previous is None else previous.history.records()
        self.n_evaluations = self._n_previous = 0 if previous is None else previous.n_evaluations
        self._start_time = self.records[-1].time if self.records else 0.0
        self.n_columns = start.n_columns
        self._flow, self._cancelled = flow, cancelled
        self._active = torch.arange(start.n_columns, device=start.labels.device)
        self._labels, seed_columns = start.labels, None if seeds is None else seeds - 1
        if seed_columns is not None:
            self._labels = torch.where(seed_columns >= 0, seed_columns, start.labels)
        self._constrain = SeedConstraint(seed_columns)
        self._v: Tensor | None = None
        self._run: AbstractRun | None = None
        # integral of 1 - max assignment over time
        self._uncertainty = torch.zeros(len(start.labels), device=start.labels.device)
        if previous is not None and previous.uncertainty is not None:
            total = torch.from_numpy(previous.uncertainty * (self._start_time / self._scale))
            self._uncertainty += total.to(start.labels.device)

    @property
    def _scale(self) -> float:
        """Normalisation c / (c - 1), so that a uniform row has uncertainty 1."""
        return self.n_columns / max(self.n_columns - 1, 1)

    def columns_of_nodes(self) -> Tensor:
        """Return the preferred initial column of each node, valid until the next step."""
        if len(self._active) == self.n_columns:
            return self._labels
        return self._active[self._labels]

    def logarithm(self) -> Tensor:
        """Return log coordinates of all initial columns, valid until the next step."""
        v = self._log_coordinates()
        if len(self._active) == self.n_columns:
            return v
        full = v.new_full((len(v), self.n_columns), simplex.FLOOR)
        return full.index_copy_(1, self._active, v)

    def steps(self) -> Generator[float, None, Status]:
        """Integrate to the end: yield the progress at each record, return the status."""
        yield 0.0
        try:
            self._begin()
            stop = self._flow.stop
            last = self.records[-1]
            watch = StopWatch(stop, self.columns_of_nodes(), last.entropy, self.records)
            status = None
            while status is None:
                yield _fraction(self.records, stop)
                self._advance()
                last = self.records[-1]
                columns = self.columns_of_nodes()
                status = watch.status(last.time, columns, last.entropy)
                if status is None and self._flow.is_enough(columns, last.entropy):
                    status = Status.MAX_ITERATIONS
            yield 1.0
        except Cancelled:
            status = Status.CANCELLED
        return status

    def finish(self) -> tuple[Float32s, Float32s | None, Float32s]:
        """Return assignment, prototypes (NaN if removed) and uncertainty; release the fields."""
        v = self._log_coordinates()
        time = self.records[-1].time if self.records else 0.0
        if time == 0:
            _prefer_labels_where_undecided_(v, self._labels)
        assignment = full = simplex.softmax(
            v, out=v
        )  # in place: allocation costs more than the softmax
        # share of flow time before nodes decide, see `Segmentation`
        if time > 0:
            deficit = self._uncertainty.numpy(force=True) / time
        else:
            deficit = (1 - assignment.gather(1, self._labels[:, None])[:, 0]).numpy(force=True)
        uncertainty = np.clip(deficit * self._scale, 0, 1).astype(np.float32, copy=False)
        prototypes = None
        if self._run is not None:
            self.n_evaluations = self._n_previous + self._run.field.n_evaluations
            active = self._run.field.prototypes(assignment)
            prototypes = np.full((self.n_columns, active.shape[1]), np.nan, dtype=np.float32)
            prototypes[self._active.cpu().numpy()] = active
        if len(self._active) < self.n_columns:
            assert self._run is not None
            full = simplex.with_columns(self._run.field.scratch[0], self.n_columns)
            full.zero_().index_copy_(1, self._active, assignment)
        self._v = self._run = None
        return np.ascontiguousarray(full.float().cpu().numpy()), prototypes, uncertainty

    def _log_coordinates(self) -> Tensor:
        """Return log coordinates of the active columns, created at the first call."""
        if self._run is not None:
            return self._run.v
        if self._v is None:
            self._v = self._constrain(self._flow.start.logarithm())
        return self._v

    def _begin(self) -> None:
        """Create the right-hand side, evaluate it, and record the start."""
        if self._cancelled():
            raise Cancelled
        v, field = self._log_coordinates(), self._flow.make_field()
        # Columns that are 0 for every node were removed in a previous run.
        alive = torch.bincount(self._labels, minlength=len(self._active)) > 0
        for column in (~alive).nonzero()[:, 0]:
            # one by one: comparing the whole field costs as much as a step
            alive[column] = (v[:, column] > simplex.FLOOR).any()
        columns = alive.nonzero()[:, 0]
        if len(columns) < len(self._active):
            field.keep_columns(columns)
            self._renumber(columns)
            self._v = v = simplex.take_columns(v, columns)
        run = self._flow.stepper.start(field, v, self._constrain)
        if not field.n_evaluations:
            field(v, field.scratch[0])
        self._run, self._v = run, None
        self._uncertainty = self._uncertainty.to(v)
        if not self.records:
            self._record()

    def _advance(self) -> None:
        assert self._run is not None
        self._run.advance()
        self._record()
        # Columns preferred by no node and with a mass below half a node are dropped: for s > 0
        # their gradient grows like 1 / mass and makes them oscillate. On half-size photographs this
        # changed the objective by -0.4 to +0.1 %, kept 99 % of the labels and saved up to a fifth
        # of the evaluations.
        shares = self.records[-1].label_shares[self._active.cpu().numpy()]
        alive = (shares > 0) | (self._run.field.masses >= 0.5)
        columns = torch.from_numpy(alive.nonzero()[0]).to(self._active.device)
        if len(columns) < len(self._active):
            self._renumber(columns)
            self._run.keep_columns(columns)

    def _record(self) -> None:
        assert self._run is not None
        field, time = self._run.field, self._start_time + self._run.time
        changed, entropy, sizes, highest = self._run.read(self._labels)
        shares = np.zeros(self.n_columns)
        shares[self._active.cpu().numpy()] = sizes / len(self._labels)
        if self.records:
            _accumulate_uncertainty_(self._uncertainty, highest, time - self.records[-1].time)
        self.records.append(
            Record(
                time=time,
                n_evaluations=self._n_previous + field.n_evaluations,
                entropy=entropy,
                objective=field.objective,
                label_shares=shares,
                # tr(C^-1 W'W), C the masses
                rank_bound=float((field.squares / field.masses.clip(1e-300)).sum()),
                changed=changed,
            )
        )

    def _renumber(self, columns: Tensor) -> None:
        """Restrict labels and seeds to the columns in `columns`."""
        new_number = torch.full_like(self._active, -1)
        new_number[columns] = torch.arange(len(columns), device=columns.device)
        self._labels = new_number[self._labels]
        self._active = self._active[columns]
        seeds = self._constrain.columns
        if seeds is not None:
            self._constrain.columns = torch.where(seeds >= 0, new_number[seeds], -1)


def _accumulate_uncertainty_(total: Tensor, highest: Tensor, time: float) -> None:
    """Add (1 - highest) * time to `total`, in place; overwrites `highest`."""
    if total.device.type != "cpu":
        total.sub_(highest.sub_(1), alpha=time)
        return
    # by numpy: threads of torch wait for each other on a busy processor
    deficit = np.subtract(1, highest.numpy(), out=highest.numpy())
    deficit *= time
    np.add(total.numpy(), deficit, out=total.numpy())


def _prefer_labels_where_undecided_(v: Tensor, labels: Tensor) -> None:
    """Bias nodes with equal columns slightly towards their label, in place."""
    summing = v.new_ones(v.shape[1])
    for rows in simplex.row_blocks(v):
        block = v[rows]
        level = torch.mv(block, summing) == 0  # entries are at most 0
        if level.any():
            preferred = torch.full_like(block[level], _UNDECIDED)
            block[level] = preferred.scatter_(1, labels[rows][level][:, None], 0)


def _fraction(records: list[Record], stop: StoppingRule) -> float:
    """Return the progress of the entropy: half linear, half logarithmic."""
    highest, now = records[0].entropy, min(record.entropy for record in records)
    if highest <= stop.entropy:
        return 1.0
    linear = (highest - now) / (highest - stop.entropy)
    tail = math.log(highest / max(now, 1e-12)) / math.log(highest / max(stop.entropy, 1e-6))
    return min(max(0.5 * linear + 0.5 * tail, 0.0), 1.0)
