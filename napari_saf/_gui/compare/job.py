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
    save_comparison,
)
from napari_saf.errors import InvalidInput
from napari_saf.methods import run_to_end
from napari_saf.problem import ImageOptions, Problem

_REPORT_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonJob:
    """What to compare on an image of some title, as read from the form on click; what came of it.

    The rows are the numbers of the results, with those of their agreement where a truth is known.
    """

    image_job: ImageJob
    variants: Sequence[Variant]
    title: str
    comparison: Comparison = Comparison(())
    rows: Sequence[Row] = ()
    truth: NDArray[Any] | None = None

    def run(
        self, truth: Any, report: Callable[[object], None], cancelled: Callable[[], bool]
    ) -> ComparisonJob:
        """Run all variants; report each result once, and fraction and name of what is under way.

        Errors are those of `iterate_comparison` and `with_truth`.
        """
        measured, reader = self.with_truth(truth, cancelled), ProblemReader()
        n_reported, last = 0, 0.0

        def read(options: ImageOptions) -> Problem:
            job = dataclasses.replace(self.image_job, options=options)
            return without_gaps(reader.read(job, cancelled))[0]

        def on_step(step: ComparisonStep) -> None:
            nonlocal n_reported, last
            for result in step.results[n_reported:]:
                report(result)
            n_reported = len(step.results)
            if time.perf_counter() - last > _REPORT_SECONDS:
                last = time.perf_counter()
                report((step.snapshot.fraction, whole_name(step.variant)))

        found = run_to_end(iterate_comparison(self.variants, read, cancelled=cancelled), on_step)
        rows = comparison_table(found, measured.truth)
        return dataclasses.replace(measured, comparison=found, rows=rows)

    def with_truth(self, data: Any, cancelled: Callable[[], bool]) -> ComparisonJob:
        """Return the same, measured by regions as they should be, or None; of all slices or one.

        InvalidInput is raised if they do not fit the image, or are 0 everywhere.
        """
        truth = None
        if data is not None:
            index, channels = self.image_job.index, self.image_job.options.channel_axis
            if channels is not None:
                channels = [k for k, at in enumerate(index) if isinstance(at, slice)][channels]
            axes = [axis for axis in range(len(index)) if axis != channels]
            fixed = {axis: at for axis, at in enumerate(index) if isinstance(at, int)}
            region = labels_index(data.shape, len(index), axes, fixed, channels)
            truth = read_pixels(data, region, cancelled).copy()
            expected = tuple(self.image_job.data.shape[a] for a in axes if a not in fixed)
            if truth.shape != expected:
                raise InvalidInput(f"truth: expected the shape {expected}, got {truth.shape}")
            if not truth.any():
                raise InvalidInput("truth: expected labelled pixels, got 0 everywhere")
        rows = comparison_table(self.comparison, truth)
        return dataclasses.replace(self, rows=rows, truth=truth)

    def save(
        self,
        path: Path,
        paint: Any,
        colors: Mapping[int, Sequence[float]],
        cancelled: Callable[[], bool],
    ) -> Path:
        """Save a page, a picture or a table; see `save_comparison`."""
        job = self.image_job
        return save_comparison(
            path,
            self.comparison,
            read_pixels(job.data, job.index, cancelled),
            truth=self.truth,
            paint=paint,
            colors=colors,
            channel_axis=job.options.channel_axis,
            title=self.title,
        )
