"""Nuclei from a few simulated strokes: F1 of the foreground, five draws of strokes an image.

python benchmarks/scribbles_nuclei.py [--draws 5] [--images even|odd|all] [--all-methods]

A draw takes three nuclei and marks, in each, the pixels of the row through its middle; and three
places of the background, with a horizontal stroke of at most 40 pixels that ends at a nucleus.
Every method gets the same strokes. Settings of ours were chosen on images of even index.
``--all-methods`` is as in ``scribbles.py``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scribbles import ALL_METHODS
from skimage.feature import multiscale_basic_features
from skimage.segmentation import random_walker
from sklearn.ensemble import RandomForestClassifier

import napari_saf as saf

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data")) / "nuclei"
NUCLEUS, GROUND = 1, 2
LENGTH = 40

Image = NDArray[Any]
Strokes = NDArray[np.uint8]


def draw(truth: Image, rng: np.random.Generator, n_each: int = 3) -> Strokes:
    """Return strokes on so many nuclei and on as many places of the background."""
    strokes = np.zeros(truth.shape, dtype=np.uint8)
    names, sizes = np.unique(truth[truth > 0], return_counts=True)
    names = names[sizes >= min(20, sizes.max())]
    for name in rng.choice(names, min(n_each, len(names)), replace=False):
        rows = np.nonzero(truth == name)[0]
        middle = int(np.median(rows))
        strokes[middle, truth[middle] == name] = NUCLEUS
    free = np.argwhere(truth == 0)
    for row, column in free[rng.choice(len(free), n_each, replace=False)]:
        ahead = truth[row, column : column + LENGTH] > 0
        length = int(ahead.argmax()) if ahead.any() else len(ahead)
        strokes[row, column : column + length] = GROUND
    return strokes


def correct(truth: Image, found: Image, strokes: Strokes, n_each: int = 3) -> Strokes:
    """Return strokes with more of them across what is widest of what was labelled wrong.

    So many for each class, in rows, each in a connected region of its own and in one nucleus.
    """
    strokes = strokes.copy()
    for label, own in ((NUCLEUS, truth > 0), (GROUND, truth == 0)):
        wrong = own & ((found > 0) != (label == NUCLEUS)) & (strokes == 0)
        regions, _ = ndimage.label(wrong)
        depths = ndimage.distance_transform_edt(np.pad(wrong, 1))[1:-1, 1:-1]
        for _ in range(n_each):
            row, column = np.unravel_index(depths.argmax(), depths.shape)
            if depths[row, column] < 2:  # nobody would see it
                break
            is_free = wrong[row] & (truth[row] == truth[row, column])
            pieces, _ = ndimage.label(is_free)
            middle = np.abs(np.arange(len(is_free)) - column) <= LENGTH // 2
            strokes[row, (pieces == pieces[column]) & middle] = label
            depths[regions == regions[row, column]] = 0
    return strokes


def ours(image: Image, strokes: Strokes) -> NDArray[np.bool_]:
    """Run the assignment flow on many scales; nuclei far from any stroke are wanted too."""
    problem = saf.Problem.from_image(
        image, features="multiscale", window=5, weights="contrast", seeds=strokes
    )
    labels = saf.AssignmentFlow(paths=0, rounds=0).run(problem).labels
    return np.asarray(labels == NUCLEUS)


def automatic(image: Image, strokes: Strokes) -> NDArray[np.bool_]:
    """Run the assignment flow with what the strokes choose, as the Scribbles dock does."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels == NUCLEUS)


def forest(features: NDArray[np.floating], strokes: Strokes) -> NDArray[np.bool_]:
    trees = RandomForestClassifier(100, max_depth=10, n_jobs=-1, random_state=0)
    known = strokes > 0
    trees.fit(features[known], strokes[known])
    found = trees.predict(features.reshape(-1, features.shape[-1]))
    return np.asarray(found.reshape(strokes.shape) == NUCLEUS)


def forest_of_scales(image: Image, strokes: Strokes) -> NDArray[np.bool_]:
    axis = -1 if image.ndim == 3 else None
    return forest(multiscale_basic_features(image, sigma_max=8, channel_axis=axis), strokes)


def forest_of_colour(image: Image, strokes: Strokes) -> NDArray[np.bool_]:
    return forest(np.reshape(image, (*strokes.shape, -1)) / 255, strokes)


def walk(image: Image, strokes: Strokes) -> NDArray[np.bool_]:
    axis = -1 if image.ndim == 3 else None
    labels = random_walker(image / 255, strokes, beta=130, mode="cg_j", channel_axis=axis)
    return np.asarray(labels == NUCLEUS)


METHODS: dict[str, Callable[[Image, Strokes], NDArray[np.bool_]]] = {
    "napari-saf": ours,
    "napari-saf, automatic": automatic,
    "forest, multi-scale": forest_of_scales,
    "forest, colour": forest_of_colour,
    "random walker": walk,
}


def f1(found: NDArray[np.bool_], strokes: Strokes, truth: Image) -> float:
    """Return F1 of the foreground, strokes left out."""
    free, wanted = strokes == 0, truth > 0
    both = (found & wanted & free).sum()
    return float(2 * both / max(1, (found & free).sum() + (wanted & free).sum()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--images", choices=("even", "odd", "all"), default="all")
    parser.add_argument("--all-methods", action="store_true")
    arguments = parser.parse_args()
    methods = ALL_METHODS if arguments.all_methods else METHODS
    paths = sorted((DATA / "images").iterdir())
    first, step = {"even": (0, 2), "odd": (1, 2), "all": (0, 1)}[arguments.images]
    numbers = range(first, len(paths), step)
    print(f"{'method':22} {'F1':>6} {'even':>6} {'odd':>6} {'s/image':>8}")
    for method, call in methods.items():
        scores, times = np.full((len(paths), arguments.draws), np.nan), []
        for index in numbers:
            image = iio.imread(paths[index])
            truth = iio.imread(next((DATA / "labels").glob(f"{paths[index].stem}.*")))
            for seed in range(arguments.draws):
                strokes = draw(truth, np.random.default_rng(seed))
                began = time.perf_counter()
                found = call(image, strokes)
                times.append(time.perf_counter() - began)
                scores[index, seed] = f1(found, strokes, truth)
        means = [
            np.nanmean(part) if np.isfinite(part).any() else np.nan
            for part in (scores, scores[::2], scores[1::2])
        ]
        print(
            f"{method:22} " + " ".join(f"{x:6.3f}" for x in means) + f" {np.median(times):8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
