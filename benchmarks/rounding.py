"""What rounding changes of labels: the engines in float32 beside PyTorch in float64.

Self-assignment flows from one start, and from it with noise of 1e-7 of each entry. Prints which
share of the nodes has the same label (%): of both engines, of each beside float64, and beside the
same engine with noise.

    OMP_NUM_THREADS=1 python benchmarks/rounding.py --images ../shared/data/bsds_dev/images/*1.jpg
"""

from __future__ import annotations

import argparse
import functools

import numpy as np
import torch
from flow import FLOW, by, columns_of, make_field, photograph, plain_problem
from numpy.typing import NDArray
from skimage.io import imread
from skimage.transform import resize

from napari_saf.device import FloatName
from napari_saf.flow import wait_for_kernels

ENGINES: dict[str, tuple[str, FloatName]] = {
    "kernels": ("kernels", "float32"),
    "torch": ("torch", "float32"),
    "float64": ("torch", "float64"),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--images", nargs="+", help="files; else the sample photograph")
    arguments.add_argument("--height", type=int, default=160)
    arguments.add_argument("--width", type=int, default=240)
    arguments.add_argument("--windows", type=int, nargs="+", default=[3, 21])
    arguments.add_argument("--columns", type=int, default=16, help="labels")
    arguments.add_argument("--s", type=float, default=1.0)
    given = arguments.parse_args()
    wait_for_kernels()
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


if __name__ == "__main__":
    main()
