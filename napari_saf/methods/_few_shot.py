"""Few-shot inference: base class, batched tasks, and LaplacianShot."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import Floats, Int64s, as_labels, own_floats
from napari_saf.device import (
    DeviceName,
    FloatName,
    float_type,
    memory_errors_translated,
    resolve_device,
    torch,
)
from napari_saf.errors import InvalidInput
from napari_saf.flow import count_classes
from napari_saf.methods._clustering import AbstractAlternating, AbstractState, Tasks
from napari_saf.methods._laplacian import (
    AbstractLaplacianState,
    nearest_operator,
    neighbours_parameter,
)
from napari_saf.methods._method import AbstractMethod, Call, check_features
from napari_saf.parameters import documented, parameter
from napari_saf.points import sampled_means, squared_distances, weighted_means
from napari_saf.problem import Problem

_CHUNK_BYTES = 2**28
_MAX_DENSE_NODES = 4096
_MAX_FACTORED_NODES = 512
_TASKS_IN_CACHE = 8
LONG_ROWS = 64
"""Number of features from which on they are assumed to be those of a network."""
_N_PROTOTYPES = 8
"""Means per class for pixels; chosen among 4, 8 and 12 on the photographs and nuclei of even index
of ``benchmarks/scribbles.py``."""

_N_RECTIFICATIONS = 4
"""Rectifications of the prototypes of LaplacianShot. The single one of the paper adds 6 to 12 %
errors with one shot, 1 to 2 % with five."""

Preprocessing = Literal["scaled", "centred unit", "unit", "none"]


class TaskMethod(ABC):
    """Method that also labels many small tasks in one batch."""

    __slots__ = ()
    device: DeviceName
    dtype: FloatName
    tolerance: float
    max_iterations: int

    def run_tasks(
        self, features: ArrayLike, seeds: ArrayLike, *, rows: ArrayLike | None = None
    ) -> Int64s:
        """Label many small problems in one batch.

        Parameters
        ----------
        features : array of shape (n_tasks, n_nodes, n_features), or (n_rows, n_features)
            Finite numbers; with `rows`, a table shared by all tasks.
        seeds : array of int of shape (n_tasks, n_nodes)
            Labels 1, 2, ..., the same in every task, 0 for unlabelled nodes.
        rows : array of int of shape (n_tasks, n_nodes), optional
            Row index of each node in the table, from 0.

        Returns
        -------
        array of int of shape (n_tasks, n_nodes)
            The labels that `run` returns for each task without an image.

        Raises
        ------
        InvalidInput
            If shapes disagree, features are not finite, or a task lacks seeds of a class.
        ComputeError
            If the device is missing.
        """
        points, seed_labels, nodes = _check_tasks(features, seeds, rows)
        device = resolve_device(self.device)
        dtype = float_type(self.dtype, device)
        n_nodes, n_features = seed_labels.shape[1], points.shape[-1]
        labels = np.empty(seed_labels.shape, dtype=np.int64)
        if len(points):
            check_features(points, dtype)
        per_node = dtype.itemsize * (6 * n_features + 10 * int(seed_labels.max(initial=0)))
        per_node += 24 * min(n_nodes, _MAX_DENSE_NODES)
        count = max(1, int(_CHUNK_BYTES / (n_nodes * per_node)))
        for first in range(0, len(seed_labels), count):
            chunk = slice(first, first + count)
            blocks = torch.from_numpy(points[chunk] if nodes is None else points[nodes[chunk]])
            if self._takes_mean(blocks, dtype):
                blocks = blocks - blocks.mean(dim=1, keepdim=True)
            blocks = blocks.to(dtype).to(device)
            seed_blocks = torch.from_numpy(seed_labels[chunk]).to(device)
            state = self._start_tasks(Tasks(blocks, seed_blocks))
            self._converge(state)
            labels[chunk] = state.by_task(state.v).argmax(dim=2).cpu().numpy() + 1
        return labels

    def assign(self, problem: Problem) -> NDArray[np.float32]:
        """Assign the nodes of a problem to the classes of its seeds, without recording a history.

        Parameters
        ----------
        problem : Problem
            Problem with seeds of two classes or more.

        Returns
        -------
        array of float32 of shape (n_nodes, n_classes)
            Probability of each class, rows summing to 1: the assignment of `run`.

        Raises
        ------
        InvalidInput
            If the problem is invalid for the method.
        ComputeError
            If there is not enough memory, or the device is missing.
        """
        with memory_errors_translated():
            state = self._start(self._call(problem))
            self._converge(state)
            return state.assignment.float().cpu().numpy()

    def _converge(self, state: AbstractState) -> None:
        state.begin()
        state.is_recorded = False
        for _ in range(self.max_iterations):
            previous = state.objectives
            state.advance()
            state.active &= state.gains(previous) > self.tolerance
            if not state.active.any():
                break

    @abstractmethod
    def _call(self, problem: Problem) -> Call: ...

    @abstractmethod
    def _start(self, call: Call) -> AbstractState: ...

    @abstractmethod
    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        """Return the initial state of the tasks."""

    @abstractmethod
    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool: ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractFewShotMethod(AbstractAlternating, TaskMethod):
    """Base class of methods that propagate the labels of a few seeds to all nodes.

    The classes are those of the seeds, which keep their labels at every update; label l is
    class l. Temperatures refer to preprocessed features: "scaled" subtracts the mean and divides
    by the root mean square length (colours keep differences of brightness); "centred unit"
    subtracts the mean and normalises each row to unit length (usual for networks, and the default
    for 64 features or more); "unit" only normalises.
    """

    _n_fields: ClassVar[int] = 10

    # fmt: off
    preprocessing: Preprocessing | None = parameter(
        None, label="Scaling", advanced=True, none="automatic",
        choice_labels={"scaled": "scaled together", "centred unit": "centred, unit length",
                       "unit": "unit length", "none": "as they are"},
        help="Preprocessing of features: scaled by a common factor, for colours and textures; or "
        "normalised to unit length for each pixel, for network features, the default for 64 "
        "features or more.")
    # fmt: on

    follows_seeds = True

    @property
    def uses_window(self) -> bool:
        return False

    def _start(self, call: Call) -> AbstractState:
        expected = (call.problem.n_nodes, self._n_columns(call.problem))
        if call.initial is not None and np.shape(call.initial) != expected:
            raise InvalidInput(
                f"initial: expected shape {expected}, a column per class of the seeds, "
                f"got {np.shape(call.initial)}"
            )
        return self._start_tasks(Tasks.of(call))

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        is_centred = self.preprocessing in (None, "scaled", "centred unit")
        return is_centred and AbstractMethod._takes_mean(self, features, dtype)

    def _n_columns(self, problem: Problem) -> int:
        if problem.seeds is None:
            raise InvalidInput(
                "seeds: expected two or more classes, got none; paint strokes for each class"
            )
        n_classes = count_classes(problem.seeds)
        if n_classes < 2:
            raise InvalidInput("seeds: expected two or more classes, got one; paint a second class")
        return n_classes

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        return (self._n_fields * n_columns + 3 * problem.features.shape[1],) * 2

    def _preprocessing(self, blocks: torch.Tensor) -> Preprocessing:
        return self.preprocessing or ("scaled" if blocks.shape[2] < LONG_ROWS else "centred unit")


def prepared(blocks: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Return preprocessed features (n_tasks, n_nodes, n_features)."""
    blocks = _centred(blocks, preprocessing)
    if preprocessing == "scaled":
        squares = blocks.square().sum(dim=2).mean(dim=1)
        return blocks / squares.sqrt().clamp(min=1e-30)[:, None, None]
    return blocks if preprocessing == "none" else torch.nn.functional.normalize(blocks, dim=2)


def prepared_in_few_axes(blocks: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Return preprocessed features up to a rotation, at most n_nodes of them (Cholesky factors)."""
    n_nodes, n_features = blocks.shape[1:]
    if n_features <= n_nodes or n_nodes > _MAX_FACTORED_NODES:
        return prepared(blocks, preprocessing)
    products = blocks.new_empty((len(blocks), n_nodes, n_nodes), dtype=torch.float64)
    for first in range(0, len(blocks), _TASKS_IN_CACHE):
        few = slice(first, first + _TASKS_IN_CACHE)
        centred = _centred(blocks[few], preprocessing)
        products[few] = centred @ centred.mT
    diagonal = products.diagonal(dim1=1, dim2=2)
    if preprocessing == "scaled":
        products /= diagonal.mean(dim=1).clamp(min=1e-60)[:, None, None]
    elif preprocessing != "none":
        lengths = diagonal.sqrt().clamp(min=1e-30)
        products /= lengths[:, :, None] * lengths[:, None]
    least = 50 * torch.finfo(blocks.dtype).eps
    diagonal += least * diagonal.mean(dim=1, keepdim=True).clamp(min=1e-300)
    factors, faults = torch.linalg.cholesky_ex(products)
    return prepared(blocks, preprocessing) if faults.any() else factors.to(blocks)


def _centred(blocks: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    is_centred = preprocessing in ("scaled", "centred unit")
    return blocks - blocks.mean(dim=1, keepdim=True) if is_centred else blocks


def _check_tasks(
    features: ArrayLike, seeds: ArrayLike, rows: ArrayLike | None = None
) -> tuple[Floats, Int64s, Int64s | None]:
    """Return the validated arrays of `TaskMethod.run_tasks`, or raise InvalidInput."""
    points, seed_labels = own_floats(features, "features"), as_labels(seeds, "seeds")
    nodes = None if rows is None else as_labels(rows, "rows").astype(np.int64)
    expected = "(n_tasks, n_nodes, n_features)" if nodes is None else "(n_rows, n_features)"
    is_one = points.ndim == expected.count(",") + 1
    if not is_one or 0 in points.shape[1:] or not np.isfinite(points).all():
        raise InvalidInput(
            f"features: expected finite numbers of shape {expected}, got shape {points.shape}"
        )
    if nodes is not None and (nodes.ndim != 2 or nodes.max(initial=0) >= max(len(points), 1)):
        raise InvalidInput(
            f"rows: expected shape (n_tasks, n_nodes), numbers below {len(points)}, "
            f"got shape {nodes.shape}, up to {nodes.max(initial=0)}"
        )
    shape = points.shape[:2] if nodes is None else nodes.shape
    if seed_labels.shape != shape:
        raise InvalidInput(f"seeds: expected shape {shape}, got {seed_labels.shape}")
    n_classes = max(int(seed_labels.max(initial=0)), 2)
    for label in range(1, n_classes + 1):
        missing = ~(seed_labels == label).any(axis=1)
        if missing.any():
            raise InvalidInput(
                f"seeds: expected classes 1 to {n_classes} in every task, "
                f"task {int(missing.argmax())} has none of class {label}"
            )
    return points, seed_labels.astype(np.int64), nodes


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LaplacianShot(AbstractFewShotMethod):
    """LaplacianShot: nearest class prototypes with Laplacian regularisation.

    Notes
    -----
    Ziko, Dolz, Granger and Ben Ayed, "Laplacian regularized few-shot learning", ICML 2020,
    https://arxiv.org/abs/2006.15486. With lambda = `laplacian_weight`, assignments y descend

        E(y) = sum_pk y_pk a_pk - lambda/2 sum_k y_k'W y_k + sum_pk y_pk log y_pk

    with a_pk = |x_p - m_k|^2 by y <- softmax(-a + lambda W y), the rows of seeds one-hot. W is
    the symmetric part of the indicator of the `n_neighbors` nearest nodes without seed, as in
    (4.1): seeds are no neighbours of other nodes. As W may be indefinite, an update that would
    increase E is shortened, as in `SLK`.

    Prototypes m_k start as the means of the seeds and are rectified four times (once in the paper):
    the next m_k is the mean of all nodes, weighted by softmax_k(rectification cos(x_p, m_k)), seeds
    by 1 for their class.

    By default, pixels of an image differ from feature tables in two ways. A class has several
    colours: a_pk is the squared distance to the nearest of up to 8 k-means of its seeds, which are
    not rectified. And neighbours are spatial: W are the weights of the graph, scaled so that a row
    sums to `n_neighbors` on average. `run_tasks`, without a graph, always takes the nearest in
    feature space.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((16, 16)))
    >>> seeds = np.zeros(image.shape, int)
    >>> seeds[4, 2:10], seeds[4, 20:28] = 1, 2  # a stroke in a dark square, one in a bright square
    >>> problem = saf.Problem.from_image(image, seeds=seeds)
    >>> np.array_equal(saf.LaplacianShot().run(problem).labels, 1 + (image > 0.5))
    True
    """

    name: ClassVar[str] = "laplacianshot"
    title: ClassVar[str] = "LaplacianShot"
    summary: ClassVar[str] = (
        "Every pixel gets the class whose strokes are most similar in colour or other features; "
        "neighbours tend to the same class."
    )

    # fmt: off
    laplacian_weight: float | None = parameter(
        None, label="Agreement", bounds=(0, 1000), step=0.1, none="1; in tables 0.3",
        help="Weight of the labels of neighbours (lambda); none: 1 for pixels of an image, 0.3 "
        "otherwise.")
    laplacian: Literal["graph", "features"] | None = parameter(
        None, label="Neighbours", advanced=True, none="near; in tables similar",
        choice_labels={"graph": "near", "features": "similar, anywhere"},
        help="Neighbours of a pixel: pixels within the scale (graph), or those with the most "
        "similar features anywhere (features); none: graph for pixels of an image.")
    n_neighbors: int = neighbours_parameter(3)
    n_prototypes: int | None = parameter(
        None, label="Means a class", bounds=(1, 100), advanced=True, none="8; in tables 1",
        help="Maximum number of means of the strokes of a class; none: 8 for pixels of an image, 1 "
        "otherwise.")
    rectification: float | None = parameter(
        10.0, label="Rectification", bounds=(1e-3, 1e6), advanced=True, none="seeds alone",
        help="With one mean per class: inverse temperature with which similar pixels enter the "
        "mean; none: the mean of the strokes alone.")
    # fmt: on

    @property
    def uses_window(self) -> bool:
        return self.laplacian != "features"

    def _start_tasks(self, tasks: Tasks) -> AbstractState:
        return _State(self, tasks)


class _State(AbstractLaplacianState):
    def __init__(self, method: LaplacianShot, tasks: Tasks) -> None:
        is_image, weight = tasks.is_image, method.laplacian_weight
        weight = (1.0 if is_image else 0.3) if weight is None else weight
        super().__init__(tasks, tasks.n_classes, weight, method.tolerance)
        self._method = method
        self._points = prepared_in_few_axes(tasks.blocks, method._preprocessing(tasks.blocks))
        self._takes_graph = method.laplacian == "graph" or (method.laplacian is None and is_image)
        self._n_prototypes = method.n_prototypes or (_N_PROTOTYPES if is_image else 1)
        self._means = tasks.class_means(self._points)
        if self._n_prototypes > 1:
            self._start_unary = self._unaries_of_several()
        else:
            self._start_unary = self._unaries(self._means)
        self.move(self._start_unary.clone())

    def begin(self) -> None:
        self.raise_if_cancelled()
        method, problem = self._method, self.tasks.problem
        if problem is not None and self._takes_graph:
            product = problem.graph.neighbour_sum(self.features.device, self.features.dtype)
            degrees = torch.empty_like(self.features[:, :1])
            product(torch.ones_like(degrees), degrees, torch.empty_like(degrees))
            # W scaled: mean row sum is the number of neighbours
            mean = float(degrees.mean())
            self._laplacian_weight *= method.n_neighbors / mean if mean > 0 else 0
        else:
            assert self.tasks.seed_blocks is not None
            are_seeds = self.tasks.seed_blocks > 0
            product, _ = nearest_operator(
                self._points, method.n_neighbors, self.features, are_seeds
            )
        unary, means, rectification = self._start_unary, self._means, method.rectification
        if self._n_prototypes == 1 and rectification is not None:
            # m_k: means of all nodes weighted by softmax_k(rectification cos(x_p, m_k))
            directions = torch.nn.functional.normalize(self._points, dim=2)
            indicators = self.tasks.class_indicators()
            is_seed = indicators.sum(dim=2, keepdim=True) > 0
            for _ in range(_N_RECTIFICATIONS):
                cosines = directions @ torch.nn.functional.normalize(means, dim=2).mT
                weights = torch.softmax(rectification * cosines, dim=2)
                means = weighted_means(torch.where(is_seed, indicators, weights), self._points)
            unary = self._unaries(means)
        self.begin_at(unary, product)

    def advance(self) -> None:
        self.relax(1)

    def _unaries(self, prototypes: torch.Tensor) -> torch.Tensor:
        return squared_distances(self._points, prototypes).neg_().flatten(0, 1)

    def _unaries_of_several(self) -> torch.Tensor:
        """Return -|x_p - m|^2 for the nearest of several means of each class."""
        seeds = self.tasks.seed_blocks
        assert seeds is not None
        unary = torch.empty_like(self.v)
        for block, labels, rows in zip(self._points, seeds, self.by_task(unary), strict=True):
            for column in range(rows.shape[1]):
                members = block[labels == column + 1].cpu().numpy()
                means = torch.from_numpy(sampled_means(members, self._n_prototypes)).to(block)
                rows[:, column] = -squared_distances(block, means).amin(dim=1)
        return unary
