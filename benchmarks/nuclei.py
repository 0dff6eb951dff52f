"""Nuclei from strokes: corrections, suggested strokes, corrected objects, and other images.

    python benchmarks/nuclei.py [corrections] [--draws 1] [--rounds 2] [--ways automatic ...]
    python benchmarks/nuclei.py suggest [--every 4] [--mosaics 24]
    python benchmarks/nuclei.py objects [--neck 0.3] [--half odd]
    python benchmarks/nuclei.py transfer [--pairs 116] [--teachers 8] [--every 1] [--seed 0]

The images of the folders nuclei and nuclei_more, the larger ones cut to ``--crop`` pixels a side
but for `transfer`, with three strokes of each class as of `scribbles.py`. AP is of the objects that
`split_objects` makes of labels, image and uncertainty, at an intersection over union of .5; F1 is
of the foreground, for corrections with strokes left out. Seconds are of processor time.

corrections  Three more strokes of each class in every round, across what is widest of what was
             labelled wrong, by each way for itself: means over images, of those of even and of odd
             index, and how many images fell by more than .01 since the round before.
suggest      F1 from one stroke of each class, after five more where *Suggest spot* puts its ring,
             one after another, and after five and ten at random places (two draws); and the share
             of the pixels that are right in mosaics of four brick facades, as of `features.py`.
objects      Clicks that correct the objects of the first strokes until their AP is .90, 60 at most,
             beside clicks where every ten teach neck and least size: always what is largest of
             nuclei in two parts (merged), objects of two nuclei (cut by a straight line), objects
             that are none (deleted) and nuclei without one (painted). Means of all images, and of
             those that take more than ten clicks.
transfer     The labels of one image label others of its kind (fluorescence, stained, grey).
             First ordered pairs, at most so many of each folder, drawn at random, by how the second
             image is scaled: mean F1, and F1 as a share of what the same strokes teach on the
             second image itself, the mean of the worst tenth; the same of AP. Then projects:
             strokes on one image label all others of its kind; then there are strokes on a second
             one, too, and on a third: those whose labels are least certain, others at random, or
             those whose labels are worst, which nobody knows. The scores are of the images that
             have strokes in no project; ``--every`` k takes every k-th image. Beside them the rank
             correlation of uncertainty with F1, and with F1 as a share of the image's own.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from features import accuracy, facades, mosaic
from numpy.typing import NDArray
from objects import counts, precision
from scipy import ndimage
from scipy.stats import spearmanr
from scribbles import DATA, GROUND, LENGTH, NUCLEUS, Strokes, correct, draw, f1, forest_of_scales
from skimage.exposure import match_histograms

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.objects import NECK, SMALLEST, ObjectEditor, Parts, find_parts, learn
from napari_saf.project import fit_jointly

FOLDERS = ("nuclei", "nuclei_more")
HALVES = {"even": slice(0, None, 2), "odd": slice(1, None, 2), None: slice(None)}
FALLEN = 0.01
ENOUGH, MOST, LESSON = 0.9, 60, 10

Mask = NDArray[np.bool_]
Way = Callable[[NDArray[Any], Strokes], tuple[Mask, NDArray[np.floating] | None]]


def label(
    image: NDArray[Any], strokes: Strokes
) -> tuple[saf.Problem, NDArray[Any], NDArray[np.floating]]:
    """Run the assignment flow with what the strokes choose, as the Scribbles dock does."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    result = choice.method.run(problem)
    values: Any = result.uncertainty
    uncertainty: Any = problem.graph.to_image(values)
    return problem, np.asarray(result.labels), uncertainty


def automatic(image: NDArray[Any], strokes: Strokes) -> tuple[Mask, NDArray[np.floating] | None]:
    _, labels, uncertainty = label(image, strokes)
    return labels == NUCLEUS, uncertainty


def forest(image: NDArray[Any], strokes: Strokes) -> tuple[Mask, None]:
    """Ask a random forest on multi-scale features."""
    return forest_of_scales(image, strokes), None


WAYS: dict[str, Way] = {"automatic": automatic, "forest": forest}


def images(options: argparse.Namespace) -> list[Path]:
    paths = [p for name in FOLDERS for p in sorted((DATA / name / "images").iterdir())]
    return paths[HALVES[options.half]][:: options.every]


def cropped(path: Path, crop: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return an image and its nuclei, cut to `crop` pixels a side."""
    truth = iio.imread(path.parents[1] / "labels" / path.name).astype(int)
    return iio.imread(path)[:crop, :crop], truth[:crop, :crop]


def rounds(job: tuple[Path, str, int, int, int]) -> list[tuple[float, float, float]]:
    """Return F1, AP and seconds after each round on one image."""
    path, way, seed, n_rounds, crop = job
    image, truth = cropped(path, crop)
    strokes, found = draw(truth, np.random.default_rng(seed)), []
    for k in range(n_rounds + 1):
        began = time.process_time()
        mask, uncertainty = WAYS[way](image, strokes)
        seconds = time.process_time() - began
        objects = saf.split_objects(mask, image=image, uncertainty=uncertainty)
        ap = float(precision(counts(truth, objects.labels)))
        found.append((f1(mask, truth, strokes), ap, seconds))
        if k < n_rounds:
            strokes = correct(truth, mask, strokes)
    return found


def of_nuclei(job: tuple[Path, int, int]) -> list[float]:
    """Return `suggestions` on nuclei."""
    path, seed, crop = job
    image, truth = cropped(path, crop)
    first = draw(truth, np.random.default_rng(seed), 1)
    classes = np.where(truth > 0, NUCLEUS, GROUND)
    return suggestions(
        image, first, truth, classes, lambda found, strokes: f1(found == NUCLEUS, truth, strokes)
    )


def of_mosaic(number: int) -> list[float]:
    """Return `suggestions` on a mosaic of four facades."""
    image, strokes, truth = mosaic(facades(), 4, np.random.default_rng(number))
    pieces, _ = ndimage.label(strokes, np.ones((3, 3)))
    kept = [pieces[strokes == kind][0] for kind in range(1, 5)]
    first = np.where(np.isin(pieces, kept), strokes, 0)
    return suggestions(image, first, truth, truth, partial(accuracy, truth=truth))


def suggestions(
    image: NDArray[Any],
    first: Strokes,
    regions: NDArray[Any],
    classes: NDArray[Any],
    score: Callable[[NDArray[Any], Strokes], float],
) -> list[float]:
    """Return scores: at first, with five suggested strokes, with five and ten random ones.

    A stroke is a piece of a row within a region, of the class there.
    """
    from napari_saf._gui.scribbles.result import most_uncertain_pixel

    def add(strokes: Strokes, row: int, column: int) -> Strokes:
        pieces, _ = ndimage.label(regions[row] == regions[row, column])
        near = np.abs(np.arange(len(pieces)) - column) <= LENGTH // 2
        strokes = strokes.copy()
        strokes[row, (pieces == pieces[column]) & near] = classes[row, column]
        return strokes

    _, labels, uncertainty = label(image, first)
    found, strokes = [score(labels, first)], first
    for _ in range(5):
        spot = most_uncertain_pixel(uncertainty, strokes)
        if spot is None:
            break
        strokes = add(strokes, *spot)
        _, labels, uncertainty = label(image, strokes)
    found.append(score(labels, strokes))
    for count in (5, 10):
        scores = []
        for rng in map(np.random.default_rng, (1, 2)):
            strokes = first
            for place in rng.integers(0, classes.shape, (count, 2)):
                strokes = add(strokes, *place)
            scores.append(score(label(image, strokes)[1], strokes))
        found.append(float(np.mean(scores)))
    return found


class Person:
    """Corrects objects by the truth, one click after another."""

    def __init__(self, truth: NDArray[Any], editor: ObjectEditor) -> None:
        _, numbers = np.unique(np.append(0, truth), return_inverse=True)
        self.truth, self.editor = numbers[1:].reshape(truth.shape), editor
        self._tried: set[int] = set()

    def look(self) -> float:
        """See what is there; return the average precision."""
        labels = self.editor.labels.astype(np.int64)
        n_true, n_found = self.truth.max() + 1, labels.max() + 1
        pairs = np.bincount((self.truth * n_found + labels).ravel(), minlength=n_true * n_found)
        both = pairs.reshape(n_true, n_found)
        own, other = both.sum(axis=1)[:, None], both.sum(axis=0)[None]
        self._is_hit = both > 0.5 * (own + other - both)
        self._is_in = (both >= other / 2) & (both >= own / 10) & (both > 0)
        self._holds = (both >= own / 2) & (both >= other / 10) & (both > 0)
        for table in (self._is_hit, self._is_in, self._holds):
            table[0], table[:, 0] = False, False
        self._both, self._own, self._other = both, own[:, 0], other[0]
        hits = self._is_hit.sum()
        n_all = (self._own[1:] > 0).sum() + (self._other[1:] > 0).sum()
        return float(hits / max(1, n_all - hits))

    def correct(self) -> bool:
        """Correct what is largest of what is wrong, if anything is."""
        is_hit, is_matched = self._is_hit.any(axis=1), self._is_hit.any(axis=0)
        errors: list[tuple[float, Callable[[], object]]] = []
        for nucleus in np.flatnonzero(self._own).tolist():
            pieces = np.flatnonzero(self._is_in[nucleus])
            pieces = pieces[np.argsort(-self._both[nucleus, pieces])][:2]
            if nucleus and len(pieces) > 1 and nucleus not in self._tried:
                size = self._both[nucleus, pieces[1]] if is_hit[nucleus] else self._own[nucleus]
                errors.append((size, partial(self._merge, nucleus, pieces)))
                is_matched[pieces] = True
            elif nucleus and not is_hit[nucleus]:
                errors.append((self._own[nucleus], partial(self._paint, nucleus)))
        for number in np.flatnonzero(self._other).tolist():
            nuclei = np.flatnonzero(self._holds[:, number])
            nuclei = nuclei[np.argsort(-self._both[nuclei, number])][:2]
            size = self._own[nuclei[~is_hit[nuclei]]].sum()
            if len(nuclei) > 1 and size and not self._tried.issuperset(nuclei.tolist()):
                errors.append((size, partial(self._cut, number, nuclei)))
            elif number and not is_matched[number]:
                errors.append((self._other[number], partial(self.editor.delete, [number])))
        if errors:
            max(errors, key=lambda error: error[0])[1]()
        return bool(errors)

    def _merge(self, nucleus: int, pieces: NDArray[np.integer]) -> None:
        self._tried.add(nucleus)
        self.editor.merge(pieces.tolist())

    def _cut(self, number: int, nuclei: NDArray[np.integer]) -> None:
        self._tried.update(nuclei.tolist())
        inside = self.editor.labels == number
        first, second = (np.argwhere(inside & (self.truth == n)).astype(float) for n in nuclei)
        spread = sum(np.cov(one.T) * len(one) for one in (first, second)) + np.eye(2)
        across = np.linalg.solve(spread, second.mean(axis=0) - first.mean(axis=0))
        across /= np.linalg.norm(across)
        ends = first @ across, second @ across
        levels = np.linspace(min(map(np.min, ends)), max(map(np.max, ends)), 60)
        wrong = [(ends[0] > level).sum() + (ends[1] <= level).sum() for level in levels]
        along, middle = np.array([-across[1], across[0]]), np.concatenate([first, second]).mean(0)
        middle += (levels[np.argmin(wrong)] - middle @ across) * across
        side = sum(inside.shape)
        try:
            self.editor.cut(number, [middle - side * along, middle + side * along])
        except InvalidInput:
            self._paint(int(nuclei[-1]))

    def _paint(self, nucleus: int) -> None:
        self.editor.labels[self.truth == nucleus] = self.editor.next_number
        self.editor.adopt(1)


def clicks(job: tuple[Path, int, int, float]) -> list[int]:
    """Return the clicks on one image, without and with what they teach."""
    path, seed, crop, neck = job
    image, truth = cropped(path, crop)
    mask, uncertainty = automatic(image, draw(truth, np.random.default_rng(seed)))
    parts, _ = find_parts(mask, image=image, uncertainty=uncertainty, kinds=[1])
    return [correct_objects(parts, truth, neck, is_taught) for is_taught in (False, True)]


def correct_objects(parts: Parts, truth: NDArray[Any], neck: float, is_taught: bool) -> int:
    """Return after how many clicks objects are right enough."""
    editor = ObjectEditor(parts.join(neck=neck), SMALLEST, neck)
    person = Person(truth, editor)
    for count in range(MOST):
        if is_taught and count and count % LESSON == 0:
            lesson = learn(parts, editor.corrections)
            if lesson is not None:
                editor.replace(lesson)
        if person.look() >= ENOUGH or not person.correct():
            return count
    return MOST


def show(name: str, table: NDArray[np.float64]) -> Iterator[str]:
    """Yield a line for each round of a table (n_images, n_rounds + 1, 3)."""
    for k in range(table.shape[1]):
        parts = [table[:, k, :2], table[::2, k, :2], table[1::2, k, :2]]
        numbers = " ".join(f"{x:6.3f}" for part in parts for x in part.mean(axis=0))
        fallen = (table[:, k, :2] < table[:, max(k - 1, 0), :2] - FALLEN).sum(axis=0)
        yield f"{name:12} {k:5} {numbers} {fallen[0]:5} {fallen[1]:5} {table[:, k, 2].mean():8.2f}"


# Other images

SCALINGS = ("as the first image", "each by itself", "quantiles matched")
POLICIES = ("least certain", "random", "worst")
N_MORE = 2

Pair = tuple[str, str, str, int]
Place = tuple[str, str]
Scores = dict[Place, tuple[float, float]]


@cache
def read(folder: str, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    image = iio.imread(DATA / folder / "images" / f"{name}.png")
    return image, iio.imread(DATA / folder / "labels" / f"{name}.png")


def f1_and_ap(
    labels: Any, image: NDArray[Any], truth: NDArray[Any], uncertainty: Any = None
) -> tuple[float, float]:
    """Return F1 of the pixels and AP of the objects."""
    mask = np.asarray(labels) == NUCLEUS
    objects = saf.split_objects(mask, image=image, uncertainty=uncertainty).labels
    return f1(mask, truth), float(precision(counts(truth.astype(int), objects)))


@cache
def teach(folder: str, name: str, seed: int) -> tuple[saf.PrototypeSet, tuple[float, float]]:
    """Return what strokes on an image teach, and how well they label the image itself."""
    image, truth = read(folder, name)
    problem, labels, uncertainty = label(image, draw(truth, np.random.default_rng(seed)))
    found = f1_and_ap(labels, image, truth, uncertainty)
    return saf.PrototypeSet.from_labels(problem, labels), found


def measure_pair(pair: Pair) -> list[tuple[float, float]]:
    """Return F1 and AP in the second image by each way, and where it is taught itself."""
    folder, first, second, seed = pair
    recipe = saf.Pipeline.from_prototypes(teach(folder, first, seed)[0])
    image, truth = read(folder, second)
    axis = -1 if image.ndim == 3 else None
    matched = match_histograms(image, read(folder, first)[0], channel_axis=axis)
    scaled = ((image, False), (image, True), (matched, False))
    found = [f1_and_ap(recipe.run(one, rescale=way).labels, image, truth) for one, way in scaled]
    return [*found, teach(folder, second, seed)[1]]


def pairs_of(folder: str, count: int, seed: int) -> list[Pair]:
    kinds = kinds_of(folder)
    pairs = [(folder, a, b, seed) for a in kinds for b in kinds if a != b and kinds[a] == kinds[b]]
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(pairs), min(count, len(pairs)), replace=False)
    return [pairs[k] for k in sorted(chosen)]


def kinds_of(folder: str) -> dict[str, str]:
    with open(DATA / folder / "list.csv", newline="") as file:
        return {row["name"]: row["kind"] for row in csv.DictReader(file)}


def label_all(painted: Sequence[Place], places: Sequence[Place], seed: int) -> Scores:
    """Return F1 and uncertainty of all images, taught as the Project dock does."""
    images = [read(*place) for place in painted]
    strokes = [draw(truth, np.random.default_rng(seed)) for _, truth in images]
    choice = saf.choose_for_strokes(images[-1][0], strokes[-1])  # of the image on screen
    pixels = [image for image, _ in images]
    taught = fit_jointly(pixels, strokes, choice.method, choice.options)
    recipe = saf.Pipeline.from_prototypes(taught)
    found = {}
    for place in places:
        image, truth = read(*place)
        labelling = recipe.run(image)
        found[place] = (
            f1(np.asarray(labelling.labels) == NUCLEUS, truth),
            float(labelling.uncertain_share or 0),
        )
    return found


def project(job: tuple[Place, list[Place], int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return F1 and its share of own by policy, number of strokes more, image; correlations."""
    first, places, seed = job
    rng = np.random.default_rng(seed)
    begun = label_all([first], places, seed)
    own = {place: teach(*place, seed)[1][0] for place in places}
    choose: dict[str, Callable[[Scores], Place]] = {
        "least certain": lambda scores: max(scores, key=lambda one: scores[one][1]),
        "random": lambda scores: list(scores)[rng.integers(len(scores))],
        "worst": lambda scores: min(scores, key=lambda one: scores[one][0]),
    }
    runs, used = [], {first}
    for policy in POLICIES:
        painted, scores, own_runs = [first], begun, [begun]
        for _ in range(N_MORE):
            free = {place: one for place, one in scores.items() if place not in painted}
            painted.append(choose[policy](free))
            scores = label_all(painted, places, seed)
            own_runs.append(scores)
        runs.append(own_runs)
        used |= set(painted)
    rest = [place for place in places if place not in used]
    table = np.array([[[one[p][0] for p in rest] for one in own_runs] for own_runs in runs])
    own_scores = np.array([own[p] for p in rest]).clip(min=1e-9)
    others = [place for place in places if place != first]
    known = np.array([(*begun[p], begun[p][0] / max(own[p], 1e-9)) for p in others])
    ranks = [spearmanr(known[:, 1], known[:, k])[0] for k in (0, 2)]
    return np.stack([table, table / own_scores]), np.array(ranks)


def projects(pool: Any, n_teachers: int, every: int, seed: int) -> None:
    for kind in ("fluor", "colour_bright"):
        named = [(f, name, own) for f in FOLDERS for name, own in kinds_of(f).items()]
        places = [(folder, name) for folder, name, own in named if own == kind][::every]
        teachers = places[:: -(-len(places) // n_teachers)]
        jobs = [(first, places, seed) for first in teachers]
        every_found, ranks = zip(*pool.imap(project, jobs), strict=True)
        rho, found = np.mean(ranks, axis=0), [one for one in every_found if one.shape[-1]]
        print(
            f"\n{kind}, {len(places)} images, {len(teachers)} projects; rank correlation of "
            f"uncertainty with F1 {rho[0]:.2f}, with the share of own {rho[1]:.2f}"
        )
        print(
            f"{'then strokes on':18} {'F1: 1, 2, 3 images':>20} {'worst tenth, share of own':>30}"
        )
        for row, policy in enumerate(POLICIES):
            scores = [one[0, row].mean(axis=1) for one in found]
            worst = [
                np.sort(one[1, row], axis=1)[:, : max(1, one.shape[-1] // 10)] for one in found
            ]
            means = [np.mean(scores, axis=0), np.mean([w.mean(axis=1) for w in worst], axis=0)]
            texts = ["  ".join(f"{value:.3f}" for value in own) for own in means]
            print(f"{policy:18} {texts[0]:>20} {texts[1]:>30}", flush=True)


# Parts


def corrections(options: argparse.Namespace, pool: Any) -> None:
    paths = images(options)
    print(f"{'':18} {'all':>13} {'even':>13} {'odd':>13} {'fallen':>11}")
    print(f"{'way':12} round" + 3 * "     F1     AP" + "    F1    AP  seconds")
    for way in options.ways:
        for seed in range(options.draws):
            jobs = [(path, way, seed, options.rounds, options.crop) for path in paths]
            table = np.array(pool.map(rounds, jobs, chunksize=1))
            print(*show(way, table), sep="\n", flush=True)
            for path, rows in zip(paths, table, strict=True) if options.each else ():
                print(f"  {path.stem:18}", *(f"{f:.3f} {a:.3f} " for f, a, _ in rows))


def suggest(options: argparse.Namespace, pool: Any) -> None:
    jobs = [(path, k, options.crop) for path in images(options) for k in range(options.draws)]
    text = "at first {:.3f}, 5 suggested {:.3f}, 5 random {:.3f}, 10 random {:.3f}"
    means = np.mean(pool.map(of_nuclei, jobs, chunksize=1), axis=0)
    print("nuclei:", text.format(*means), flush=True)
    numbers = range(options.mosaics)[HALVES[options.half]]
    means = np.mean(pool.map(of_mosaic, numbers, chunksize=1), axis=0)
    print("facades:", text.format(*means))


def objects(options: argparse.Namespace, pool: Any) -> None:
    jobs = [(path, 0, options.crop, options.neck) for path in images(options)]
    table = np.array(pool.map(clicks, jobs, chunksize=1))
    many = table[:, 0] > LESSON
    for name, rows in (("all", table), (f"more than {LESSON}", table[many])):
        print(f"{name}: {len(rows)} images, clicks without and with teaching", end=" ")
        print(*(f"{mean:.2f}" for mean in rows.mean(axis=0)), end=", within 60: ")
        print(*(rows < MOST).sum(axis=0))
    saved = table[:, 0] - table[:, 1]
    print(f"fewer on {(saved > 0).sum()}, more on {(saved < 0).sum()}")


def transfer(options: argparse.Namespace, pool: Any) -> None:
    for folder in FOLDERS if options.pairs else ():
        pairs = pairs_of(folder, options.pairs, options.seed)
        table = np.array(pool.map(measure_pair, pairs, chunksize=10))
        own, n_worst = table[:, -1:], max(1, round(len(pairs) / 10))
        means, shares = table.mean(axis=0), np.sort(table / own.clip(min=1e-9), axis=0)
        worst = shares[:n_worst].mean(axis=0)
        print(f"\n{folder}, {len(pairs)} pairs: F1, AP, and worst tenth as a share of own")
        for way, mean, least in zip((*SCALINGS, "on the image itself"), means, worst, strict=True):
            numbers = (mean[0], least[0], mean[1], least[1])
            print(f"{way:22}", *(f"{number:6.3f}" for number in numbers), flush=True)
    if options.teachers:
        projects(pool, options.teachers, options.every, options.seed)


PARTS = {"corrections": corrections, "suggest": suggest, "objects": objects, "transfer": transfer}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("part", nargs="?", choices=list(PARTS), default="corrections")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--crop", type=int, default=400, help="pixels a side at most")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mosaics", type=int, default=24, help="of facades, with suggest")
    parser.add_argument("--neck", type=float, default=NECK, help="that objects are split by")
    parser.add_argument("--half", choices=("even", "odd"), help="images of such an index")
    parser.add_argument("--every", type=int, default=1, help="of so many images take one")
    parser.add_argument("--each", action="store_true", help="print each image, too")
    parser.add_argument("--pairs", type=int, default=116, help="of transfer; 0: none")
    parser.add_argument("--teachers", type=int, default=8, help="projects of a kind; 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of the strokes of transfer")
    options = parser.parse_args()
    with get_context("spawn").Pool(options.jobs) as pool:
        PARTS[options.part](options, pool)


if __name__ == "__main__":
    main()
