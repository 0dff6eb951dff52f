"""Single nuclei from a few strokes, or from a box around one, beside peers.

python benchmarks/objects.py [--draws 1] [--nuclei 3] [--corrections 0] [--taught own|one]
python benchmarks/objects.py --boxes 5 [--sets nuclei] [--crop 400]
python benchmarks/objects.py --shapes 100
python benchmarks/objects.py --side 4096
python benchmarks/objects.py --tiles 8192

The images of the folders nuclei and nuclei_more, with strokes as of `scribbles.py`, and the
settings that the strokes choose; with ``--corrections`` so many times three more strokes of each
class, across what is widest of what was labelled wrong. With ``--taught one`` each image is
labelled by what was taught on the first image of its kind (fluorescence, stained, grey) in its
folder, which is left out. On the same foreground: the connected components, the watershed of the
distance to the border from all its maxima as in the gallery of scikit-image, and `split_objects`,
with its defaults: as the dock and `segment --objects` call it, with the image and, of strokes on
it, the uncertainty; of the labels alone; with the image alone; and as first with neck and smallest
object chosen for each fifth of the images by the other four; and `split_objects` with the image on
the foreground of a random forest on multi-scale features, taught likewise. AP is
TP / (TP + FP + FN) at an intersection over union above .5, the mean of images, and pooled over all
objects; a nucleus is split if two or more objects lie in it by at least half of their pixels and
have a tenth of its own, and an object merges if that is so for nuclei in it.

With ``--boxes`` nuclei like the one in a box: `segment_like` beside template matching. Boxes are
those of the nuclei nearest to the median size of an image. F1 of objects at an intersection over
union above .5, the mean of images. Template matching is that of scikit-image (normalised
cross-correlation): its peaks, at least half the shorter side of the box apart, above the threshold
that is best for all images, are boxes of the same size; the truth are bounding boxes. "best
threshold for each" image is told by the truth, and "boxes" are the boxes around objects.

With ``--shapes`` so many pairs of discs and ellipses that touch, as the tests have them, and the
share that is found at an intersection over union of .7; with ``--side`` processor time for an image
of scattered discs of so many pixels a side, with ``--tiles`` time and memory for a store of them.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import zarr
from numpy.typing import NDArray
from scipy import ndimage
from scribbles import DATA, NUCLEUS, correct, draw
from skimage.color import rgb2gray
from skimage.feature import match_template, multiscale_basic_features, peak_local_max
from skimage.segmentation import relabel_sequential, watershed
from sklearn.ensemble import RandomForestClassifier

import napari_saf as saf
from napari_saf.objects import ObjectStep, find_parts

THRESHOLDS = np.arange(0.1, 0.96, 0.05)
NECKS = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15)
SIZES = (10, 20, 30, 50)
NUMBERS = ("AP", "pooled", "F1 .5", "F1 .7", "split", "merged")

Mask = NDArray[np.bool_]
Labels = NDArray[np.integer[Any]]
Boxes = NDArray[np.int64]


def components(mask: Mask) -> Labels:
    return np.asarray(ndimage.label(mask, np.ones((3, 3)))[0])


def gallery(mask: Mask) -> Labels:
    """Split by the distance to the border, as the gallery of scikit-image does."""
    distance = ndimage.distance_transform_edt(mask)
    places = peak_local_max(distance, footprint=np.ones((3, 3)), labels=components(mask))
    markers = np.zeros(mask.shape, int)
    markers[tuple(places.T)] = np.arange(1, len(places) + 1)
    return np.asarray(watershed(-distance, markers, mask=mask))


def forest(taught: NDArray[Any], strokes: NDArray[np.integer[Any]], image: NDArray[Any]) -> Mask:
    """Return the nuclei that a random forest finds, taught by strokes on an image."""

    def features(one: NDArray[Any]) -> NDArray[np.floating]:
        axis = -1 if one.ndim == 3 else None
        return np.asarray(multiscale_basic_features(one, sigma_max=8, channel_axis=axis))

    trees = RandomForestClassifier(100, max_depth=10, n_jobs=-1, random_state=0)
    trees.fit(features(taught)[strokes > 0], strokes[strokes > 0])
    found = features(image)
    labels = trees.predict(found.reshape(-1, found.shape[-1]))
    return np.asarray(labels.reshape(found.shape[:-1]) == NUCLEUS)


def counts(truth: Labels, found: Labels) -> NDArray[np.float64]:
    """Return TP, FP, FN at .5, the same at .7, nuclei that are split, objects that merge."""
    score = saf.metrics.score_objects(found, truth, np.nextafter((0.5, 0.7), 1).tolist())
    n, n_true = score.n_objects, score.n_true
    hits = [x for hit in score.n_matches.values() for x in (hit, n - hit, n_true - hit)]
    return np.array([*hits, score.n_split, score.n_merged], float)


def label(
    job: tuple[str, str, str], seed: int, n_nuclei: int, n_corrections: int
) -> tuple[NDArray[Any], Labels, Mask, NDArray[np.float32], Mask]:
    """Return image, truth, the nuclei found, how uncertain pixels were, and nuclei of a forest."""
    folder, name, teacher = job

    def read(one: str) -> tuple[Any, Any]:
        image = iio.imread(DATA / folder / "images" / f"{one}.png")
        return image, iio.imread(DATA / folder / "labels" / f"{one}.png").astype(int)

    image, truth = read(teacher)
    strokes = draw(truth, np.random.default_rng(seed), n_nuclei)
    for k in range(n_corrections + 1):
        choice = saf.choose_for_strokes(image, strokes)
        problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
        result = choice.method.run(problem)
        if k < n_corrections:
            strokes = correct(truth, np.asarray(result.labels) == NUCLEUS, strokes)
    taught_image = image
    if name != teacher:
        prototypes = saf.PrototypeSet.from_labels(problem, result.labels)
        taught: Any = saf.Pipeline.from_prototypes(prototypes)
        image, truth = read(name)
        problem = taught.problem(image, rescale=True)
        result = taught.method.run(problem)
    values: Any = result.uncertainty
    uncertainty: Any = problem.graph.to_image(values)
    return (
        image,
        truth,
        np.asarray(result.labels) == NUCLEUS,
        uncertainty,
        forest(taught_image, strokes, image),
    )


def measure(
    job: tuple[str, str, str], seed: int, n_nuclei: int, n_corrections: int
) -> dict[str, Any]:
    """Return the counts of each way on one image; of ours for each choice of neck and size."""
    image, truth, mask, uncertainty, trees = label(job, seed, n_nuclei, n_corrections)
    is_known = ObjectStep().by_uncertainty and job[1] == job[2]
    parts, _ = find_parts(mask, image=image, uncertainty=uncertainty if is_known else None)
    ways: dict[str, Callable[[], Any]] = {
        "random forest": lambda: find_parts(trees, image=image)[0].join().labels,
        "components": lambda: components(mask),
        "scikit-image": lambda: gallery(mask),
        "labels alone": lambda: find_parts(mask)[0].join().labels,
        "image alone": lambda: find_parts(mask, image=image)[0].join().labels,
        "split_objects": lambda: parts.join().labels,
        "the truth in it": lambda: np.where(mask, truth, 0),
    }
    found = {way: counts(truth, call()) for way, call in ways.items()}
    grid = [[counts(truth, parts.join(neck=n, smallest=s).labels) for s in SIZES] for n in NECKS]
    return {**found, "grid": np.array(grid)}


def precision(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the average precision at .5 of each row of counts."""
    return np.asarray(table[..., 0] / table[..., :3].sum(axis=-1).clip(min=1))


def cross_validated(grids: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the counts of each image with what is best on the other four fifths."""
    chosen, folds = [], np.arange(len(grids)) % 5
    for image, fold in enumerate(folds):
        scores = precision(grids[folds != fold]).mean(axis=0)
        chosen.append(grids[image][np.unravel_index(scores.argmax(), scores.shape)])
    return np.array(chosen)


def row(table: NDArray[np.float64]) -> list[float]:
    """Return the numbers of the table that is printed."""
    total = table.sum(axis=0)
    halves = [2 * total[k] / (2 * total[k] + total[k + 1] + total[k + 2]) for k in (0, 3)]
    return [precision(table).mean(), float(precision(total)), *halves, *total[6:]]


def jobs_of(taught: str) -> list[tuple[str, str, str]]:
    """Return folder, image, and the image with the strokes."""
    jobs = []
    for folder in ("nuclei", "nuclei_more"):
        with open(DATA / folder / "list.csv", newline="") as file:
            kinds = {one["name"]: one["kind"] for one in csv.DictReader(file)}
        first = {kind: name for name, kind in reversed(kinds.items())}
        for name, kind in kinds.items():
            teacher = name if taught == "own" else first[kind]
            if taught == "own" or name != teacher:
                jobs.append((folder, name, teacher))
    return jobs


def shapes(count: int) -> None:
    """Print the share of touching shapes that is found, in planes and in volumes."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "objects"))
    cases = import_module("object_cases")

    for spacing in ((1, 1), (3, 1, 1)):
        for name, stretch in (("discs", 1), ("ellipses", 1.5)):
            rng, found = np.random.default_rng(0), []
            for _ in range(count):
                truth = cases.touching_pair(rng, spacing, stretch)
                labels = saf.split_objects(truth > 0, spacing=spacing).labels
                found.append(cases.share_found(truth, labels))
            print(f"{name:9} spacing {spacing}: {np.mean(found):.3f} of {2 * count}", flush=True)


def scattered(side: int) -> NDArray[np.uint8]:
    """Return many discs."""
    rng, around = np.random.default_rng(0), np.hypot(*np.mgrid[-20:21, -20:21])
    kinds = np.zeros((side, side), np.uint8)
    for _ in range(27_000 * side**2 // 4096**2):
        row, column = rng.integers(20, side - 21, 2)
        kinds[row - 20 : row + 21, column - 20 : column + 21] |= around <= rng.uniform(6, 13)
    return kinds


def tiled(side: int) -> None:
    """Print time and memory of splitting and measuring a store of many discs, side by side."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {"shape": (side, side), "chunks": (512, 512)}
        stored = zarr.create_array(f"{folder}/kinds.zarr", dtype="uint8", **sides)
        corners = range(0, side, 2048)
        for row, column in itertools.product(corners, corners):
            stored[row : row + 2048, column : column + 2048] = scattered(2048)
        began = time.process_time()
        objects = saf.split_large(stored, f"{folder}/objects.ome.zarr")
        split, first = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        objects.table()
        print(
            f"{len(objects.kinds) - 1} objects: split {split - began:.1f} s, {first / 1024:.0f} "
            f"MiB, table {time.process_time() - split:.1f} s, "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
        )


def large(side: int) -> None:
    """Print the processor time of splitting and measuring many discs."""
    kinds = scattered(side)
    began = time.process_time()
    parts, _ = find_parts(kinds)
    objects = parts.join()
    split = time.process_time()
    parts.join(smallest=30)
    again = time.process_time()
    saf.object_table(objects, kinds)
    print(
        f"{len(objects.numbers)} objects: split {split - began:.1f} s, another size "
        f"{again - split:.2f} s, table {time.process_time() - again:.1f} s"
    )


def f1(hits: float, n_found: int, n_true: int) -> float:
    return 2 * hits / max(1, n_found + n_true)


def boxes_of(labels: NDArray[Any]) -> Boxes:
    sides = [side for side in ndimage.find_objects(labels) if side is not None]
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


def segment_like(options: argparse.Namespace) -> None:
    """Print F1 of objects from boxes."""
    ours, boxes, templates, times = [], [], [], []
    paths = [p for name in options.sets for p in sorted((DATA / name / "images").iterdir())]
    for path in paths:
        image = iio.imread(path)[: options.crop, : options.crop]
        truth = iio.imread(path.parents[1] / "labels" / path.name).astype(int)
        truth = relabel_sequential(truth[: options.crop, : options.crop])[0]
        true_boxes, sizes = boxes_of(truth), np.bincount(truth.ravel())[1:]
        if not len(true_boxes):
            continue
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
    print(f"{len(ours)} images with nuclei, {options.boxes} boxes each: F1 at an overlap of .5")
    rows = {
        "segment_like, outlines": np.mean(ours),
        "segment_like, boxes": np.mean(boxes),
        f"template matching, boxes, threshold {least:.2f}": best.max(),
        "template matching, best threshold for each": np.max(templates, axis=1).mean(),
        "seconds of processor time for one box": np.median(times),
    }
    for name, value in rows.items():
        print(f"{name:44} {value:.3f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--nuclei", type=int, default=3, help="so many, and places of the ground")
    parser.add_argument("--corrections", type=int, default=0, metavar="TIMES")
    parser.add_argument("--taught", choices=("own", "one"), default="own")
    parser.add_argument("--boxes", type=int, metavar="N")
    parser.add_argument("--sets", nargs="+", default=["nuclei"], help="with --boxes")
    parser.add_argument("--crop", type=int, default=10_000, help="pixels a side, with --boxes")
    parser.add_argument("--each", action="store_true", help="each image, with --boxes")
    parser.add_argument("--shapes", type=int, metavar="PAIRS")
    parser.add_argument("--side", type=int)
    parser.add_argument("--tiles", type=int, metavar="SIDE")
    options = parser.parse_args()
    if options.boxes is not None:
        segment_like(options)
        return
    if options.shapes is not None:
        shapes(options.shapes)
        return
    if options.side is not None:
        large(options.side)
        return
    if options.tiles is not None:
        tiled(options.tiles)
        return
    jobs = jobs_of(options.taught)
    for seed in range(options.draws):
        found = [measure(job, seed, options.nuclei, options.corrections) for job in jobs]
        tables = {way: np.array([one[way] for one in found]) for way in found[0]}
        tables["chosen by others"] = cross_validated(tables.pop("grid"))
        print(
            f"\n{len(jobs)} images, draw {seed}, {options.nuclei} nuclei, corrected "
            f"{options.corrections} times, taught {options.taught}"
        )
        print(f"{'':18}" + "".join(f"{name:>8}" for name in NUMBERS) + "   ahead of both, level")
        peers = np.maximum(precision(tables["components"]), precision(tables["scikit-image"]))
        for way, table in tables.items():
            numbers = [f"{x:8.3f}" if k < 4 else f"{x:8.0f}" for k, x in enumerate(row(table))]
            ahead, level = (int(n) for n in ((precision(table) > peers).sum(),
                                             (precision(table) == peers).sum()))  # fmt: skip
            print(f"{way:18}" + "".join(numbers) + f"   {ahead}, {level}", flush=True)


if __name__ == "__main__":
    main()
