"""Time, memory and F1 of volumes: a first click, strokes, and a first click by tiles.

python benchmarks/volumes.py [--shapes 64x256x256] [--ways click strokes tiles]

Balls of 5 to 9 voxels radius, 7 % of a volume, blurred, in noise of an eighth of their contrast;
strokes on three of them and three times on the ground of the middle plane. Each way runs in a
process of its own, whose memory is printed less that of the volume and the libraries.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, label

import napari_saf as saf
from napari_saf.flow import wait_for_kernels
from napari_saf.methods import AbstractMethod, run_to_end

Volume = NDArray[Any]
LONGEST_STROKE = 30


def balls(shape: tuple[int, ...]) -> tuple[Volume, Volume]:
    """Return a volume of 8 bits, and where the balls are."""
    rng, truth = np.random.default_rng(0), np.zeros(shape, bool)
    for _ in range(math.prod(shape) // 20_000):
        centre, radius = [rng.integers(side) for side in shape], rng.uniform(5, 9)
        box = tuple(
            slice(max(0, c - 10), min(side, c + 11)) for c, side in zip(centre, shape, strict=True)
        )
        square = sum((axis - c) ** 2 for axis, c in zip(np.ogrid[box], centre, strict=True))
        truth[box] |= square < radius**2
    volume = 30 + 100 * gaussian_filter(truth.astype(np.float32), 1)
    volume += 12 * rng.standard_normal(shape, np.float32)
    return volume.clip(0, 255).astype(np.uint8), truth


def draw(truth: Volume) -> Volume:
    strokes, rng = np.zeros(truth.shape, np.uint8), np.random.default_rng(0)
    middle, plane = truth[len(truth) // 2], strokes[len(truth) // 2]
    things, _ = label(middle)
    for number in (1, 2, 3):
        row = int(np.median(np.nonzero(things == number)[0]))
        plane[row, things[row] == number] = 1
    for row, column in rng.permutation(np.argwhere(~middle))[:3]:
        ahead = middle[row, column : column + LONGEST_STROKE]
        plane[row, column : column + (ahead.argmax() if ahead.any() else len(ahead))] = 2
    return strokes


def labels_of(way: str, volume: Volume, truth: Volume) -> tuple[Volume, float]:
    """Return labels, and seconds until the first were there."""
    began = time.perf_counter()
    if way == "tiles":
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "volume.npy", volume)
            out = Path(folder) / "labels.ome.zarr"
            saf.label_large(Path(folder) / "volume.npy", saf.SelfAssignmentFlow(), out)
            return np.asarray(zarr.open(out)["0"]), time.perf_counter() - began
    method: AbstractMethod = saf.SelfAssignmentFlow()
    if way == "click":
        problem = saf.Problem.from_image(volume)
    else:
        strokes = draw(truth)
        choice = saf.choose_for_strokes(volume, strokes)
        problem = saf.Problem.from_image(volume, seeds=strokes, **choice.options.arguments())
        method = choice.method
    seconds: list[float] = []
    steps = method.iterate(problem)
    result = run_to_end(steps, lambda _: seconds.append(time.perf_counter() - began))
    return np.asarray(result.labels), seconds[0]


def measure(way: str, shape: tuple[int, ...]) -> None:
    wait_for_kernels()
    volume, truth = balls(shape)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), sum(os.times()[:4])
    labels, first = labels_of(way, volume, truth)
    seconds, cpu = time.perf_counter() - began, sum(os.times()[:4]) - cpu
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    inside = np.bincount(labels.ravel(), weights=truth.ravel())
    found = (inside > np.bincount(labels.ravel()) / 2)[labels]
    f1 = 2 * (found & truth).sum() / (found.sum() + truth.sum())
    print(
        f"{'x'.join(map(str, shape)):>12} {way:>8} {f1:5.3f} first {first:6.1f} s  "
        f"all {seconds:6.1f} s  processor {cpu:6.1f} s  {1e6 * cpu / volume.size:5.2f} us a voxel  "
        f"{memory:5.2f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["64x256x256"])
    parser.add_argument("--ways", nargs="+", default=["click", "strokes", "tiles"])
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for shape in options.shapes:
        for way in options.ways:
            sides = tuple(map(int, shape.split("x")))
            process = context.Process(target=measure, args=(way, sides))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
