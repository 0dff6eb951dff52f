"""Nuclei taught on one image and labelled in others: F1 by scaling, and with strokes on a second.

python benchmarks/transfer.py [--pairs 116] [--teachers 8] [--every 1] [--jobs 2] [--seed 0]

Three nuclei and three places of the background are marked in an image, with the settings that the
strokes choose; what its labels look like, as the dock saves it, labels others of its kind.

First ordered pairs of images of one kind (fluorescence, stained, grey) of the folders nuclei and
nuclei_more, at most so many of each folder, drawn at random, by how the second image is scaled.
The columns: mean F1, and F1 as a share of what the same strokes teach on the second image itself,
the mean of the worst tenth of the pairs; the same of AP, of the objects that `split_objects` makes
of labels and image (and of the uncertainty, of strokes on the image itself).

Then projects: strokes on one image label all others of its kind, of both folders; then there are
strokes on a second one, too, and on a third: those whose labels are least certain, others at
random, or those whose labels are worst, which nobody knows. The scores are of the images that have
strokes in no project; ``--every`` k takes every k-th image. Beside them the rank correlation of
uncertainty with F1, and with F1 as a share of what strokes on the image itself teach.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from objects import counts, precision
from scipy.stats import spearmanr
from scribbles_nuclei import NUCLEUS, draw
from skimage.exposure import match_histograms

import napari_saf as saf
from napari_saf.project import fit_jointly

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
FOLDERS = ("nuclei", "nuclei_more")
WAYS = ("as the first image", "each by itself", "quantiles matched")
POLICIES = ("least certain", "random", "worst")
N_MORE = 2

Pair = tuple[str, str, str, int]
Place = tuple[str, str]
Scores = dict[Place, tuple[float, float]]


def f1(labels: NDArray[Any], truth: NDArray[Any]) -> float:
    found, wanted = labels == NUCLEUS, truth > 0
    return float(2 * (found & wanted).sum() / max(1, found.sum() + wanted.sum()))


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
    return f1(labels, truth), float(precision(counts(truth.astype(int), objects)))


@cache
def teach(folder: str, name: str, seed: int) -> tuple[saf.PrototypeSet, tuple[float, float]]:
    """Return what strokes on an image teach, and how well they label the image itself."""
    image, truth = read(folder, name)
    strokes = draw(truth, np.random.default_rng(seed))
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    result: Any = choice.method.run(problem)
    uncertainty = problem.graph.to_image(result.uncertainty)
    found = f1_and_ap(result.labels, image, truth, uncertainty)
    return saf.PrototypeSet.from_labels(problem, result.labels), found


def measure(pair: Pair) -> list[tuple[float, float]]:
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
            f1(np.asarray(labelling.labels), truth),
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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=116, help="0: none")
    parser.add_argument("--teachers", type=int, default=8, help="projects of a kind; 0: none")
    parser.add_argument("--every", type=int, default=1, help="image of a kind in projects")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the strokes")
    options = parser.parse_args()
    with get_context("spawn").Pool(options.jobs) as pool:
        for folder in FOLDERS if options.pairs else ():
            pairs = pairs_of(folder, options.pairs, options.seed)
            table = np.array(pool.map(measure, pairs, chunksize=10))
            own, n_worst = table[:, -1:], max(1, round(len(pairs) / 10))
            means, shares = table.mean(axis=0), np.sort(table / own.clip(min=1e-9), axis=0)
            worst = shares[:n_worst].mean(axis=0)
            print(f"\n{folder}, {len(pairs)} pairs: F1, AP, and worst tenth as a share of own")
            for way, mean, least in zip((*WAYS, "on the image itself"), means, worst, strict=True):
                numbers = (mean[0], least[0], mean[1], least[1])
                print(f"{way:22}", *(f"{number:6.3f}" for number in numbers), flush=True)
        if options.teachers:
            projects(pool, options.teachers, options.every, options.seed)


if __name__ == "__main__":
    main()
