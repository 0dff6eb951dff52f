"""Published algorithms beside ours: energies and agreement with the classes, in one run.

python benchmarks/authors.py [clustering] [few-shot] [speed] [protocol] [--data mnist shuttle]
    [--starts 3] [--tasks 300]

The references are written from the papers, slow and obvious, in float64.

clustering  SLK is Algorithm 2.1 of Ziko, Granger and Ben Ayed, *Scalable Laplacian K-modes*
            (NeurIPS 2018), with each of its three updates of the prototypes: every inner loop
            starts at the softmax of the unaries, and the last round that lowered the energy is
            kept. Both get the same rows, graph, parameters and k-means++ points; for the bound
            optimiser a start is the densest node of the cell of such a point. The energy is (1) of
            `napari_saf.SLK`.
few-shot    LaplacianShot, SLK with means and support constraints, and Bavardage at the papers'
            parameters, and ours at the defaults, on synthetic tasks and on Omniglot, in percent of
            the queries.
speed       Processor time of the tasks at once, and of single runs.
protocol    Table 2.2: lambda in 1, 2, 3, 4 and start chosen on a tenth of the classes, on all
            58,000 rows of Shuttle and 70,000 of MNIST; with ten starts half an hour.

A synthetic task has 5 classes, 1 or 5 seeds of each, 75 queries and 640 features. Its classes are
Gaussian in a space of 80 axes, turned into 640: centres are N(0, 0.40^2 / 80) along each axis, and
the spread about them, the same for all classes, has variances that fall like 1 / axis^0.2 and sum
to 1. All features carry white noise of total variance 0.25 besides. How many queries a class has is
15, or drawn with shares from Dirichlet(2). The distance of the centres was chosen for soft k-means
to be right on 60 to 75 % of the queries at one shot; 80 axes are about as many as the features of a
network have that matter.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array
from scipy.special import digamma, softmax
from skimage.feature import hog
from skimage.io import imread
from sklearn.cluster import kmeans_plusplus

import napari_saf as saf
from napari_saf.graph import nearest_neighbours

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Table = tuple[NDArray[np.float32], Labels]
Reference = Callable[[Floats, Labels], Labels]
TaskMethod = saf.LaplacianShot | saf.SLK | saf.Bavardage
N_TEST = 10_000
LAPLACIAN_WEIGHTS = (1.0, 2.0, 3.0, 4.0)
PRINTED = {
    ("mnist", "bo"): "0.77/0.80",
    ("mnist", "ms"): "0.80/0.79",
    ("shuttle", "bo"): "0.51/0.71",
    ("shuttle", "ms"): "0.45/0.70",
}
PrototypeUpdate = Literal["bo", "ms", "means"]
KINDS: tuple[PrototypeUpdate, ...] = ("bo", "ms", "means")
_MOST_IN_CELL = 2000
N_WAYS, N_QUERIES, N_FEATURES = 5, 75, 640
N_AXES, DISTANCE, NOISE = 80, 0.40, 0.5
NEAREST = saf.LaplacianShot(
    laplacian_weight=0.0, rectification=None, max_iterations=1, preprocessing="none"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"clustering": clustering, "few-shot": few_shot, "speed": speed, "protocol": protocol}
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--data", nargs="+", choices=["mnist", "shuttle"], default=None)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=300)
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(parts):
        parser.error(f"expected some of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    for part in chosen.parts or parts:
        parts[part](chosen)


def clustering(chosen: argparse.Namespace) -> None:
    print("SLK                      energy: reference    ours   NMI/accuracy    ours      seconds")
    for name, (data, change, n_neighbors, weight) in CASES.items():
        if chosen.data and data not in chosen.data:
            continue
        raw, y = read_mnist() if data == "mnist" else read_shuttle()
        if data == "mnist":
            raw, y = raw[-N_TEST:], y[-N_TEST:]
        x, graph, width = prepare(change(raw), n_neighbors)
        for kind in KINDS:
            rows = [
                compare_slk(x, graph, y, kind, weight, width, seed) for seed in range(chosen.starts)
            ]
            found = np.mean([[*row[0][1:], *row[1][1:]] for row in rows], axis=0)
            theirs, nmi, accuracy, seconds, ours, own_nmi, own_accuracy, own = found
            print(
                f"{name:18s} {kind:6s} {theirs:18.1f} {ours:10.1f}   {nmi:.3f}/{accuracy:.3f}  "
                f"{own_nmi:.3f}/{own_accuracy:.3f}  {seconds:5.1f} {own:5.1f}",
                flush=True,
            )


def protocol(chosen: argparse.Namespace) -> None:
    """Print what lambda and start give that agree best with a tenth of the classes."""
    print(f"protocol of Table 2.2, {chosen.starts} starts: NMI/accuracy, of reference and ours")
    for data, change in (("shuttle", z_scores), ("shuttle", unit_rows), ("mnist", unit_rows)):
        if chosen.data and data not in chosen.data:
            continue
        raw, y = read_mnist() if data == "mnist" else read_shuttle()
        x, graph, width = prepare(change(raw), 5)
        tenth = np.random.default_rng(0).permutation(len(y))[: len(y) // 10]
        for kind in KINDS[:2]:
            line = f"{data}, {change.__name__}, {kind}:"
            rows = [
                compare_slk(x, graph, y, kind, weight, width, seed)
                for seed in range(chosen.starts)
                for weight in LAPLACIAN_WEIGHTS
            ]
            for which in (0, 1):
                best = max(
                    (row[which] for row in rows), key=lambda r: sum(scores(y[tenth], r[0][tenth]))
                )
                mean = np.mean([row[which][2:4] for row in rows], axis=0)
                line += f" {best[2]:.3f}/{best[3]:.3f} (mean {mean[0]:.3f}/{mean[1]:.3f})"
            print(f"{line}; printed {PRINTED[data, kind]}", flush=True)


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


def unit_rows(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=np.float32)


def z_scores(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Leave out features that are the same everywhere."""
    spread = x.std(axis=0)
    varied = spread > 0
    return np.asarray((x - x.mean(axis=0))[:, varied] / spread[varied], dtype=np.float32)


CASES = {
    "mnist": ("mnist", unit_rows, 4, 1.31),
    "shuttle": ("shuttle", unit_rows, 5, 2.0),
    "shuttle, z-scores": ("shuttle", z_scores, 5, 2.0),
}
"""Data, preprocessing, nearest neighbours and lambda."""


def scores(classes: NDArray[np.int64], labels: NDArray[np.integer]) -> tuple[float, float]:
    """Return NMI and accuracy."""
    nmi = saf.metrics.normalized_mutual_information(classes, labels)
    return nmi, saf.metrics.matched_accuracy(classes, labels)


def prepare(
    x: NDArray[np.float32], n_neighbors: int
) -> tuple[NDArray[np.float32], saf.AffinityGraph, float]:
    """Return the rows, their graph of nearest neighbours, and sigma squared."""
    found = nearest_neighbours(x, n_neighbors)
    matrix = found.indicator()
    graph = saf.AffinityGraph((matrix + matrix.T) / 2)
    return x, graph, float(found.squared_distances.mean())


Outcome = tuple[NDArray[np.int64], float, float, float, float]
"""Labels, energy, NMI, accuracy, seconds."""


def compare_slk(
    rows: NDArray[np.float32],
    graph: saf.AffinityGraph,
    y: NDArray[np.int64],
    kind: PrototypeUpdate,
    weight: float,
    width: float,
    seed: int,
) -> tuple[Outcome, Outcome]:
    """Return what the reference finds from one start, and what we find."""
    sigma2 = 0.5 if kind == "means" else width  # |x - m|^2 as it is for means
    x, n_classes = rows.astype(np.float64), int(y.max()) + 1
    points, _ = kmeans_plusplus(rows, n_classes, random_state=seed)
    points = points.astype(np.float64)
    if kind == "bo":
        points = densest(x, points, sigma2)
    began = time.process_time()
    labels, energy = slk(x, graph.weights, points, weight, sigma2, kind)
    theirs = labels, energy, *scores(y, labels), time.process_time() - began
    method = saf.SLK(
        n_clusters=n_classes,
        prototypes=kind,
        laplacian="graph",
        laplacian_weight=weight,
        sigma2=sigma2,
        seed=seed,
    )
    began = time.process_time()
    result = method.run(saf.Problem(rows, graph))
    seconds = time.process_time() - began
    own = np.asarray(result.labels, dtype=np.int64)
    return theirs, (own, float(result.history.objective[-1]), *scores(y, own), seconds)


def slk(
    x: Floats, w: csr_array, points: Floats, weight: float, sigma2: float, kind: str
) -> tuple[NDArray[np.int64], float]:
    """Return labels from 1 and the energy of Algorithm 2.1."""
    least, labels = np.inf, np.zeros(len(x), dtype=np.int64)
    for _ in range(100):
        a = unaries(x, points, sigma2, kind)
        s = softmax(a, axis=1)
        now = energy_of(s, a, w, weight)
        for _ in range(200):
            before, s = now, softmax(a + weight * (w @ s), axis=1)
            now = energy_of(s, a, w, weight)
            if abs(before - now) <= 1e-5 * abs(now):
                break
        gain = least - now
        if gain > 0:
            least, labels = now, 1 + s.argmax(axis=1)
        if gain <= 1e-4 * abs(now):
            break
        points = update(x, s, points, sigma2, kind)
    return labels, least


def update(x: Floats, s: Floats, points: Floats, sigma2: float, kind: str) -> Floats:
    """Return the next prototypes: nodes of largest share, peaks of the density, or means."""
    if kind == "bo":
        return np.asarray(x[s.argmax(axis=0)])
    if kind == "means":
        return np.asarray((s.T @ x) / s.sum(axis=0)[:, None])
    for _ in range(200):
        shares, before = s * unaries(x, points, sigma2, kind), points
        points = (shares.T @ x) / shares.sum(axis=0)[:, None]
        if np.square(points - before).sum(axis=1).max() < 1e-6 * sigma2:
            break
    return points


def unaries(x: Floats, points: Floats, sigma2: float, kind: str) -> Floats:
    """Return a_pk = exp(-|x_p - m_k|^2 / 2 sigma^2), or the exponent for means."""
    exponents = -squares(x, points) / (2 * sigma2)
    return exponents if kind == "means" else np.exp(exponents)


def squares(x: Floats, points: Floats) -> Floats:
    lengths = np.square(x).sum(axis=1)[:, None] + np.square(points).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * x @ points.T, 0))


def energy_of(s: Floats, a: Floats, w: csr_array, weight: float) -> float:
    entropy = np.where(s > 0, s * np.log(np.maximum(s, 1e-300)), 0)
    return float(entropy.sum() - (s * a).sum() - weight / 2 * (s * (w @ s)).sum())


def densest(x: Floats, points: Floats, sigma2: float) -> Floats:
    """Return the node of each point's cell with the largest mean kernel, as section 2.4.2 says.

    The mean is over the nodes of the cell, at most 2000 of them at equal distances.
    """
    cells, found = squares(x, points).argmin(axis=1), list[Floats]()
    for cell in range(len(points)):
        own = x[cells == cell]
        some = own[:: -(-len(own) // _MOST_IN_CELL)]
        parts = np.array_split(own, -(-len(own) // _MOST_IN_CELL))
        density = [np.exp(-squares(part, some) / (2 * sigma2)).mean(axis=1) for part in parts]
        found.append(own[np.concatenate(density).argmax()])
    return np.array(found)


def few_shot(chosen: argparse.Namespace) -> None:
    """Print the accuracy of references and ours on the same tasks."""
    methods: dict[str, tuple[Reference, TaskMethod]]
    methods = {
        "LaplacianShot, 0.7": (
            laplacian_shot,
            saf.LaplacianShot(laplacian_weight=0.7, n_neighbors=3, preprocessing="centred unit"),
        ),
        "SLK, |x - m|^2": (
            lambda x, seeds: slk_with_support(x, seeds, 1.0),
            saf.SLK(prototypes="means", laplacian_weight=0.5, n_neighbors=3, sigma2=0.5),
        ),
        "SLK, 10 |x - m|^2": (
            lambda x, seeds: slk_with_support(x, seeds, 10.0),
            saf.SLK(prototypes="means", laplacian_weight=0.5, n_neighbors=3, sigma2=0.05),
        ),
        "Bavardage, printed": (
            bavardage,
            saf.Bavardage(
                preprocessing="centred unit",
                max_iterations=5,
                precision=50.0,
                mean_weight=10.0,
                max_scale=1.0,
            ),
        ),
    }
    defaults: dict[str, TaskMethod] = {
        "nearest prototype": NEAREST,
        "the same of unit rows": dataclasses.replace(NEAREST, preprocessing="centred unit"),
        "LaplacianShot": saf.LaplacianShot(),
        "SLK": saf.SLK(),
        "Bavardage": saf.Bavardage(),
    }
    print(f"few-shot, {chosen.tasks} tasks in three draws: accuracy in %, reference and ours")
    for name, features, seeds, labels in few_shot_tasks(chosen.tasks):
        for title, (label, method) in methods.items():
            found = [label(x, given) for x, given in zip(unit_tasks(features), seeds, strict=True)]
            theirs = accuracies(np.array(found), seeds, labels).mean()
            ours = accuracies(method.run_tasks(features, seeds), seeds, labels).mean()
            print(f"{name:22s} {title:21s} {theirs:6.2f} {ours:6.2f}", flush=True)
        for title, method in defaults.items():
            ours = accuracies(method.run_tasks(features, seeds), seeds, labels).mean()
            print(f"{name:22s} {title:21s}   none {ours:6.2f}", flush=True)


def speed(chosen: argparse.Namespace) -> None:
    """Print the processor time of a task, of all at once and one by one."""
    rng = np.random.default_rng(0)
    features, seeds, _ = draw_tasks(rng, chosen.tasks, 1, is_balanced=False)
    graph = saf.GridGraph((features.shape[1],))
    print(f"speed: {chosen.tasks} tasks of one shot at once, and a loop over 30; ms a task")
    methods: dict[str, TaskMethod] = {
        "LaplacianShot": saf.LaplacianShot(),
        "SLK": saf.SLK(n_clusters=5, laplacian="features"),
        "SLK, bo": saf.SLK(n_clusters=5, prototypes="bo", laplacian="features"),
        "Bavardage": saf.Bavardage(),
    }
    for n_features in (N_FEATURES, 64):
        own = np.ascontiguousarray(features[..., :n_features])
        for title, method in methods.items():
            method.run_tasks(own[:50], seeds[:50])
            began = time.process_time()
            method.run_tasks(own, seeds)
            batch = 1e3 * (time.process_time() - began) / chosen.tasks
            began = time.process_time()
            for x, given in zip(own[:30], seeds[:30], strict=True):
                method.run(saf.Problem(x, graph, seeds=given))
            alone = 1e3 * (time.process_time() - began) / 30
            print(f"  {n_features:3} features {title:14} {batch:6.2f} {alone:6.2f}", flush=True)


def few_shot_tasks(n_tasks: int) -> Iterator[tuple[str, NDArray[np.float32], Labels, Labels]]:
    for n_shots in (1, 5):
        for balanced in (True, False):
            draws = [
                draw_tasks(
                    np.random.default_rng((n_shots, balanced, seed)),
                    n_tasks // 3,
                    n_shots,
                    is_balanced=balanced,
                )
                for seed in range(3)
            ]
            features, seeds, labels = (np.concatenate(x) for x in zip(*draws, strict=True))
            shares = "balanced" if balanced else "Dirichlet"
            yield f"{n_shots} shots, {shares}", features, seeds, labels
    for name, describe in (("blurred pixels", blurred_pixels), ("HOG", gradients)):
        yield f"Omniglot, {name}", *read_omniglot(describe)


def blurred_pixels(image: NDArray[np.float32]) -> NDArray[np.floating]:
    return np.asarray(gaussian_filter(image, 3)[::4, ::4].ravel())


def gradients(image: NDArray[np.float32]) -> NDArray[np.floating]:
    return np.asarray(hog(gaussian_filter(image, 1), pixels_per_cell=(15, 15)))


def draw_tasks(
    rng: np.random.Generator, n_tasks: int, n_shots: int, *, is_balanced: bool
) -> tuple[NDArray[np.float32], Labels, Labels]:
    """Return features, seeds and the true labels; see the top of the file."""
    if is_balanced:
        queries = np.tile(np.repeat(np.arange(N_WAYS), N_QUERIES // N_WAYS), (n_tasks, 1))
    else:
        shares = rng.dirichlet(2 * np.ones(N_WAYS), size=n_tasks)
        queries = np.stack([rng.choice(N_WAYS, N_QUERIES, p=share) for share in shares])
    support = np.tile(np.repeat(np.arange(N_WAYS), n_shots), (n_tasks, 1))
    classes = np.concatenate([support, queries], axis=1)
    variances = np.arange(1, N_AXES + 1) ** -0.2
    centres = rng.standard_normal((n_tasks, N_WAYS, N_AXES)) * (DISTANCE / np.sqrt(N_AXES))
    points = rng.standard_normal((*classes.shape, N_AXES)) * np.sqrt(variances / variances.sum())
    points += np.take_along_axis(centres, classes[..., None], axis=1)
    frame = np.linalg.qr(rng.standard_normal((N_FEATURES, N_AXES)))[0].astype(np.float32)
    features = rng.standard_normal((*classes.shape, N_FEATURES), dtype=np.float32)
    features *= NOISE / np.sqrt(N_FEATURES)
    features += points.astype(np.float32) @ frame.T
    seeds = np.where(np.arange(classes.shape[1]) < N_WAYS * n_shots, classes + 1, 0)
    return features, seeds, classes + 1


def accuracies(found: Labels, seeds: Labels, labels: Labels) -> NDArray[np.float64]:
    """Return the share of the queries of each task that have their label, in percent."""
    is_query = seeds == 0
    right = np.where(is_query, found == labels, False)
    return np.asarray(100 * right.sum(axis=1) / is_query.sum(axis=1))


def read_omniglot(
    describe: Callable[[NDArray[np.float32]], NDArray[np.floating]],
) -> tuple[NDArray[np.float32], Labels, Labels]:
    """Return the official runs as tasks: 20 training drawings, then 20 test drawings."""
    features, labels = [], []
    with zipfile.ZipFile(DATA / "omniglot" / "all_runs.zip") as archive:
        for run in range(1, 21):
            folder = f"run{run:02d}"
            lines = archive.read(f"{folder}/class_labels.txt").decode().splitlines()
            answers = dict(line.split() for line in lines if line.strip())
            training = sorted(set(answers.values()))
            paths = [path.removeprefix(f"{folder}/") for path in (*training, *answers)]
            drawings = []
            for path in paths:
                image = imread(io.BytesIO(archive.read(f"{folder}/{path}")))
                drawings.append(centred(1 - (image > 0).astype(np.float32)))
            features.append(np.stack([describe(drawing) for drawing in drawings]))
            number = {path: k for k, path in enumerate(training, start=1)}
            labels.append([*number.values(), *(number[path] for path in answers.values())])
    every = np.array(labels)
    seeds = np.where(np.arange(every.shape[1]) < every.shape[1] // 2, every, 0)
    return np.stack(features).astype(np.float32), seeds, every


def centred(drawing: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a drawing with the middle of its strokes in the middle."""
    rows, columns = np.nonzero(drawing)
    places = zip(drawing.shape, (rows, columns), strict=True)
    shift = [side // 2 - round(float(place.mean())) for side, place in places]
    return np.roll(drawing, shift, axis=(0, 1))


def unit_tasks(features: NDArray[np.float32]) -> Floats:
    """Return rows of each task less their mean and of length 1."""
    centred = features - features.mean(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(centred / np.linalg.norm(centred, axis=2, keepdims=True))


def nearest(x: Floats, k: int) -> Floats:
    """Return W, symmetric: 1/2 for each of two nodes that has the other among its k nearest."""
    apart = squares(x, x)
    np.fill_diagonal(apart, np.inf)
    w = np.zeros_like(apart)
    np.put_along_axis(w, apart.argsort(axis=1)[:, :k], 1, axis=1)
    return (w + w.T) / 2


def laplacian_shot(x: Floats, seeds: Labels, weight: float = 0.7) -> Labels:
    """Return labels by (4.1), Ziko et al., ICML 2020: y <- softmax(-a + lambda W y) on queries.

    Prototypes are rectified as in its section 3: means of the seeds and of the queries whose
    nearest prototype, by the cosine, is the class, weighted by softmax(10 cos); the printed
    weights have no factor 10 and are not divided by their sum.
    """
    is_query, classes = seeds == 0, np.arange(1, seeds.max() + 1)
    points = np.array([x[seeds == k].mean(axis=0) for k in classes])
    cosines = x @ (points / np.linalg.norm(points, axis=1, keepdims=True)).T
    weights = softmax(10 * cosines, axis=1)
    own = np.where(is_query, classes[cosines.argmax(axis=1)], seeds)
    weights *= own[:, None] == classes
    points = (weights.T @ x) / weights.sum(axis=0)[:, None]
    queries = x[is_query]
    w, a = nearest(queries, 3), squares(queries, points)
    y = softmax(-a, axis=1)
    for _ in range(100):
        y = softmax(-a + weight * (w @ y), axis=1)
    found = seeds.copy()
    found[is_query] = classes[y.argmax(axis=1)]
    return found


def slk_with_support(x: Floats, seeds: Labels, factor: float, weight: float = 0.5) -> Labels:
    """Return labels by Algorithm 2.1 with means, the rows of seeds one-hot, a = factor |x - m|^2.

    The seeds weigh as much in the means as nodes that are certain.
    """
    support, n_classes, w = seeds > 0, int(seeds.max()), nearest(x, 3)
    one_hot = np.eye(n_classes)[seeds[support] - 1]
    points = np.array([x[seeds == k].mean(axis=0) for k in range(1, n_classes + 1)])
    for _ in range(100):
        a, before = factor * squares(x, points), points
        s = softmax(-a, axis=1)
        for _ in range(50):
            s[support] = one_hot
            s = softmax(-a + weight * (w @ s), axis=1)
        s[support] = one_hot
        points = (s.T @ x) / s.sum(axis=0)[:, None]
        if np.abs(points - before).max() < 1e-5:
            break
    return np.asarray(1 + s.argmax(axis=1))


def bavardage(x: Floats, seeds: Labels) -> Labels:
    """Return labels by Hu, Pateux and Gripon with T_km 10, T_vb 50, alpha 2, beta 10, 5 steps.

    Without base classes: nothing is stretched.
    """
    support, n_classes = seeds > 0, int(seeds.max())
    one_hot = np.eye(n_classes)[seeds[support] - 1]
    points = np.array([x[seeds == k].mean(axis=0) for k in range(1, n_classes + 1)])
    for _ in range(5):
        o = softmax(-10 * squares(x, points), axis=1)
        o[support] = one_hot
        points = (o.T @ x) / o.sum(axis=0)[:, None]
    for _ in range(5):
        counts = o.sum(axis=0)
        m = (o.T @ x) / (10 + counts)[:, None]
        alpha = 2 + o[~support].sum(axis=0)
        basis, _ = np.linalg.qr((m[1:] - m[0]).T)
        exponents = digamma(alpha) - 25 * squares(x @ basis, m @ basis)
        o = softmax(exponents - (n_classes - 1) / (2 * (10 + counts)), axis=1)
        o[support] = one_hot
    return np.asarray(1 + o.argmax(axis=1))


if __name__ == "__main__":
    main()
