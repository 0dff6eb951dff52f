"""Agreement of labels with reference classes and reference segmentations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import entr

from napari_saf.arrays import Floats, Integers, as_labels
from napari_saf.errors import InvalidInput
from napari_saf.metrics._clusters import compact_labels


def normalized_mutual_information(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the mutual information of classes and labels, divided by their mean entropy.

    Parameters
    ----------
    classes, labels : array of int of the same shape
        Any integers; 0 and negative numbers are classes like all others.

    Returns
    -------
    float
        0 (independent) to 1 (equal up to renumbering).

    Raises
    ------
    InvalidInput
        If shapes differ, or arrays are empty or not integers.

    Examples
    --------
    >>> saf.metrics.normalized_mutual_information([1, 1, 2, 2], [1, 2, 1, 2])
    0.0
    >>> saf.metrics.normalized_mutual_information([1, 1, 2, 2], [7, 7, 3, 3])
    1.0
    """
    from sklearn.metrics import normalized_mutual_info_score  # takes half a second to load

    return float(normalized_mutual_info_score(*_check_classes(classes, labels)))


def matched_accuracy(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the accuracy under the best matching of labels to classes.

    `classes`, `labels` and errors as in `normalized_mutual_information`. Each class has at most one
    label, by the optimal assignment (Kuhn, https://doi.org/10.1002/nav.3800020109); other labels
    are wrong.

    Examples
    --------
    >>> saf.metrics.matched_accuracy([1, 1, 2, 2], [7, 7, 3, 7])
    0.75
    """
    truth, predicted = _check_classes(classes, labels)
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(truth, predicted)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(truth))


def _check_classes(classes: ArrayLike, labels: ArrayLike) -> tuple[Integers, Integers]:
    truth, predicted = np.asarray(classes), np.asarray(labels)
    if truth.shape != predicted.shape or truth.size == 0:
        raise InvalidInput(f"labels: expected shape {truth.shape}, got {predicted.shape}")
    truth, predicted = (
        as_labels(array, "labels") if array.dtype == np.float32 else array
        for array in (truth, predicted)
    )
    if truth.dtype.kind not in "biu" or predicted.dtype.kind not in "biu":
        raise InvalidInput("classes and labels: expected whole numbers")
    return truth.ravel(), predicted.ravel()


def segmentation_covering(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the segmentation covering of reference regions by labels.

    Parameters
    ----------
    labels : array of int of shape (...)
        Label image of any dimension; 0 counts as a label.
    references : array of int of shape (...) or (n_references, ...), or sequence of such arrays
        One or several reference label images of the shape of `labels`; 0 is ignored.

    Returns
    -------
    float
        In (0, 1]; 1 if every reference equals `labels` up to renumbering.

    Raises
    ------
    InvalidInput
        If values are negative or not integers, shapes differ, there is no reference, or a
        reference is 0 at every pixel.

    Notes
    -----
    C = (1 / N) sum_R |R| max_L |R n L| / |R u L| over the regions R of a reference and the
    labels L, averaged over the references. Not symmetric. Labels are not split into connected
    components. Arbelaez, Maire, Fowlkes and Malik, "Contour detection and hierarchical image
    segmentation", IEEE TPAMI 33 (2011), https://doi.org/10.1109/TPAMI.2010.161.

    Examples
    --------
    >>> saf.metrics.segmentation_covering([[1, 1, 2, 2]], [[5, 5, 5, 5]])  # half of the region
    0.5
    """
    return region_agreement(labels, references).covering


def probabilistic_rand_index(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the Rand index, averaged over references.

    `labels`, `references` and errors as in `segmentation_covering`.

    Notes
    -----
    The share of pixel pairs with equal labels in both or different labels in both, in [0, 1], not
    adjusted for chance; 1 for a single pixel. Unnikrishnan, Pantofaru and Hebert, "Toward objective
    evaluation of image segmentation algorithms", IEEE TPAMI 29 (2007),
    https://doi.org/10.1109/TPAMI.2007.1046.

    Examples
    --------
    >>> saf.metrics.probabilistic_rand_index([1, 1, 2, 2], [1, 1, 1, 2])
    0.5
    """
    return region_agreement(labels, references).rand_index


def variation_of_information(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the variation of information, averaged over references.

    `labels`, `references` and errors as in `segmentation_covering`.

    Notes
    -----
    H(labels | reference) + H(reference | labels) in bits, averaged over the references: a metric on
    the partitions of the pixels, from 0 to log2 of their number. Meila, "Comparing clusterings: an
    information based distance", J. Multivariate Analysis 98 (2007),
    https://doi.org/10.1016/j.jmva.2006.11.013.

    Examples
    --------
    >>> saf.metrics.variation_of_information([1, 1, 2, 2], [1, 2, 1, 2])  # bits
    2.0
    """
    return region_agreement(labels, references).information


@dataclasses.dataclass(frozen=True, slots=True)
class RegionAgreement:
    """Agreement of a label image with reference segmentations.

    Values of `segmentation_covering`, `probabilistic_rand_index` and `variation_of_information`.

    Examples
    --------
    >>> found = saf.metrics.region_agreement([[1, 1, 2]], [[5, 5, 3]])
    >>> found.covering, found.rand_index
    (1.0, 1.0)
    """

    covering: float
    rand_index: float
    information: float


def region_agreement(labels: ArrayLike, references: ArrayLike) -> RegionAgreement:
    """Return all measures of agreement from one contingency table per reference.

    `labels`, `references` and errors as in `segmentation_covering`.

    Examples
    --------
    >>> labels, references = [[1, 1, 2, 2]], [[[1, 1, 2, 2]], [[1, 2, 1, 2]]]
    >>> saf.metrics.region_agreement(labels, references).information  # mean of 0 and 2 bits
    1.0
    """
    rows = []
    for table in _tables(labels, references):
        in_region, in_label, n = table.sum(axis=1), table.sum(axis=0), table.sum()
        best = np.zeros(len(in_region))
        union = in_region[table.row] + in_label[table.col] - table.data
        np.maximum.at(best, table.row, table.data / union)
        apart = np.square(in_region).sum() + np.square(in_label).sum()
        n_apart = apart - 2 * np.square(table.data).sum()
        halves = _entropy(in_region) + _entropy(in_label)
        covering = in_region @ best / in_region.sum()
        rand_index = 1 - n_apart / (n * (n - 1)) if n > 1 else 1.0
        rows.append((covering, rand_index, max(0.0, 2 * _entropy(table.data) - halves)))
    return RegionAgreement(*np.mean(rows, axis=0).tolist())


def _entropy(counts: Floats) -> float:
    return float(entr(counts / counts.sum()).sum() / np.log(2))


def _tables(labels: ArrayLike, references: ArrayLike) -> Iterator[sparse.coo_array]:
    """Yield per reference the contingency table: regions in rows, labels in columns."""
    label_image, stack = as_labels(labels, "labels"), as_labels(references, "references")
    if stack.ndim == label_image.ndim:
        stack = stack[None]
    if stack.shape[1:] != label_image.shape or not stack.size:
        raise InvalidInput(
            f"references: expected one or more arrays of shape {label_image.shape}, "
            f"got shape {stack.shape}"
        )
    compact = compact_labels(label_image)
    for reference in stack:
        if not reference.any():
            raise InvalidInput("references: expected at least one labelled pixel, all are 0")
        inside, regions = reference.ravel() != 0, compact_labels(reference)
        owner = compact
        if not inside.all():
            owner, regions = owner[inside], regions[inside]
        n_labels = int(owner.max()) + 1
        pairs, counts = np.unique(regions * n_labels + owner, return_counts=True)
        yield sparse.coo_array((counts.astype(np.float64), np.divmod(pairs, n_labels)))
