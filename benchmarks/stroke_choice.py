"""What strokes choose: each choice fixed, the better one per image, and `choose_for_strokes`.

python benchmarks/stroke_choice.py [--sets grabcut nuclei] [--pixels 500000]

GrabCut photographs, all of the strokes of people, a quarter and a tenth of them (`scribbles.py`),
and the second set: intersection over union. Nuclei of both folders, drawn as in
`scribbles_nuclei.py`, and with one of the three strokes of each class only: F1. The rule was
chosen on these data, except on draw 1 of the nuclei. Larger images than `--pixels` are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
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
from napari_saf.methods import StrokeChoice, stroke_choices

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
Array = NDArray[Any]
Case = tuple[str, Array, Array, Callable[[NDArray[np.bool_]], float]]


def of_grabcut() -> Iterator[Case]:
    folder = DATA / "grabcut"
    for index, name in enumerate(sorted(path.stem for path in (folder / "images").iterdir())):
        image = iio.imread(folder / "images" / f"{name}.jpg")
        truth = iio.imread(folder / "masks" / f"{name}.png")
        for number, share in ((1, 1.0), (1, 0.25), (1, 0.1), (2, 1.0)):
            drawn = iio.imread(folder / f"scribbles{number}" / f"{name}.png")
            strokes = scribbles.thin(drawn, share, np.random.default_rng(index))
            title = f"strokes {number}, {100 * share:.0f} %"
            yield title, image, strokes, partial(object_score, strokes, truth)


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


def of_nuclei() -> Iterator[Case]:
    paths = [p for name in ("nuclei", "nuclei_more") for p in (DATA / name / "images").iterdir()]
    for path in sorted(paths):
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
    arguments = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name in arguments.sets:
        for title, image, strokes, score in cases[name]():
            if strokes.size <= arguments.pixels:
                rows[title].append(_row(image, strokes, score))
    names = [*stroke_choices(), "better", "chosen"]
    print(f"{'':24} {'images':>6} " + " ".join(f"{name:>7}" for name in names) + "  s/choice")
    for title, found in rows.items():
        means = " ".join(f"{np.mean([row[name] for row in found]):7.3f}" for name in names)
        seconds = np.median([row["seconds"] for row in found])
        print(f"{title:24} {len(found):6} {means}  {seconds:8.2f}")


def _row(
    image: Array, strokes: Array, score: Callable[[NDArray[np.bool_]], float]
) -> dict[str, float]:
    choices = stroke_choices(3 if image.ndim == 3 else 1)
    row = {name: score(_labels(image, strokes, choice) == 1) for name, choice in choices.items()}
    began = time.perf_counter()
    chosen = saf.choose_for_strokes(image, strokes)
    seconds = time.perf_counter() - began
    name = next(name for name, choice in choices.items() if choice == chosen)
    return row | {"better": max(row.values()), "chosen": row[name], "seconds": seconds}


def _labels(image: Array, strokes: Array, choice: StrokeChoice) -> Array:
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels)


if __name__ == "__main__":
    main()
