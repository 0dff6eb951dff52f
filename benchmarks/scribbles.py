"""Labels from strokes on photographs and nuclei, what strokes choose, and clicks.

    python benchmarks/scribbles.py [photographs] [--strokes 1 2] [--keep 1 0.5 0.25 0.1]
    python benchmarks/scribbles.py nuclei [--draws 5] [--half even|odd]
    python benchmarks/scribbles.py choices [--sets grabcut nuclei] [--pixels 500000] [--images N]
    python benchmarks/scribbles.py clicks [--images 10] [--ways ours grabcut]

photographs  Intersection over union on GrabCut photographs with scribbles of people, of which
             ``--keep`` takes a share. Peers, if they are there: scikit-image's random walker, a
             random forest on multi-scale features and on colour and position (all stroke pixels),
             OpenCV's grabCut started from the strokes (pip install opencv-python-headless).
nuclei       F1 of the foreground, strokes left out, over draws of strokes: three nuclei, in each
             the pixels of the row through its middle, and three places of the background, with a
             horizontal stroke of at most 40 pixels that ends at a nucleus.
choices      Each choice of `choose_for_strokes` fixed, the better one per image, and what it
             chooses: on the photographs, with all strokes, a quarter and a tenth; on nuclei of both
             folders, also with one stroke a class. "held out" is what those numbers of the rule
             give that are best, every row alike, on four fifths of the images, on the last fifth.
             Larger images than ``--pixels`` are left out.
clicks       Clicks until an object is cut out, simulated as in Xu et al., "Deep interactive object
             selection", https://doi.org/10.1109/CVPR.2016.47: each is in the middle of the largest
             error, a disc of radius 3 or less; the first two are in the middle of the object and of
             the ground. NoC is the mean number of clicks, 20 at most, until the intersection over
             union (IoU) is reached. `ours` is what the Scribbles dock does.

Settings of ours were chosen on images of even index, the rule of choices on all but draw 1 of the
nuclei. With ``--all-methods`` photographs and nuclei are labelled by the methods for strokes at
their defaults instead, beside a random forest on the same features: Lab or grey values of the image
reduced to 240 pixels. ``--images`` reads about so many images.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, label
from skimage.color import rgb2lab
from skimage.draw import disk
from skimage.feature import multiscale_basic_features
from skimage.segmentation import random_walker
from sklearn.ensemble import RandomForestClassifier

import napari_saf as saf
from napari_saf.features import FeatureExtractor
from napari_saf.methods import AbstractMethod, StrokeChoice, SweepMethod, stroke_choices
from napari_saf.methods._stroke_choice import (
    _LEAST_OF_STROKE,
    left_out_accuracy,
    regions_without_stroke,
)
from napari_saf.result import LabelMap

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
OBJECT = NUCLEUS = 1
BACKGROUND = GROUND = 2
UNKNOWN, SIDE, LENGTH = 128, 240, 40
RULES = list(itertools.product((0.03, 0.1, 0.3), (2, 3, 4, 6, 8), (0.05, 0.1, 0.15, 0.3)))
N_FOLDS = 5
MOST_CLICKS, RADIUS = 20, 3

Image = NDArray[Any]
Strokes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Method = Callable[[Image, Strokes], Mask]
Case = tuple[str, Image, Strokes, Callable[[Mask], float]]
Regions = tuple[NDArray[np.floating], bool, NDArray[np.floating]]
Seen = tuple[list[Regions], dict[str, float | None]]

# Ways to label


def connected_colours(image: Image, strokes: Strokes) -> Mask:
    """Run the assignment flow on colours, the longest side reduced to 240 pixels."""
    problem = saf.Problem.from_image(
        image, features="lab", window=13, weights="contrast", max_side=SIDE, seeds=strokes
    )
    return np.asarray(saf.AssignmentFlow(connected=True).run(problem).labels == OBJECT)


def scales(image: Image, strokes: Strokes) -> Mask:
    """Run the assignment flow on multi-scale features, also far from any stroke."""
    problem = saf.Problem.from_image(
        image, features="multiscale", window=5, weights="contrast", seeds=strokes
    )
    return np.asarray(saf.AssignmentFlow(paths=0, rounds=0).run(problem).labels == NUCLEUS)


def chosen(image: Image, strokes: Strokes, choice: StrokeChoice | None = None) -> Image:
    """Return labels with a choice, by default that of the strokes, as in the Scribbles dock."""
    choice = choice or saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels)


def automatic(image: Image, strokes: Strokes) -> Mask:
    return np.asarray(chosen(image, strokes) == OBJECT)


def walk(image: Image, strokes: Strokes) -> Mask:
    axis = -1 if image.ndim == 3 else None
    labels = random_walker(image / 255, strokes, beta=130, mode="cg_j", channel_axis=axis)
    return np.asarray(labels == OBJECT)


def forest(features: NDArray[np.floating], strokes: Strokes) -> Mask:
    trees = RandomForestClassifier(100, max_depth=10, n_jobs=-1, random_state=0)
    trees.fit(features[strokes > 0], strokes[strokes > 0])
    labels = trees.predict(features.reshape(-1, features.shape[-1]))
    return np.asarray(labels.reshape(strokes.shape) == OBJECT)


def forest_of_scales(image: Image, strokes: Strokes) -> Mask:
    axis = -1 if image.ndim == 3 else None
    return forest(multiscale_basic_features(image, sigma_max=8, channel_axis=axis), strokes)


def forest_of_colour(image: Image, strokes: Strokes) -> Mask:
    return forest(np.reshape(image, (*strokes.shape, -1)) / 255, strokes)


def forest_of_position(image: Image, strokes: Strokes) -> Mask:
    position = np.moveaxis(np.indices(strokes.shape), 0, -1) / max(strokes.shape)
    return forest(np.concatenate([rgb2lab(image) / 100, position], axis=-1), strokes)


def grab_cut(image: Image, strokes: Strokes) -> Mask:
    import cv2

    mask = np.full(strokes.shape, cv2.GC_PR_BGD, dtype=np.uint8)
    mask[strokes == OBJECT], mask[strokes == BACKGROUND] = cv2.GC_FGD, cv2.GC_BGD
    tables = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)
    bgr = np.ascontiguousarray(image[..., ::-1])
    cv2.grabCut(bgr, mask, None, *tables, 5, cv2.GC_INIT_WITH_MASK)
    return np.isin(mask, (cv2.GC_FGD, cv2.GC_PR_FGD))


ON_PHOTOGRAPHS: dict[str, Method] = {
    "napari-saf": connected_colours,
    "napari-saf, automatic": automatic,
    "random walker": walk,
    "forest, multi-scale": forest_of_scales,
    "forest, colour + position": forest_of_position,
}
ON_NUCLEI: dict[str, Method] = {
    "napari-saf": scales,
    "napari-saf, automatic": automatic,
    "forest, multi-scale": forest_of_scales,
    "forest, colour": forest_of_colour,
    "random walker": walk,
}


def on_same_features(labels_of: Callable[[saf.Problem], NDArray[Any]]) -> Method:
    """Return a method on the features and windows that all methods get."""

    def mask_of(image: Image, strokes: Strokes) -> Mask:
        features = "lab" if image.ndim == 3 else "intensity"
        problem = saf.Problem.from_image(
            image, features=features, window=13, weights="contrast", max_side=SIDE, seeds=strokes
        )
        labels = labels_of(problem)
        image_labels: Any = problem.graph.to_image(labels) if labels.ndim == 1 else labels
        return np.asarray(image_labels == OBJECT)

    return mask_of


def forest_of_nodes(problem: saf.Problem) -> NDArray[Any]:
    trees, seeds = RandomForestClassifier(100, max_depth=10, random_state=0), problem.seeds
    assert seeds is not None
    trees.fit(problem.features[seeds > 0], seeds[seeds > 0])
    return np.asarray(trees.predict(problem.features))


def run_defaults(method: type[AbstractMethod], problem: saf.Problem) -> NDArray[Any]:
    return np.asarray(method().run(problem).labels)


ALL_METHODS: dict[str, Method] = {"forest": on_same_features(forest_of_nodes)} | {
    method.title: on_same_features(partial(run_defaults, method))
    for method in saf.METHODS.values()
    if not issubclass(method, SweepMethod)
}

# Strokes and scores


def thin(strokes: Strokes, share: float, rng: np.random.Generator) -> Strokes:
    """Keep a share of the stroke pixels, in short pieces, two of each class at least."""
    if share == 1:
        return strokes
    kept = np.zeros_like(strokes)
    for number in (OBJECT, BACKGROUND):
        pixels = np.argwhere(strokes == number)
        names, piece_of = np.unique(pixels // 8, axis=0, return_inverse=True)
        count = max(2, round(share * len(names)))
        picked = rng.choice(len(names), min(count, len(names)), replace=False)
        for row, column in pixels[np.isin(piece_of.ravel(), picked)]:
            kept[row, column] = number
    return kept


def score(mask: Mask, strokes: Strokes, truth: Image) -> tuple[float, float]:
    """Return intersection over union and error rate where the truth is known."""
    mask = mask.copy()
    mask[strokes == OBJECT], mask[strokes == BACKGROUND] = True, False
    scores = saf.metrics.score_pixels(255 * mask, truth, ignore=UNKNOWN, widths=())
    return float(scores.iou[-1]), 1 - scores.accuracy


def iou(strokes: Strokes, truth: Image, mask: Mask) -> float:
    return score(mask, strokes, truth)[0]


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


def correct(truth: Image, mask: Mask, strokes: Strokes, n_each: int = 3) -> Strokes:
    """Return strokes with more of them across what is widest of what was labelled wrong.

    So many for each class, in rows, each in a connected region of its own and in one nucleus.
    """
    strokes = strokes.copy()
    for number, true in ((NUCLEUS, truth > 0), (GROUND, truth == 0)):
        wrong = true & ((mask > 0) != (number == NUCLEUS)) & (strokes == 0)
        regions, _ = label(wrong)
        depths = distance_transform_edt(np.pad(wrong, 1))[1:-1, 1:-1]
        for _ in range(n_each):
            row, column = np.unravel_index(depths.argmax(), depths.shape)
            if depths[row, column] < 2:  # nobody would see it
                break
            is_free = wrong[row] & (truth[row] == truth[row, column])
            pieces, _ = label(is_free)
            middle = np.abs(np.arange(len(is_free)) - column) <= LENGTH // 2
            strokes[row, (pieces == pieces[column]) & middle] = number
            depths[regions == regions[row, column]] = 0
    return strokes


def one_of_each(strokes: Strokes, rng: np.random.Generator) -> Strokes:
    """Keep one stroke of each class."""
    kept = strokes.copy()
    for number in (NUCLEUS, GROUND):
        pieces, count = label(strokes == number, np.ones((3, 3)))
        kept[(pieces > 0) & (pieces != rng.integers(1, count + 1))] = 0
    return kept


def f1(mask: Mask, truth: Image, strokes: Strokes | None = None) -> float:
    """Return F1 of the foreground, strokes left out."""
    known = truth > 0 if strokes is None else np.where(strokes > 0, 2, truth > 0)
    scores = saf.metrics.score_pixels(mask, known, ignore=2, widths=())
    return float(scores.f1[scores.classes == 1].sum())


# Images


def spaced(items: Sequence[Any], count: int | None) -> Sequence[Any]:
    return items[:: max(1, len(items) // (count or len(items)))]


def photographs(count: int | None = None) -> Iterator[tuple[int, str, Image, Image]]:
    """Yield index, name, image and truth of photographs."""
    folder = DATA / "grabcut"
    names = sorted(path.stem for path in (folder / "images").iterdir())
    for index, name in spaced(list(enumerate(names)), count):
        image = iio.imread(folder / "images" / f"{name}.jpg")
        yield index, name, image, iio.imread(folder / "masks" / f"{name}.png")


def scribbles_of(name: str, number: int) -> Strokes:
    return np.asarray(iio.imread(DATA / "grabcut" / f"scribbles{number}" / f"{name}.png"))


def nuclei(*folders: str, count: int | None = None) -> Iterator[tuple[Image, Image]]:
    """Yield images and truths of nuclei."""
    paths = sorted(path for folder in folders for path in (DATA / folder / "images").iterdir())
    for path in spaced(paths, count):
        truth = iio.imread(next((path.parents[1] / "labels").glob(f"{path.stem}.*")))
        yield iio.imread(path), truth


# Parts


def on_photographs(options: argparse.Namespace) -> None:
    methods = ALL_METHODS if options.all_methods else ON_PHOTOGRAPHS
    items = list(photographs(options.images))
    for number in options.strokes:
        for share in options.keep if number == 1 else [1.0]:
            print(f"\nscribbles{number}, {100 * share:g} % of the strokes, {len(items)} images")
            print(f"{'method':28} {'IoU':>6} {'even':>6} {'odd':>6} {'error':>7} {'s/image':>8}")
            for method, call in methods.items():
                rows, times = [], []
                for index, name, image, truth in items:
                    rng = np.random.default_rng(index)
                    strokes = thin(scribbles_of(name, number), share, rng)
                    began = time.perf_counter()
                    mask = call(image, strokes)
                    times.append(time.perf_counter() - began)
                    rows.append(score(mask, strokes, truth))
                ious, errors = np.array(rows).T
                means = " ".join(f"{x.mean():6.3f}" for x in (ious, ious[::2], ious[1::2]))
                print(
                    f"{method:28} {means} {100 * errors.mean():6.2f}% {np.median(times):8.2f}",
                    flush=True,
                )


def on_nuclei(options: argparse.Namespace) -> None:
    methods = ALL_METHODS if options.all_methods else ON_NUCLEI
    items = list(nuclei("nuclei", count=options.images))
    halves = {"even": slice(0, None, 2), "odd": slice(1, None, 2), None: slice(None)}
    numbers = range(len(items))[halves[options.half]]
    print(f"{'method':22} {'F1':>6} {'even':>6} {'odd':>6} {'s/image':>8}")
    for method, call in methods.items():
        scores, times = np.full((len(items), options.draws), np.nan), []
        for index, seed in itertools.product(numbers, range(options.draws)):
            image, truth = items[index]
            strokes = draw(truth, np.random.default_rng(seed))
            began = time.perf_counter()
            mask = call(image, strokes)
            times.append(time.perf_counter() - began)
            scores[index, seed] = f1(mask, truth, strokes)
        parts = (scores, scores[::2], scores[1::2])
        means = [np.nanmean(x) if np.isfinite(x).any() else np.nan for x in parts]
        texts = " ".join(f"{x:6.3f}" for x in means)
        print(f"{method:22} {texts} {np.median(times):8.2f}", flush=True)


def grabcut_cases(count: int | None) -> Iterator[Case]:
    for index, name, image, truth in photographs(count):
        for number, share in ((1, 1.0), (1, 0.25), (1, 0.1), (2, 1.0)):
            rng = np.random.default_rng(index)
            strokes = thin(scribbles_of(name, number), share, rng)
            title = f"strokes {number}, {100 * share:.0f} %"
            yield title, image, strokes, partial(iou, strokes, truth)


def nuclei_cases(count: int | None) -> Iterator[Case]:
    for image, truth in nuclei("nuclei", "nuclei_more", count=count):
        for seed in (0, 1, 5):
            rng = np.random.default_rng(seed)
            strokes = draw(truth, rng)
            strokes = one_of_each(strokes, rng) if seed == 5 else strokes
            title = "nuclei, one stroke each" if seed == 5 else f"nuclei, draw {seed}"
            yield title, image, strokes, partial(f1, strokes=strokes, truth=truth)


CASES = {"grabcut": grabcut_cases, "nuclei": nuclei_cases}


def choices(options: argparse.Namespace) -> None:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in options.sets:
        for title, image, strokes, score_of in CASES[name](options.images):
            if strokes.size <= options.pixels:
                row = _row(image, strokes, score_of)
                rows[title].append(row)
                scores = f"chosen {row['chosen']:.3f}, better {row['better']:.3f}"
                print(f"{title}, image {len(rows[title])}: {scores}", flush=True)
    names = [*stroke_choices(), "better", "chosen"]
    held_out = _held_out(rows)
    heads = " ".join(f"{name:>8}" for name in [*names, "held out"])
    print(f"{'':24} {'images':>6} {heads}  s/choice")
    for title, cases in rows.items():
        means = [np.mean([row[name] for row in cases]) for name in names] + [held_out[title]]
        seconds = np.median([row["seconds"] for row in cases])
        texts = " ".join(f"{mean:8.3f}" for mean in means)
        print(f"{title:24} {len(cases):6} {texts}  {seconds:8.2f}")


def _held_out(rows: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the mean score of each title, with numbers of the rule chosen on other images.

    Print them. Images stand in the same order under all titles of a set.
    """
    scores = {
        title: np.array([[row[_picked(row["seen"], *rule)] for rule in RULES] for row in cases])
        for title, cases in rows.items()
    }
    held_out = {title: np.empty(len(cases)) for title, cases in rows.items()}
    for fold in range(N_FOLDS):
        inside = [np.delete(x, np.s_[fold::N_FOLDS], axis=0).mean(axis=0) for x in scores.values()]
        best = int(np.nansum(inside, axis=0).argmax())
        print(f"fold {fold + 1}: least size, fewest regions, least gain {RULES[best]}")
        for title, table in scores.items():
            held_out[title][fold::N_FOLDS] = table[fold::N_FOLDS, best]
    return {title: float(values.mean()) for title, values in held_out.items()}


def _seen(image: Image, strokes: Strokes, options: dict[str, StrokeChoice]) -> Seen:
    """Return regions of each class, and left-out accuracies, by which the rule decides."""
    many, by_object = options["many"], options["object"].options
    side, colour = by_object.max_side, by_object.features

    def read(features: str | FeatureExtractor) -> saf.Problem:
        small = dataclasses.replace(many.options, max_side=side, features=features)
        return saf.Problem.from_image(image, seeds=strokes, **small.arguments())

    problem = read(colour)
    assert isinstance(problem.graph, saf.GridGraph) and problem.seeds is not None
    method = dataclasses.replace(many.method, rounds=0)
    labels = problem.graph.spread(method.run(problem).assignment.argmax(axis=1) + 1)
    painted = problem.graph.spread(problem.seeds)
    regions = [regions_without_stroke(labels == k, painted == k) for k in (1, 2)]
    features = {"many": colour}
    features |= {name: options[name].options.features for name in ("texture", "patterns")}
    return regions, {name: left_out_accuracy(read(kind)) for name, kind in features.items()}


def _picked(seen: Seen, least_size: float, fewest: int, least_gain: float) -> str:
    """Return the choice of the rule of `choose_for_strokes` with other numbers."""
    regions, accuracies = seen
    if all(
        (sizes >= least_size).sum() < (1 if is_lost else fewest)
        and (in_strokes >= _LEAST_OF_STROKE).sum() < fewest
        for sizes, is_lost, in_strokes in regions
    ):
        return "object"
    best = "many"
    for name, accuracy in accuracies.items():
        most = accuracies[best]
        gain = 0.3 if name == "patterns" else least_gain
        if accuracy is not None and most is not None and accuracy - most >= gain:
            best = name
    return best


def _row(image: Image, strokes: Strokes, score_of: Callable[[Mask], float]) -> dict[str, Any]:
    options = stroke_choices(3 if image.ndim == 3 else 1)
    row: dict[str, Any] = {
        name: score_of(chosen(image, strokes, choice) == 1) for name, choice in options.items()
    }
    row["better"], row["seen"] = max(row.values()), _seen(image, strokes, options)
    began = time.perf_counter()
    choice = saf.choose_for_strokes(image, strokes)
    seconds = time.perf_counter() - began
    name = next(name for name, option in options.items() if option == choice)
    return row | {"chosen": row[name], "seconds": seconds}


class Ours:
    """The assignment flow, with what the dock keeps from click to click."""

    def __init__(self) -> None:
        self.image: Image | None = None
        self.choice: StrokeChoice | None = None
        self.start: Any = None

    def __call__(self, image: Image, strokes: Strokes) -> Mask:
        from napari_saf._gui.runs.run import WarmStart

        if image is not self.image:
            self.image, self.choice, self.start = image, None, None
            self.problems: dict[str, saf.Problem] = {}
        choice = saf.choose_for_strokes(image, strokes, previous=self.choice)
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
        return np.asarray(result.labels == OBJECT)


WAYS: dict[str, Method] = {"ours": Ours(), "forest": forest_of_scales}
if importlib.util.find_spec("cv2"):
    ON_PHOTOGRAPHS["OpenCV grabCut"] = WAYS["grabcut"] = grab_cut


def click(strokes: Strokes, errors: dict[int, Mask]) -> bool:
    """Paint a disc in the middle of the largest error, by its right class; False if none is."""
    depths = {k: distance_transform_edt(np.pad(m, 1))[1:-1, 1:-1] for k, m in errors.items()}
    number = max(depths, key=lambda k: float(depths[k].max()))
    depth = float(depths[number].max())
    if not depth:
        return False
    centre = np.unravel_index(depths[number].argmax(), strokes.shape)
    rows, columns = disk(centre, max(1, min(RADIUS, int(depth))) + 0.5, shape=strokes.shape)
    inside = errors[number][rows, columns]
    strokes[rows[inside], columns[inside]] = number
    return True


def curve(way: Method, image: Image, truth: Image) -> list[float]:
    """Return the IoU after 2, 3, ..., 20 clicks."""
    strokes, inside, outside = np.zeros(truth.shape, np.uint8), truth == 255, truth == 0
    click(strokes, {OBJECT: inside})
    click(strokes, {BACKGROUND: outside})
    scores: list[float] = []
    for _ in range(2, MOST_CLICKS + 1):
        mask = np.asarray(way(image, strokes.copy()), bool)
        union = (mask | inside) & (truth != UNKNOWN)
        scores.append(float((mask & inside).sum() / max(1, union.sum())))
        if not click(strokes, {OBJECT: inside & ~mask, BACKGROUND: outside & mask}):
            break
    return scores + [scores[-1]] * (MOST_CLICKS - 1 - len(scores))


def clicks(options: argparse.Namespace) -> None:
    items = list(photographs(options.images))
    print("way       NoC@85  NoC@90  IoU after 2, 3, 5, 10, 20 clicks        falls  s/click")
    for name in options.ways:
        began = time.perf_counter()
        table = np.array([curve(WAYS[name], image, truth) for *_, image, truth in items])
        seconds = (time.perf_counter() - began) / table.size
        reached = [table >= goal for goal in (0.85, 0.9)]
        counts = [np.where(r.any(1), 2 + r.argmax(1), MOST_CLICKS).mean() for r in reached]
        falls = (np.diff(table, axis=1) < -0.01).sum(axis=1).mean()
        means = "  ".join(f"{table[:, n - 2].mean():.3f}" for n in (2, 3, 5, 10, 20))
        print(
            f"{name:8} {counts[0]:7.1f} {counts[1]:7.1f}  {means:38}  {falls:5.1f}  {seconds:7.2f}",
            flush=True,
        )


PARTS = {"photographs": on_photographs, "nuclei": on_nuclei, "choices": choices, "clicks": clicks}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("part", nargs="?", choices=list(PARTS), default="photographs")
    parser.add_argument("--strokes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--keep", nargs="+", type=float, default=[1.0, 0.5, 0.25, 0.1])
    parser.add_argument("--all-methods", action="store_true")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--half", choices=("even", "odd"), help="nuclei of such an index only")
    parser.add_argument("--sets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--pixels", type=int, default=500_000)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--images", type=int, metavar="N", help="about N, evenly spread")
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
