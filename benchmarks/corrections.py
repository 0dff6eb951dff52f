"""Do corrections help? Nuclei from strokes, and again after each round of strokes that correct.

python benchmarks/corrections.py [--draws 1] [--rounds 2] [--crop 400] [--ways automatic ...]
python benchmarks/corrections.py --suggest [--every 4]

The images of the folders nuclei and nuclei_more, the larger ones cut to so many pixels a side, with
three strokes of each class as of `scribbles_nuclei.py`; then three more of each, in every round,
across what is widest of what was labelled wrong, by each way for itself. F1 is of the foreground,
strokes left out, AP of the objects that `split_objects` makes of it with image and uncertainty,
at an intersection over union of .5: means over images, of those of even and of odd index, and how
many images fell by more than .01 since the round before. Seconds are of processor time.

With ``--suggest`` F1 from one stroke of each class, after five more where *Suggest spot* puts its
ring, one after another, and after five and ten at random places (two draws).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from objects import DATA, counts, precision
from scipy import ndimage
from scribbles_nuclei import (
    GROUND,
    LENGTH,
    NUCLEUS,
    Strokes,
    correct,
    draw,
    f1,
    forest_of_scales,
)

import napari_saf as saf

FALLEN = 0.01

Mask = NDArray[np.bool_]
Way = Callable[[NDArray[Any], Strokes], tuple[Mask, NDArray[np.floating] | None]]


def automatic(image: NDArray[Any], strokes: Strokes) -> tuple[Mask, NDArray[np.floating] | None]:
    """Run the assignment flow with what the strokes choose, as the Scribbles dock does."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    result = choice.method.run(problem)
    values: Any = result.uncertainty
    uncertainty: Any = problem.graph.to_image(values)
    return np.asarray(result.labels) == NUCLEUS, uncertainty


def forest(image: NDArray[Any], strokes: Strokes) -> tuple[Mask, None]:
    """Ask a random forest on multi-scale features."""
    return forest_of_scales(image, strokes), None


WAYS: dict[str, Way] = {"automatic": automatic, "forest": forest}


def images() -> list[Path]:
    folders = [DATA / name / "images" for name in ("nuclei", "nuclei_more")]
    return [path for folder in folders for path in sorted(folder.iterdir())]


def rounds(job: tuple[Path, str, int, int, int]) -> list[tuple[float, float, float]]:
    """Return F1, AP and seconds after each round on one image."""
    path, way, seed, n_rounds, crop = job
    image = iio.imread(path)[:crop, :crop]
    truth = iio.imread(path.parents[1] / "labels" / path.name).astype(int)[:crop, :crop]
    strokes, found = draw(truth, np.random.default_rng(seed)), []
    for k in range(n_rounds + 1):
        began = time.process_time()
        mask, uncertainty = WAYS[way](image, strokes)
        seconds = time.process_time() - began
        objects = saf.split_objects(mask, image=image, uncertainty=uncertainty)
        ap = float(precision(counts(truth, objects.labels)))
        found.append((f1(mask, strokes, truth), ap, seconds))
        if k < n_rounds:
            strokes = correct(truth, mask, strokes)
    return found


def add(truth: NDArray[Any], strokes: Strokes, row: int, column: int) -> Strokes:
    """Return strokes with one more in a row, within the nucleus or the ground at a place."""
    pieces, _ = ndimage.label(truth[row] == truth[row, column])
    near = np.abs(np.arange(len(pieces)) - column) <= LENGTH // 2
    strokes = strokes.copy()
    strokes[row, (pieces == pieces[column]) & near] = NUCLEUS if truth[row, column] else GROUND
    return strokes


def suggestions(job: tuple[Path, int, int]) -> list[float]:
    """Return F1 of an image: at first, with five suggested strokes, with five and ten random."""
    from napari_saf._gui.scribbles.results import most_uncertain_pixel

    path, seed, crop = job
    image = iio.imread(path)[:crop, :crop]
    truth = iio.imread(path.parents[1] / "labels" / path.name).astype(int)[:crop, :crop]
    first = strokes = draw(truth, np.random.default_rng(seed), 1)
    mask, uncertainty = automatic(image, strokes)
    found = [f1(mask, strokes, truth)]
    for _ in range(5):
        spot = most_uncertain_pixel(np.asarray(uncertainty), strokes)
        if spot is None:
            break
        strokes = add(truth, strokes, *spot)
        mask, uncertainty = automatic(image, strokes)
    found.append(f1(mask, strokes, truth))
    for count in (5, 10):
        scores = []
        for rng in map(np.random.default_rng, (1, 2)):
            strokes = first
            for place in rng.integers(0, truth.shape, (count, 2)):
                strokes = add(truth, strokes, *place)
            scores.append(f1(automatic(image, strokes)[0], strokes, truth))
        found.append(float(np.mean(scores)))
    return found


def show(name: str, table: NDArray[np.float64]) -> Iterator[str]:
    """Yield a line for each round of a table (n_images, n_rounds + 1, 3)."""
    for k in range(table.shape[1]):
        parts = [table[:, k, :2], table[::2, k, :2], table[1::2, k, :2]]
        numbers = " ".join(f"{x:6.3f}" for part in parts for x in part.mean(axis=0))
        fallen = (table[:, k, :2] < table[:, max(k - 1, 0), :2] - FALLEN).sum(axis=0)
        yield f"{name:12} {k:5} {numbers} {fallen[0]:5} {fallen[1]:5} {table[:, k, 2].mean():8.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--crop", type=int, default=400, help="pixels a side at most")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suggest", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="of so many images take one")
    parser.add_argument("--each", action="store_true", help="print each image, too")
    options = parser.parse_args()
    paths = images()[:: options.every]
    if options.suggest:
        with Pool(options.jobs) as pool:
            some = [(path, k, options.crop) for path in paths for k in range(options.draws)]
            means = np.mean(pool.map(suggestions, some, chunksize=1), axis=0)
        print(
            "at first {:.3f}, 5 suggested {:.3f}, 5 random {:.3f}, 10 random {:.3f}".format(*means)
        )
        return
    print(f"{'':18} {'all':>13} {'even':>13} {'odd':>13} {'fallen':>11}")
    print(f"{'way':12} round" + 3 * "     F1     AP" + "    F1    AP  seconds")
    with Pool(options.jobs) as pool:
        for way in options.ways:
            for seed in range(options.draws):
                jobs = [(path, way, seed, options.rounds, options.crop) for path in paths]
                table = np.array(pool.map(rounds, jobs, chunksize=1))
                print(*show(way, table), sep="\n", flush=True)
                for path, rows in zip(paths, table, strict=True) if options.each else ():
                    print(f"  {path.stem:18}", *(f"{f:.3f} {a:.3f} " for f, a, _ in rows))


if __name__ == "__main__":
    main()
