"""A comparison in the thread that computes: reads the image, runs, measures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from napari_saf._gui.compare.choice import whole_name
from napari_saf._gui.layers.placement import ImageRegion
from napari_saf._gui.layers.reading import ImageJob, Index, ProblemReader, read_pixels
from napari_saf._gui.runs.run import without_gaps
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ComparisonJob:
    """What to compare on a region of an image, as read from the form on click; what came of it.

    The rows are the numbers of the results, with those of their agreement where a truth is known.
    """

    image_job: ImageJob
    region: ImageRegion
    variants: Sequence[Variant]
    comparison: Comparison = Comparison(())
    rows: Sequence[Row] = ()
    truth: NDArray[Any] | None = None

    def run(
        self,
        truth: tuple[Any, Index],
        report: Callable[[object], None],
        cancelled: Callable[[], bool],
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

    def with_truth(self, truth: tuple[Any, Index], cancelled: Callable[[], bool]) -> ComparisonJob:
        """Return the same, measured by regions as they should be: what to read of what, or None.

        InvalidInput is raised if they do not fit the image, or are 0 everywhere.
        """
        pixels, index = truth
        regions = None if pixels is None else read_pixels(pixels, index, cancelled).copy()
        if regions is not None:
            sides, fixed = self.image_job.data.shape, self.region.fixed
            expected = tuple(sides[axis] for axis in self.region.axes if axis not in fixed)
            if regions.shape != expected:
                raise InvalidInput(f"truth: expected the shape {expected}, got {regions.shape}")
            if not regions.any():
                raise InvalidInput("truth: expected labelled pixels, got 0 everywhere")
        rows = comparison_table(self.comparison, regions)
        return dataclasses.replace(self, rows=rows, truth=regions)
