"""What strokes choose: each choice fixed, the better one per image, and `choose_for_strokes`.

python benchmarks/stroke_choice.py [--sets grabcut nuclei] [--pixels 500000] [--images N]

GrabCut photographs, all of the strokes of people, a quarter and a tenth of them (`scribbles.py`),
and the second set: intersection over union. Nuclei of both folders, drawn as in
`scribbles_nuclei.py`, and with one of the three strokes of each class only: F1. The rule was
chosen on these data, except on draw 1 of the nuclei; "held out" is what its numbers give that are
best, every row alike, on four fifths of the images, on the last fifth. Larger images than
`--pixels` are left out; with `--images` about so many of each set are read.
"""

from __future__ import annotations

import argparse
import dataclasses
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
import scribbles
import scribbles_nuclei as nuclei
from numpy.typing import NDArray
from scipy.ndimage import label

import napari_saf as saf
from napari_saf.features import FeatureExtractor
from napari_saf.methods import StrokeChoice, stroke_choices
from napari_saf.methods._stroke_choice import (
    _LEAST_OF_STROKE,
    left_out_accuracy,
    regions_without_stroke,
)

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
Array = NDArray[Any]
Case = tuple[str, Array, Array, Callable[[NDArray[np.bool_]], float]]
Regions = tuple[NDArray[np.floating], bool, NDArray[np.floating]]
Seen = tuple[list[Regions], dict[str, float | None]]
RULES = list(itertools.product((0.03, 0.1, 0.3), (2, 3, 4, 6, 8), (0.05, 0.1, 0.15, 0.3)))
N_FOLDS = 5


def of_grabcut(count: int | None) -> Iterator[Case]:
    folder = DATA / "grabcut"
    names = sorted(path.stem for path in (folder / "images").iterdir())
    for index, name in list(enumerate(names))[:: _every(names, count)]:
        image = iio.imread(folder / "images" / f"{name}.jpg")
        truth = iio.imread(folder / "masks" / f"{name}.png")
        for number, share in ((1, 1.0), (1, 0.25), (1, 0.1), (2, 1.0)):
            drawn = iio.imread(folder / f"scribbles{number}" / f"{name}.png")
            strokes = scribbles.thin(drawn, share, np.random.default_rng(index))
            title = f"strokes {number}, {100 * share:.0f} %"
            yield title, image, strokes, partial(object_score, strokes, truth)


def _every(items: Sequence[object], count: int | None) -> int:
    return max(1, len(items) // (count or len(items)))


def object_score(strokes: Array, truth: Array, found: Array) -> float:
    return scribbles.score(found, strokes, truth)[0]


def nuclei_score(strokes: Array, truth: Array, found: Array) -> float:
    return nuclei.f1(found, strokes, truth)


def one_of_each(strokes: Array, rng: np.random.Generator) -> Array:
    """Keep one stroke of each class."""
    kept = strokes.copy()
    for number in (nuclei.NUCLEUS, nuclei.GROUND):
        own, count = label(strokes == number, np.ones((3, 3)))
        kept[(own > 0) & (own != rng.integers(1, count + 1))] = 0
    return kept


def of_nuclei(count: int | None) -> Iterator[Case]:
    paths = [p for name in ("nuclei", "nuclei_more") for p in (DATA / name / "images").iterdir()]
    for path in sorted(paths)[:: _every(paths, count)]:
        image = iio.imread(path)
        truth = iio.imread(next((path.parents[1] / "labels").glob(f"{path.stem}.*")))
        for seed in (0, 1, 5):
            rng = np.random.default_rng(seed)
            strokes = nuclei.draw(truth, rng)
            strokes = one_of_each(strokes, rng) if seed == 5 else strokes
            title = "nuclei, one stroke each" if seed == 5 else f"nuclei, draw {seed}"
            yield title, image, strokes, partial(nuclei_score, strokes, truth)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    cases = {"grabcut": of_grabcut, "nuclei": of_nuclei}
    parser.add_argument("--sets", nargs="+", choices=list(cases), default=list(cases))
    parser.add_argument("--pixels", type=int, default=500_000)
    parser.add_argument("--images", type=int, metavar="N")
    arguments = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in arguments.sets:
        for title, image, strokes, score in cases[name](arguments.images):
            if strokes.size <= arguments.pixels:
                rows[title].append(_row(image, strokes, score))
    names = [*stroke_choices(), "better", "chosen"]
    held_out = _held_out(rows)
    heads = " ".join(f"{name:>8}" for name in [*names, "held out"])
    print(f"{'':24} {'images':>6} {heads}  s/choice")
    for title, found in rows.items():
        means = [np.mean([row[name] for row in found]) for name in names] + [held_out[title]]
        seconds = np.median([row["seconds"] for row in found])
        texts = " ".join(f"{mean:8.3f}" for mean in means)
        print(f"{title:24} {len(found):6} {texts}  {seconds:8.2f}")


def _held_out(rows: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the mean score of each title, with numbers of the rule chosen on other images.

    Print them. Images stand in the same order under all titles of a set.
    """
    scores = {
        title: np.array([[row[_picked(row["seen"], *numbers)] for numbers in RULES] for row in own])
        for title, own in rows.items()
    }
    held_out = {title: np.empty(len(own)) for title, own in rows.items()}
    for fold in range(N_FOLDS):
        inside = [
            np.delete(own, np.s_[fold::N_FOLDS], axis=0).mean(axis=0) for own in scores.values()
        ]
        best = int(np.sum(inside, axis=0).argmax())
        print(f"fold {fold + 1}: least size, fewest regions, least gain {RULES[best]}")
        for title, own in scores.items():
            held_out[title][fold::N_FOLDS] = own[fold::N_FOLDS, best]
    return {title: float(own.mean()) for title, own in held_out.items()}


def _seen(image: Array, strokes: Array, choices: dict[str, StrokeChoice]) -> Seen:
    """Return what the rule decides by: regions of each class, and strokes told right."""
    many, by_object = choices["many"], choices["object"].options
    side, colour = by_object.max_side, by_object.features

    def read(features: str | FeatureExtractor) -> saf.Problem:
        options = dataclasses.replace(many.options, max_side=side, features=features)
        return saf.Problem.from_image(image, seeds=strokes, **options.arguments())

    problem = read(colour)
    assert isinstance(problem.graph, saf.GridGraph) and problem.seeds is not None
    method = dataclasses.replace(many.method, rounds=0)
    labels = problem.graph.spread(method.run(problem).assignment.argmax(axis=1) + 1)
    painted = problem.graph.spread(problem.seeds)
    regions = [regions_without_stroke(labels == k, painted == k) for k in (1, 2)]
    wanted = {"many": colour}
    wanted |= {name: choices[name].options.features for name in ("texture", "patterns")}
    return regions, {name: left_out_accuracy(read(own)) for name, own in wanted.items()}


def _picked(seen: Seen, least_size: float, fewest: int, least_gain: float) -> str:
    """Return what the rule of `choose_for_strokes` picks with other numbers."""
    regions, told = seen
    if all(
        (sizes >= least_size).sum() < (1 if lost else fewest)
        and (in_strokes >= _LEAST_OF_STROKE).sum() < fewest
        for sizes, lost, in_strokes in regions
    ):
        return "object"
    best = "many"
    for name, found in told.items():
        most = told[best]
        gain = 0.3 if name == "patterns" else least_gain
        if found is not None and most is not None and found - most >= gain:
            best = name
    return best


def _row(
    image: Array, strokes: Array, score: Callable[[NDArray[np.bool_]], float]
) -> dict[str, Any]:
    choices = stroke_choices(3 if image.ndim == 3 else 1)
    row: dict[str, Any] = {
        name: score(_labels(image, strokes, choice) == 1) for name, choice in choices.items()
    }
    row["better"], row["seen"] = max(row.values()), _seen(image, strokes, choices)
    began = time.perf_counter()
    chosen = saf.choose_for_strokes(image, strokes)
    seconds = time.perf_counter() - began
    name = next(name for name, choice in choices.items() if choice == chosen)
    return row | {"chosen": row[name], "seconds": seconds}


def _labels(image: Array, strokes: Array, choice: StrokeChoice) -> Array:
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels)


if __name__ == "__main__":
    main()
