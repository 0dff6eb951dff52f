"""What rounding changes of labels: between engines, and of every method.

engines  The engines of flows in float32 beside PyTorch in float64: self-assignment flows from one
         start, and from it with noise of 1e-7 of each entry. Prints which share of the nodes has
         the same label (%): of both engines, of each beside float64, and beside the same engine
         with noise.
methods  Every method on samples, with noise of 1e-6 of each value, and by other instruction sets
         of the processor. Prints which share of the labels changes (%): the most of the draws, and
         by each instruction set.

    OMP_NUM_THREADS=1 python benchmarks/rounding.py --images ../shared/data/bsds_dev/images/*1.jpg
    OMP_NUM_THREADS=1 python benchmarks/rounding.py methods
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from flow import FLOW, by, columns_of, make_field, photograph, plain_problem
from numpy.typing import NDArray
from skimage.draw import line
from skimage.io import imread
from skimage.transform import resize

import napari_saf as saf
from napari_saf.device import FloatName
from napari_saf.flow import wait_for_kernels
from napari_saf.metrics import matched_accuracy
from napari_saf.samples import read_sample

ENGINES: dict[str, tuple[str, FloatName]] = {
    "kernels": ("kernels", "float32"),
    "torch": ("torch", "float32"),
    "float64": ("torch", "float64"),
}

Labels = NDArray[np.integer]
Image = NDArray[np.floating]

STROKES = {
    "astronaut": (
        [(110, 200, 110, 265), (330, 80, 300, 310)],
        [(30, 110, 140, 110), (60, 330, 200, 340)],
        [(100, 30, 350, 20), (120, 420, 220, 420)],
    ),
    "coins": (
        [(53, 35, 53, 52), (123, 145, 123, 162), (187, 335, 187, 365)],
        [(88, 20, 88, 360), (160, 20, 160, 300)],
    ),
    "histology": (
        [(100, 100, 180, 220), (150, 400, 250, 400), (400, 290, 420, 350)],
        [(260, 310, 330, 230), (200, 490, 400, 430)],
    ),
}
"""Of each class lines from row and column to row and column of the sample."""
INSTRUCTION_SETS = ("default", "avx2")
NOISE = 1e-6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("part", nargs="?", choices=["engines", "methods"], default="engines")
    arguments.add_argument("--images", nargs="+", help="files; else the sample photograph")
    arguments.add_argument("--height", type=int, default=160)
    arguments.add_argument("--width", type=int, default=240)
    arguments.add_argument("--windows", type=int, nargs="+", default=[3, 21])
    arguments.add_argument("--columns", type=int, default=16, help="labels")
    arguments.add_argument("--s", type=float, default=1.0)
    arguments.add_argument("--side", type=int, default=160, help="longest side of samples")
    arguments.add_argument("--draws", type=int, default=5)
    arguments.add_argument("--only", nargs="+", metavar="METHOD", help="; ".join(METHODS))
    arguments.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    wait_for_kernels()
    if given.save:
        save_labels(given)
    elif given.part == "methods":
        methods_table(given)
    else:
        engines_table(given)


def engines_table(given: argparse.Namespace) -> None:
    shape = given.height, given.width
    images = {"sample": photograph(*shape)}
    if given.images:
        images = {name: resize(imread(name) / 255, shape) for name in given.images}
    print("| image | window | evaluations | kernels and torch | kernels and float64 ", end="")
    print("| torch and float64 | kernels and noise | torch and noise | float64 and noise |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, image in images.items():
        for window in given.windows:
            print(f"| {name.split('/')[-1]} | {window} | {row(image, window, given)} |", flush=True)


def row(image: NDArray[np.floating], window: int, given: argparse.Namespace) -> str:
    image = image.astype(np.float32)
    problem = plain_problem(image, window)
    table = make_field(image, window, None, given.columns, torch.device("cpu"))[1]
    start = torch.softmax(table.double(), dim=1).numpy()
    noise = np.random.default_rng(0).standard_normal(start.shape)
    found: dict[tuple[str, float], NDArray[np.int64]] = {}
    counts: list[str] = []
    for name, (engine, dtype) in ENGINES.items():
        method = FLOW(s=given.s, max_labels=given.columns, dtype=dtype)
        for factor in (0, 1e-7):
            begin = start * (1 + factor * noise)
            result = by(engine, functools.partial(method.run, problem, begin))
            found[name, factor] = columns_of(result)
            counts += [] if factor else [str(result.n_evaluations)]
    pairs = ("kernels", "torch"), ("kernels", "float64"), ("torch", "float64")
    same = [found[one, 0] == found[other, 0] for one, other in pairs]
    same += [found[name, 0] == found[name, 1e-7] for name in ENGINES]
    return " | ".join([", ".join(counts), *(f"{100 * nodes.mean():.2f}" for nodes in same)])


def run(method: saf.methods.AbstractMethod, image: Image, strokes: Labels | None = None) -> Labels:
    groups = np.broadcast_to(np.arange(image.shape[1]) % 2 + 1, image.shape[:2])
    problem = saf.Problem.from_image(image, seeds=strokes, groups=groups)
    return np.asarray(method.run(problem).labels)


def first_click(image: Image, strokes: Labels) -> Labels:
    return run(saf.SelfAssignmentFlow(), image)


def regions(image: Image, strokes: Labels) -> Labels:
    return saf.merge_regions(first_click(image, strokes), image).at_level()


def scribbles(image: Image, strokes: Labels) -> Labels:
    """Return what the Scribbles dock finds."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels)


def alone(method: saf.methods.AbstractMethod) -> Callable[[Image, Labels], Labels]:
    return lambda image, strokes: run(method, image)


def with_strokes(method: saf.methods.AbstractMethod) -> Callable[[Image, Labels], Labels]:
    return lambda image, strokes: run(method, image, strokes)


METHODS: dict[str, Callable[[Image, Labels], Labels]] = {
    "saf": first_click,
    "saf, s = 1": alone(saf.SelfAssignmentFlow(s=1.0)),
    "saf, strokes": with_strokes(saf.SelfAssignmentFlow()),
    "af, strokes": with_strokes(saf.AssignmentFlow()),
    "Scribbles dock": scribbles,
    "regions": regions,
    "slk, bo": alone(saf.SLK()),
    "slk, ms": alone(saf.SLK(prototypes="ms")),
    "slk, means": alone(saf.SLK(prototypes="means")),
    "slk, bo, strokes": with_strokes(saf.SLK()),
    "slk, ms, strokes": with_strokes(saf.SLK(prototypes="ms")),
    "slk, means, strokes": with_strokes(saf.SLK(prototypes="means")),
    "fair, kmeans": alone(saf.FairClustering(objective="kmeans")),
    "fair, kmedian": alone(saf.FairClustering(objective="kmedian")),
    "fair, ncut": alone(saf.FairClustering(objective="ncut")),
    "laplacianshot, strokes": with_strokes(saf.LaplacianShot()),
    "bavardage, strokes": with_strokes(saf.Bavardage()),
}


def sample(name: str, side: int) -> tuple[Image, Labels]:
    """Return a sample of that longest side, values from 0 to 1, and strokes on it."""
    whole = read_sample(name).array
    scale = side / max(whole.shape[:2])
    shape = tuple(round(scale * n) for n in whole.shape[:2])
    strokes = np.zeros(shape, dtype=np.int64)
    for number, lines in enumerate(STROKES[name], start=1):
        for ends in lines:
            strokes[line(*(int(scale * end) for end in ends))] = number
    return resize(whole, shape, anti_aliasing=True), strokes


def chosen_methods(given: argparse.Namespace) -> dict[str, Callable[[Image, Labels], Labels]]:
    return {name: METHODS[name] for name in given.only or METHODS}


def save_labels(given: argparse.Namespace) -> None:
    """Save the labels of every method on every sample."""
    found = {
        f"{name}/{title}": label(*sample(name, given.side))
        for name in STROKES
        for title, label in chosen_methods(given).items()
    }
    np.savez(given.save, **found)  # type: ignore[arg-type]


def labels_by(instructions: str, given: argparse.Namespace) -> dict[str, Labels]:
    """Return the labels by an instruction set, which torch chooses when it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "labels.npz"
        command = [sys.executable, __file__, "methods", "--save", str(file)]
        command += ["--side", str(given.side), "--only", *chosen_methods(given)]
        subprocess.run(command, check=True, env=os.environ | {"ATEN_CPU_CAPABILITY": instructions})
        with np.load(file) as stored:
            return dict(stored)


def methods_table(given: argparse.Namespace) -> None:
    print(f"torch computes with {torch.backends.cpu.get_cpu_capability()}")
    titles = [f"{name}: noise | " + " | ".join(INSTRUCTION_SETS) for name in STROKES]
    print("| method | " + " | ".join(titles) + " |")
    print("|---" * (1 + len(STROKES) * (1 + len(INSTRUCTION_SETS))) + "|", flush=True)
    others = [labels_by(instructions, given) for instructions in INSTRUCTION_SETS]
    for title, label in chosen_methods(given).items():
        cells: list[float] = []
        for name in STROKES:
            image, strokes = sample(name, given.side)
            clean = label(image, strokes)
            changed = [
                changes(clean, label(noisy(image, draw), strokes)) for draw in range(given.draws)
            ]
            cells += [max(changed), *(changes(clean, by[f"{name}/{title}"]) for by in others)]
        print(f"| {title} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


def noisy(image: Image, draw: int) -> Image:
    return image * (1 + NOISE * np.random.default_rng(draw).standard_normal(image.shape))


def changes(labels: Labels, others: Labels) -> float:
    """Return which share of the labels differs (%), whatever their numbers."""
    return 100 * (1 - matched_accuracy(labels.ravel(), others.ravel()))


if __name__ == "__main__":
    main()
