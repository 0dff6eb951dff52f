"""SLK: speed beside k-means, growth with the number of nodes.

python benchmarks/slk.py [speed] [growth] [image]    (by default all)

What it agrees with is printed by ``authors.py``. Speed on Shuttle, processor seconds of one core on
a shared machine (`speed --data shuttle --rounds 7`), means of 7 clusters and their steps beside
SLK-BO and its updates, before rounds started anew at softmax(a):

=========  =======  =====  ======  =====  ======  =======  ===========================
           k-means  steps  search  graph  SLK-BO  updates  ratio, with search and graph
=========  =======  =====  ======  =====  ======  =======  ===========================
raw        0.025    3      0.240   0.022  0.107   19       4.3, 14.7
unit rows  0.042    27     0.235   0.022  0.540   155      12.9, 19.1
z-scores   0.034    16     0.168   0.021  0.173   41       5.0, 10.5
[0, 1]     0.043    32     0.132   0.022  0.218   49       5.1, 8.6
=========  =======  =====  ======  =====  ======  =======  ===========================

An update takes about twice as long as a step of k-means: two fifths of it are the product with the
graph, a quarter is the softmax. The search alone is 3 to 10 times as long as k-means.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from skimage.transform import resize
from sklearn.cluster import KMeans

import napari_saf as saf
from napari_saf.graph import Neighbours, nearest_neighbours
from napari_saf.input import PLAIN
from napari_saf.methods._clustering import in_local_order
from napari_saf.methods._laplacian import AbstractLaplacianState
from napari_saf.methods._method import Call
from napari_saf.samples import read_sample

FLOW = functools.partial(saf.SelfAssignmentFlow, max_labels=16, start="features", epsilon=1.0)
"""So that figures can be compared with earlier ones."""

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
N_NEIGHBORS = 5
N_UPDATES = 10
Table = tuple[NDArray[np.float32], NDArray[np.int64]]
Preprocessing = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def read_mnist() -> Table:
    """Return all 70,000 digits as rows of raw pixels in [0, 1]."""

    def read(name: str, offset: int) -> NDArray[np.uint8]:
        raw = gzip.decompress((DATA / "mnist" / name).read_bytes())
        return np.frombuffer(raw, dtype=np.uint8, offset=offset)

    parts = ("train", "t10k")
    images = [read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784) for part in parts]
    classes = [read(f"{part}-labels-idx1-ubyte.gz", 8) for part in parts]
    pixels = np.concatenate(images).astype(np.float32) / np.float32(255)
    return np.asarray(pixels, dtype=np.float32), np.concatenate(classes).astype(np.int64)


def read_shuttle() -> Table:
    """Return the 58,000 rows of Statlog shuttle as they are."""
    parts = [np.loadtxt(DATA / "shuttle" / f"shuttle.{part}.gz") for part in ("trn", "tst")]
    table = np.concatenate(parts)
    return table[:, :9].astype(np.float32), table[:, 9].astype(np.int64) - 1


def unchanged(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x


def unit_rows(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=np.float32)


def z_scores(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Leave out features that are the same everywhere."""
    spread = x.std(axis=0)
    varied = spread > 0
    return np.asarray((x - x.mean(axis=0))[:, varied] / spread[varied], dtype=np.float32)


def to_unit_range(x: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = x.min(axis=0), x.max(axis=0)
    return np.asarray((x - low) / (high - low), dtype=np.float32)


DATA_SETS: dict[str, tuple[Callable[[], Table], dict[str, Preprocessing]]] = {
    "shuttle": (
        read_shuttle,
        {
            "raw": unchanged,
            "unit rows": unit_rows,
            "z-scores": z_scores,
            "to [0, 1]": to_unit_range,
        },
    ),
    "mnist": (
        read_mnist,
        {
            "raw": unchanged,
            "unit rows": unit_rows,
            "z-scores": z_scores,
        },
    ),
}


SPEED_SETS = {"shuttle": list(DATA_SETS["shuttle"][1]), "mnist": ["raw"]}


def scores(classes: NDArray[np.int64], labels: NDArray[np.integer]) -> tuple[float, float]:
    """Return NMI and accuracy."""
    nmi = saf.metrics.normalized_mutual_information(classes, labels)
    return nmi, saf.metrics.matched_accuracy(classes, labels)


def prepare(x: NDArray[np.float32], n_neighbors: int = N_NEIGHBORS) -> tuple[saf.Problem, float]:
    """Return the problem on the graph of nearest neighbours, and sigma squared."""
    found = nearest_neighbours(x, n_neighbors)
    return saf.Problem(x, join(found)), float(found.squared_distances.mean())


def join(found: Neighbours) -> saf.AffinityGraph:
    matrix = found.indicator()
    return saf.AffinityGraph((matrix + matrix.T) / 2)


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median processor time of each call; they take turns, so noise hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if k:
                times[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def measure_speed(names: list[str], rounds: int) -> None:
    """Compare SLK-BO with scikit-learn's k-means of one start, side by side."""
    print("speed, processor seconds: SLK-BO at its defaults and KMeans(n_init=1), in turns")
    print(f"{'':18} {'k-means':>8} {'(steps)':>7} {'search':>7} {'graph':>7} ", end="")
    print(f"{'SLK-BO':>7} {'(updates)':>9} {'ratio':>6} {'with search and graph':>21}")
    for data in names:
        read, changes = DATA_SETS[data]
        raw, y = read()
        for preprocessing in SPEED_SETS[data]:
            line = speed_of(changes[preprocessing](raw), int(y.max()) + 1, rounds)
            print(f"{data + ', ' + preprocessing:18} {line}", flush=True)


def speed_of(x: NDArray[np.float32], n_classes: int, rounds: int) -> str:
    neighbours = nearest_neighbours(x, N_NEIGHBORS)
    problem, sigma2 = prepare(x)
    method = saf.SLK(n_clusters=n_classes, sigma2=sigma2)
    means = KMeans(n_classes, n_init=1, random_state=0)
    calls: dict[str, Callable[[], object]] = {
        "k-means": partial(means.fit, x),
        "SLK": partial(method.run, problem),
        "search": partial(nearest_neighbours, x, N_NEIGHBORS),
        "graph": partial(join, neighbours),
    }
    found = seconds(calls, rounds if len(x) < 60_000 else 1)
    whole = found["SLK"] + found["search"] + found["graph"]
    return (
        f"{found['k-means']:8.3f} {means.n_iter_:7} {found['search']:7.3f} {found['graph']:7.3f} "
        f"{found['SLK']:7.3f} {method.run(problem).n_evaluations:9} "
        f"{found['SLK'] / found['k-means']:6.1f} {whole / found['k-means']:21.1f}"
    )


def measure_growth() -> None:
    """Fit the exponent of the time of an inner update in the number of nodes.

    On one thread: the processor seconds of several count those in which they wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    counts = [10_000, 31_623, 100_000, 316_228, 1_000_000]
    cases: dict[str, Callable[[int], tuple[saf.Problem, float]]] = {
        "points in no order, 5 nearest neighbours": clouds,
        "photograph, 3 x 3 contrast-weighted neighbours": photograph,
    }
    for words, make in cases.items():
        print(f"growth: seconds of an inner update, 8 clusters, 3 features; {words}")
        times = []
        for n_nodes in counts:
            problem, sigma2 = make(n_nodes)
            method = saf.SLK(n_clusters=8, sigma2=sigma2, tolerance=0)
            times.append(min(inner_seconds(method, problem) for _ in range(5)))
            print(f"  {problem.n_nodes:>9,} nodes: {1e3 * times[-1]:8.3f} ms", flush=True)
        exponent = np.polyfit(np.log(counts), np.log(times), 1)[0]
        print(f"fitted exponent {exponent:.3f} (at most 1.1 wanted)")
    torch.set_num_threads(threads)


def clouds(n_nodes: int) -> tuple[saf.Problem, float]:
    rng = np.random.default_rng(0)
    centres = rng.random((8, 3))
    x = centres[rng.integers(8, size=n_nodes)] + 0.1 * rng.normal(size=(n_nodes, 3))
    # Not sigma squared of the neighbours: it shrinks as points grow dense, and with it what there
    # is to do, until a descent ends after one update.
    return prepare(x.astype(np.float32))[0], 2 * 0.1**2


def photograph(n_nodes: int) -> tuple[saf.Problem, float]:
    side = round(n_nodes**0.5)
    image = resize(read_sample("astronaut").array, (side, side))
    return saf.Problem.from_image(image, **PLAIN), 1e-3


def inner_seconds(method: saf.SLK, problem: saf.Problem) -> float:
    """Return the processor time of an inner update, over the first ones of a run."""
    features = torch.from_numpy(problem.features)
    call = Call(problem, features, None, None, lambda: False, 0.0)
    state = method._start(in_local_order(call))
    assert isinstance(state, AbstractLaplacianState)
    state.begin()
    state.relax(1)  # the system hands memory over at the first write to it
    before, began = state.n_evaluations, time.process_time()
    state.relax(N_UPDATES)
    seconds = time.process_time() - began
    assert state.n_evaluations - before >= N_UPDATES
    return seconds / (state.n_evaluations - before)


def measure_image(rounds: int) -> None:
    """Compare SLK-BO with the self-assignment flow on a photograph."""
    problem = saf.Problem.from_image(read_sample("astronaut").array, **PLAIN)
    found = seconds(
        {
            "SLK": lambda: saf.SLK(n_clusters=8).run(problem),
            "SAF": lambda: FLOW().run(problem),
        },
        rounds,
    )
    print(
        f"512 x 512 RGB, 8 clusters: SLK-BO {found['SLK']:.2f} s, default self-assignment flow "
        f"{found['SAF']:.2f} s; ratio {found['SLK'] / found['SAF']:.2f}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ["speed", "growth", "image"]
    parser.add_argument("parts", nargs="*", choices=[*parts, "all"], default="all")
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    chosen = parts if "all" in arguments.parts else arguments.parts
    if "speed" in chosen:
        measure_speed(arguments.data, arguments.rounds)
    if "growth" in chosen:
        measure_growth()
    if "image" in chosen:
        measure_image(arguments.rounds)


if __name__ == "__main__":
    main()
