"""Classification of objects from a few clicks: few-shot learning on measures, and its files."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import sparse

from napari_saf import storage
from napari_saf.arrays import JsonObject, as_dict, as_list, as_path, as_whole, check_kind
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.features import FeatureExtractor, extractor_of
from napari_saf.graph import AffinityGraph
from napari_saf.io import check_suffix
from napari_saf.methods import METHODS, TaskMethod
from napari_saf.objects._split import Objects
from napari_saf.objects._track import Tracks
from napari_saf.objects._vectors import ObjectMeasures, measure_objects
from napari_saf.problem import Problem

FOREST = "forest"
"""Random forest, trained on the clicked objects only."""
_N_TREES = 50
_BASE = ("shape", "intensity", "texture")
_OF_UNIT_LENGTH = ("outline", "features")
"""Groups of histograms and pixel features, which are normalised to unit length per object."""
_MOST_AXES = 32
_MOST_DEVIATIONS = 5.0
_N_NEIGHBORS = 5
_MOST_RATED = 1000
"""Maximum number of unclicked objects used to rate groups and methods."""
_N_RESAMPLED = 4
_SETTINGS = {"tolerance": 1e-3, "laplacian_weight": 1.0, "n_prototypes": 20}
"""Tolerance on the relative gain of a step: three times as fast as 1e-5, and as accurate. Several
prototypes per class: a single mean that all objects refine moves off towards debris. Up to 20
clicks per class are prototypes themselves, which saves k-means; 8 means are not more accurate."""
_MOST_FOLDS = 5
_MARGIN = 0.07
"""Gain in agreement with the clicks that an additional group of measures must bring."""
_TINY = 1e-6
AnyObjects = TypeVar("AnyObjects", bound=Any)
"""`Objects` in memory or `LargeObjects` on disk."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ObjectClasses:
    """Classifier of objects learned from a few clicks; made by `learn_classes`.

    Attributes
    ----------
    vectors : array of float32 of shape (n_clicks, n_measures)
        Measures of the clicked objects.
    classes : array of int of shape (n_clicks,)
        Class of each clicked object, 1 or more.
    measures : tuple of str
        Group and name of each measure, such as ``"shape: depth"``.
    centre, deviation : array of shape (n_measures,)
        Mean and standard deviation of each measure, for standardisation.
    groups : tuple of str
        Groups of measures in use.
    method : str
        Name in `METHODS` of a method that takes seeds, or ``"forest"``.
    agreement : float or None
        Balanced accuracy of cross-validation over the clicks; None if no class has two clicks.
    names : mapping of int to str
        Name of each class.
    features : FeatureExtractor or None
        Pixel features to pass to `measure_objects`.

    Examples
    --------
    >>> vectors = np.array([[0.1], [0.9]], np.float32)
    >>> middle, one = np.full(1, 0.5, np.float32), np.ones(1, np.float32)
    >>> classes = saf.ObjectClasses(
    ...     vectors, np.array([1, 2]), ("shape: depth",), middle, one, ("shape",), "forest"
    ... )
    >>> values = np.array([[0.2], [0.8]], np.float32)
    >>> measures = saf.ObjectMeasures(np.array([1, 2]), values, ("depth",), ("shape",))
    >>> classes.classify(measures).classes.tolist()
    [1, 2]
    """

    vectors: NDArray[np.float32]
    classes: NDArray[np.int64]
    measures: tuple[str, ...]
    centre: NDArray[np.float32]
    deviation: NDArray[np.float32]
    groups: tuple[str, ...]
    method: str
    agreement: float | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    features: FeatureExtractor | None = None

    def __post_init__(self) -> None:
        n_clicks, n_measures = self.vectors.shape
        is_whole = self.classes.shape == (n_clicks,) and len(self.measures) == n_measures
        is_whole &= self.centre.shape == self.deviation.shape == (n_measures,)
        if not is_whole or (self.classes < 1).any():
            raise InvalidInput("classes: expected a class of 1 or more for each vector of measures")
        if len(np.unique(self.classes)) < 2:
            raise InvalidInput("classes: expected clicks on two classes or more")
        _check_method(self.method)

    def space(self, measures: ObjectMeasures) -> ClassSpace:
        """Precompute principal axes and neighbour graph of an image for `classify`."""
        self._check(measures)
        scaled = self._scaled(measures.values)
        mean = scaled.mean(axis=0)
        axes = np.linalg.svd(scaled - mean, full_matrices=False)[2][:_MOST_AXES]
        points = np.ascontiguousarray((scaled - mean) @ axes.T, np.float32)
        graph = None
        if len(points) > 1:
            graph = AffinityGraph.k_nearest(points, min(_N_NEIGHBORS, len(points) - 1))
        rows = {row.tobytes(): k for k, row in enumerate(measures.values)}
        return ClassSpace(measures, points, graph, mean, axes, rows)

    def classify(
        self, measures: ObjectMeasures | ClassSpace, tracks: Tracks | None = None
    ) -> ClassifiedObjects:
        """Classify objects; with `tracks`, all objects of a track get the same class.

        Clicked objects, identified by their measures, keep the class of their click. The class of a
        track maximises the mean class probability of its objects, or of its clicked objects if
        there are any: ambiguous objects, such as those out of focus, have little weight. Classes
        learned from single images apply to tracks unchanged.
        """
        space = measures if isinstance(measures, ClassSpace) else self.space(measures)
        points, seeds, graph = self._with_clicks(space)
        numbers, compact = np.unique(self.classes, return_inverse=True)
        seeds = np.where(seeds >= 0, compact[seeds] + 1, 0)
        n_objects = len(space.points)
        if self.method == FOREST:
            forest = _forest(self._scaled(self.vectors), compact + 1)
            shares = forest.predict_proba(self._scaled(space.measures.values))
        else:
            problem = Problem(points, graph, seeds=seeds)
            shares = _method(self.method, laplacian="graph").assign(problem)[:n_objects]
        is_clicked = seeds[:n_objects] > 0
        shares = np.where(
            is_clicked[:, None], seeds[:n_objects, None] == range(1, len(numbers) + 1), shares
        )
        if tracks is not None:
            shares = _mean_of_tracks(shares, is_clicked, space.measures.numbers, tracks)
        uncertainty = (1 - shares.max(axis=1)) * len(numbers) / (len(numbers) - 1)
        return ClassifiedObjects(
            space.measures.numbers,
            numbers[shares.argmax(axis=1)],
            uncertainty.clip(0, 1).astype(np.float32),
            self.names,
        )

    def apply(
        self,
        objects: Objects,
        image: ArrayLike | None = None,
        *,
        channel_axis: int | None = None,
        scale: Sequence[float] | None = None,
        axes: str | None = None,
        tracks: Tracks | None = None,
    ) -> ClassifiedObjects:
        """Measure and classify the objects of another image.

        Arguments and errors as in `measure_objects` and `classify`.
        """
        measures = measure_objects(
            objects,
            image,
            channel_axis=channel_axis,
            scale=scale,
            axes=axes,
            features=self.features,
        )
        return self.classify(measures, tracks)

    def with_clicks(
        self,
        measures: ObjectMeasures | Sequence[ObjectMeasures],
        clicks: Mapping[int, int] | Sequence[Mapping[int, int]],
        *,
        added: bool = False,
    ) -> ObjectClasses:
        """Return a copy with other clicks, or with clicks `added`; groups and method stay.

        Arguments and errors as in `learn_classes`.
        """
        images, clicks = _as_lists(measures, clicks)
        for image in images:
            self._check(image)
        vectors, classes = _clicked(images, clicks)
        if added:
            vectors = np.concatenate([self.vectors, vectors])
            classes = np.concatenate([self.classes, classes])
        return dataclasses.replace(self, vectors=vectors, classes=classes)

    def fits(self, measures: ObjectMeasures) -> bool:
        """Return whether the measures are those from which the classes were learned."""
        return _titles(measures) == self.measures

    def _check(self, measures: ObjectMeasures) -> None:
        if not self.fits(measures):
            raise InvalidInput(
                f"measures: expected the {len(self.measures)} of the learned classes (from an "
                f"image with as many channels), got {len(measures.names)}"
            )

    def _scaled(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return standardised measures of the groups in use, each scaled to about unit length."""
        column_groups = np.array([title.partition(": ")[0] for title in self.measures])
        parts = []
        for group in self.groups:
            columns = np.flatnonzero(column_groups == group)
            part = (values[:, columns] - self.centre[columns]) / self.deviation[columns]
            part = part.clip(-_MOST_DEVIATIONS, _MOST_DEVIATIONS)
            if group in _OF_UNIT_LENGTH:
                part = part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), _TINY)
            else:
                part = part / np.sqrt(len(columns))
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def _with_clicks(
        self, space: ClassSpace
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], AffinityGraph]:
        """Return points, the click on each (-1: none), and graph; clicks in other images last."""
        indices = [space.rows.get(row.tobytes(), -1) for row in self.vectors]
        elsewhere = [k for k, index in enumerate(indices) if index < 0]
        points, graph = space.points, space.graph
        seeds = np.full(len(points) + len(elsewhere), -1)
        for k, index in enumerate(indices):
            seeds[index if index >= 0 else len(points) + elsewhere.index(k)] = k
        if elsewhere or graph is None:
            new_points = (self._scaled(self.vectors[elsewhere]) - space.mean) @ space.axes.T
            points = np.concatenate([points, new_points.astype(np.float32)])
            weights = np.zeros((1, 1)) if graph is None else graph.weights.copy()
            weights = sparse.csr_array(weights)
            weights.resize((len(points), len(points)))  # clicks in other images are isolated nodes
            graph = AffinityGraph(weights, symmetric=False)
        return points, seeds, graph


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassSpace:
    """Standardised measures of the objects of an image in principal axes, and their graph."""

    measures: ObjectMeasures
    points: NDArray[np.float32]
    graph: AffinityGraph | None
    mean: NDArray[np.float32]
    axes: NDArray[np.float32]
    rows: Mapping[bytes, int]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassifiedObjects:
    """Class and uncertainty of each object; made by `ObjectClasses.classify`.

    Attributes
    ----------
    numbers : array of int of shape (n_objects,)
        Number of each object, ascending.
    classes : array of int of shape (n_objects,)
        Its class.
    uncertainty : array of float32 of shape (n_objects,)
        From 0 (certain, or clicked) to 1 (all classes equally likely).
    names : mapping of int to str
        Name of each class.

    Examples
    --------
    >>> found = saf.ClassifiedObjects(np.array([1, 4]), np.array([2, 1]), np.zeros(2), {2: "red"})
    >>> found.columns([4, 1, 7])["class"].tolist()
    ['class 1', 'red', '']
    """

    numbers: NDArray[np.int64]
    classes: NDArray[np.int64]
    uncertainty: NDArray[np.float32]
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def columns(self, numbers: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return class columns for an object table with these object numbers.

        ``label`` (object number) and ``prediction`` (class number), named as in
        napari-feature-classifier and `regionprops_table`; ``class`` and ``class_uncertainty``.
        Objects without a class get 0, "" and NaN.
        """
        labels = np.asarray(numbers)
        rows = np.searchsorted(self.numbers, labels).clip(max=len(self.numbers) - 1)
        is_classified = self.numbers[rows] == labels
        numbers_of_classes, positions = np.unique(self.classes[rows], return_inverse=True)
        class_names = [self.names.get(k, f"class {k}") for k in numbers_of_classes.tolist()]
        return {
            "label": labels,
            "prediction": np.where(is_classified, self.classes[rows], 0),
            "class": np.where(is_classified, np.array(class_names, dtype=object)[positions], ""),
            "class_uncertainty": np.where(is_classified, self.uncertainty[rows], np.nan),
        }

    def as_kinds(self, objects: AnyObjects) -> AnyObjects:
        """Return objects with their classes as kinds, for outline files such as GeoJSON.

        Objects without a class get the kind "no class".
        """
        kinds = np.where(objects.kinds > 0, self.classes.max() + 1, 0)
        kinds[self.numbers] = self.classes
        names = {k: self.names.get(k, f"class {k}") for k in np.unique(kinds[kinds > 0]).tolist()}
        if len(self.numbers) < np.count_nonzero(kinds):
            names[int(self.classes.max()) + 1] = "no class"
        return dataclasses.replace(objects, kinds=kinds, names=names)


def learn_classes(
    measures: ObjectMeasures | Sequence[ObjectMeasures],
    clicks: Mapping[int, int] | Sequence[Mapping[int, int]],
    *,
    names: Mapping[int, str] | None = None,
    groups: Sequence[str] | None = None,
    method: str | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ObjectClasses:
    """Learn classes of objects from a few clicks, with selection of measures and method.

    Parameters
    ----------
    measures : ObjectMeasures or sequence of them
        Measures of the objects of one image, or of several images.
    clicks : mapping of int to int, or sequence of them
        Class, 1 or more, by number of the clicked object; one mapping per image.
    names : mapping of int to str, optional
        Name of each class.
    groups : sequence of str, optional
        Groups of measures, see `ObjectMeasures`. None: selected by the clicks.
    method : str, optional
        Name in `METHODS` of a method that takes seeds, or ``"forest"``. None: selected by the
        clicks.
    cancelled : callable
        Called between candidates; `Cancelled` is raised once it returns True.

    Returns
    -------
    ObjectClasses

    Raises
    ------
    InvalidInput
        If the clicks have fewer than two classes, an object, group or method is unknown, or the
        measures differ between images.

    Notes
    -----
    Measures are standardised by mean and standard deviation over all objects; outline and features
    are normalised to unit length, each other group to a mean length of 1, and all are projected
    onto at most 32 principal axes. Candidates are shape, intensity and texture together, the
    outline or features alone, and the first three with one further group. LaplacianShot, by the
    nearest click as long as a class has at most 8, is the default: it does not move with objects of
    no class, such as debris. All methods that take seeds, and for the first candidate a random
    forest, are rated by cross-validation: each of up to five folds holds out one click per class.
    The best rating wins, the first in a tie; a further group must gain .07. With a single click per
    class, LaplacianShot is used, and the first three groups together or one group alone are rated
    by stability (Lange et al., https://doi.org/10.1162/089976604773717621): how well the result is
    reproduced from as many objects of each class, drawn from it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sizes = rng.permutation(np.repeat([3, 6], 20))
    >>> labels = np.zeros((40, 400), int)
    >>> for k, size in enumerate(sizes):
    ...     labels[5 : 5 + size, 10 * k : 10 * k + size + rng.integers(2)] = k + 1
    >>> objects = saf.Objects(labels, np.append(0, np.ones(40, int)))
    >>> measures = saf.measure_objects(objects)
    >>> clicks = {int(np.argmax(sizes == 3)) + 1: 1, int(np.argmax(sizes == 6)) + 1: 2}
    >>> classes = saf.learn_classes(measures, clicks, names={1: "small", 2: "large"})
    >>> found = classes.classify(measures)
    >>> np.array_equal(found.classes, np.where(sizes == 3, 1, 2))
    True
    """
    images, clicks = _as_lists(measures, clicks)
    titles = _titles(images[0])
    if any(_titles(image) != titles for image in images):
        raise InvalidInput("measures: expected the same measures for all images")
    vectors, classes = _clicked(images, clicks)
    available = list(dict.fromkeys(images[0].groups))
    for group in groups or ():
        if group not in available:
            raise InvalidInput(f"groups: expected some of {', '.join(available)}, got {group!r}")
    if method is not None:
        _check_method(method)
    values = np.concatenate([image.values for image in images])
    deviation = values.std(axis=0)
    learned = ObjectClasses(
        vectors=vectors,
        classes=classes,
        measures=titles,
        centre=values.mean(axis=0),
        deviation=np.where(deviation > _TINY, deviation, 1).astype(np.float32),
        groups=tuple(groups or _candidates(available)[0]),
        method=method or _few_shot_methods()[0],
        names=dict(names or {}),
        features=images[0].features,
    )
    candidates = [tuple(groups)] if groups else _candidates(available)
    return _choose(learned, values, candidates, method, cancelled)


def _as_lists(
    measures: ObjectMeasures | Sequence[ObjectMeasures],
    clicks: Mapping[int, int] | Sequence[Mapping[int, int]],
) -> tuple[list[ObjectMeasures], list[dict[int, int]]]:
    """Return validated measures and clicks as lists, one entry per image."""
    images = [measures] if isinstance(measures, ObjectMeasures) else as_list(measures, "measures")
    for image in images:
        check_kind(
            image, ObjectMeasures, "measures", "ObjectMeasures, as returned by saf.measure_objects"
        )
    mappings = [clicks] if isinstance(clicks, Mapping) else as_list(clicks, "clicks")
    if not images or len(images) != len(mappings):
        raise InvalidInput(f"clicks: expected a mapping for each image, got {len(mappings)}")
    return images, [as_dict(item, "clicks") for item in mappings]


def _mean_of_tracks(
    shares: NDArray[np.floating[Any]],
    is_clicked: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    tracks: Tracks,
) -> NDArray[np.floating[Any]]:
    """Return the mean probabilities over the track of each object; without a track, its own."""
    order = np.argsort(tracks.table["object"])
    objects, track_of = tracks.table["object"][order], tracks.table["track"][order]
    rows = np.searchsorted(objects, numbers).clip(max=max(0, len(objects) - 1))
    group = -numbers
    if len(objects):
        group = np.where(objects[rows] == numbers, track_of[rows], group)
    group = np.unique(group, return_inverse=True)[1]
    weights = np.where(np.bincount(group, is_clicked)[group] > 0, is_clicked, 1.0)
    sums = [np.bincount(group, weights * column) for column in shares.T]
    return np.asarray((np.stack(sums, axis=1) / np.bincount(group, weights)[:, None])[group])


def _titles(measures: ObjectMeasures) -> tuple[str, ...]:
    return tuple(f"{group}: {name}" for group, name in zip(measures.groups, measures.names,
                                                           strict=True))  # fmt: skip


def _clicked(
    several: Sequence[ObjectMeasures], clicks: Sequence[Mapping[int, int]]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return measures and classes of the clicked objects."""
    vectors, classes = [], []
    for measures, classes_by_number in zip(several, clicks, strict=True):
        for number, label in sorted(classes_by_number.items()):
            row = np.searchsorted(measures.numbers, number)
            if row == len(measures.numbers) or measures.numbers[row] != number:
                raise InvalidInput(f"clicks: there is no object {number}")
            if (as_whole(label) or 0) < 1:
                raise InvalidInput(f"clicks: expected classes of 1 or more, got {label!r}")
            vectors.append(measures.values[row])
            classes.append(int(label))
    if not vectors:
        raise InvalidInput("clicks: expected clicks on two classes or more, got none")
    return np.stack(vectors), np.array(classes, np.int64)


def _few_shot_methods() -> list[str]:
    """Return the names of the methods that solve batches of seeded tasks.

    Those with several prototypes per class come first, as objects of no class do not move them.
    """
    methods = {name: cls for name, cls in METHODS.items() if hasattr(cls, "run_tasks")}
    return sorted(methods, key=lambda name: not hasattr(methods[name], "n_prototypes"))


def class_methods() -> list[str]:
    """Return the names of all methods that classify objects."""
    return [*_few_shot_methods(), FOREST]


def _check_method(method: str) -> None:
    if method not in class_methods():
        raise InvalidInput(f"method: expected one of {', '.join(class_methods())}, got {method!r}")


def _method(name: str, **arguments: Any) -> TaskMethod:
    """Return a method that stops early, since few objects change class in its last steps."""
    cls: Any = METHODS[name]
    fields = {field.name for field in dataclasses.fields(cls)}
    arguments = _SETTINGS | arguments
    method: TaskMethod = cls(**{k: value for k, value in arguments.items() if k in fields})
    return method


def _forest(values: NDArray[np.float32], classes: NDArray[np.int64]) -> Any:
    from sklearn.ensemble import RandomForestClassifier  # takes a second to load

    return RandomForestClassifier(_N_TREES, random_state=0).fit(values, classes)


def _candidates(available: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the candidate combinations of groups in order of preference."""
    base = tuple(group for group in _BASE if group in available)
    alone = [(group,) for group in _OF_UNIT_LENGTH if group in available]
    joined = [(*base, group) for group in available if group not in _BASE]
    return [base, *alone, *joined]


def _choose(
    learned: ObjectClasses,
    values: NDArray[np.float32],
    candidates: Sequence[tuple[str, ...]],
    method: str | None,
    cancelled: Callable[[], bool],
) -> ObjectClasses:
    """Select the groups and the method with the best rating; the first one wins a tie."""
    folds = _folds(learned.classes)
    methods = class_methods() if folds else [learned.method]
    methods = methods if method is None else [method]
    if not folds:  # stability does not show whether a further group helps
        n_groups = len(candidates[0])
        candidates = [groups for groups in candidates if len(groups) <= n_groups]
    few = values[:: max(1, len(values) // _MOST_RATED)][:_MOST_RATED]
    best, best_rating = learned, -np.inf
    for groups in candidates:
        margin = _MARGIN if len(groups) > len(candidates[0]) else 0
        for name in methods:
            raise_if(cancelled)
            if name == FOREST and method is None and groups != candidates[0]:
                continue  # trees select measures themselves
            classes = dataclasses.replace(learned, groups=groups, method=name)
            points, seeds = _points_and_seeds(classes, few)
            if folds:
                rating = _agreement(name, points, seeds, folds)
                classes = dataclasses.replace(classes, agreement=rating)
            else:
                rating = _stability(name, points, seeds) if len(candidates) > 1 else 0.0
            if rating - margin > best_rating + _TINY:
                best, best_rating = classes, rating - margin
    return best


def _points_and_seeds(
    classes: ObjectClasses, unclicked: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points, clicked objects first, and seeds: their classes 1 to n, 0 for the others."""
    points = classes._scaled(np.concatenate([classes.vectors, unclicked]))
    if classes.method != FOREST:  # trees split along the original axes
        points = points - points.mean(axis=0)
        axes = np.linalg.svd(points, full_matrices=False)[2][:_MOST_AXES]
        points = np.ascontiguousarray(points @ axes.T, np.float32)
    compact = np.unique(classes.classes, return_inverse=True)[1] + 1
    return points, np.append(compact, np.zeros(len(unclicked), np.int64))


def _agreement(
    name: str,
    points: NDArray[np.float32],
    seeds: NDArray[np.int64],
    folds: Sequence[NDArray[np.int64]],
) -> float:
    """Return the balanced accuracy of cross-validation over the clicks."""
    tasks = np.tile(seeds, (len(folds), 1))
    for task, fold in zip(tasks, folds, strict=True):
        task[fold] = 0
    labels = _label_tasks(name, points, tasks)
    fold_of = np.repeat(np.arange(len(folds)), [len(fold) for fold in folds])
    tested = np.concatenate(folds)
    right, truth = labels[fold_of, tested] == seeds[tested], seeds[tested]
    return float(np.mean([right[truth == label].mean() for label in np.unique(truth)]))


def _folds(classes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the held-out clicks of each fold, at most one per class with two or more clicks."""
    folds: list[list[int]] = [[] for _ in range(_MOST_FOLDS)]
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        if len(members) > 1:
            for fold, clicks in zip(folds, members.tolist(), strict=False):
                fold.append(clicks)
    return [np.array(fold) for fold in folds if fold]


def _label_tasks(
    name: str, points: NDArray[np.float32], tasks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return labels (n_tasks, n_objects) from the seeds of each task."""
    if name == FOREST:
        training_sets = [(points[seeds > 0], seeds[seeds > 0]) for seeds in tasks]
        return np.stack([_forest(*training_set).predict(points) for training_set in training_sets])
    rows = np.broadcast_to(np.arange(len(points)), tasks.shape)
    return _method(name).run_tasks(points, tasks, rows=rows)


def _stability(name: str, points: NDArray[np.float32], seeds: NDArray[np.int64]) -> float:
    """Return how well seeds drawn from a result reproduce it, 0 to 1, balanced over classes."""
    if name == FOREST:
        return 0.0  # a forest ignores unclicked objects
    labels = _label_tasks(name, points, seeds[None])[0]
    present, counts = np.unique(seeds[seeds > 0], return_counts=True)
    if len(np.unique(labels)) < len(present):
        return 0.0
    rng = np.random.default_rng(0)
    tasks = np.zeros((_N_RESAMPLED, len(points)), np.int64)
    for task in tasks:
        for label, count in zip(present, counts, strict=True):
            members = np.flatnonzero(labels == label)
            task[rng.choice(members, min(count, len(members)), replace=False)] = label
    again = _label_tasks(name, points, tasks)
    return float(np.mean([(again[:, labels == k] == k).mean() for k in present]))


class _ClassesFile(storage.VersionedModel):
    kind: Literal["object classes"]
    software: Any = None
    names: dict[str, storage.Text] = Field(default_factory=dict)
    method: str
    agreement: float | None = None
    groups: Annotated[list[str], Field(min_length=1)]
    features: str | JsonObject | None = None
    measures: list[str]
    centre: list[float]
    deviation: list[Annotated[float, Field(gt=0)]]
    classes: list[int]
    vectors: list[list[float]]


def save_classes(path: str | os.PathLike[str], classes: ObjectClasses) -> Path:
    """Save classes of objects as JSON (``.json``), to apply to other images.

    Raises
    ------
    InvalidInput
        If the suffix is not ``.json``.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> objects = saf.Objects(np.kron([[1, 0, 2]], np.ones((8, 8), int)), np.array([0, 1, 1]))
    >>> classes = saf.learn_classes(saf.measure_objects(objects), {1: 1, 2: 2})
    >>> saf.save_classes("cells.classes.json", classes).name
    'cells.classes.json'
    """
    target = as_path(path)
    check_kind(classes, ObjectClasses, "classes", "ObjectClasses, as returned by saf.learn_classes")
    check_suffix(target, (".json",))
    plain = {
        "schema": 1,
        "kind": "object classes",
        "software": storage.VERSION,
        "names": {str(label): name for label, name in classes.names.items()},
        "method": classes.method,
        "agreement": classes.agreement,
        "groups": list(classes.groups),
        "features": None if classes.features is None else classes.features.to_plain(),
        "measures": list(classes.measures),
        "centre": classes.centre.tolist(),
        "deviation": classes.deviation.tolist(),
        "classes": classes.classes.tolist(),
        "vectors": classes.vectors.tolist(),
    }
    return storage.write_json(target, json.dumps(plain, allow_nan=False, ensure_ascii=False))


def load_classes(path: str | os.PathLike[str]) -> ObjectClasses:
    """Load classes of objects from a file of `save_classes`, without executing any of it.

    Raises
    ------
    FormatError
        If the file is damaged or invalid; the message names the file and the fault.

    Examples
    --------
    >>> labels = np.kron([[1, 0, 2, 0, 3]], np.ones((8, 8), int))
    >>> labels[4:, :8] = 0
    >>> objects = saf.Objects(labels, np.array([0, 1, 1, 1]))
    >>> classes = saf.learn_classes(saf.measure_objects(objects), {1: 1, 2: 2})
    >>> loaded = saf.load_classes(saf.save_classes("cells.classes.json", classes))
    >>> loaded.classify(saf.measure_objects(objects)).classes.tolist()
    [1, 2, 2]
    """
    file = as_path(path)
    with storage.format_errors(file, "a file of classes of objects"):
        entries = storage.validated(_ClassesFile, storage.read_json(file))
        features = None
        if entries.features is not None:
            features = extractor_of(entries.features)
            if features is None:
                raise InvalidInput(f"features: unknown, got {entries.features!r:.60}")
        all_groups = {title.partition(": ")[0] for title in entries.measures}
        if not {*entries.groups} <= all_groups:
            raise InvalidInput(f"groups: expected some of {', '.join(sorted(all_groups))}")
        return ObjectClasses(
            vectors=np.array(entries.vectors, np.float32).reshape(len(entries.vectors), -1),
            classes=np.array(entries.classes, np.int64),
            measures=tuple(entries.measures),
            centre=np.array(entries.centre, np.float32),
            deviation=np.array(entries.deviation, np.float32),
            groups=tuple(entries.groups),
            method=entries.method,
            agreement=entries.agreement,
            names={int(label): name for label, name in entries.names.items()},
            features=features,
        )
