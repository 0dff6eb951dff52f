"""From one stroke more to labels, without a window: ``python benchmarks/strokes.py``.

Strokes of two classes are painted on the sample photograph, 321 x 481 pixels, one after another.
Printed are the medians of the processor time of all threads until the first labels of the flow, and
until the last, where the problem keeps what earlier strokes found, and where each is new.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation
from skimage.draw import line
from skimage.transform import resize

import napari_saf as saf
from napari_saf.flow import wait_for_kernels
from napari_saf.samples import read_sample

SHAPE, RADIUS = (321, 481), 3
FIRST = (((0.10, 0.40), (0.35, 0.45), 1), ((0.10, 0.10), (0.60, 0.06), 2))
STROKES = (
    ((0.75, 0.40), (0.85, 0.50), 1),
    ((0.05, 0.70), (0.20, 0.95), 2),
    ((0.60, 0.30), (0.70, 0.45), 1),
    ((0.30, 0.90), (0.50, 0.80), 2),
)
"""Ends as shares of the sides, and classes."""


def paint(seeds: NDArray[np.uint8], start: Any, end: Any, number: int) -> None:
    ends = (np.array([*start, *end]) * [*SHAPE, *SHAPE]).astype(int)
    stroke = np.zeros(SHAPE, bool)
    stroke[line(*ends)] = True
    seeds[binary_dilation(stroke, iterations=RADIUS)] = number


def seconds(problem: saf.Problem) -> tuple[float, float]:
    """Return the processor time until the first labels of the flow, and until the last."""
    began, first = time.process_time(), 0.0
    for snapshot in saf.AssignmentFlow().iterate(problem):
        if not first and snapshot.record.n_evaluations > 1:
            first = time.process_time() - began
    return first, time.process_time() - began


def main() -> None:
    wait_for_kernels()
    image = resize(read_sample("astronaut").array, SHAPE, anti_aliasing=True)
    for name, options in (("in full", {"max_side": None}), ("automatic size", {})):
        seeds = np.zeros(SHAPE, np.uint8)
        for stroke in FIRST:
            paint(seeds, *stroke)
        problem = saf.Problem.from_image(image, seeds=seeds, **options)  # type: ignore[arg-type]
        seconds(problem)
        times: dict[str, list[tuple[float, float]]] = {"kept": [], "new": []}
        for stroke in STROKES:
            paint(seeds, *stroke)
            times["kept"].append(seconds(problem.with_seeds(seeds)))
            anew = saf.Problem.from_image(image, seeds=seeds, **options)  # type: ignore[arg-type]
            times["new"].append(seconds(anew))
        for kind, values in times.items():
            first, last = (statistics.median(own) for own in zip(*values, strict=True))
            print(f"{name}, {kind}: first labels {first:.2f} s, last {last:.2f} s", flush=True)


if __name__ == "__main__":
    main()
