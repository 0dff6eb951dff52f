"""Published algorithms beside ours: energies and agreement with the classes, in one run.

python benchmarks/authors.py [clustering] [few-shot] [protocol] [--data mnist shuttle]
    [--starts 3] [--tasks 300]

The references are written from the papers, slow and obvious, in float64.

clustering  SLK is Algorithm 2.1 of Ziko, Granger and Ben Ayed, *Scalable Laplacian K-modes*
            (NeurIPS 2018), with each of its three updates of the prototypes: every inner loop
            starts at the softmax of the unaries, and the last round that lowered the energy is
            kept. Both get the same rows, graph, parameters and k-means++ points; for the bound
            optimiser a start is the densest node of the cell of such a point. The energy is (1) of
            `napari_saf.SLK`.
few-shot    LaplacianShot, SLK with means and support constraints, and Bavardage at the papers'
            parameters, on synthetic tasks and on Omniglot, in percent of the queries.
protocol    Table 2.2: lambda in 1, 2, 3, 4 and start chosen on a tenth of the classes, on all
            58,000 rows of Shuttle and 70,000 of MNIST; with ten starts half an hour.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from few_shot import (
    Labels,
    accuracies,
    blurred_pixels,
    draw_tasks,
    gradients,
    read_omniglot,
)
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import digamma, softmax
from sklearn.cluster import kmeans_plusplus
from slk import (
    join,
    read_mnist,
    read_shuttle,
    scores,
    unit_rows,
    z_scores,
)

import napari_saf as saf
from napari_saf.graph import nearest_neighbours

CASES = {
    "mnist": ("mnist", unit_rows, 4, 1.31),
    "shuttle": ("shuttle", unit_rows, 5, 2.0),
    "shuttle, z-scores": ("shuttle", z_scores, 5, 2.0),
}
"""Data, preprocessing, nearest neighbours and lambda."""
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

Floats = NDArray[np.float64]
Reference = Callable[[Floats, Labels], Labels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"clustering": clustering, "few-shot": few_shot, "protocol": protocol}
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


def prepare(
    x: NDArray[np.float32], n_neighbors: int
) -> tuple[NDArray[np.float32], saf.AffinityGraph, float]:
    """Return the rows, their graph of nearest neighbours, and sigma squared."""
    found = nearest_neighbours(x, n_neighbors)
    return x, join(found), float(found.squared_distances.mean())


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
    methods: dict[str, tuple[Reference, saf.LaplacianShot | saf.SLK | saf.Bavardage]]
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
    print(f"few-shot, {chosen.tasks} tasks in three draws: accuracy in %, reference and ours")
    for name, features, seeds, labels in few_shot_tasks(chosen.tasks):
        for title, (label, method) in methods.items():
            found = [label(x, given) for x, given in zip(unit_tasks(features), seeds, strict=True)]
            theirs = accuracies(np.array(found), seeds, labels).mean()
            ours = accuracies(method.run_tasks(features, seeds), seeds, labels).mean()
            print(f"{name:22s} {title:20s} {theirs:6.2f} {ours:6.2f}", flush=True)


def few_shot_tasks(
    n_tasks: int,
) -> Iterator[tuple[str, NDArray[np.float32], Labels, Labels]]:
    for n_shots in (1, 5):
        for balanced in (True, False):
            draws = [
                draw_tasks(
                    np.random.default_rng((n_shots, balanced, seed)),
                    n_tasks // 3,
                    n_shots,
                    is_balanced=balanced,
                    decay=0.2,
                )
                for seed in range(3)
            ]
            features, seeds, labels = (np.concatenate(x) for x in zip(*draws, strict=True))
            shares = "balanced" if balanced else "Dirichlet"
            yield f"{n_shots} shots, {shares}", features, seeds, labels
    for name, describe in (("blurred pixels", blurred_pixels), ("HOG", gradients)):
        yield f"Omniglot, {name}", *read_omniglot(describe)


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
