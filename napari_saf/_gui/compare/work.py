"""A comparison in the thread that computes: reads the image, runs, measures, saves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf._gui.compare.choice import whole_name
from napari_saf._gui.layers.reading import ImageJob, Index, ProblemReader, read_pixels
from napari_saf._gui.runs.start import without_gaps
from napari_saf.comparison import (
    Compared,
    Comparison,
    ComparisonStep,
    Row,
    Variant,
    comparison_table,
    iterate_comparison,
)
from napari_saf.errors import InvalidInput
from napari_saf.methods import run_to_end
from napari_saf.problem import ImageOptions, Problem

__all__ = ["ComparisonWork", "Finished", "Outcome", "Progress"]

_TOLD_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How much of the comparison is done, and what is under way."""

    fraction: float
    name: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A result, with label numbers of its own."""

    result: Compared


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came of a comparison, and what it takes to save it."""

    work: ComparisonWork
    comparison: Comparison
    rows: list[Row]
    truth: NDArray[Any] | None

    def with_truth(self, data: Any, cancelled: Callable[[], bool]) -> Outcome:
        """Return the same, measured by another truth; `data` may be None.

        Raises
        ------
        InvalidInput
            If the truth does not fit the image.
        """
        work = dataclasses.replace(self.work, truth=data)
        truth = work.read_truth(cancelled)
        rows = comparison_table(self.comparison, truth)
        return Outcome(work, self.comparison, rows, truth)

    def save(
        self,
        path: Path,
        paint: Any,
        colors: Mapping[int, Sequence[float]],
        cancelled: Callable[[], bool],
    ) -> Path:
        """Save a page, a picture or a table; see `save_comparison`."""
        # matplotlib takes half a second to load.
        from napari_saf.comparison import save_comparison

        job = self.work.job
        return save_comparison(
            path,
            self.comparison,
            read_pixels(job.data, job.index, cancelled),
            truth=self.truth,
            paint=paint,
            colors=colors,
            channel_axis=job.options.channel_axis,
            title=self.work.title,
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonWork:
    """What a click on Run asks for, as read at that moment.

    Attributes
    ----------
    job : ImageJob
    variants : sequence of Variant
    title : str
        The name of the image.
    truth : array-like or None
        Regions as they should be, of what is labelled or of all slices.
    """

    job: ImageJob
    variants: Sequence[Variant]
    title: str
    truth: Any = None

    def run(self, report: Callable[[object], None], cancelled: Callable[[], bool]) -> Outcome:
        """Run all variants; report `Progress` and `Finished`.

        Raises
        ------
        Cancelled
            If nothing was finished when it was cancelled.
        SafError
            If no variant could be run, or the truth does not fit the image.
        """
        truth = self.read_truth(cancelled)
        reader = ProblemReader()

        def read(options: ImageOptions) -> Problem:
            job = dataclasses.replace(self.job, options=options)
            return without_gaps(reader.read(job, cancelled))[0]

        teller = _Teller(report)
        steps = iterate_comparison(self.variants, read, cancelled=cancelled)
        found = run_to_end(steps, teller.tell)
        return Outcome(self, found, comparison_table(found, truth), truth)

    def read_truth(self, cancelled: Callable[[], bool]) -> NDArray[Any] | None:
        """Read the truth and see whether it fits; None if there is none."""
        if self.truth is None:
            return None
        truth = read_pixels(self.truth, self._truth_index(), cancelled).copy()
        if truth.shape != self._shape():
            raise InvalidInput(f"truth: expected the shape {self._shape()}, got {truth.shape}")
        if not truth.any():
            raise InvalidInput("truth: expected labelled pixels, got 0 everywhere")
        return truth

    def _truth_index(self) -> Index:
        """Return what to read of the truth: the slices labelled, where it has the others too."""
        where, shape = self._where(), self.truth.shape
        if len(shape) != len(where):
            return ()
        return tuple(
            min(at, side - 1) if isinstance(at, int) else at
            for at, side in zip(where.values(), shape, strict=True)
        )

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of what is labelled."""
        sides = self.job.data.shape
        return tuple(sides[axis] for axis, at in self._where().items() if not isinstance(at, int))

    def _where(self) -> dict[int, int | slice]:
        """Return what is labelled, by the axis of space."""
        where = dict(enumerate(self.job.index))
        if self.job.options.channel_axis is not None:
            kept = [axis for axis, at in where.items() if not isinstance(at, int)]
            del where[kept[self.job.options.channel_axis]]
        return where


class _Teller:
    """Reports each result once, and progress now and then."""

    def __init__(self, report: Callable[[object], None]) -> None:
        self._report = report
        self._n_told = 0
        self._last = 0.0

    def tell(self, step: ComparisonStep) -> None:
        for result in step.results[self._n_told :]:
            self._report(Finished(result))
        self._n_told = len(step.results)
        if time.perf_counter() - self._last > _TOLD_SECONDS:
            self._last = time.perf_counter()
            self._report(Progress(step.snapshot.fraction, whole_name(step.variant)))
