"""Base class of the methods, `AbstractMethod`, and `Reporter`, which builds their results.

A method yields snapshots and returns a segmentation. Read next: `_flow`, `_clustering`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.arrays import Float32s, Floats, Int64s, JsonObject, as_whole, check_size
from napari_saf.device import (
    DeviceName,
    FloatName,
    check_memory,
    float_type,
    memory_errors_translated,
    resolve_device,
    torch,
)
from napari_saf.errors import InvalidInput, SafError, raise_if
from napari_saf.flow import not_cancelled
from napari_saf.parameters import check_bounds, parameter, to_plain
from napari_saf.problem import Problem
from napari_saf.result import History, LabelImage, LabelMap, Record, Segmentation, Snapshot, Status
from napari_saf.storage import VERSION

_ROWS = 2**16

S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
Iteration = Generator[Snapshot, None, Segmentation]

# Fields of several methods.
# fmt: off
seed_parameter = functools.partial(
    parameter, 0, label="Random seed", bounds=(0, 2**31 - 1), advanced=True,
    help="The same seed gives the same labels.")
tolerance_parameter = functools.partial(
    parameter, label="Tolerance", bounds=(0, 0.1), step=1e-5, advanced=True,
    help="Stop once an iteration improves the objective by less than this share.")
limit_parameter = functools.partial(
    parameter, label="Most steps", bounds=(1, 100_000), step=10, advanced=True,
    help="Maximum number of iterations.")
# fmt: on


def map_steps(steps: Generator[S, None, T], change: Callable[[S], U]) -> Generator[U, None, T]:
    """Yield `change` of every step of a generator, and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        yield change(step)


def run_to_end(steps: Generator[S, None, T], on_step: Callable[[S], object] | None = None) -> T:
    """Exhaust a generator, call `on_step` with every step, and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if on_step is not None:
            on_step(step)


def check_features(features: Floats, dtype: torch.dtype) -> None:
    """Raise InvalidInput if squared feature differences overflow or underflow in `dtype`."""
    info = torch.finfo(dtype)
    check_size("features", features, features.shape[-1], info.max, info.tiny / info.eps)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Validated arguments of `iterate`; `previous` is the result that a run resumes.

    `features` are centred by `offset` (float64, CPU), which prototypes add back. `order` (n_nodes,)
    are the original indices of reordered nodes.
    """

    problem: Problem
    features: torch.Tensor
    initial: ArrayLike | None
    max_iterations: int | None
    cancelled: Callable[[], bool]
    began: float
    offset: torch.Tensor = dataclasses.field(
        default_factory=lambda: torch.zeros(1, dtype=torch.float64)
    )
    previous: Segmentation | None = None
    order: Int64s | None = None

    @property
    def seeds(self) -> torch.Tensor | None:
        if self.problem.seeds is None:
            return None
        return torch.from_numpy(self.problem.seeds).to(self.features.device)

    def raise_if_cancelled(self) -> None:
        raise_if(self.cancelled)


class Caution(NamedTuple):
    """Warning against a method for strokes: a `heading` for lists, and the `reason`."""

    heading: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractMethod(ABC):
    """Base class of labelling methods: a frozen dataclass of parameters.

    Subclasses set `name`, the key in `METHODS`, `title`, the name in the app, and `summary`, a
    one-sentence description. Their state is a field (n_nodes, n_columns) on a torch device.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    caution: ClassVar[Caution | None] = None
    """Set if a random forest on the same features is more accurate for strokes on pixels."""
    accepts_any_initial: ClassVar[bool] = False
    """Whether `initial` alone fixes the number of labels, with or without seeds."""
    _then: ClassVar[Callable[[Any, Call, Iteration], Iteration]]
    """Post-processing of every run, see `then_full_resolution`."""
    _n_fields: ClassVar[int]  # peak number of fields (n_nodes, n_columns)

    # fmt: off
    device: DeviceName = parameter(
        "auto", label="Device", advanced=True,
        help="Device for the computation; auto uses the graphics card if there is one.")
    dtype: FloatName = parameter(
        "float32", label="Precision", advanced=True,
        help="float64 takes twice the memory and time.")
    # fmt: on

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def uses_window(self) -> bool:
        """Whether labels depend on the window of the graph."""
        return True

    @property
    def follows_seeds(self) -> bool:
        """Whether the labels are exactly the classes of the seeds, two or more."""
        return False

    @property
    def labels_look_alike(self) -> bool:
        """Whether the label of a pixel depends on its features alone."""
        return True

    @property
    def labels_are_given(self) -> bool:
        """Whether the parameters fix the meaning of each label, with or without seeds."""
        return False

    def iterate(
        self,
        problem: Problem,
        initial: ArrayLike | Segmentation | None = None,
        *,
        max_iterations: int | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> Iteration:
        """Label the nodes of a problem: yield a Snapshot per recorded step, return a Segmentation.

        Parameters
        ----------
        problem : Problem
            Problem with the nodes to label.
        initial : array of shape (n_nodes, n_columns) or Segmentation, optional
            Initial assignment, rows summing to 1; flows ignore columns that are 0 for every node.
            Or the result of a stopped run of this method on this problem, which is resumed:
            history, time and step count continue. Only the assignment is restored; step sizes and
            slopes of earlier steps are recomputed.
        max_iterations : int, optional
            >= 1; maximum number of recorded steps, including those of a resumed run, beside the
            method's own stopping rule. The history has one more record, that of the start.
        cancelled : callable
            Polled at every evaluation, in the thread of the run; once it returns True the run ends
            with its current labels and `Status.CANCELLED`.

        Raises
        ------
        InvalidInput
            If the problem or `initial` is invalid for the method.
        ComputeError
            If there is not enough memory, or the device is missing.
        """
        previous = initial if isinstance(initial, Segmentation) else None
        if previous is not None and len(previous.history) < 2:
            previous = initial = None  # stopped before the first step
        began = time.perf_counter() - (0.0 if previous is None else previous.seconds)
        initial = initial.assignment if isinstance(initial, Segmentation) else initial
        if not isinstance(problem, Problem):
            raise InvalidInput(
                "problem: expected a Problem, such as the result of Problem.from_image, "
                f"got {type(problem).__name__}"
            )
        limit = as_whole(max_iterations)
        if max_iterations is not None and (limit is None or limit < 1):
            raise InvalidInput(
                f"max_iterations: expected a whole number of 1 or more, got {max_iterations!r}"
            )
        if initial is not None and np.ndim(initial) != 2:
            raise InvalidInput(
                f"initial: expected shape ({problem.n_nodes}, n_labels), got {np.shape(initial)}"
            )
        with memory_errors_translated():
            call = self._call(problem, initial, limit, cancelled, began, previous)
            return (yield from type(self)._then(self, call, self._iterate(call)))

    def _call(
        self,
        problem: Problem,
        initial: ArrayLike | None = None,
        limit: int | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
        began: float = 0.0,
        previous: Segmentation | None = None,
    ) -> Call:
        """Return the validated arguments of a run, with the features on its device."""
        device = resolve_device(self.device)
        dtype = float_type(self.dtype, device)
        check_features(problem.features, dtype)
        self._check_memory(problem, initial, device, dtype.itemsize)
        features = torch.from_numpy(problem.features)
        offset = torch.zeros(features.shape[1], dtype=torch.float64)
        if self._takes_mean(features, dtype):
            offset = features.double().mean(dim=0)
            features = features - offset.to(features.dtype)
        features = features.to(dtype).to(device)
        return Call(problem, features, initial, limit, cancelled, began, offset, previous)

    def run(
        self,
        problem: Problem,
        initial: ArrayLike | Segmentation | None = None,
        max_iterations: int | None = None,
    ) -> Segmentation:
        """Label the nodes of a problem; see `iterate` for parameters and errors."""
        return run_to_end(self.iterate(problem, initial, max_iterations=max_iterations))

    def recipe(self, problem: Problem) -> JsonObject:
        """Return the settings that reproduce a run on a problem, JSON-compatible."""
        return {
            "schema": 1,
            "method": self.name,
            "parameters": to_plain(self),
            "input": None if problem.options is None else problem.options.to_plain(),
            "versions": {
                "napari-saf": VERSION,
                "numpy": np.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
        }

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        """Whether features are centred, as lower precision requires."""
        return features.dtype.itemsize > dtype.itemsize

    @abstractmethod
    def _iterate(self, call: Call) -> Iteration:
        """Label the nodes of a validated problem."""

    @abstractmethod
    def _n_columns(self, problem: Problem) -> int:
        """Return the initial number of columns."""

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        """Return the expected and the maximum count of numbers per node, without features."""
        return (self._n_fields * n_columns,) * 2

    def _check_memory(
        self, problem: Problem, initial: ArrayLike | None, device: torch.device, itemsize: int
    ) -> None:
        if initial is None or self.labels_are_given:
            n_columns = self._n_columns(problem)
        else:
            n_columns = np.shape(initial)[-1]
        of_features = 4 * problem.features.shape[1]
        expected, most = self._numbers_per_node(problem, n_columns, device)
        need = itemsize * problem.n_nodes * (of_features + expected)
        # a reduced image has more distinct features
        ratio = (of_features + expected) / (of_features + most)
        message = "use fewer labels, a mask, or "
        check_memory(need, device, lambda share: message + problem.graph.smaller(share * ratio))


@dataclasses.dataclass(slots=True, eq=False)
class Reporter:
    """Factory of the snapshots and the segmentation of a run over `n_columns` initial columns.

    `columns_of_nodes` returns the preferred column of each node (n_nodes,), `logarithm` the log
    coordinates (n_nodes, n_columns). `label_map` None numbers labels by size at the end.
    """

    method: AbstractMethod
    problem: Problem
    n_columns: int
    began: float
    columns_of_nodes: Callable[[], torch.Tensor]
    logarithm: Callable[[], torch.Tensor]
    _: dataclasses.KW_ONLY
    label_map: LabelMap | None
    records: list[Record] = dataclasses.field(default_factory=list)
    _n_snapshots: int = 0

    def snapshot(self, fraction: float) -> Snapshot:
        """Return a snapshot, readable until the next one."""
        self._n_snapshots += 1
        if self.records:
            record = self.records[-1]
        else:
            sizes = np.bincount(self.columns_of_nodes().cpu().numpy(), minlength=self.n_columns)
            record = Record(
                0.0, 0, math.log(self.n_columns), math.nan, sizes / sizes.sum(), math.nan, 0.0
            )
        label_map = self.label_map or LabelMap.identity(self.n_columns)
        read = functools.partial(self._read, self._n_snapshots)
        return Snapshot(
            record,
            fraction,
            time.perf_counter() - self.began,
            label_map,
            functools.partial(read, lambda: self._label_image(label_map)),
            functools.partial(read, self.mean_features),
            functools.partial(read, lambda: np.asarray(self.logarithm().cpu().numpy())),
        )

    def _read(self, number: int, read: Callable[[], T]) -> T:
        """Read the state for snapshot `number`; SafError if it is not the newest."""
        if self._n_snapshots != number:
            raise SafError(
                "this snapshot is out of date: read or detach it before the run continues"
            )
        return read()

    def finish(
        self,
        status: Status,
        assignment: Float32s,
        prototypes: Floats,
        *,
        n_evaluations: int,
        notes: tuple[str, ...] = (),
        exemplars: Int64s | None = None,
        uncertainty: Floats | None = None,
        of_nodes: bool = False,
    ) -> Segmentation:
        """Return the segmentation, from arrays over all initial columns."""
        preferred = self.columns_of_nodes()
        # Snapshots must not keep the fields alive.
        self.columns_of_nodes, self.logarithm = lambda: preferred, _ended
        nodes = preferred.cpu().numpy()
        sizes = np.bincount(nodes, minlength=self.n_columns)
        if uncertainty is None:
            scale = self.n_columns / max(self.n_columns - 1, 1)
            uncertainty = np.asarray((1 - assignment.max(axis=1)) * scale)
        named = self.label_map or LabelMap.by_size(sizes)
        return Segmentation(
            # the type of the labels fits those in use
            labels=self._label_image(LabelMap(np.where(sizes > 0, named.numbers, 0)), of_nodes),
            assignment=assignment,
            prototypes=named.rows(prototypes),
            label_map=named,
            n_labels=int(np.count_nonzero(sizes)),
            history=History.of(self.records),
            status=status,
            n_evaluations=n_evaluations,
            seconds=time.perf_counter() - self.began,
            recipe=self.method.recipe(self.problem),
            notes=self.problem.notes + notes,
            exemplars=None if exemplars is None else exemplars[named.columns],
            uncertainty=uncertainty,
        )

    def mean_features(self) -> Float32s:
        """Return the mean feature of the nodes of each column; NaN if empty."""
        nodes, features = self.columns_of_nodes().cpu().numpy(), self.problem.features
        sizes = np.bincount(nodes, minlength=self.n_columns)
        sums = np.zeros((self.n_columns, features.shape[1]))
        for start in range(0, len(nodes), _ROWS):
            # Weights are copied to float64 in blocks, in reused memory.
            rows = slice(start, start + _ROWS)
            for k, values in enumerate(features[rows].T):
                sums[:, k] += np.bincount(nodes[rows], weights=values, minlength=self.n_columns)
        with np.errstate(invalid="ignore"):
            return (sums / sizes[:, None]).astype(np.float32)

    def _label_image(
        self, label_map: LabelMap, of_nodes: bool = False
    ) -> LabelImage | list[LabelImage]:
        """Return the preferred labels in the shape of the image."""
        labels = label_map.paint(self.columns_of_nodes().cpu().numpy() + 1)
        return labels if of_nodes else self.problem.graph.to_image(labels)


def _ended() -> torch.Tensor:
    raise SafError("this run has ended: read the assignment of a snapshot before the run continues")
