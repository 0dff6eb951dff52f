"""Run variants one after another on one image, and give their labels common numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.comparison._alignment import align, renumbered
from napari_saf.comparison._variants import Variant
from napari_saf.errors import InvalidInput, SafError
from napari_saf.methods import Cancelled, map_steps, not_cancelled, run_to_end
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot, Status

__all__ = ["Compared", "Comparison", "ComparisonStep", "Failure", "compare", "iterate_comparison"]

_Read = Callable[[ImageOptions], Problem]


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
    columns : array of int of shape (n_numbers,)
        Entry l - 1 is the column of label l in the assignment; -1 where there is none.
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
    columns: NDArray[np.int64]
    sizes: NDArray[np.int64]
    is_fixed: bool
    objective: float
    status: Status
    n_evaluations: int
    seconds: float
    recipe: dict[str, Any]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, variant: Variant, found: Segmentation) -> Compared:
        """Keep of a run what is compared; the assignment is not."""
        assert not isinstance(found.labels, list)
        objective = found.history.objective
        return cls(
            variant,
            found.labels,
            found.prototypes,
            found.columns,
            _sizes(found.labels, len(found.prototypes)),
            variant.method.follows_seeds or variant.method.labels_are_given,
            float(objective[-1]) if len(objective) else float("nan"),
            found.status,
            found.n_evaluations,
            found.seconds,
            found.recipe,
            found.notes,
        )

    @property
    def present(self) -> NDArray[np.int64]:
        """The labels that own at least one pixel, ascending."""
        return np.flatnonzero(self.sizes) + 1

    def renumbered(self, numbers: NDArray[np.int64], n_numbers: int) -> Compared:
        """Return the same with label l called numbers[l - 1]; 0 for labels without pixels."""
        prototypes = np.full((n_numbers, self.prototypes.shape[1]), np.nan, np.float32)
        columns = np.full(n_numbers, -1, np.int64)
        old = np.flatnonzero(numbers)
        prototypes[numbers[old] - 1] = self.prototypes[old]
        columns[numbers[old] - 1] = self.columns[old]
        labels = renumbered(self.labels, numbers)
        return dataclasses.replace(
            self,
            labels=labels,
            prototypes=prototypes,
            columns=columns,
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
        everywhere = [one.present for one in self.results]
        return np.setdiff1d(np.concatenate(everywhere), everywhere[number])


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

    Returns
    -------
    Comparison

    Raises
    ------
    SafError
        If no variant could be run; else those that could not are its failures.
    """

    def read(options: ImageOptions) -> Problem:
        shared = options.arguments()
        if options.groups is None:
            shared["groups"] = groups
        return Problem.from_image(image, mask=mask, seeds=seeds, **shared)

    return run_to_end(iterate_comparison(variants, read))


def iterate_comparison(
    variants: Sequence[Variant], read: _Read, *, cancelled: Callable[[], bool] = not_cancelled
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

    Yields
    ------
    ComparisonStep

    Returns
    -------
    Comparison

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
    reader = _OneProblem(read)
    for number in _by_options(variants):
        if cancelled():
            break
        variant, share = variants[number], (len(results) + len(failures), len(variants))
        try:
            steps = variant.method.iterate(reader.read(variant.options), cancelled=cancelled)
            found = yield from map_steps(steps, partial(_step, variant, share, [*results.values()]))
        except Cancelled:
            break
        except SafError as error:
            failures[number] = Failure(variant, error)
            continue
        if found.status is Status.CANCELLED:
            break
        results[number] = Compared.of(variant, found)
    is_complete = len(results) + len(failures) == len(variants)
    if not results:
        raise next(iter(failures.values())).error if is_complete else Cancelled()
    ordered = [results[number] for number in sorted(results)]
    failed = [failures[number] for number in sorted(failures)]
    return Comparison.of(ordered, failed, is_complete=is_complete)


def _sizes(labels: LabelImage, n_numbers: int) -> NDArray[np.int64]:
    return np.bincount(labels.ravel(), minlength=n_numbers + 1)[1:]


class _OneProblem:
    """Keeps the last problem only: features and weights of large images are large."""

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._options: ImageOptions | None = None
        self._problem: Problem | None = None

    def read(self, options: ImageOptions) -> Problem:
        if self._problem is None or options != self._options:
            self._problem = None
            self._problem, self._options = self._read(options), options
        return self._problem


def _by_options(variants: Sequence[Variant]) -> Iterator[int]:
    """Yield positions, those with the same options after one another."""
    groups: dict[ImageOptions, list[int]] = {}
    for number, variant in enumerate(variants):
        groups.setdefault(variant.options, []).append(number)
    for group in groups.values():
        yield from group


def _step(
    variant: Variant, share: tuple[int, int], results: Sequence[Compared], snapshot: Snapshot
) -> ComparisonStep:
    """Return a step of one of several runs, with the fraction of all of them."""
    done, count = share
    fraction = (done + snapshot.fraction) / count
    snapshot = dataclasses.replace(snapshot, fraction=fraction)
    return ComparisonStep(variant, snapshot, tuple(results))
