"""Clicks until an object is cut out.

python benchmarks/clicks.py [--images 10] [--ways ours grabcut]

Clicks are simulated as in Xu et al., "Deep interactive object selection",
https://doi.org/10.1109/CVPR.2016.47: each is in the middle of the largest error, a disc of radius 3
or less; the first two are in the middle of the object and of the ground. NoC is the mean number of
clicks, 20 at most, until the intersection over union (IoU) is reached. `ours` is what the Scribbles
dock does, grabcut OpenCV's (pip install opencv-python-headless), forest a random forest on
multi-scale features.
"""

from __future__ import annotations

import argparse
import importlib.util
import time

import imageio.v3 as iio
import numpy as np
import scribbles
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from skimage.draw import disk

import napari_saf as saf
from napari_saf._gui.runs.run import WarmStart
from napari_saf.result import LabelMap

MOST, RADIUS = 20, 3
Mask = NDArray[np.bool_]


class Ours:
    """The assignment flow; what the dock keeps from click to click is kept."""

    def __init__(self) -> None:
        self.image: scribbles.Image | None = None
        self.choice: saf.StrokeChoice | None = None
        self.start: WarmStart | None = None

    def __call__(self, image: scribbles.Image, strokes: scribbles.Image) -> Mask:
        if image is not self.image:
            self.image, self.choice, self.start = image, None, None
            self.problems: dict[str, saf.Problem] = {}
        choice = saf.choose_for_strokes(image, strokes, before=self.choice)
        if choice.summary not in self.problems:
            problem = saf.Problem.from_image(image, **choice.options.arguments())
            self.problems[choice.summary] = problem
        problem = self.problems[choice.summary].with_seeds(strokes)
        classes, initial = LabelMap.identity(2), None
        if choice.corrects and self.start is not None:
            initial = self.start.initial(problem, classes, choice.method)
        result = choice.method.run(problem, initial)
        self.start = WarmStart.after(problem, result, classes.numbers, self.start)
        self.choice = choice
        return np.asarray(result.labels == scribbles.OBJECT)


WAYS: dict[str, scribbles.Method] = {"ours": Ours(), "forest": scribbles.forest_of_scales}
if importlib.util.find_spec("cv2"):
    WAYS["grabcut"] = scribbles.grab_cut


def depths(mask: Mask) -> NDArray[np.float64]:
    return np.asarray(distance_transform_edt(np.pad(mask, 1)))[1:-1, 1:-1]


def click(strokes: scribbles.Image, errors: dict[int, Mask]) -> bool:
    """Paint a disc in the middle of the largest error, by its right class; False if none is."""
    distances = {label: depths(mask) for label, mask in errors.items()}
    label = max(distances, key=lambda k: float(distances[k].max()))
    depth = float(distances[label].max())
    if not depth:
        return False
    centre = np.unravel_index(distances[label].argmax(), strokes.shape)
    rows, columns = disk(centre, max(1, min(RADIUS, int(depth))) + 0.5, shape=strokes.shape)
    inside = errors[label][rows, columns]
    strokes[rows[inside], columns[inside]] = label
    return True


def curve(way: scribbles.Method, image: scribbles.Image, truth: scribbles.Image) -> list[float]:
    """Return the IoU after 2, 3, ..., 20 clicks."""
    strokes = np.zeros(truth.shape, np.uint8)
    true = {scribbles.OBJECT: truth == 255, scribbles.BACKGROUND: truth == 0}
    for label, mask in true.items():
        click(strokes, {label: mask})
    scores: list[float] = []
    for _ in range(2, MOST + 1):
        found = np.asarray(way(image, strokes.copy()), bool)
        inside = true[scribbles.OBJECT]
        union = (found | inside) & (truth != scribbles.UNKNOWN)
        scores.append(float((found & inside).sum() / max(1, union.sum())))
        wrong = {
            scribbles.OBJECT: inside & ~found,
            scribbles.BACKGROUND: true[scribbles.BACKGROUND] & found,
        }
        if not click(strokes, wrong):
            break
    return scores + [scores[-1]] * (MOST - 1 - len(scores))


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, metavar="N", help="about N, evenly spread")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    arguments = parser.parse_args()
    paths = sorted((scribbles.DATA / "images").iterdir())
    paths = paths[:: max(1, len(paths) // (arguments.images or len(paths)))]
    print("way       NoC@85  NoC@90  IoU after 2, 3, 5, 10, 20 clicks        falls  s/click")
    for name in arguments.ways:
        began, rows = time.perf_counter(), []
        for path in paths:
            truth = iio.imread(scribbles.DATA / "masks" / f"{path.stem}.png")
            rows.append(curve(WAYS[name], iio.imread(path), truth))
        table = np.array(rows)
        seconds = (time.perf_counter() - began) / table.size
        counts = [
            np.where((table >= goal).any(axis=1), 2 + (table >= goal).argmax(axis=1), MOST).mean()
            for goal in (0.85, 0.9)
        ]
        falls = (np.diff(table, axis=1) < -0.01).sum(axis=1).mean()
        means = "  ".join(f"{table[:, n - 2].mean():.3f}" for n in (2, 3, 5, 10, 20))
        print(
            f"{name:8} {counts[0]:7.1f} {counts[1]:7.1f}  {means:38}  {falls:5.1f}  {seconds:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
