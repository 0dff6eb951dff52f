"""A comparison in the thread that computes: reads the image, runs, measures, saves."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf._gui.compare.choice import whole_name
from napari_saf._gui.layers.reading import ImageJob, ProblemReader, labels_index, read_pixels
from napari_saf._gui.runs.start import without_gaps
from napari_saf.comparison import (
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

_REPORT_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How much of the comparison is done, and what is under way."""

    fraction: float
    name: str


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
        return Outcome(work, self.comparison, comparison_table(self.comparison, truth), truth)

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
    """The job of a comparison, as read from the form on click.

    Attributes
    ----------
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
        """Run all variants; report `Progress`, and each result once.

        Raises
        ------
        Cancelled
            If nothing was finished when it was cancelled.
        SafError
            If no variant could be run, or the truth does not fit the image.
        """
        truth, reader = self.read_truth(cancelled), ProblemReader()
        n_reported, last = 0, 0.0

        def read(options: ImageOptions) -> Problem:
            job = dataclasses.replace(self.job, options=options)
            return without_gaps(reader.read(job, cancelled))[0]

        def on_step(step: ComparisonStep) -> None:
            nonlocal n_reported, last
            for result in step.results[n_reported:]:
                report(result)
            n_reported = len(step.results)
            if time.perf_counter() - last > _REPORT_SECONDS:
                last = time.perf_counter()
                report(Progress(step.snapshot.fraction, whole_name(step.variant)))

        found = run_to_end(iterate_comparison(self.variants, read, cancelled=cancelled), on_step)
        return Outcome(self, found, comparison_table(found, truth), truth)

    def read_truth(self, cancelled: Callable[[], bool]) -> NDArray[Any] | None:
        """Read the truth, of a stack the slices labelled; None if there is none.

        Raises
        ------
        InvalidInput
            If it does not fit the image, or is 0 everywhere.
        """
        if self.truth is None:
            return None
        index, channels = self.job.index, self.job.options.channel_axis
        if channels is not None:
            channels = [k for k, at in enumerate(index) if isinstance(at, slice)][channels]
        axes = [axis for axis in range(len(index)) if axis != channels]
        fixed = {axis: at for axis, at in enumerate(index) if isinstance(at, int)}
        region = labels_index(self.truth.shape, len(index), axes, fixed, channels)
        truth = read_pixels(self.truth, region, cancelled).copy()
        expected = tuple(self.job.data.shape[axis] for axis in axes if axis not in fixed)
        if truth.shape != expected:
            raise InvalidInput(f"truth: expected the shape {expected}, got {truth.shape}")
        if not truth.any():
            raise InvalidInput("truth: expected labelled pixels, got 0 everywhere")
        return truth
