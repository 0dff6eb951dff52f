"""Which features tell textures apart: strokes on mosaics and on nuclei, one method.

python benchmarks/features.py [--images odd|even|all] [--mosaics 32] [--only NAME ...]

Mosaics have 200 pixels a side and 2 to 5 textures, each in 3 cells of a Voronoi diagram, of which
2 have a stroke of 20 pixels. Textures are Brodatz tiles, of equal mean and contrast, or brick
facades, each facade a texture. The score is the share of the pixels without a stroke that are
right; of nuclei, with strokes of ``scribbles_nuclei.py``, it is F1. The method is what the
Scribbles dock takes for textures, with other features; "automatic" is what it chooses itself. Even
images are for choosing, odd ones for reporting.

Deep features are those of VGG16, of the stages that are taken by default or of the first two, if
its weights are there. ``--threshold`` prints instead how well "automatic" does where what patterns
must gain is chosen on the other half of the images.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import scribbles_nuclei as nuclei
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

import napari_saf as saf
from napari_saf.features import FEATURES, DeepFeatures
from napari_saf.methods import stroke_choices
from napari_saf.methods._stroke_choice import left_out_accuracy

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
N_CELLS, LENGTH, MARGIN = 3, 20, 3
Array = NDArray[Any]
Case = tuple[Array, Array, Callable[[Array], float]]


def mosaic(
    textures: Sequence[Sequence[Array]], count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return image, strokes and truth of a mosaic of `count` textures, each a list of tiles."""
    side = min(min(tile.shape[:2]) for tiles in textures for tile in tiles)
    chosen = rng.choice(len(textures), count, replace=False)
    kinds = np.repeat(np.arange(count), N_CELLS)
    draws = [rng.random((len(kinds), 2)) * side for _ in range(200)]
    points = max(draws, key=_least_distance)
    grid = np.moveaxis(np.indices((side, side)), 0, -1)
    cells = np.linalg.norm(grid[:, :, None] - points, axis=-1).argmin(axis=-1)
    image = np.zeros((side, side, *textures[0][0].shape[2:]), np.uint8)
    for cell, kind in enumerate(kinds):
        tiles = textures[int(chosen[kind])]
        tile = tiles[int(rng.integers(len(tiles)))][:side, :side]
        image[cells == cell] = tile[cells == cell]
    strokes = np.zeros((side, side), np.uint8)
    for number in range(count):
        for own_cell in rng.choice(np.flatnonzero(kinds == number), N_CELLS - 1, replace=False):
            inside = np.pad(cells == own_cell, 1)
            rows, columns = np.nonzero(distance_transform_edt(inside)[1:-1, 1:-1] >= MARGIN)
            row = int(np.median(rows))
            own = columns[rows == row]
            strokes[row, own[np.abs(own - np.median(own)) <= LENGTH / 2]] = number + 1
    return image, strokes, kinds[cells] + 1


def accuracy(found: Array, strokes: Array, truth: Array) -> float:
    """Return the share of the pixels without a stroke that are right."""
    return float((found == truth)[strokes == 0].mean())


def _least_distance(points: Array) -> float:
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    return float((apart + 1e9 * np.eye(len(points))).min())


def mosaics(textures: Sequence[Sequence[Array]], numbers: Sequence[int]) -> Iterator[Case]:
    for number in numbers:
        image, strokes, truth = mosaic(textures, 2 + number // 2 % 4, np.random.default_rng(number))
        yield image, strokes, partial(accuracy, strokes=strokes, truth=truth)


def brodatz() -> list[list[Array]]:
    tiles: dict[str, list[Array]] = {}
    for path in sorted((DATA / "brodatz").glob("*/*.png")):
        tile = iio.imread(path).astype(float)
        even = 128 + 42 * (tile - tile.mean()) / tile.std()
        tiles.setdefault(path.stem.split("_")[0], []).append(np.clip(even, 0, 255).astype(np.uint8))
    return list(tiles.values())


def facades() -> list[list[Array]]:
    return [
        [iio.imread(path)[..., :3]] for path in sorted((DATA / "facades/brick").glob("*/*.png"))
    ]


def of_nuclei(numbers: Sequence[int]) -> Iterator[Case]:
    paths = sorted((DATA / "nuclei/images").iterdir())
    for number in numbers:
        image = iio.imread(paths[number])
        truth = iio.imread(next((DATA / "nuclei/labels").glob(f"{paths[number].stem}.*")))
        strokes = nuclei.draw(truth, np.random.default_rng(0))
        yield image, strokes, _nuclei_score(strokes, truth)


def _nuclei_score(strokes: Array, truth: Array) -> Callable[[Array], float]:
    return lambda found: nuclei.f1(found == nuclei.NUCLEUS, strokes, truth)


WEIGHTS = DATA / "vgg16" / "vgg16_hed_bsds500.safetensors"
DEEP = {
    "deep": DeepFeatures("vgg16", str(WEIGHTS)),
    "deep, layers 0,1": DeepFeatures("vgg16", str(WEIGHTS), layers=(0, 1)),
}


def label(image: Array, strokes: Array, name: str) -> Array:
    """Label by the method that the Scribbles dock takes for textures, with named features."""
    if name == "automatic":
        chosen = saf.choose_for_strokes(image, strokes)
        problem = saf.Problem.from_image(image, seeds=strokes, **chosen.options.arguments())
        return np.asarray(chosen.method.run(problem).labels)
    colour = image.ndim == 3
    choice = stroke_choices(3 if colour else 1)["texture"]
    if name == "colour":
        name = "lab" if colour else "intensity"
    options = dataclasses.replace(choice.options, features=DEEP.get(name, name))
    problem = saf.Problem.from_image(image, seeds=strokes, **options.arguments())
    return np.asarray(choice.method.run(problem).labels)


def threshold(sets: dict[str, list[Case]]) -> None:
    """Print how well *Automatic* does where what patterns must gain is chosen on other images.

    Each half of the images by the other: of 0.05, 0.1, ... what has the highest mean over the sets.
    """
    rows = []
    for which, cases in sets.items():
        for image, strokes, score in cases:
            choices = stroke_choices(3 if image.ndim == 3 else 1)
            own = {name: choices[name] for name in ("many", "texture", "patterns")}
            side = choices["object"].options.max_side
            told, scores = {}, {}
            for name, choice in own.items():
                options = dataclasses.replace(own["many"].options, features=choice.options.features)
                small = dataclasses.replace(options, max_side=side).arguments()
                problem = saf.Problem.from_image(image, seeds=strokes, **small)
                told[name] = left_out_accuracy(problem) or 0.0
                arguments = choice.options.arguments()
                problem = saf.Problem.from_image(image, seeds=strokes, **arguments)
                scores[name] = score(np.asarray(choice.method.run(problem).labels))
            plain = max("many", "texture", key=lambda k: told[k] - 0.1 * (k == "texture"))
            gain = told["patterns"] - told[plain]
            rows.append((which, gain, scores[plain], scores["patterns"]))

    def mean(some: Sequence[Any], least: float) -> float:
        found = [
            np.mean(
                [
                    good if gain >= least else plain
                    for name, gain, plain, good in some
                    if name == which
                ]
            )
            for which in sets
        ]
        return float(np.mean(found))

    for first in (0, 1):
        tried = np.arange(1, 14) / 20
        least = max(tried, key=lambda t: mean(rows[first::2], t))
        held = rows[1 - first :: 2]
        print(
            f"chosen {least:.2f}: {mean(held, least):.3f} on the others; 0.30: "
            f"{mean(held, 0.3):.3f}, never patterns {mean(held, 9):.3f}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    fixed = [name for name in FEATURES if name not in ("lab", "deep")]
    named = ["automatic", "colour", *fixed, *(DEEP if WEIGHTS.is_file() else ())]
    parser.add_argument("--images", choices=("even", "odd", "all"), default="odd")
    parser.add_argument("--mosaics", type=int, default=32, help="before those are chosen")
    parser.add_argument("--only", nargs="+", choices=named, default=named)
    parser.add_argument("--threshold", action="store_true", help="cross-validate a choice instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # deep features of an earlier run do not count
        os.environ["XDG_CACHE_HOME"] = folder
        report(arguments)


def report(arguments: argparse.Namespace) -> None:
    first, step = {"even": (0, 2), "odd": (1, 2), "all": (0, 1)}[arguments.images]
    numbers = range(first, arguments.mosaics, step)
    sets = {
        "brodatz": list(mosaics(brodatz(), numbers)),
        "facades": list(mosaics(facades(), numbers)),
        "nuclei": list(of_nuclei(range(first, 15, step))),
    }
    if arguments.threshold:
        return threshold(sets)
    print(f"{'features':18} {' '.join(f'{name:>8}' for name in sets)}  s/image")
    for name in arguments.only:
        means, began = [], time.process_time()
        for cases in sets.values():
            scores = [score(label(image, strokes, name)) for image, strokes, score in cases]
            means.append(float(np.mean(scores)))
        seconds = (time.process_time() - began) / sum(map(len, sets.values()))
        print(f"{name:18} {' '.join(f'{mean:8.3f}' for mean in means)} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
