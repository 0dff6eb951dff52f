"""Scores of label images against a truth: pixels by class, objects, and classes of objects."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, sparse

from napari_saf.arrays import as_labels
from napari_saf.errors import InvalidInput

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Thresholds of the intersection over union at which objects match."""
WIDTHS = (1, 2)
"""Tolerances in pixels within which borders match."""
_MOST_CLASSES = 1000
MISSED, FALSE, OTHER, RIGHT = 1, 2, 3, 4
"""Labels of `error_image`."""
Row = tuple[str, str, float]
"""Part, measure and value of a score."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PixelScore:
    """Agreement of pixels by class; made by `score_pixels`.

    Attributes
    ----------
    classes : array of int of shape (n_classes,)
        Classes of truth and mask, ascending.
    confusion : array of int of shape (n_classes, n_classes)
        Pixels by class of the truth (rows) and of the mask (columns).
    iou, f1 : array of shape (n_classes,)
        Intersection over union, and F1 (Dice), of each class.
    boundary_f1 : mapping of int to float
        F1 of the borders between labels, by tolerance in pixels.

    Examples
    --------
    >>> saf.metrics.score_pixels([[1, 1, 2, 2]], [[1, 1, 1, 2]]).confusion
    array([[2, 1],
           [0, 1]])
    """

    classes: NDArray[np.int64]
    confusion: NDArray[np.int64]
    iou: NDArray[np.float64]
    f1: NDArray[np.float64]
    boundary_f1: dict[int, float]

    @property
    def accuracy(self) -> float:
        """Share of pixels with the correct class."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    def rows(self) -> list[Row]:
        """Return part, measure and value of each score and of each nonzero confusion count."""
        rows = [("pixels", "accuracy", self.accuracy)]
        rows += [("pixels", f"boundary F1 at {w} px", f1) for w, f1 in self.boundary_f1.items()]
        for label, iou, f1 in zip(self.classes, self.iou, self.f1, strict=True):
            rows += [(f"class {label}", "IoU", iou), (f"class {label}", "F1", f1)]
        for true, label in np.argwhere(self.confusion):
            names = f"{self.classes[true]} as {self.classes[label]}"
            rows.append(("confusion", names, self.confusion[true, label]))
        return [(part, measure, float(value)) for part, measure, value in rows]


def score_pixels(
    labels: ArrayLike,
    truth: ArrayLike,
    *,
    ignore: int | None = None,
    widths: Sequence[int] = WIDTHS,
) -> PixelScore:
    """Score the class of each pixel.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        Class of each pixel; 0 is a class, too.
    ignore : int, optional
        Class of the truth whose pixels are ignored, such as 0 for unlabelled.
    widths : sequence of int
        Tolerances in pixels within which borders match.

    Returns
    -------
    PixelScore

    Raises
    ------
    InvalidInput
        If shapes differ, all pixels are ignored, or there are more than 1000 classes.

    Notes
    -----
    Borders are the nonzero pixels with a face neighbour of another class: one pixel wide between a
    class and the background. Precision is the share of border pixels of the mask within the
    tolerance of one of the truth, recall the converse, and F1 their harmonic mean (Csurka et al.,
    https://doi.org/10.5244/C.27.32); 1 if neither has borders.

    Examples
    --------
    >>> score = saf.metrics.score_pixels([[1, 1, 2, 2]], [[1, 1, 1, 2]])
    >>> score.accuracy, score.iou.round(2).tolist(), score.boundary_f1[1]
    (0.75, [0.67, 0.5], 1.0)
    """
    from skimage.segmentation import find_boundaries  # takes a quarter of a second to load

    mask, reference = check_pair(labels, truth)
    counts = np.ones(mask.shape, bool) if ignore is None else reference != ignore
    if not counts.any():
        raise InvalidInput("truth: expected pixels other than the ignored class, got none")
    overlap = overlap_of(mask[counts], reference[counts])
    classes = np.union1d(overlap.numbers, overlap.true_numbers)
    if len(classes) > _MOST_CLASSES:
        raise InvalidInput(f"labels: expected classes, got {len(classes)} numbers; are they of "
                           "objects? score_objects scores those")  # fmt: skip
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    rows_and_columns = (np.searchsorted(classes, x) for x in (overlap.true, overlap.objects))
    confusion[tuple(rows_and_columns)] = overlap.shared
    hits, rows, columns = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    union = rows + columns - hits
    mask_border, true_border = (
        find_boundaries(array, mode="inner") & counts for array in (mask, reference)
    )
    return PixelScore(
        classes=classes,
        confusion=confusion,
        iou=hits / union,
        f1=2 * hits / (rows + columns),
        boundary_f1={width: _boundary_f1(mask_border, true_border, width) for width in widths},
    )


def check_pair(labels: ArrayLike, truth: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    mask, reference = as_labels(labels, "labels"), as_labels(truth, "truth")
    if mask.shape != reference.shape or not mask.size:
        raise InvalidInput(f"truth: expected shape {mask.shape}, got {reference.shape}")
    return mask, reference


class Overlap(NamedTuple):
    """Sparse contingency table: pixels shared by true and other number, and the sizes of both."""

    true: NDArray[np.int64]
    objects: NDArray[np.int64]
    shared: NDArray[np.int64]
    true_sizes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    true_numbers: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def of_objects(self) -> Overlap:
        """The table without background."""
        is_inside = (self.true > 0) & (self.objects > 0)
        parts = [part[is_inside] for part in self[:5]]
        numbers = (present[present > 0] for present in (self.true_numbers, self.numbers))
        return Overlap(*parts, *numbers)

    @property
    def iou(self) -> NDArray[np.float64]:
        return self.shared / (self.true_sizes + self.sizes - self.shared)

    def matches(self, least: float) -> NDArray[np.int64]:
        """Return the most pairs (n, 2) with an intersection over union of `least` or more."""
        is_match = self.iou >= least
        rows = np.searchsorted(self.true_numbers, self.true[is_match])
        columns = np.searchsorted(self.numbers, self.objects[is_match])
        shape = len(self.true_numbers), len(self.numbers)
        graph = sparse.csr_array((np.ones(len(rows), bool), (rows, columns)), shape)
        # Above .5 partners are unique; at or below, the largest matching is taken.
        partners = sparse.csgraph.maximum_bipartite_matching(graph, perm_type="column")
        pairs = self.true_numbers[partners >= 0], self.numbers[partners[partners >= 0]]
        return np.stack(pairs, axis=1)


def overlap_of(mask: NDArray[Any], truth: NDArray[Any]) -> Overlap:
    from skimage.metrics import contingency_table  # takes a tenth of a second to load

    sets = [_ranked(truth), _ranked(mask)]
    table = contingency_table(*(ranks for _, ranks in sets), sparse_type="array").tocoo()
    rows, columns = table.coords
    true_sizes, sizes = (np.asarray(table.sum(axis=axis), np.int64) for axis in (1, 0))
    true_numbers, numbers = (
        n[: len(k)] for (n, _), k in zip(sets, (true_sizes, sizes), strict=True)
    )
    return Overlap(
        true_numbers[rows],
        numbers[columns],
        table.data.astype(np.int64),
        true_sizes[rows],
        sizes[columns],
        true_numbers[true_sizes > 0],
        numbers[sizes > 0],
    )


def _ranked(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers in ascending order, and the labels as indices into them."""
    largest = int(labels.max())  # one more overflows in the smallest type that holds it
    if largest <= labels.size:
        return np.arange(largest + 1), labels.astype(np.int64, copy=False)
    numbers, ranks = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), ranks


def _boundary_f1(mask: NDArray[np.bool_], truth: NDArray[np.bool_], width: int) -> float:
    if not (mask.any() and truth.any()):
        return float(mask.any() == truth.any())
    precision, recall = (
        float((ndimage.distance_transform_edt(~target)[border] <= width).mean())
        for border, target in ((mask, truth), (truth, mask))
    )
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ObjectScore:
    """Agreement of objects; made by `score_objects`.

    Attributes
    ----------
    n_objects, n_true : int
        Number of objects of the mask and of the truth.
    n_matches : dict of float to int
        Number of matches at each threshold.
    n_split, n_merged : int
        Number of true objects that are split, and of objects that merge several true ones.
    matches : array of int of shape (n_matches, 2)
        Numbers of the true and the matching object at the first threshold.

    Examples
    --------
    >>> score = saf.metrics.score_objects([[1, 1, 0, 2, 2]], [[3, 3, 0, 3, 3]])
    >>> score.n_objects, score.n_true, score.n_split
    (2, 1, 1)
    """

    n_objects: int
    n_true: int
    n_matches: dict[float, int]
    n_split: int
    n_merged: int
    matches: NDArray[np.int64]

    @property
    def precision(self) -> dict[float, float]:
        """Average precision TP / (TP + FP + FN) at each threshold."""
        total = self.n_objects + self.n_true
        return {least: n / max(total - n, 1) for least, n in self.n_matches.items()}

    @property
    def f1(self) -> dict[float, float]:
        """F1 of objects at each threshold."""
        total = self.n_objects + self.n_true
        return {least: 2 * n / max(total, 1) for least, n in self.n_matches.items()}

    def rows(self) -> list[Row]:
        """Return part, measure and value of each score, for tables."""
        counts = {
            "objects": self.n_objects,
            "true objects": self.n_true,
            "split": self.n_split,
            "merged": self.n_merged,
        }
        rows = [("objects", name, float(count)) for name, count in counts.items()]
        for name, values in (("AP", self.precision), ("F1", self.f1)):
            rows += [("objects", f"{name} at {least:g}", value) for least, value in values.items()]
        return rows


def score_objects(
    labels: ArrayLike, truth: ArrayLike, thresholds: Sequence[float] = THRESHOLDS
) -> ObjectScore:
    """Score numbered objects against true ones.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        Number of the object at each pixel, 0 for none; numbers need not agree.
    thresholds : sequence of float
        Thresholds of the intersection over union for a match, above 0.

    Returns
    -------
    ObjectScore

    Raises
    ------
    InvalidInput
        If shapes differ.

    Notes
    -----
    Objects match if their intersection over union reaches the threshold, in the largest one-to-one
    matching, as in StarDist (https://doi.org/10.1007/978-3-030-00934-2_30) and Cellpose. A true
    object is split if two or more objects have at least half of their pixels in it and each cover
    at least a tenth of it; an object merges true objects in the converse case.

    Examples
    --------
    >>> truth = np.kron([[1, 0, 2]], np.ones((4, 4), int))
    >>> score = saf.metrics.score_objects(np.where(truth == 1, 7, 0), truth)
    >>> score.precision[0.5], round(score.f1[0.5], 3), score.matches.tolist()
    (0.5, 0.667, [[1, 7]])
    """
    mask, reference = check_pair(labels, truth)
    overlap = overlap_of(mask, reference).of_objects
    n_objects, n_true = len(overlap.numbers), len(overlap.true_numbers)
    matches = {least: overlap.matches(least) for least in thresholds}
    shared, true_sizes, sizes = overlap.shared, overlap.true_sizes, overlap.sizes
    lies_in_truth = (2 * shared >= sizes) & (10 * shared >= true_sizes)
    lies_in_object = (2 * shared >= true_sizes) & (10 * shared >= sizes)
    return ObjectScore(
        n_objects=n_objects,
        n_true=n_true,
        n_matches={least: len(pairs) for least, pairs in matches.items()},
        n_split=_count_repeated(overlap.true[lies_in_truth]),
        n_merged=_count_repeated(overlap.objects[lies_in_object]),
        matches=next(iter(matches.values())),
    )


def _count_repeated(numbers: NDArray[np.int64]) -> int:
    return int((np.unique(numbers, return_counts=True)[1] > 1).sum())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassScore:
    """Agreement of classes; made by `score_classes`.

    Attributes
    ----------
    classes : tuple
        Names or numbers of the classes, sorted.
    confusion : array of int of shape (n_classes, n_classes)
        Counts by true class (rows) and predicted class (columns).
    balanced_accuracy : float
        Mean recall over the true classes.

    Examples
    --------
    >>> saf.metrics.score_classes(["red", "red", "white"], ["red", "white", "white"]).confusion
    array([[1, 0],
           [1, 1]])
    """

    classes: tuple[Any, ...]
    confusion: NDArray[np.int64]
    balanced_accuracy: float

    def rows(self) -> list[Row]:
        """Return part, measure and value of each score, for tables."""
        rows = [("classes", "balanced accuracy", self.balanced_accuracy)]
        for (j, true), (k, predicted) in itertools.product(enumerate(self.classes), repeat=2):
            rows.append(("classes", f"{true} as {predicted}", float(self.confusion[j, k])))
        return rows


def score_classes(classes: Sequence[Any], truth: Sequence[Any]) -> ClassScore:
    """Score predicted classes, such as those of matched objects.

    Parameters
    ----------
    classes : sequence of str or int
        Predicted class of each item.
    truth : sequence of str or int of the same length
        True class of each item.

    Raises
    ------
    InvalidInput
        If lengths differ or are 0.

    Examples
    --------
    >>> saf.metrics.score_classes([1, 1, 2], [1, 2, 2]).balanced_accuracy
    0.75
    """
    predicted, true = np.asarray(classes), np.asarray(truth)
    if predicted.shape != true.shape or predicted.ndim != 1 or not predicted.size:
        raise InvalidInput(
            f"truth: expected {predicted.size} classes, one or more, got {true.size}"
        )
    from sklearn.metrics import confusion_matrix, recall_score  # take half a second to load

    names = np.union1d(predicted, true)
    recall = recall_score(true, predicted, labels=np.unique(true), average="macro")
    if len(names) == 1:  # of which scikit-learn warns
        confusion = np.array([[len(true)]])
    else:
        confusion = confusion_matrix(true, predicted, labels=names)
    return ClassScore(tuple(names.tolist()), confusion, float(recall))


def error_image(labels: ArrayLike, truth: ArrayLike) -> NDArray[np.uint8]:
    """Return the error image of a mask: 1 missed, 2 false, 3 wrong class, 4 right, 0 background.

    `labels`, `truth` and errors as in `score_pixels`.

    Examples
    --------
    >>> saf.metrics.error_image([[0, 1, 1, 2, 0]], [[1, 1, 0, 3, 0]])
    array([[1, 4, 2, 3, 0]], dtype=uint8)
    """
    mask, reference = check_pair(labels, truth)
    errors = np.where(mask == reference, RIGHT, OTHER).astype(np.uint8)
    errors[reference == 0] = FALSE
    errors[mask == 0] = MISSED
    errors[(mask == 0) & (reference == 0)] = 0
    return errors


def object_error_image(
    labels: ArrayLike,
    truth: ArrayLike,
    matches: ArrayLike | None = None,
    is_right: ArrayLike | None = None,
) -> NDArray[np.uint8]:
    """Return the error image of objects, numbered as in `error_image`.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        As in `score_objects`.
    matches : array of int of shape (n_matches, 2), optional
        Numbers of true and matching objects. None: those of `score_objects` at .5.
    is_right : array of bool of shape (n_matches,), optional
        Whether the classes of each match agree. None: all agree.

    Examples
    --------
    >>> saf.metrics.object_error_image([[4, 4, 0, 5]], [[1, 1, 2, 0]])
    array([[4, 4, 1, 2]], dtype=uint8)
    """
    mask, reference = check_pair(labels, truth)
    pairs = score_objects(mask, reference).matches if matches is None else np.asarray(matches)
    rights = np.ones(len(pairs), bool) if is_right is None else np.asarray(is_right)
    errors = np.zeros(mask.shape, np.uint8)
    for image, column, unmatched in ((mask, 1, FALSE), (reference, 0, MISSED)):
        numbers, ranks = np.unique(np.append(0, image), return_inverse=True)
        states = np.full(len(numbers), unmatched, np.uint8)
        states[np.searchsorted(numbers, pairs[:, column])] = np.where(rights, RIGHT, OTHER)
        is_object = image > 0
        errors[is_object] = states[ranks[1:].reshape(image.shape)][is_object]
    return errors
