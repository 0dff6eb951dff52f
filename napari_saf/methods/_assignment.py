"""The assignment flow for given prototypes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from skimage.measure import label as label_regions

from napari_saf.errors import InvalidInput
from napari_saf.geometry import shifted_softmax, softmax
from napari_saf.graph import Averager, GraphUnion, GridGraph, mean_nearest_distance
from napari_saf.methods._field_method import Call
from napari_saf.methods._flow import Flow, run_flow
from napari_saf.methods._flow_method import AbstractFlowMethod
from napari_saf.methods._method import Iteration
from napari_saf.methods._start import class_means, distances, from_assignment
from napari_saf.parameters import parameter
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation

__all__ = ["AssignmentField", "AssignmentFlow"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AssignmentFlow(AbstractFlowMethod):
    """Label with given prototypes, smooth in space.

    Parameters
    ----------
    prototypes : array of shape (n_labels, n_features), optional
        The representative of each label. None: the seeds of each class.
    n_nearest : int, optional
        Where seeds stand for their class: a node's distance to the class is the mean over so
        many seeds of it that are nearest in feature space. None: the distance to their mean.
    connected : bool
        Whether a region that no seed touches goes to the regions around it; on grids.
    rho, stepper, stop, device, dtype
        As for every flow: `AbstractFlowMethod`.

    Notes
    -----
    Åström, Petra, Schmitzer and Schnörr, "Image labeling by assignment",
    https://doi.org/10.1007/s10851-016-0702-4. In log coordinates V the flow is
    dV/dt = softmax(A (V - D / rho)), D the Euclidean distances to the prototypes, A the
    averages over the windows. Label l is prototype l. The objective of the history is the
    mean distance of a node to its prototypes, sum_ij W_ij D_ij / n.
    """

    name: ClassVar[str] = "af"
    title: ClassVar[str] = "Assignment flow"

    prototypes: NDArray[np.floating] | None = parameter(
        None,
        label="Prototypes",
        help="One feature vector a label; an earlier result has them.",
    )

    n_nearest: int | None = parameter(
        10,
        label="Strokes asked",
        help="How many stroke pixels of a label, the most similar ones, tell how well a pixel "
        "fits that label; none: the mean of all of them.",
        minimum=1,
        maximum=1000,
        advanced=True,
        none="their mean",
    )
    connected: bool = parameter(
        False,
        label="One piece",
        help="Keep only regions that a stroke touches; what is left over goes to the region "
        "around it.",
    )

    def _iterate(self, call: Call) -> Iteration:
        result = yield from run_flow(self._prepare(call), call)
        seeds, graph = call.problem.seeds, call.problem.graph
        if self.connected and seeds is not None and isinstance(graph, GridGraph | GraphUnion):
            return _keep_touched(result, seeds, graph)
        return result

    def _prepare(self, call: Call) -> Flow:
        features, seeds = call.features, call.seeds
        points = self._points(features, seeds)
        if self.prototypes is None and self.n_nearest is not None and seeds is not None:
            table = _seed_distances(features, seeds, len(points), self.n_nearest)
        else:
            table = distances(features, points)
        if call.initial is not None:
            start = from_assignment(call.initial, features)
            if start.shape[1] != len(points):
                raise InvalidInput(f"initial: expected {len(points)} columns, got {start.shape[1]}")
        else:
            start = torch.zeros_like(table)

        def make_field(tick: Callable[[], None]) -> AssignmentField:
            averager = call.problem.graph.averager(features.device, features.dtype)
            return AssignmentField(averager, table, points, self.rho)

        return Flow(self, start, make_field, self.stepper, self.stop, fixed_meaning=True)

    def _points(self, features: torch.Tensor, seeds: torch.Tensor | None) -> torch.Tensor:
        if self.prototypes is None:
            if seeds is None:
                raise InvalidInput("prototypes: expected an array, or a problem with seeds")
            return class_means(features, seeds)
        points = np.atleast_2d(np.asarray(self.prototypes, dtype=np.float64))
        n_features = features.shape[1]
        if points.ndim != 2 or points.shape[1] != n_features or len(points) < 2:
            raise InvalidInput(
                f"prototypes: expected shape (2 or more, {n_features}), got {points.shape}"
            )
        if not np.isfinite(points).all():
            raise InvalidInput("prototypes: expected finite numbers")
        if seeds is not None and int(seeds.max()) > len(points):
            raise InvalidInput(
                f"seeds: expected classes up to {len(points)}, got {int(seeds.max())}"
            )
        return torch.from_numpy(points).to(features.dtype).to(features.device)

    def _n_columns(self, problem: Problem) -> int:
        if self.prototypes is not None:
            return len(self.prototypes)
        return 1 if problem.seeds is None else int(problem.seeds.max())


def _seed_distances(
    features: torch.Tensor, seeds: torch.Tensor, n_classes: int, n_nearest: int
) -> torch.Tensor:
    """Return the mean distance (n_nodes, n_classes) to the nearest seeds of each class."""
    values, classes = features.cpu().numpy(), seeds.cpu().numpy()
    columns = [
        mean_nearest_distance(values[classes == label], values, n_nearest)
        for label in range(1, n_classes + 1)
    ]
    return torch.from_numpy(np.stack(columns, axis=1)).to(features)


def _keep_touched(
    result: Segmentation, seeds: NDArray[np.int64], graph: GridGraph | GraphUnion
) -> Segmentation:
    """Give regions that no seed touches to the nearest pixels of those that one does."""
    strokes, labels = graph.to_image(seeds), result.labels
    if isinstance(strokes, list) and isinstance(labels, list):
        whole = [_touched(one, own) for one, own in zip(labels, strokes, strict=True)]
        return dataclasses.replace(result, labels=whole)
    assert not isinstance(strokes, list) and not isinstance(labels, list)
    return dataclasses.replace(result, labels=_touched(labels, strokes))


def _touched(labels: LabelImage, strokes: NDArray[np.generic]) -> LabelImage:
    regions = label_regions(labels, background=0, connectivity=1)
    touched = np.unique(regions[(strokes != 0) & (strokes == labels)])
    loose = (labels > 0) & ~np.isin(regions, touched)
    if not loose.any() or not len(touched):
        return labels
    outside = loose | (labels == 0)
    nearest = distance_transform_edt(outside, return_distances=False, return_indices=True)
    return np.where(loose, labels[tuple(nearest)], labels)


class AssignmentField:
    """Right-hand side S(V) = softmax(A (V - D / rho)) of the assignment flow.

    Parameters
    ----------
    averager : Averager
    distances : Tensor of shape (n_nodes, n_columns)
    points : Tensor of shape (n_columns, n_features)
    rho : float
    """

    def __init__(
        self, averager: Averager, distances: torch.Tensor, points: torch.Tensor, rho: float
    ) -> None:
        self._averager = averager
        self._distances = distances
        self._points = points
        self._rho = rho
        self._allocate()
        self.objective = float("nan")
        self.overlap = torch.zeros(len(points), len(points), dtype=torch.float64)

    def __call__(self, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Write the right-hand side at `v` into `out`."""
        w = softmax(v, out=self.assignment)
        self.overlap = (w.T @ w).cpu().double()
        likelihood, mean = self.scratch
        self.objective = float(torch.mul(w, self._distances, out=mean).sum()) / len(w)
        torch.add(v, self._distances, alpha=-1 / self._rho, out=likelihood)
        self._averager(likelihood, mean, out)
        return shifted_softmax(mean, out=out)

    def keep_columns(self, kept: torch.Tensor) -> None:
        """Forget all columns but those of the given indices."""
        self._distances = self._distances[:, kept].contiguous()
        self._points = self._points[kept]
        self._allocate()

    def prototypes(self, assignment: torch.Tensor) -> NDArray[np.float32]:
        """Return the given prototypes that are left."""
        return self._points.float().cpu().numpy()

    def _allocate(self) -> None:
        empty = torch.empty_like
        self.assignment = empty(self._distances)
        self.scratch = (empty(self._distances), empty(self._distances))
