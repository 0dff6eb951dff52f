"""Run variants one after another on one image, and give their labels common numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from napari_saf.comparison._variants import Variant
from napari_saf.errors import InvalidInput, SafError
from napari_saf.label_map import LabelMap
from napari_saf.methods import Cancelled, map_steps, not_cancelled, run_to_end
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot, Status


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What came of a variant.

    Attributes
    ----------
    variant : Variant
    labels : array of unsigned int
        Image-shaped. Within a `Comparison` a number means the same in all results.
    prototypes : array of shape (n_numbers, n_features)
        Row l - 1 stands for label l; NaN where there is no such label.
    label_map : LabelMap
        The label of each column of the assignment.
    sizes : array of int of shape (n_numbers,)
        Pixels of each label.
    is_fixed : bool
        Whether seeds or given prototypes say what each label means.
    objective : float
        Of the method; comparable between runs of one method only.
    status, n_evaluations, seconds, recipe, notes
        As in `Segmentation`.
    """

    variant: Variant
    labels: LabelImage
    prototypes: NDArray[np.float32]
    label_map: LabelMap
    sizes: NDArray[np.int64]
    is_fixed: bool
    objective: float
    status: Status
    n_evaluations: int
    seconds: float
    recipe: dict[str, Any]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, variant: Variant, result: Segmentation) -> Compared:
        """Keep of a run what is compared; the assignment is not."""
        assert not isinstance(result.labels, list)
        objective = result.history.objective
        return cls(
            variant=variant,
            labels=result.labels,
            prototypes=result.prototypes,
            label_map=result.label_map,
            sizes=_sizes(result.labels, len(result.prototypes)),
            is_fixed=variant.method.follows_seeds or variant.method.labels_are_given,
            objective=float(objective[-1]) if len(objective) else float("nan"),
            status=result.status,
            n_evaluations=result.n_evaluations,
            seconds=result.seconds,
            recipe=result.recipe,
            notes=result.notes,
        )

    @property
    def columns(self) -> NDArray[np.int64]:
        """Column of each label in the assignment, of shape (n_numbers,); -1 where there is none."""
        columns = np.full(len(self.sizes), -1, np.int64)
        own = self.label_map.columns
        columns[: len(own)] = own
        return columns

    @property
    def present(self) -> NDArray[np.int64]:
        """The labels that own at least one pixel, ascending."""
        return np.flatnonzero(self.sizes) + 1

    def renumbered(self, numbers: NDArray[np.int64], n_numbers: int) -> Compared:
        """Return the same with label l called numbers[l - 1]; 0 for labels without pixels."""
        renaming = LabelMap(numbers)
        prototypes = np.full((n_numbers, self.prototypes.shape[1]), np.nan, np.float32)
        rows = renaming.rows(self.prototypes)
        prototypes[: len(rows)] = rows
        labels = renaming.paint(self.labels)
        # columns of labels without pixels own none
        padded = np.zeros(int(self.label_map.numbers.max(initial=0)) + 1, np.int64)
        padded[1 : len(numbers) + 1] = numbers
        return dataclasses.replace(
            self,
            labels=labels,
            prototypes=prototypes,
            label_map=LabelMap(padded[self.label_map.numbers]),
            sizes=_sizes(labels, n_numbers),
        )


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
        In the order of the variants.
    failures : tuple of Failure
        Variants that did not suit the image.
    is_complete : bool
        Whether all variants were reached before the comparison was stopped.
    n_numbers : int
        The largest number that a label has in any result.
    """

    results: tuple[Compared, ...]
    failures: tuple[Failure, ...] = ()
    is_complete: bool = True
    n_numbers: int = 0

    @classmethod
    def of(
        cls,
        results: Sequence[Compared],
        failures: Sequence[Failure] = (),
        *,
        is_complete: bool = True,
    ) -> Comparison:
        """Give the labels of results common numbers; see `align`."""
        numbers = align([one.labels for one in results], [one.is_fixed for one in results])
        count = max((int(own.max(initial=0)) for own in numbers), default=0)
        named = [one.renumbered(own, count) for one, own in zip(results, numbers, strict=True)]
        return cls(tuple(named), tuple(failures), is_complete, count)

    def dead(self, number: int) -> NDArray[np.int64]:
        """Return the labels that other results have, and result `number` has not."""
        present = [one.present for one in self.results]
        return np.setdiff1d(np.concatenate(present), present[number])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonStep:
    """A recorded step of one of the runs.

    Attributes
    ----------
    variant : Variant
        The one under way.
    snapshot : Snapshot
        With the fraction of the whole comparison.
    results : tuple of Compared
        What is finished, in the order in which it was; each with numbers of its own.
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
    """

    def read(options: ImageOptions) -> Problem:
        arguments = options.arguments()
        if options.groups is None:
            arguments["groups"] = groups
        return Problem.from_image(image, mask=mask, seeds=seeds, **arguments)

    return run_to_end(iterate_comparison(variants, read))


def iterate_comparison(
    variants: Sequence[Variant],
    read: Callable[[ImageOptions], Problem],
    *,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[ComparisonStep, None, Comparison]:
    """Run variants one after another; those with the same options share one problem.

    Parameters
    ----------
    variants : sequence of Variant
        At least one.
    read : callable
        Returns the problem for the options of a variant; asked once for each that differ.
    cancelled : callable
        As in `AbstractMethod.iterate`; what is finished by then is kept.

    Raises
    ------
    SafError
        If no variant could be run.
    Cancelled
        If nothing was finished when it was cancelled.
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
        results[number] = Compared.of(variant, result)
    is_complete = len(results) + len(failures) == len(variants)
    if not results:
        raise next(iter(failures.values())).error if is_complete else Cancelled()
    ordered = [results[number] for number in sorted(results)]
    failed = [failures[number] for number in sorted(failures)]
    return Comparison.of(ordered, failed, is_complete=is_complete)


def _sizes(labels: LabelImage, n_numbers: int) -> NDArray[np.int64]:
    return np.bincount(labels.ravel(), minlength=n_numbers + 1)[1:]


def align(
    images: Sequence[NDArray[Any]], is_fixed: Sequence[bool] | None = None
) -> list[NDArray[np.int64]]:
    """Return common numbers for the labels of several label images of one shape.

    Parameters
    ----------
    images : sequence of array of int
        Label images; 0 is no label.
    is_fixed : sequence of bool, optional
        Which of them keep their numbers, because these have a meaning; by default none.

    Returns
    -------
    list of array of int
        Entry l - 1 of array k is the common number of label l of image k; 0 where no pixel
        has that label. No two labels of an image share a number.

    Notes
    -----
    The image with most labels comes first and keeps its numbers; of several such, the one that
    agrees best with all images. Each of the others is matched to all before it by the optimal
    assignment (scipy, https://doi.org/10.1109/TAES.2016.140952) that maximises the number of
    pixels on which they agree. A label that shares no pixel with a number that is left gets a
    new one. So the outcome does not depend on the order of the images, ties apart.
    """
    flat = [np.asarray(image).ravel().astype(np.int64) for image in images]
    fixed = [False] * len(flat) if is_fixed is None else list(is_fixed)
    present = [np.flatnonzero(np.bincount(image, minlength=1)[1:]) + 1 for image in flat]
    agreement = np.zeros(len(flat))
    for k, other in itertools.combinations(range(len(flat)), 2):
        table = _overlaps(flat[k], flat[other])
        agreement[[k, other]] += table[linear_sum_assignment(table, maximize=True)].sum()
    order = sorted(range(len(flat)), key=lambda k: (not fixed[k], -len(present[k]), -agreement[k]))
    numbers: list[NDArray[np.int64]] = [np.arange(0)] * len(flat)
    aligned: list[NDArray[np.int64]] = []
    for k in order:
        keeps = not aligned or fixed[k]
        numbers[k] = np.zeros(int(flat[k].max(initial=0)), np.int64)
        own = present[k] if keeps else _matched(flat[k], present[k], aligned)
        numbers[k][present[k] - 1] = own
        aligned.append(LabelMap(numbers[k]).paint(flat[k]).astype(np.int64))
    return numbers


def _matched(
    own: NDArray[np.int64], present: NDArray[np.int64], aligned: list[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return a number for each label that is present, as in the images that are aligned."""
    last = max(int(image.max(initial=0)) for image in aligned)
    score = np.sum([_overlaps(own, image, last) for image in aligned], axis=0)[present - 1]
    rows, columns = linear_sum_assignment(score, maximize=True)
    numbers = np.zeros(len(present), np.int64)
    is_match = score[rows, columns] > 0
    numbers[rows[is_match]] = columns[is_match] + 1
    is_new = numbers == 0
    numbers[is_new] = last + 1 + np.arange(np.count_nonzero(is_new))
    return numbers


def _overlaps(
    one: NDArray[np.int64], other: NDArray[np.int64], n_columns: int | None = None
) -> NDArray[np.int64]:
    """Return how many pixels each label of one shares with each label of the other."""
    height = int(one.max(initial=0)) + 1
    width = 1 + (int(other.max(initial=0)) if n_columns is None else n_columns)
    counts = np.bincount(one * width + other, minlength=height * width)
    return np.asarray(counts.reshape(height, width)[1:, 1:])
