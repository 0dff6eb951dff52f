"""Nuclei taught on one image and labelled in another: F1 by how the second image is scaled.

python benchmarks/transfer.py [--pairs 116] [--jobs 2] [--seed 0]

Ordered pairs of images of one kind (fluorescence, stained, grey) of the folders nuclei and
nuclei_more, at most so many of each folder, drawn at random. Three nuclei and three places of the
background are marked in the first image with the defaults of the Scribbles dock; what its labels
look like, as the dock saves it, labels the second one. The columns: mean F1, and F1 as a share of
what the same strokes teach on the second image itself, the mean of the worst tenth of the pairs.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scribbles_nuclei import NUCLEUS, draw
from skimage.exposure import match_histograms

import napari_saf as saf
from napari_saf._gui.scribbles.dock import DEFAULT_OPTIONS

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
WAYS = ("as the first image", "each by itself", "quantiles matched")

Pair = tuple[str, str, str, int]


def arguments(image: NDArray[Any]) -> dict[str, Any]:
    """Return the defaults of the dock, which offers perceived colour where there is colour."""
    features = DEFAULT_OPTIONS.features if image.ndim == 3 else "intensity"
    return dataclasses.replace(DEFAULT_OPTIONS, features=features).arguments()


def f1(found: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> float:
    return float(2 * (found & wanted).sum() / max(1, found.sum() + wanted.sum()))


@cache
def read(folder: str, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    image = iio.imread(DATA / folder / "images" / f"{name}.png")
    return image, iio.imread(DATA / folder / "labels" / f"{name}.png")


@cache
def teach(folder: str, name: str, seed: int) -> tuple[saf.PrototypeSet, float]:
    """Return what strokes on an image teach, and how well they label the image itself."""
    image, truth = read(folder, name)
    strokes = draw(truth, np.random.default_rng(seed))
    problem = saf.Problem.from_image(image, seeds=strokes, **arguments(image))
    labels: Any = saf.AssignmentFlow().run(problem).labels
    return saf.PrototypeSet.from_labels(problem, labels), f1(labels == NUCLEUS, truth > 0)


def measure(pair: Pair) -> list[float]:
    """Return F1 in the second image by each way, and where it is taught itself."""
    folder, first, second, seed = pair
    recipe = teach(folder, first, seed)[0].recipe()
    image, truth = read(folder, second)
    axis = -1 if image.ndim == 3 else None
    matched = match_histograms(image, read(folder, first)[0], channel_axis=axis)
    given = ((image, False), (image, True), (matched, False))
    labels: list[Any] = [recipe.run(one, rescale=rescale).labels for one, rescale in given]
    found = [f1(one == NUCLEUS, truth > 0) for one in labels]
    return [*found, teach(folder, second, seed)[1]]


def pairs_of(folder: str, count: int, seed: int) -> list[Pair]:
    with open(DATA / folder / "list.csv", newline="") as file:
        kinds = {row["name"]: row["kind"] for row in csv.DictReader(file)}
    pairs = [(folder, a, b, seed) for a in kinds for b in kinds if a != b and kinds[a] == kinds[b]]
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(pairs), min(count, len(pairs)), replace=False)
    return [pairs[k] for k in sorted(chosen)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=116)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the strokes")
    options = parser.parse_args()
    with get_context("spawn").Pool(options.jobs) as pool:
        for folder in ("nuclei", "nuclei_more"):
            pairs = pairs_of(folder, options.pairs, options.seed)
            scores = np.array(pool.map(measure, pairs, chunksize=10))
            own, n_worst = scores[:, -1], max(1, round(len(pairs) / 10))
            print(f"\n{folder}, {len(pairs)} pairs; taught on the image itself: {own.mean():.3f}")
            print(f"{'scaled':22} {'F1':>6} {'worst tenth, share of own':>26}")
            for way, column in zip(WAYS, scores.T, strict=False):
                shares = np.sort(column / own.clip(min=1e-9))
                print(f"{way:22} {column.mean():6.3f} {shares[:n_worst].mean():26.3f}", flush=True)


if __name__ == "__main__":
    main()
