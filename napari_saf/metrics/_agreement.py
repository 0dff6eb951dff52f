"""Agreement of labels with classes that are known, and of label images with references."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import entr

from napari_saf.arrays import as_labels
from napari_saf.errors import InvalidInput
from napari_saf.metrics._clusters import compact_labels


def normalized_mutual_information(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the mutual information of classes and labels over the mean of their entropies.

    Parameters
    ----------
    classes, labels : array of int of the same shape
        Nodes whose class is 0 or less are counted like all others: a class is a number.

    Returns
    -------
    float
        0 (independent) to 1 (the same up to names).

    Raises
    ------
    InvalidInput
        If shapes differ, arrays are empty, or numbers are not whole.

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
    """Return the share of the nodes that are right under the best matching of labels to classes.

    Of `classes` and `labels` as in `normalized_mutual_information`, errors too. A class has one
    label at most, by the optimal assignment (Kuhn, https://doi.org/10.1002/nav.3800020109);
    labels left over are wrong.

    Examples
    --------
    >>> saf.metrics.matched_accuracy([1, 1, 2, 2], [7, 7, 3, 7])
    0.75
    """
    truth, found = _check_classes(classes, labels)
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(truth, found)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(truth))


def _check_classes(
    classes: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    truth, found = np.asarray(classes), np.asarray(labels)
    if truth.shape != found.shape or truth.size == 0:
        raise InvalidInput(f"labels: expected shape {truth.shape}, got {found.shape}")
    truth, found = (
        as_labels(one, "labels") if one.dtype == np.float32 else one for one in (truth, found)
    )
    if truth.dtype.kind not in "biu" or found.dtype.kind not in "biu":
        raise InvalidInput("classes and labels: expected whole numbers")
    return truth.ravel(), found.ravel()


def segmentation_covering(labels: ArrayLike, references: ArrayLike) -> float:
    """Return how well the best matching labels cover the regions of the references.

    Parameters
    ----------
    labels : array of int of shape (...)
        Label image of any dimension. 0 is a label like any other here.
    references : array of int of shape (...) or (n_references, ...), or sequence of such arrays
        One or several reference label images of the shape of `labels`. Pixels that are 0 in
        a reference are left out of it.

    Returns
    -------
    float
        In (0, 1]; 1 if every reference equals `labels` up to the names of the labels.

    Raises
    ------
    InvalidInput
        If values are not whole numbers or negative, shapes differ, there is no reference, or
        a reference is 0 everywhere.

    Notes
    -----
    C = (1 / N) sum_R |R| max_L |R n L| / |R u L| over the regions R of a reference and the
    labels L, averaged over the references. Not symmetric. Whether a label should first be split
    into its connected components is for the caller to decide. Arbelaez, Maire, Fowlkes and
    Malik, "Contour detection and hierarchical image segmentation", IEEE TPAMI 33 (2011),
    https://doi.org/10.1109/TPAMI.2010.161.

    Examples
    --------
    >>> saf.metrics.segmentation_covering([[1, 1, 2, 2]], [[5, 5, 5, 5]])  # half of the region
    0.5
    """
    return region_agreement(labels, references).covering


def probabilistic_rand_index(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the share of the pairs of pixels that both hold together or both hold apart.

    Of `labels` and `references` as for `segmentation_covering`, errors too.

    Notes
    -----
    The mean over the references of the Rand index, in [0, 1], not adjusted for chance; of a single
    pixel 1. Unnikrishnan, Pantofaru and Hebert, "Toward objective evaluation of image segmentation
    algorithms", IEEE TPAMI 29 (2007), https://doi.org/10.1109/TPAMI.2007.1046.

    Examples
    --------
    >>> saf.metrics.probabilistic_rand_index([1, 1, 2, 2], [1, 1, 1, 2])
    0.5
    """
    return region_agreement(labels, references).rand_index


def variation_of_information(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the information that is in one of labels and reference but not in the other.

    Of `labels` and `references` as for `segmentation_covering`, errors too.

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
    """How a label image agrees with its references.

    By `segmentation_covering`, `probabilistic_rand_index` and `variation_of_information`.

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

    Of `labels` and `references` as for `segmentation_covering`, errors too.

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


def _entropy(counts: NDArray[np.floating]) -> float:
    return float(entr(counts / counts.sum()).sum() / np.log(2))


def _tables(labels: ArrayLike, references: ArrayLike) -> Iterator[sparse.coo_array]:
    """Yield the pixels of each region of a reference, a row, in each label, a column."""
    own, given = as_labels(labels, "labels"), as_labels(references, "references")
    if given.ndim == own.ndim:
        given = given[None]
    if given.shape[1:] != own.shape or not given.size:
        raise InvalidInput(
            f"references: expected pixels, one or more arrays of shape {own.shape}, "
            f"got shape {given.shape}"
        )
    compact = compact_labels(own)
    for reference in given:
        if not reference.any():
            raise InvalidInput("references: expected labelled pixels, got 0 everywhere")
        inside, regions = reference.ravel() != 0, compact_labels(reference)
        owner = compact
        if not inside.all():
            owner, regions = owner[inside], regions[inside]
        n_labels = int(owner.max()) + 1
        pairs, counts = np.unique(regions * n_labels + owner, return_counts=True)
        yield sparse.coo_array((counts.astype(np.float64), np.divmod(pairs, n_labels)))
