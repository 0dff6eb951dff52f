"""Objects from strokes: intersection over union on photographs with scribbles of people.

python benchmarks/scribbles.py [--strokes 1 2] [--keep 1 0.5 0.25 0.1] [--all-methods]

Peers, if they are there: scikit-image's random walker, a random forest on multi-scale features
and on colour and position (all stroke pixels), OpenCV's grabCut started from the strokes
(pip install opencv-python-headless). Settings of ours were chosen on images of even index.
With ``--all-methods`` the methods for strokes at their defaults stand in the table instead, beside
a random forest on the same features: Lab or grey values of the image reduced to 240 pixels.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from skimage.color import rgb2lab
from skimage.feature import multiscale_basic_features
from skimage.segmentation import random_walker
from sklearn.ensemble import RandomForestClassifier

import napari_saf as saf
from napari_saf.methods import AbstractMethod, SweepMethod

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data")) / "grabcut"
OBJECT, BACKGROUND, UNKNOWN = 1, 2, 128
SIDE = 240

Image = NDArray[np.uint8]
Method = Callable[[Image, Image], NDArray[np.bool_]]


def ours(image: Image, strokes: Image) -> NDArray[np.bool_]:
    """Run the assignment flow on colours, the longest side reduced to 240 pixels."""
    problem = saf.Problem.from_image(
        image, features="lab", window=13, weights="contrast", max_side=SIDE, seeds=strokes
    )
    return np.asarray(saf.AssignmentFlow(connected=True).run(problem).labels == OBJECT)


def automatic(image: Image, strokes: Image) -> NDArray[np.bool_]:
    """Run the assignment flow with what the strokes choose, as the Scribbles dock does."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels == OBJECT)


def walk(image: Image, strokes: Image) -> NDArray[np.bool_]:
    labels = random_walker(image / 255, strokes, beta=130, mode="cg_j", channel_axis=-1)
    return np.asarray(labels == OBJECT)


def forest(features: NDArray[np.floating], strokes: Image) -> NDArray[np.bool_]:
    trees = RandomForestClassifier(100, max_depth=10, n_jobs=-1, random_state=0)
    known = strokes > 0
    trees.fit(features[known], strokes[known])
    found = trees.predict(features.reshape(-1, features.shape[-1]))
    return np.asarray(found.reshape(strokes.shape) == OBJECT)


def forest_of_scales(image: Image, strokes: Image) -> NDArray[np.bool_]:
    features = multiscale_basic_features(image, sigma_max=8, channel_axis=-1)
    return forest(features, strokes)


def forest_of_colour(image: Image, strokes: Image) -> NDArray[np.bool_]:
    place = np.moveaxis(np.indices(strokes.shape), 0, -1) / max(strokes.shape)
    return forest(np.concatenate([rgb2lab(image) / 100, place], axis=-1), strokes)


def grab_cut(image: Image, strokes: Image) -> NDArray[np.bool_]:
    import cv2

    mask = np.full(strokes.shape, cv2.GC_PR_BGD, dtype=np.uint8)
    mask[strokes == OBJECT], mask[strokes == BACKGROUND] = cv2.GC_FGD, cv2.GC_BGD
    tables = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)
    bgr = np.ascontiguousarray(image[..., ::-1])
    cv2.grabCut(bgr, mask, None, *tables, 5, cv2.GC_INIT_WITH_MASK)
    return np.isin(mask, (cv2.GC_FGD, cv2.GC_PR_FGD))


METHODS: dict[str, Method] = {
    "napari-saf": ours,
    "napari-saf, automatic": automatic,
    "random walker": walk,
    "forest, multi-scale": forest_of_scales,
    "forest, colour + position": forest_of_colour,
}
if importlib.util.find_spec("cv2"):
    METHODS["OpenCV grabCut"] = grab_cut


def on_same_features(label: Callable[[saf.Problem], NDArray[np.integer]]) -> Method:
    """Return what labels the object by the features and windows that all methods get."""

    def found(image: Image, strokes: Image) -> NDArray[np.bool_]:
        features = "lab" if image.ndim == 3 else "intensity"
        problem = saf.Problem.from_image(
            image, features=features, window=13, weights="contrast", max_side=SIDE, seeds=strokes
        )
        labels = label(problem)
        image_labels = problem.graph.to_image(labels) if labels.ndim == 1 else labels
        return np.asarray(np.asarray(image_labels) == OBJECT)

    return found


def forest_of_nodes(problem: saf.Problem) -> NDArray[np.integer]:
    trees, seeds = RandomForestClassifier(100, max_depth=10, random_state=0), problem.seeds
    assert seeds is not None
    trees.fit(problem.features[seeds > 0], seeds[seeds > 0])
    return np.asarray(trees.predict(problem.features))


def labels_of(method: type[AbstractMethod], problem: saf.Problem) -> NDArray[np.integer]:
    return np.asarray(method().run(problem).labels)


ALL_METHODS: dict[str, Method] = {"forest": on_same_features(forest_of_nodes)} | {
    method.title: on_same_features(partial(labels_of, method))
    for method in saf.METHODS.values()
    if not issubclass(method, SweepMethod)
}


def thin(strokes: Image, share: float, rng: np.random.Generator) -> Image:
    """Keep a share of the stroke pixels, in short pieces, two of each class at least."""
    if share == 1:
        return strokes
    kept = np.zeros_like(strokes)
    for label in (OBJECT, BACKGROUND):
        places = np.argwhere(strokes == label)
        pieces = places // 8
        names, which = np.unique(pieces, axis=0, return_inverse=True)
        count = max(2, round(share * len(names)))
        chosen = rng.choice(len(names), min(count, len(names)), replace=False)
        for row, column in places[np.isin(which.ravel(), chosen)]:
            kept[row, column] = label
    return kept


def score(found: NDArray[np.bool_], strokes: Image, truth: Image) -> tuple[float, float]:
    """Return intersection over union and error rate where the truth is known."""
    found = found.copy()
    found[strokes == OBJECT], found[strokes == BACKGROUND] = True, False
    known, wanted = truth != UNKNOWN, truth == 255
    union = ((found | wanted) & known).sum()
    return float((found & wanted & known).sum() / union), float((found != wanted)[known].mean())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strokes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--keep", nargs="+", type=float, default=[1.0, 0.5, 0.25, 0.1])
    parser.add_argument("--all-methods", action="store_true")
    arguments = parser.parse_args()
    methods = ALL_METHODS if arguments.all_methods else METHODS
    names = sorted(path.stem for path in (DATA / "images").iterdir())
    for number in arguments.strokes:
        for share in arguments.keep if number == 1 else [1.0]:
            print(f"\nscribbles{number}, {100 * share:g} % of the strokes, {len(names)} images")
            print(f"{'method':28} {'IoU':>6} {'even':>6} {'odd':>6} {'error':>7} {'s/image':>8}")
            for method, call in methods.items():
                rows, times = [], []
                for index, name in enumerate(names):
                    rng = np.random.default_rng(index)
                    image = iio.imread(DATA / "images" / f"{name}.jpg")
                    truth = iio.imread(DATA / "masks" / f"{name}.png")
                    drawn = iio.imread(DATA / f"scribbles{number}" / f"{name}.png")
                    strokes = thin(drawn, share, rng)
                    began = time.perf_counter()
                    found = call(image, strokes)
                    times.append(time.perf_counter() - began)
                    rows.append(score(found, strokes, truth))
                iou, error = np.array(rows).T
                print(
                    f"{method:28} {iou.mean():6.3f} {iou[::2].mean():6.3f} {iou[1::2].mean():6.3f} "
                    f"{100 * error.mean():6.2f}% {np.median(times):8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
