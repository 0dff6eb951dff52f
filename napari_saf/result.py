"""Results of runs: label maps, snapshots, history, segmentation."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from napari_saf.arrays import Float32s, Float64s, Floats, Int64s, Integers, JsonObject
from napari_saf.errors import InvalidInput, SafError

LabelImage = NDArray[np.unsignedinteger[Any]]
Color = tuple[float, float, float, float]

PREVIEW, FULL = "preview", "full resolution"
"""Stages of a run that starts at a reduced size."""
MOST_LABELS = 2**16 - 1
"""Largest label with a prototype, which limits the size of tables by label."""
_UNCERTAIN = 0.25
"""Least uncertainty of an uncertain node. The ranking of images of nuclei, labelled by strokes on
one of them, is the same for 0.15 to 0.35; mean uncertainty does not predict their errors."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelMap:
    """Immutable mapping from columns of an assignment to labels, with names and colours of labels.

    It is created once the label numbers of a run are fixed, by size, seeds or given prototypes.

    `numbers` (n_columns,) are the labels of the columns, 1, 2, ...; 0 for no label. Gaps are
    allowed, and columns may share a label. `names` and `colors` (RGBA in [0, 1]) have label numbers
    as keys.
    """

    numbers: Int64s
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Color] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        array = np.asarray(self.numbers)
        is_whole = array.dtype.kind in "biu" or not array.size
        if array.ndim != 1 or not is_whole or (array.size and array.min() < 0):
            raise InvalidInput(f"numbers: expected whole numbers >= 0, got {array!r:.60}")
        numbers = array.astype(np.int64)
        numbers.setflags(write=False)
        object.__setattr__(self, "numbers", numbers)
        for name in ("names", "colors"):
            object.__setattr__(self, name, types.MappingProxyType(dict(getattr(self, name))))

    def __reduce__(self) -> tuple[type[LabelMap], tuple[Any, ...]]:
        return LabelMap, (self.numbers, dict(self.names), dict(self.colors))

    @classmethod
    def identity(cls, n_columns: int) -> LabelMap:
        return cls(np.arange(1, n_columns + 1))

    @classmethod
    def by_size(cls, sizes: ArrayLike) -> LabelMap:
        """Return the map that numbers columns by size, largest first, with 0 for empty columns."""
        counts = np.asarray(sizes)
        order = np.argsort(-counts, kind="stable")  # ties in the order of the columns
        order = order[counts[order] > 0]
        numbers = np.zeros(len(counts), dtype=np.int64)
        numbers[order] = np.arange(1, len(order) + 1)
        return cls(numbers)

    @classmethod
    def from_seeds(cls, seeds: ArrayLike) -> LabelMap:
        """Return the map with a column per class of the seeds, ascending; 0 means no seed."""
        present = np.unique(np.asarray(seeds))
        return cls(present[present > 0])

    @property
    def n_columns(self) -> int:
        return len(self.numbers)

    @property
    def columns(self) -> Int64s:
        """Column of each label: entry l - 1 is the first column of label l, -1 for none."""
        used = np.flatnonzero((self.numbers > 0) & (self.numbers <= MOST_LABELS))[::-1]
        columns = np.full(int(self.numbers[used].max(initial=0)), -1, dtype=np.int64)
        columns[self.numbers[used] - 1] = used
        return columns

    def paint(self, columns_image: Integers) -> NDArray[np.unsignedinteger[Any]]:
        """Return labels for an image of column numbers from 1, in the smallest dtype."""
        table = np.concatenate([[0], self.numbers])
        table = table.astype(np.min_scalar_type(int(table.max())))
        is_identity = (table == np.arange(len(table))).all()
        if is_identity and columns_image.dtype == table.dtype:
            return cast("NDArray[np.unsignedinteger[Any]]", columns_image)
        return np.asarray(table[columns_image])

    def unpaint(self, labels: Integers) -> NDArray[np.unsignedinteger[Any]]:
        """Return column numbers from 1 for an image of labels, 0 for none; inverse of `paint`."""
        dtype, columns = np.min_scalar_type(self.n_columns), self.columns
        if labels.size and labels.max() <= len(columns):
            return np.asarray(np.concatenate([[0], columns + 1]).astype(dtype)[labels])
        used = np.flatnonzero(self.numbers)
        numbers, first = np.unique(self.numbers[used], return_index=True)
        labels = labels.astype(np.int64)  # numpy compares signed with unsigned as floats
        index = np.searchsorted(numbers, labels)
        table = np.concatenate([used[first] + 1, [0]]).astype(dtype)
        matches = np.concatenate([numbers, [-1]])[index] == labels
        return np.where(matches, table[index], table.dtype.type(0))

    def rows(self, prototypes: Floats) -> Float32s:
        """Return mean prototypes by label, row l - 1 for label l; NaN for unused labels."""
        numbers = self.numbers[: len(prototypes)]
        has_row = (numbers > 0) & (numbers <= MOST_LABELS)
        n_rows = int(numbers[has_row].max(initial=0))
        if np.array_equal(numbers, np.arange(1, len(prototypes) + 1)):
            return prototypes.astype(np.float32, copy=False)
        has_row &= np.isfinite(prototypes[: len(numbers)]).all(axis=1)
        sums = np.zeros((n_rows, prototypes.shape[1]))
        np.add.at(sums, numbers[has_row] - 1, prototypes[: len(numbers)][has_row])
        counts = np.bincount(numbers[has_row] - 1, minlength=n_rows)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / counts[:, None], dtype=np.float32)

    def extended(self, n_columns: int) -> LabelMap:
        """Return the map with at least `n_columns`, new labels last."""
        n_more = max(0, n_columns - self.n_columns)
        numbers = np.concatenate([self.numbers, np.zeros(n_more, dtype=np.int64)])
        free = np.flatnonzero(numbers == 0)
        numbers[free] = int(numbers.max(initial=0)) + np.arange(1, len(free) + 1)
        return dataclasses.replace(self, numbers=numbers)


class Status(enum.Enum):
    """Reason for the end of a run.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.eye(16))
    >>> saf.SelfAssignmentFlow(max_labels=2).run(problem, max_iterations=1).status
    <Status.MAX_ITERATIONS: 'max_iterations'>
    """

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ITERATIONS = "max_iterations"
    CANCELLED = "cancelled"


STATUS_TEXTS = {
    Status.CONVERGED: "converged",
    Status.STALLED: "settled",
    Status.MAX_ITERATIONS: "step limit reached",
    Status.CANCELLED: "stopped",
}
"""Text of each status in the app and on the command line."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Measures of one recorded step."""

    time: float  # Flow time, or the number of the iteration.
    n_evaluations: int  # Right-hand sides (inner updates) evaluated so far.
    entropy: float  # Mean entropy of the rows of the assignment, in nats, 0 to log c.
    objective: float  # The objective that the method raises or lowers.
    label_shares: Float64s  # (n_columns,): share of the nodes that prefer each column.
    rank_bound: float  # tr(C^-1 W'W), an upper bound of the effective number of labels, 1 to c.
    changed: float  # Share of the nodes whose label changed since the previous record.
    # Further measures by name, the same in every record of a run.
    measures: Mapping[str, float] = dataclasses.field(default_factory=dict)


_SERIES = [field.name for field in dataclasses.fields(Record) if field.name != "measures"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """State of a run at a recorded step.

    Labels, prototypes and soft labels are computed at each access, which must precede the next step
    of the run; `detach` returns a snapshot that remains readable.

    Attributes
    ----------
    record : Record
        Measures of the step.
    fraction : float
        Completed fraction of the run, 0 to 1.
    seconds : float
        Time since the start of the run.
    label_map : LabelMap
        Label of each column: column + 1, regardless of the final labels, unless fixed by given
        prototypes.
    stage : str
        "preview" while labels are computed at a reduced size, then "full resolution"; empty for
        runs of a single stage.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.eye(16))
    >>> for snapshot in saf.SLK(n_clusters=2).iterate(problem):
    ...     labels = snapshot.labels  # before the next step
    >>> labels.shape, snapshot.fraction
    ((16, 16), 1.0)
    """

    record: Record
    fraction: float
    seconds: float
    label_map: LabelMap
    _read_labels: Callable[[], LabelImage | list[LabelImage]]
    _read_prototypes: Callable[[], Float32s]
    _read_logarithm: Callable[[], Floats] | None = None
    stage: str = ""

    @property
    def state(self) -> str:
        """Progress text."""
        return f"{self.n_labels} labels, t = {self.record.time:.1f}"

    @property
    def labels(self) -> LabelImage | list[LabelImage]:
        """Label image, or list of label images, by `label_map`, 0 outside the mask.

        Raises SafError if the run has continued.
        """
        return self._read_labels()

    @property
    def prototypes(self) -> Float32s:
        """Mean feature of every column (n_columns, n_features); errors as for `labels`."""
        return self._read_prototypes()

    def detach(self, *, assignment: bool = False) -> Snapshot:
        """Return a snapshot with copied arrays, which remains readable while the run continues.

        Parameters
        ----------
        assignment : bool
            Whether to copy the soft labels, too, which are n_nodes * n_columns numbers.
        """
        labels, prototypes = self.labels, self.prototypes
        read_logarithm = None
        if assignment and self.has_assignment:
            logarithm = self.read_logarithm().copy()
            read_logarithm = lambda: logarithm  # noqa: E731
        return dataclasses.replace(
            self,
            _read_labels=lambda: labels,
            _read_prototypes=lambda: prototypes,
            _read_logarithm=read_logarithm,
        )

    @property
    def has_assignment(self) -> bool:
        """Whether the step has soft labels."""
        return self._read_logarithm is not None

    @property
    def assignment(self) -> Float32s:
        """Soft labels (n_nodes, n_columns), rows sum to 1, 0 in removed columns.

        They can be the `initial` of `AbstractMethod.iterate`. Raises SafError if the run has
        continued or has no soft labels.
        """
        return np.asarray(softmax(self.read_logarithm(), axis=1), dtype=np.float32)

    def read_logarithm(self) -> Floats:
        """Return the logarithm of `assignment`, shifted to row maxima of 0.

        Read-only, as it may be a view of the state of the run. Raises SafError as `assignment`.
        """
        if self._read_logarithm is None:
            raise SafError("this snapshot has no soft labels")
        return self._read_logarithm()

    @property
    def n_labels(self) -> int:
        """Number of columns with at least one node."""
        return int(np.count_nonzero(self.record.label_shares))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class History:
    """Records of a run as arrays with one entry per recorded step; see `Record`.

    Attributes
    ----------
    time, n_evaluations, entropy, objective, rank_bound, changed : array of shape (n_steps,)
    label_shares : array of shape (n_steps, n_columns)
    measures : mapping of str to array of shape (n_steps,)
        Other measures of the method, such as the objective of the hard labels.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((16, 16))))
    >>> history = saf.SelfAssignmentFlow(max_labels=2).run(problem).history
    >>> bool(history.entropy[-1] < history.entropy[0])
    True
    >>> history.label_shares.shape == (len(history), 2)
    True
    """

    time: Float64s
    n_evaluations: Int64s
    entropy: Float64s
    objective: Float64s
    label_shares: Float64s
    rank_bound: Float64s
    changed: Float64s
    measures: Mapping[str, Float64s] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Record]) -> History:
        """Return the history of records."""
        arrays = {name: np.array([getattr(r, name) for r in records]) for name in _SERIES}
        measured = records[0].measures if records else ()
        measures = {name: np.array([r.measures[name] for r in records]) for name in measured}
        return cls(**arrays, measures=measures)

    def records(self) -> list[Record]:
        """Return the records, the inverse of `of`."""
        rows = zip(*(getattr(self, name) for name in _SERIES), strict=True)
        measured = [{name: x[k] for name, x in self.measures.items()} for k in range(len(self))]
        return [
            Record(**dict(zip(_SERIES, row, strict=True)), measures=measures)
            for row, measures in zip(rows, measured, strict=True)
        ]

    def then(self, later: History) -> History:
        """Return this history followed by a later one, with time and evaluations continued."""
        offsets = {"time": self.time[-1], "n_evaluations": self.n_evaluations[-1]}
        joined = {}
        for name in _SERIES:
            first, second = getattr(self, name), getattr(later, name)
            joined[name] = np.append(first, second + offsets.get(name, 0), axis=0)
        measures = {name: np.append(x, later.measures[name]) for name, x in self.measures.items()}
        return History(**joined, measures=measures)

    def __len__(self) -> int:
        return len(self.time)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segmentation:
    """Result of a run.

    Attributes
    ----------
    labels : array of unsigned int, or list of such arrays
        Image-shaped, or (n_nodes,) for a graph; a list for several images. 0 is outside the
        mask. Labels are 1..n_labels by size, largest first, unless seeds or given prototypes
        fix their meaning.
    assignment : array of shape (n_nodes, n_columns), float32
        Soft labels, rows sum to 1; columns as in the start.
    prototypes : array of shape (n_prototypes, n_features)
        Row l - 1 is the prototype of label l; NaN for unused labels.
    label_map : LabelMap
        Label of each column.
    n_labels : int
        Number of labels with at least one node.
    history : History
    status : Status
    n_evaluations : int
        Right-hand sides (inner updates) evaluated.
    seconds : float
        Duration of the run.
    recipe : dict
        Settings that reproduce the run, JSON-compatible.
    notes : tuple of str
        Messages for the user, such as a reduced number of labels.
    exemplars : array of int of shape (n_prototypes,) or None
        Node that represents each label, if prototypes are nodes (modes, medoids);
        ``problem.graph.positions`` returns its pixel and, for several images, its image.
    uncertainty : array of shape (n_nodes,), float32
        1 minus the largest entry of a row, scaled to [0, 1]: for flows the mean over flow time,
        large for nodes that decide late; for other methods that of the final assignment.
    parts : dict of int to array of shape (n_own, n_features)
        Prototypes of labels with several given ones, whose mean is in `prototypes`.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0, 1.0]], np.ones((12, 12)))
    >>> result = saf.SelfAssignmentFlow(max_labels=2).run(saf.Problem.from_image(image))
    >>> result.labels.shape, result.n_labels, np.bincount(result.labels.ravel()).tolist()
    ((12, 36), 2, [0, 288, 144])
    >>> bool(np.allclose(result.assignment.sum(axis=1), 1))
    True
    """

    labels: LabelImage | list[LabelImage] = dataclasses.field(repr=False)
    assignment: Float32s = dataclasses.field(repr=False)
    prototypes: Float32s = dataclasses.field(repr=False)
    label_map: LabelMap = dataclasses.field(repr=False)
    n_labels: int
    history: History = dataclasses.field(repr=False)
    status: Status
    n_evaluations: int
    seconds: float
    recipe: JsonObject = dataclasses.field(repr=False)
    notes: tuple[str, ...] = ()
    exemplars: Int64s | None = dataclasses.field(default=None, repr=False)
    uncertainty: Float32s | None = dataclasses.field(default=None, repr=False)
    parts: dict[int, Float32s] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def columns(self) -> Int64s:
        """Column of each label: entry l - 1 is that of label l, -1 without column."""
        return self.label_map.columns

    def uncertain_share(self, nodes: slice = slice(None)) -> float:
        """Return the share of uncertain nodes, 0 to 1, averaged over labels.

        `nodes` restricts it to one of several images.
        """
        assert self.uncertainty is not None
        labels = self.assignment[nodes].argmax(axis=1)
        counts = np.bincount(labels)
        uncertain = np.bincount(labels, self.uncertainty[nodes] >= _UNCERTAIN)
        return float(np.mean(uncertain[counts > 0] / counts[counts > 0]))
