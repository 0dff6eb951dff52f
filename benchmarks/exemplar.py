"""Nuclei like the one in a box: `segment_like` beside template matching.

python benchmarks/exemplar.py [--boxes 5] [--sets nuclei]

Boxes are those of the nuclei nearest to the median size of an image. F1 of objects at an
intersection over union above .5, the mean of images. Template matching is that of scikit-image
(normalised cross-correlation): its peaks, at least half the shorter side of the box apart, above
the threshold that is best for all images, are boxes of the same size; the truth are bounding boxes.
"best threshold for each" image is told by the truth, and "boxes" are the boxes around objects.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from objects import DATA, counts
from scipy.ndimage import find_objects
from skimage.color import rgb2gray
from skimage.feature import match_template, peak_local_max

import napari_saf as saf

THRESHOLDS = np.arange(0.1, 0.96, 0.05)

Boxes = NDArray[np.int64]


def f1(hits: float, n_found: int, n_true: int) -> float:
    return 2 * hits / max(1, n_found + n_true)


def boxes_of(labels: NDArray[Any]) -> Boxes:
    sides = [side for side in find_objects(labels) if side is not None]
    return np.array([[*(s.start for s in box), *(s.stop for s in box)] for box in sides])


def box_hits(found: Boxes, truth: Boxes) -> int:
    """Return how many boxes of the truth are met, best pairs first."""
    if not len(found):
        return 0
    low = np.maximum(found[:, None, :2], truth[None, :, :2])
    high = np.minimum(found[:, None, 2:], truth[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(axis=2)
    areas = [(b[:, 2:] - b[:, :2]).prod(axis=1) for b in (found, truth)]
    ratios = both / (areas[0][:, None] + areas[1] - both)
    hits = 0
    while ratios.max(initial=0) > 0.5:
        row, column = np.unravel_index(ratios.argmax(), ratios.shape)
        ratios[row], ratios[:, column] = 0, 0
        hits += 1
    return hits


def matched(image: NDArray[Any], box: Any, truth: Boxes) -> list[float]:
    """Return F1 of template matching for each threshold."""
    grey = rgb2gray(image) if image.ndim == 3 else image / 255
    top, left, bottom, right = box
    scores = match_template(grey, grey[top:bottom, left:right], pad_input=True)
    size = np.array([bottom - top, right - left])
    apart = max(1, int(size.min()) // 2)
    peaks = peak_local_max(scores, apart, threshold_abs=THRESHOLDS[0], exclude_border=False)
    values = scores[tuple(peaks.T)]
    corners = peaks - size // 2
    boxes = np.concatenate([corners, corners + size], axis=1)
    some = [boxes[values > least] for least in THRESHOLDS]
    return [f1(box_hits(own, truth), len(own), len(truth)) for own in some]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=["nuclei"])
    parser.add_argument("--crop", type=int, default=10_000, help="pixels a side at most")
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    ours, boxes, templates, times = [], [], [], []
    paths = [p for name in options.sets for p in sorted((DATA / name / "images").iterdir())]
    for path in paths:
        image = iio.imread(path)[: options.crop, : options.crop]
        truth = iio.imread(path.parents[1] / "labels" / path.name).astype(int)
        truth = truth[: options.crop, : options.crop]
        truth = np.unique(truth, return_inverse=True)[1].reshape(truth.shape)
        true_boxes, sizes = boxes_of(truth), np.bincount(truth.ravel())[1:]
        own: list[list[float]] = [[], []]
        tables = []
        for number in np.argsort(np.abs(sizes - np.median(sizes)), kind="stable")[: options.boxes]:
            box = true_boxes[number]
            began = time.process_time()
            labels = saf.segment_like(image, box.tolist()).labels
            times.append(time.process_time() - began)
            hits, wrong, missed = counts(truth, labels)[:3]
            own[0].append(f1(hits, int(hits + wrong), int(hits + missed)))
            some = boxes_of(labels).reshape(-1, 4)
            own[1].append(f1(box_hits(some, true_boxes), len(some), len(true_boxes)))
            tables.append(matched(image, box, true_boxes))
        if options.each:
            print(f"{path.stem:18}", *(f"{x:.3f}" for x in own[0]), flush=True)
        ours.append(np.mean(own[0]))
        boxes.append(np.mean(own[1]))
        templates.append(np.mean(tables, axis=0))
    best = np.mean(templates, axis=0)
    least = THRESHOLDS[best.argmax()]
    print(f"{len(paths)} images, {options.boxes} boxes each: F1 at an overlap of .5")
    rows = {
        "segment_like, outlines": np.mean(ours),
        "segment_like, boxes": np.mean(boxes),
        f"template matching, boxes, threshold {least:.2f}": best.max(),
        "template matching, best threshold for each": np.max(templates, axis=1).mean(),
        "seconds of processor time for one box": np.median(times),
    }
    for name, value in rows.items():
        print(f"{name:44} {value:.3f}")


if __name__ == "__main__":
    main()
