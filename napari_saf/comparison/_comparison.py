"""Run variants on one image, give their labels common numbers, and measure the results."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels, as_list, check_kind
from napari_saf.comparison._variants import Variant
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import count_labels
from napari_saf.methods import Cancelled, map_steps, not_cancelled, run_to_end
from napari_saf.metrics import matched_accuracy, normalized_mutual_information, region_agreement
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import (
    STATUS_TEXTS,
    LabelImage,
    LabelMap,
    Segmentation,
    Snapshot,
    Status,
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Compared(Segmentation):
    """The segmentation of one image by a variant, without its assignment, which is large.

    Within a `Comparison` a number means the same in all results, and `prototypes`, `columns` and
    `sizes` have an entry for each number.
    """

    labels: LabelImage
    variant: Variant

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Pixels of each label."""
        return np.bincount(self.labels.ravel(), minlength=len(self.prototypes) + 1)[1:]

    @property
    def present(self) -> NDArray[np.int64]:
        """The labels that own at least one pixel, ascending."""
        return np.flatnonzero(self.sizes) + 1

    @property
    def columns(self) -> NDArray[np.int64]:
        """Column of each label in the assignment; -1 where there is none."""
        columns = self.label_map.columns
        n_missing = len(self.prototypes) - len(columns)
        return np.concatenate([columns, np.full(n_missing, -1, np.int64)])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """A variant that could not be run, and why."""

    variant: Variant
    error: SafError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Results on one image whose labels have common numbers.

    Attributes
    ----------
    results : tuple of Compared
        In the order of the variants; segmentations with their `variant`.
    failures : tuple of Failure
        Variants that did not suit the image.
    is_complete : bool
        Whether all variants were reached before the comparison was stopped.
    n_numbers : int
        The largest number that a label has in any result.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5, 1.0]], np.ones((16, 16)))
    >>> variants = saf.variants_of([saf.SLK()], {"n_clusters": [2, 3]})
    >>> comparison = saf.compare(image, variants)
    >>> len(comparison.results), comparison.n_numbers, comparison.dead(0).size
    (2, 3, 1)
    """

    results: tuple[Compared, ...]
    failures: tuple[Failure, ...] = ()
    is_complete: bool = True
    n_numbers: int = 0

    def dead(self, number: int) -> NDArray[np.int64]:
        """Return the labels that other results have, and result `number` has not."""
        present = [one.present for one in self.results]
        return np.setdiff1d(np.concatenate(present), present[number])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonStep:
    """A step of the run of a variant, and the results so far, each with numbers of its own.

    The fraction of the snapshot is that of the whole comparison.
    """

    variant: Variant
    snapshot: Snapshot
    results: tuple[Compared, ...]


def compare(
    image: ArrayLike,
    variants: Sequence[Variant],
    *,
    mask: ArrayLike | Literal["finite"] | None = None,
    seeds: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Comparison:
    """Run variants on one image.

    Parameters
    ----------
    image : array
        As in `Problem.from_image`.
    variants : sequence of Variant
        See `variants_of`.
    mask, seeds, groups : array, optional
        As in `Problem.from_image`; groups that the options of a variant name come first.

    Raises
    ------
    SafError
        If no variant could be run; else those that could not are its failures.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5, 1.0]], np.ones((16, 16)))
    >>> variants = saf.variants_of([saf.SLK()], {"n_clusters": [2, 3]})
    >>> [result.n_labels for result in saf.compare(image, variants).results]
    [2, 3]
    """

    def read(options: ImageOptions) -> Problem:
        arguments = options.arguments()
        if options.groups is None:
            arguments["groups"] = groups
        return Problem.from_image(image, mask=mask, seeds=seeds, **arguments)

    own = as_list(variants, "variants")
    for variant in own:
        check_kind(variant, Variant, "variants", "what saf.variants_of gives")
    return run_to_end(iterate_comparison(own, read))


def iterate_comparison(
    variants: Sequence[Variant],
    read: Callable[[ImageOptions], Problem],
    *,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[ComparisonStep, None, Comparison]:
    """Run variants one after another; those with the same options share one problem.

    `read` returns the problem for the options of a variant, and is called once for each that
    differ. What is finished when it is cancelled is kept; `Cancelled` is raised if nothing is,
    SafError if no variant could be run.
    """
    if not variants:
        raise InvalidInput("variants: expected at least one")
    results: dict[int, Compared] = {}
    failures: dict[int, Failure] = {}
    options: ImageOptions | None = None
    problem: Problem | None = None
    # Variants with the same options follow one another, and only the last problem is held:
    # features and weights of large images are large.
    first = {variant.options: k for k, variant in reversed([*enumerate(variants)])}
    for number in sorted(range(len(variants)), key=lambda k: first[variants[k].options]):
        if cancelled():
            break
        variant, done = variants[number], len(results) + len(failures)

        def as_step(snapshot: Snapshot, variant: Variant = variant, done: int = done) -> Any:
            fraction = (done + snapshot.fraction) / len(variants)
            snapshot = dataclasses.replace(snapshot, fraction=fraction)
            return ComparisonStep(variant, snapshot, tuple(results.values()))

        try:
            if problem is None or variant.options != options:
                problem = None
                problem, options = read(variant.options), variant.options
            steps = variant.method.iterate(problem, cancelled=cancelled)
            result = yield from map_steps(steps, as_step)
        except Cancelled:
            break
        except SafError as error:
            failures[number] = Failure(variant, error)
            continue
        if result.status is Status.CANCELLED:
            break
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        nothing = np.empty((0, result.assignment.shape[1]), np.float32)
        fields |= {"assignment": nothing, "exemplars": None, "uncertainty": None, "parts": {}}
        results[number] = Compared(**fields, variant=variant)
    is_complete = len(results) + len(failures) == len(variants)
    if not results:
        raise next(iter(failures.values())).error if is_complete else Cancelled()
    ordered = _with_common_numbers([results[number] for number in sorted(results)])
    failed = tuple(failures[number] for number in sorted(failures))
    n_numbers = max(len(one.prototypes) for one in ordered)
    return Comparison(tuple(ordered), failed, is_complete, n_numbers)


def _with_common_numbers(results: Sequence[Compared]) -> list[Compared]:
    """Return the results with the numbers of `align`; prototypes have a row for each number."""
    methods = [one.variant.method for one in results]
    has_meaning = [method.follows_seeds or method.labels_are_given for method in methods]
    numbers = align([one.labels for one in results], has_meaning)
    n_numbers = max(int(own.max(initial=0)) for own in numbers)
    renamed = []
    for one, own in zip(results, numbers, strict=True):
        renaming = LabelMap(own)
        prototypes = np.full((n_numbers, one.prototypes.shape[1]), np.nan, np.float32)
        rows = renaming.rows(one.prototypes)
        prototypes[: len(rows)] = rows
        # columns of labels without pixels own none
        padded = np.zeros(int(one.label_map.numbers.max(initial=0)) + 1, np.int64)
        padded[1 : len(own) + 1] = own
        renamed.append(
            dataclasses.replace(
                one,
                labels=renaming.paint(one.labels),
                prototypes=prototypes,
                label_map=LabelMap(padded[one.label_map.numbers]),
            )
        )
    return renamed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The numbers of one result; NaN for what needs a truth, where there is none."""

    name: str
    n_labels: int
    covering: float = math.nan
    information: float = math.nan
    rand_index: float = math.nan
    mutual_information: float = math.nan
    accuracy: float = math.nan
    objective: float
    n_evaluations: int
    seconds: float
    status: str


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: a field of `Row`, how it is written, and which value is best."""

    field: str
    heading: str
    help: str
    form: str = ""
    best: Literal["largest", "smallest"] | None = None

    def text(self, row: Row) -> str:
        value = getattr(row, self.field)
        if isinstance(value, float) and not math.isfinite(value):
            return ""
        return f"{value:{self.form}}"

    def best_of(self, rows: Sequence[Row]) -> float | None:
        values = [float(getattr(row, self.field)) for row in rows] if self.best else []
        values = [value for value in values if math.isfinite(value)]
        if len(values) < 2:
            return None
        return max(values) if self.best == "largest" else min(values)


COLUMNS = (
    Column("name", "Name", "What was run."),
    Column("n_labels", "Labels", "Labels that own at least one pixel.", "d"),
    Column("covering", "Covering",
           "How well the best matching labels cover the regions of the truth: 1 is perfect.",
           ".3f", "largest"),
    Column("information", "VI",
           "Variation of information, in bits: what one of labels and truth tells and the "
           "other does not; 0 is perfect.", ".3f", "smallest"),
    Column("rand_index", "Rand",
           "Share of the pairs of pixels on which labels and truth agree: 1 is perfect.",
           ".3f", "largest"),
    Column("mutual_information", "NMI",
           "Normalised mutual information: 0 is independent of the truth, 1 is perfect.",
           ".3f", "largest"),
    Column("accuracy", "Accuracy",
           "Share of the pixels that are right under the best matching of labels to regions.",
           ".3f", "largest"),
    Column("objective", "Objective",
           "What the method raises or lowers; to be compared within one method only.", ".5g"),
    Column("n_evaluations", "Evaluations", "Right-hand sides, or inner updates, evaluated.", "d"),
    Column("seconds", "Time", "Duration in seconds, the reading of the image not counted.", ".2f"),
    Column("status", "Ended", "Why the run ended."),
)  # fmt: skip
"""What the table shows of a `Row`."""


def comparison_table(comparison: Comparison, truth: ArrayLike | None = None) -> list[Row]:
    """Return a row of numbers for each result.

    Parameters
    ----------
    comparison : Comparison
        See `compare`.
    truth : array of int, optional
        Image-shaped; the regions 1, 2, ... as they should be. Pixels that are 0 do not count.

    Raises
    ------
    InvalidInput
        If the truth has another shape, is 0 everywhere, or holds other than whole numbers.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((16, 16)))
    >>> comparison = saf.compare(image, [saf.Variant(saf.SLK(n_clusters=2))])
    >>> [row] = saf.comparison_table(comparison, truth=1 + (image > 0.5))
    >>> row.n_labels, row.accuracy
    (2, 1.0)
    """
    check_kind(comparison, Comparison, "comparison", "what saf.compare gives")
    regions = None if truth is None else as_labels(truth, "truth")
    rows = []
    for result in comparison.results:
        row = Row(
            name=result.variant.name,
            n_labels=len(result.present),
            objective=float([math.nan, *result.history.objective][-1]),
            n_evaluations=result.n_evaluations,
            seconds=result.seconds,
            status=STATUS_TEXTS[result.status],
        )
        if regions is not None:
            if regions.shape != result.labels.shape:
                expected = result.labels.shape
                raise InvalidInput(f"truth: expected the shape {expected}, got {regions.shape}")
            inside = regions != 0
            own, classes = result.labels[inside], regions[inside]
            row = dataclasses.replace(
                row,
                **dataclasses.asdict(region_agreement(result.labels, regions)),
                mutual_information=normalized_mutual_information(classes, own),
                accuracy=matched_accuracy(classes, own),
            )
        rows.append(row)
    return rows


def align(
    images: Sequence[NDArray[Any]], is_fixed: Sequence[bool] | None = None
) -> list[NDArray[np.int64]]:
    """Return common numbers for the labels of several label images of one shape.

    Entry l - 1 of array k is the number of label l of image k; 0 where no pixel has that label. No
    two labels of an image share a number. Those of images that are fixed keep theirs.

    Notes
    -----
    The image with most labels comes first and keeps its numbers; of several such, the one that
    agrees best with all images. Each of the others is matched to all before it by the optimal
    assignment (scipy, https://doi.org/10.1109/TAES.2016.140952) that maximises the number of
    pixels on which they agree. A label that shares no pixel with a number that is left gets a
    new one. So the outcome does not depend on the order of the images, ties apart.
    """
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

    flat = [np.asarray(image).ravel().astype(np.int64) for image in images]
    fixed = [False] * len(flat) if is_fixed is None else list(is_fixed)
    present = [count_labels(image)[0] for image in flat]
    agreement = np.zeros(len(flat))
    for k, other in itertools.combinations(range(len(flat)), 2):
        table = _overlaps(flat[k], flat[other], present[k], present[other])
        agreement[[k, other]] += table[linear_sum_assignment(table, maximize=True)].sum()
    order = sorted(range(len(flat)), key=lambda k: (not fixed[k], -len(present[k]), -agreement[k]))
    numbers: list[NDArray[np.int64]] = [np.arange(0)] * len(flat)
    aligned: list[NDArray[np.int64]] = []
    for k in order:
        numbers[k] = np.zeros(int(present[k].max(initial=0)), np.int64)
        own = present[k]
        if aligned and not fixed[k]:
            known = np.unique(np.concatenate([count_labels(one)[0] for one in aligned]))
            score = np.sum([_overlaps(flat[k], one, own, known) for one in aligned], axis=0)
            rows, columns = linear_sum_assignment(score, maximize=True)
            is_match = score[rows, columns] > 0
            own = np.zeros(len(own), np.int64)
            own[rows[is_match]] = known[columns[is_match]]
            n_new = np.count_nonzero(own == 0)
            own[own == 0] = known.max(initial=0) + 1 + np.arange(n_new)
        numbers[k][present[k] - 1] = own
        aligned.append(LabelMap(numbers[k]).paint(flat[k]).astype(np.int64))
    return numbers


def _overlaps(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return how many pixels labels of one, the rows, share with labels of the other."""
    height, width = len(rows) + 1, len(columns) + 1
    pairs = LabelMap(rows).unpaint(one).astype(np.int64) * width + LabelMap(columns).unpaint(other)
    counts = np.bincount(pairs, minlength=height * width)
    return np.asarray(counts.reshape(height, width)[1:, 1:])
