"""Scores of masks against a truth: pixels by class, objects, classes of objects, and digests."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, sparse

from napari_saf.arrays import as_labels, as_list
from napari_saf.errors import InvalidInput

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Intersections over union at which objects are matched."""
_WIDTHS = (1, 2)
"""Pixels within which borders are matched."""
_MOST_CLASSES = 1000
MISSED, FALSE, OTHER = 1, 2, 3
"""Labels of `error_image`."""


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
        F1 of borders between labels, matched within so many pixels.

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
        """Share of pixels whose class is right."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    def rows(self) -> list[tuple[str, str, float]]:
        """Return part, measure and value of each score, for tables."""
        rows = [("pixels", "accuracy", self.accuracy)]
        rows += [("pixels", f"boundary F1 at {w} px", f1) for w, f1 in self.boundary_f1.items()]
        for label, iou, f1 in zip(self.classes, self.iou, self.f1, strict=True):
            rows += [(f"class {label}", "IoU", iou), (f"class {label}", "F1", f1)]
        return [(part, measure, float(value)) for part, measure, value in rows]


def score_pixels(labels: ArrayLike, truth: ArrayLike, *, ignore: int | None = None) -> PixelScore:
    """Score the classes of pixels.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        Class of each pixel; 0 is a class, too.
    ignore : int, optional
        Class of the truth whose pixels do not count, such as 0 for not labelled.

    Returns
    -------
    PixelScore

    Raises
    ------
    InvalidInput
        If shapes differ, no pixel counts, or there are more than 1000 classes.

    Notes
    -----
    Borders are the pixels with a neighbour across a face of another class. Precision is the share
    of those of the mask with one of the truth within so many pixels, recall the converse, and F1
    their harmonic mean (Csurka et al., https://doi.org/10.5244/C.27.32); 1 where neither has any.

    Examples
    --------
    >>> score = saf.metrics.score_pixels([[1, 1, 2, 2]], [[1, 1, 1, 2]])
    >>> score.accuracy, score.iou.round(2).tolist(), score.boundary_f1[1]
    (0.75, [0.67, 0.5], 1.0)
    """
    mask, reference = _pair(labels, truth)
    counts = np.ones(mask.shape, bool) if ignore is None else reference != ignore
    if not counts.any():
        raise InvalidInput("truth: expected pixels that count, got none")
    classes, flat = np.unique(np.append(mask[counts], reference[counts]), return_inverse=True)
    if len(classes) > _MOST_CLASSES:
        raise InvalidInput(f"labels: expected classes, got {len(classes)} numbers; are they of "
                           "objects? score_objects scores those")  # fmt: skip
    n, n_pixels = len(classes), int(counts.sum())
    pairs = flat[n_pixels:] * n + flat[:n_pixels]
    confusion = np.bincount(pairs, minlength=n * n).reshape(n, n)
    hits, rows, columns = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    union = rows + columns - hits
    mask_border, true_border = (_border(array) & counts for array in (mask, reference))
    return PixelScore(
        classes=classes.astype(np.int64),
        confusion=confusion,
        iou=hits / union,
        f1=2 * hits / (rows + columns),
        boundary_f1={width: _boundary_f1(mask_border, true_border, width) for width in _WIDTHS},
    )


def _pair(labels: ArrayLike, truth: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    mask, reference = as_labels(labels, "labels"), as_labels(truth, "truth")
    if mask.shape != reference.shape or not mask.size:
        raise InvalidInput(f"truth: expected shape {mask.shape}, got {reference.shape}")
    return mask, reference


def _border(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the pixels with a neighbour of another label across a face."""
    faces = ndimage.generate_binary_structure(labels.ndim, 1)
    low = ndimage.minimum_filter(labels, footprint=faces)
    return np.asarray(low != ndimage.maximum_filter(labels, footprint=faces))


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
    precision : dict of float to float
        Average precision TP / (TP + FP + FN) at each intersection over union.
    f1 : dict of float to float
        F1 of objects, likewise.
    n_split, n_merged : int
        True objects in which several objects lie, and objects in which several true ones lie.
    matches : array of int of shape (n_matches, 2)
        Numbers of the true object and of the object that matches it at .5.

    Examples
    --------
    >>> score = saf.metrics.score_objects([[1, 1, 0, 2, 2]], [[3, 3, 0, 3, 3]])
    >>> score.n_objects, score.n_true, score.n_split
    (2, 1, 1)
    """

    n_objects: int
    n_true: int
    precision: dict[float, float]
    f1: dict[float, float]
    n_split: int
    n_merged: int
    matches: NDArray[np.int64]

    def rows(self) -> list[tuple[str, str, float]]:
        """Return part, measure and value of each score, for tables."""
        rows: list[tuple[str, str, float]] = [
            ("objects", name, float(value))
            for name, value in (
                ("objects", self.n_objects),
                ("true objects", self.n_true),
                ("split", self.n_split),
                ("merged", self.n_merged),
            )
        ]
        for name, values in (("AP", self.precision), ("F1", self.f1)):
            rows += [("objects", f"{name} at {least:g}", value) for least, value in values.items()]
        return rows


def score_objects(labels: ArrayLike, truth: ArrayLike) -> ObjectScore:
    """Score numbered objects against true ones.

    Parameters
    ----------
    labels, truth : array of int of the same shape
        Number of the object at each pixel, 0 for none; numbers need not agree.

    Returns
    -------
    ObjectScore

    Raises
    ------
    InvalidInput
        If shapes differ.

    Notes
    -----
    Objects match at a threshold if their intersection over union is above it, which from .5 on is
    one to one (https://doi.org/10.1038/s41592-019-0612-7, as in StarDist and Cellpose). A true
    object is split if two or more objects lie in it by at least half of their pixels and have a
    tenth of its own; an object merges if that is so for true objects in it.

    Examples
    --------
    >>> truth = np.kron([[1, 0, 2]], np.ones((4, 4), int))
    >>> score = saf.metrics.score_objects(np.where(truth == 1, 7, 0), truth)
    >>> score.precision[0.5], round(score.f1[0.5], 3), score.matches.tolist()
    (0.5, 0.667, [[1, 7]])
    """
    mask, reference = _pair(labels, truth)
    present, columns = np.unique(mask.ravel(), return_inverse=True)
    true, rows = np.unique(reference.ravel(), return_inverse=True)
    table = sparse.coo_array((np.ones(mask.size, np.int64), (rows, columns)))
    table.sum_duplicates()
    true_sizes, sizes = (np.bincount(part) for part in (rows, columns))
    row, column = table.coords
    inside = (true[row] > 0) & (present[column] > 0)
    row, column, shared = row[inside], column[inside], table.data[inside]
    overlap = shared / (true_sizes[row] + sizes[column] - shared)
    n_objects, n_true = int((present > 0).sum()), int((true > 0).sum())
    precision, f1 = {}, {}
    for least in THRESHOLDS:
        hits = int((overlap > least).sum())
        precision[least] = hits / max(n_objects + n_true - hits, 1)
        f1[least] = 2 * hits / max(n_objects + n_true, 1)
    lies_in_truth = (2 * shared >= sizes[column]) & (10 * shared >= true_sizes[row])
    lies_in_object = (2 * shared >= true_sizes[row]) & (10 * shared >= sizes[column])
    is_match = overlap > THRESHOLDS[0]
    return ObjectScore(
        n_objects=n_objects,
        n_true=n_true,
        precision=precision,
        f1=f1,
        n_split=int((np.bincount(row[lies_in_truth], minlength=1) > 1).sum()),
        n_merged=int((np.bincount(column[lies_in_object], minlength=1) > 1).sum()),
        matches=np.stack([true[row[is_match]], present[column[is_match]]], axis=1).astype(np.int64),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassScore:
    """Agreement of classes; made by `score_classes`.

    Attributes
    ----------
    classes : tuple
        Names or numbers of the classes, sorted.
    confusion : array of int of shape (n_classes, n_classes)
        By true class (rows) and class (columns).
    balanced_accuracy : float
        Mean over the true classes of the share that is right.

    Examples
    --------
    >>> saf.metrics.score_classes(["red", "red", "white"], ["red", "white", "white"]).confusion
    array([[1, 0],
           [1, 1]])
    """

    classes: tuple[Any, ...]
    confusion: NDArray[np.int64]
    balanced_accuracy: float

    def rows(self) -> list[tuple[str, str, float]]:
        """Return part, measure and value of each score, for tables."""
        rows = [("classes", "balanced accuracy", self.balanced_accuracy)]
        for (j, true), (k, predicted) in itertools.product(enumerate(self.classes), repeat=2):
            rows.append(("classes", f"{true} as {predicted}", float(self.confusion[j, k])))
        return rows


def score_classes(classes: Sequence[Any], truth: Sequence[Any]) -> ClassScore:
    """Score the classes of things, such as objects that match true ones.

    Parameters
    ----------
    classes : sequence of str or int
        Class of each thing.
    truth : sequence of str or int of the same length
        Its true class.

    Raises
    ------
    InvalidInput
        If lengths differ or there is nothing.

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
    names, flat = np.unique(np.append(predicted, true), return_inverse=True)
    n = len(names)
    columns, rows = flat[: predicted.size], flat[predicted.size :]
    confusion = np.bincount(rows * n + columns, minlength=n * n).reshape(n, n)
    counts = confusion.sum(axis=1)
    is_there = counts > 0
    shares = np.diag(confusion)[is_there] / counts[is_there]
    return ClassScore(tuple(names.tolist()), confusion, float(shares.mean()))


def error_image(labels: ArrayLike, truth: ArrayLike) -> NDArray[np.uint8]:
    """Return where a mask is wrong: 1 missed, 2 false, 3 another class; 0 where it is right.

    `labels`, `truth` and errors as in `score_pixels`.

    Examples
    --------
    >>> saf.metrics.error_image([[0, 1, 1, 2]], [[1, 1, 0, 3]])
    array([[1, 0, 2, 3]], dtype=uint8)
    """
    mask, reference = _pair(labels, truth)
    errors = np.zeros(mask.shape, np.uint8)
    is_wrong = mask != reference
    errors[is_wrong] = OTHER
    errors[is_wrong & (mask == 0)] = MISSED
    errors[is_wrong & (reference == 0)] = FALSE
    return errors


def object_error_image(labels: ArrayLike, truth: ArrayLike) -> NDArray[np.uint8]:
    """Return the true objects without a match (1, missed) and objects without one (2, false).

    Matches are those of `score_objects` at .5.

    Examples
    --------
    >>> saf.metrics.object_error_image([[4, 4, 0, 5]], [[1, 1, 2, 0]])
    array([[0, 0, 1, 2]], dtype=uint8)
    """
    mask, reference = _pair(labels, truth)
    matches = score_objects(mask, reference).matches
    errors = np.zeros(mask.shape, np.uint8)
    errors[(mask > 0) & ~np.isin(mask, matches[:, 1])] = FALSE
    errors[(reference > 0) & ~np.isin(reference, matches[:, 0])] = MISSED
    return errors


_N_HALVINGS = 6
"""Of the axes of an image: into 64 blocks."""


def label_digest(labels: ArrayLike) -> tuple[str, ...]:
    """Return the checksums of labels in 64 fixed blocks, for recipes.

    Parameters
    ----------
    labels : array of int
        Label image of any dimension.

    Returns
    -------
    tuple of 64 str
        Of each block, in the order of its place: 16 hexadecimal digits, of the shape of the image
        and the labels, whatever their data type.

    Notes
    -----
    The longest axis, the first of those that are as long, is halved six times. Checksums are
    BLAKE2b (RFC 7693).

    Examples
    --------
    >>> labels = np.kron([[1, 2], [3, 4]], np.ones((8, 8), int))
    >>> digest = saf.metrics.label_digest(labels)
    >>> labels[0, 0] = 2
    >>> saf.metrics.compare_digests(saf.metrics.label_digest(labels), digest)
    'other labels than where this recipe was made in 1 of 64 blocks: 1'
    """
    array = as_labels(labels, "labels")
    if not array.ndim:
        raise InvalidInput("labels: expected a label image, got a number")
    counts = [1] * array.ndim
    for _ in range(_N_HALVINGS):
        longest = int(np.argmax([side / n for side, n in zip(array.shape, counts, strict=True)]))
        counts[longest] *= 2
    cuts = [
        [side * k // n for k in range(n + 1)] for side, n in zip(array.shape, counts, strict=True)
    ]
    digests = []
    for index in itertools.product(*map(range, counts)):
        block = array[tuple(slice(cut[k], cut[k + 1]) for cut, k in zip(cuts, index, strict=True))]
        checksum = hashlib.blake2b(repr(array.shape).encode(), digest_size=8)
        checksum.update(block.astype("<u8").tobytes())
        digests.append(checksum.hexdigest())
    return tuple(digests)


def compare_digests(own: Sequence[str], recorded: Sequence[str]) -> str:
    """Return in words whether labels are those of a recipe, by `label_digest`.

    Examples
    --------
    >>> digest = saf.metrics.label_digest(np.ones((16, 16), int))
    >>> saf.metrics.compare_digests(digest, digest)
    'the same labels as where this recipe was made (64 of 64 blocks)'
    """
    n_blocks = 2**_N_HALVINGS
    pairs = as_list(own, "digest"), as_list(recorded, "digest")
    for digest in pairs:
        if len(digest) != n_blocks or not all(isinstance(item, str) for item in digest):
            raise InvalidInput(f"digest: expected {n_blocks} checksums, got {digest!r:.60}")
    changed = [str(k) for k, pair in enumerate(zip(*pairs, strict=True), 1) if len({*pair}) > 1]
    if not changed:
        return f"the same labels as where this recipe was made ({n_blocks} of {n_blocks} blocks)"
    text = f"other labels than where this recipe was made in {len(changed)} of {n_blocks} blocks"
    return f"{text}: {', '.join(changed)}"
