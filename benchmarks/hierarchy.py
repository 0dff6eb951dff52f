"""Merge the parts of labels into regions: fit the weights of the cues, and say how good they are.

The labels are those of the first click in the Segment dock. Each photograph is judged with weights
and a level that were fitted to the others (cross-validation). Printed at the end: weights fitted
to all of them, and what those in napari_saf/regions.py give.

    python benchmarks/hierarchy.py              # all photographs: five minutes
    python benchmarks/hierarchy.py --images 12
    python benchmarks/hierarchy.py --sides 512 1024 2048
    python benchmarks/hierarchy.py --separate

With ``--sides`` processor time and memory for images of so many pixels a side: nuclei and a
photograph mirrored again and again, and the photograph enlarged, with labels of a first click;
discs on a ground; noise with random labels. With ``--separate`` the images of each folder whose
labels are of separate things.

The photographs are sought in bsds_dev and bsds_more under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import copy
import functools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import psutil
from numpy.typing import NDArray
from regions import Labels, Photograph, split
from skimage.transform import resize
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import napari_saf as saf
from napari_saf._gui.forms.image_input import DEFAULT_OPTIONS
from napari_saf.metrics import segmentation_covering
from napari_saf.regions import (
    USUAL_LEVEL,
    WEIGHTS,
    RegionGraph,
    find_separate,
    least_size,
)

Array = NDArray[np.float64]
LEVELS = np.linspace(0.01, 0.99, 99)
N_FOLDS, N_AROUND = 4, 9
FIRST = np.array([-10, -10, -10, 0, 0, -10, 0, 0, -0.3, 0, 0, 0.0])
"""Weights of the first way from many regions to one: likeness of colours, edges, size."""


def first_click(image: NDArray[np.uint8]) -> Labels:
    """Return the labels of the dock's own defaults."""
    method = next(iter(saf.METHODS.values()))()
    return np.asarray(
        method.run(saf.Problem.from_image(image, **DEFAULT_OPTIONS.arguments())).labels
    )


class Case:
    """The parts of a label map, and how many of their pixels lie in each region of each person."""

    def __init__(self, labels: Labels, photograph: Photograph) -> None:
        self.least = least_size(labels, find_separate(labels))
        self._graph = RegionGraph.of(labels, photograph.image, self.least)
        owner, n = self._graph.finest.ravel(), self._graph.n
        self._tables = []
        for reference in photograph.references:
            m = int(reference.max()) + 1
            counts = np.bincount(owner * np.int64(m) + reference.ravel(), minlength=n * m)
            self._tables.append(counts.reshape(n, m).astype(float))

    @functools.cached_property
    def first(self) -> tuple[Array, Array, Array]:
        return self.samples(FIRST)

    def samples(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return cues, share of the people who drew one region, and size, of pairs met on the way.

        The pairs are what is merged, and some other neighbours of both.
        """
        parts, tables = copy.deepcopy(self._graph), copy.deepcopy(self._tables)
        rows = []
        for a, b, _ in parts.merges(weights, self.least):
            of_a, of_b = parts.rows_of(a), parts.rows_of(b)
            around = np.unique([*np.intersect1d(of_a, of_b), *of_a[:4], *of_b[:4]])
            for (one, other), cues in zip(parts.pairs[around], parts.cues(around), strict=True):
                both = [t[one] @ t[other] / (t[one].sum() * t[other].sum()) for t in tables]
                size = min(parts.sizes[one], parts.sizes[other]) / parts.total
                rows.append([*cues, np.mean(both), size])
            for table in tables:
                table[a] += table[b]
        table = np.array(rows)
        return table[:, :-2], table[:, -2], table[:, -1]

    def coverings(self, weights: Array) -> Array:
        """Return the covering at each level."""
        parts, tables = copy.deepcopy(self._graph), copy.deepcopy(self._tables)
        found, highest, k = np.zeros(len(LEVELS)), 0.0, 0
        for a, b, height in parts.merges(weights, self.least):
            highest = max(highest, height)
            if k < len(LEVELS) and LEVELS[k] < highest:
                now = np.mean([_covering(table) for table in tables])
                while k < len(LEVELS) and LEVELS[k] < highest:
                    found[k], k = now, k + 1
            for table in tables:
                table[a] += table[b]
                table[b] = 0
        found[k:] = np.mean([_covering(table) for table in tables])
        return found


def _covering(table: Array) -> float:
    drawn = table.sum(axis=0)
    union = drawn + table.sum(axis=1, keepdims=True) - table
    return float(drawn @ (table / np.maximum(union, 1)).max(axis=0) / drawn.sum())


def fit(cases: Sequence[Case]) -> Array:
    """Return the weights of logistic regression, on pairs met first, and with what it found."""
    met = [case.first for case in cases]
    found = _regression(met)
    return _regression([*met, *(case.samples(found) for case in cases)])


def _regression(met: Sequence[tuple[Array, Array, Array]]) -> Array:
    cues, together, sizes = (np.concatenate(column) for column in zip(*met, strict=True))
    scaler = StandardScaler().fit(cues[:, :-1])
    rows = np.tile(scaler.transform(cues[:, :-1]), (2, 1))
    # Each pair counts as one region and as two, by the share of the people who drew it so.
    given = np.concatenate([sizes * together, sizes * (1 - together)])
    truth = np.repeat([1, 0], len(sizes))
    fitted = LogisticRegression(max_iter=1000).fit(rows, truth, sample_weight=given)
    slopes = fitted.coef_[0] / scaler.scale_
    return np.append(slopes, fitted.intercept_[0] - slopes @ scaler.mean_)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, metavar="N", help="about N photographs only")
    parser.add_argument("--sides", type=int, nargs="+", help="time and memory alone")
    parser.add_argument("--separate", action="store_true", help="separate things alone")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("NAPARI_SAF_DATA", root.parent / "shared" / "data"))
    paths = sorted(p for name in ("bsds_dev", "bsds_more") for p in data.glob(f"{name}/images/*"))
    if not paths:
        print(f"skipped: no photographs in {data}; see NAPARI_SAF_DATA")
        return 0
    if options.sides:
        print_speed(data, options.sides)
        return 0
    if options.separate:
        print_separate(data)
        return 0
    paths = paths[:: max(1, len(paths) // (options.images or len(paths)))]
    photographs = [Photograph.read(path.parents[1], path.stem, 2) for path in paths]
    print(f"{len(photographs)} photographs, covering with its standard error")
    images = [np.rint(255 * photograph.image).astype(np.uint8) for photograph in photographs]
    maps = [first_click(image) for image in images]
    pairs = list(zip(maps, photographs, strict=True))
    parts = [segmentation_covering(split(own, 400), one.references) for own, one in pairs]
    _print("connected parts, 400 pixels or more", np.array(parts))
    judge([Case(*pair) for pair in pairs])
    return 0


def mirrored(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return copies of the first 256 x 256 pixels, every second one mirrored."""
    rows = np.pad(
        image[:256, :256], [(0, 256), (0, 256)] + [(0, 0)] * (image.ndim - 2), "symmetric"
    )
    n = -(-side // 512)
    return np.tile(rows, (n, n) + (1,) * (image.ndim - 2))[:side, :side]


def print_speed(data: Path, sides: Sequence[int]) -> None:
    """Print time and memory by side, kind of image and number of regions."""
    nuclei = iio.imread(data / "nuclei/images/fluor_01.png")
    photograph = iio.imread(data / "bsds_dev/images/12003.jpg")
    rng = np.random.default_rng(0)
    print("| image | side | s | us a pixel | bytes a pixel | finest | at first | separate |")
    print(f"|{'---|' * 8}")
    for side in sides:
        enlarged = resize(photograph[:321, :321], (side, side), order=1)
        discs = np.hypot(*(np.indices((side, side)) % 60 - 30)) < 26
        noisy = (60 + 120 * discs + rng.normal(0, 10, discs.shape)).clip(0, 255)
        images = {
            "nuclei, mirrored": mirrored(nuclei, side),
            "photograph, mirrored": mirrored(photograph, side),
            "photograph, enlarged": (255 * enlarged).astype(np.uint8),
            "discs": noisy.astype(np.uint8),
            "noise": rng.integers(0, 256, (side, side, 3), np.uint8),
        }
        known = {"discs": 1 + discs, "noise": rng.integers(1, 9, (side, side))}
        for name, image in images.items():
            labels = known[name] if name in known else first_click(image)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                taken, grown, *counts = pool.submit(measured, labels, image).result()
            numbers = [f"{taken:.2f}", f"{taken / side**2 * 1e6:.2f}", f"{grown / side**2:.0f}"]
            numbers += map(str, counts)
            print(f"| {name} | {side} | {' | '.join(numbers)} |", flush=True)


def measured(labels: Labels, image: NDArray[np.uint8]) -> tuple[float, int, int, int, int]:
    """Return processor time, by how much the memory grew (sampled), and numbers of regions."""
    saf.merge_regions(labels[:64, :64], image[:64, :64])  # loads libraries
    process, done, peak = psutil.Process(), threading.Event(), 0
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(2e-3):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.process_time()
    tree = saf.merge_regions(labels, image)
    taken = time.process_time() - began
    done.set()
    watcher.join()
    counts = int(tree.finest.max()), int(tree.at_level().max()), tree.separate.number
    return taken, peak - before, *counts


def print_separate(data: Path) -> None:
    """Print of how many images of each folder the labels are of separate things."""
    for name in ("nuclei", "nuclei_more", "blood", "bsds_dev", "bsds_more"):
        images = [iio.imread(path) for path in sorted(data.glob(f"{name}/images/*"))]
        flat = [image[..., :3] if image.ndim == 3 else image for image in images]
        n = sum(find_separate(first_click(image)).number > 0 for image in flat)
        print(f"{name}: {n} of {len(images)}", flush=True)


def judge(cases: Sequence[Case]) -> None:
    """Print the covering of merged regions, with weights of other photographs and of all."""
    held_out, each = np.zeros(len(cases)), np.zeros(len(cases))
    folds = np.arange(len(cases)) % N_FOLDS
    for fold in range(N_FOLDS):
        inside = [case for case, own in zip(cases, folds, strict=True) if own != fold]
        weights = fit(inside)
        best = _best_level(np.array([case.coverings(weights) for case in inside]))
        for k in np.flatnonzero(folds == fold).tolist():
            curve = cases[k].coverings(weights)
            held_out[k], each[k] = curve[best], curve.max()
    _print("merged, weights and level fitted to other photographs", held_out)
    _print("merged, weights fitted to other photographs, best level of each", each)
    weights = fit(cases)
    for name, own in (("fitted to all of them", weights), ("of napari_saf/regions.py", WEIGHTS)):
        curves = np.array([case.coverings(own) for case in cases])
        best = _best_level(curves)
        _print(f"merged, weights {name}, best level {LEVELS[best]:.2f}", curves[:, best])
        if own is WEIGHTS:
            usual = int(np.abs(LEVELS - USUAL_LEVEL).argmin())
            _print(f"merged, weights {name}, level {USUAL_LEVEL}", curves[:, usual])
    print(f"weights fitted to all of them: {np.round(weights, 2).tolist()}")


def _best_level(curves: Array) -> int:
    """Return the index of the level that is best with those around it, which differ by chance."""
    around = np.ones(N_AROUND) / N_AROUND
    return int(np.convolve(curves.mean(axis=0), around, "valid").argmax()) + N_AROUND // 2


def _print(name: str, values: Array) -> None:
    error = values.std(ddof=1) / len(values) ** 0.5
    print(f"{name:65} {values.mean():.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
