"""Published algorithms beside ours: energies and agreement with the classes, in one run.

python benchmarks/authors.py [--data mnist shuttle] [--starts 3]

The references are written from the papers, slow and obvious, in float64. SLK is Algorithm 2.1 of
Ziko, Granger and Ben Ayed, *Scalable Laplacian K-modes* (NeurIPS 2018), with each of its three
updates of the prototypes: every inner loop starts at the softmax of the unaries, and the last round
that lowered the energy is kept. Both get the same rows (of length 1), graph, parameters and
k-means++ points; for the bound optimiser a start is the densest node of the cell of such a point.
The energy is (1) of `napari_saf.SLK`.
"""

from __future__ import annotations

import argparse
import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.cluster import kmeans_plusplus
from slk import join, read_mnist, read_shuttle, scores, unit_rows

import napari_saf as saf
from napari_saf.graph import nearest_neighbours

SETTINGS = {"mnist": (4, 1.31), "shuttle": (5, 2.0)}
"""Nearest neighbours and lambda."""
N_TEST = 10_000
PrototypeUpdate = Literal["bo", "ms", "means"]
KINDS: tuple[PrototypeUpdate, ...] = ("bo", "ms", "means")
_MOST_IN_CELL = 2000

Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--starts", type=int, default=3)
    chosen = parser.parse_args()
    print("SLK               energy: reference    ours   NMI/accuracy    ours        seconds")
    for data in chosen.data:
        n_neighbors, weight = SETTINGS[data]
        raw, y = read_mnist() if data == "mnist" else read_shuttle()
        if data == "mnist":
            raw, y = raw[-N_TEST:], y[-N_TEST:]
        x = unit_rows(raw)
        found = nearest_neighbours(x, n_neighbors)
        graph = join(found)
        width = float(found.squared_distances.mean())
        for kind in KINDS:
            rows = [
                compare_slk(x, graph, y, kind, weight, width, seed) for seed in range(chosen.starts)
            ]
            theirs, ours, nmi, accuracy, own_nmi, own_accuracy, seconds, own = np.mean(rows, axis=0)
            print(
                f"{data:8s} {kind:6s} {theirs:18.1f} {ours:10.1f}   {nmi:.3f}/{accuracy:.3f}  "
                f"{own_nmi:.3f}/{own_accuracy:.3f}  {seconds:5.1f} {own:5.1f}",
                flush=True,
            )


def compare_slk(
    rows: NDArray[np.float32],
    graph: saf.AffinityGraph,
    y: NDArray[np.int64],
    kind: PrototypeUpdate,
    weight: float,
    width: float,
    seed: int,
) -> list[float]:
    """Return energy, NMI and accuracy of both, and their seconds, from one start."""
    sigma2 = 0.5 if kind == "means" else width  # |x - m|^2 as it is for means
    x, n_classes = rows.astype(np.float64), int(y.max()) + 1
    points, _ = kmeans_plusplus(rows, n_classes, random_state=seed)
    points = points.astype(np.float64)
    if kind == "bo":
        points = densest(x, points, sigma2)
    began = time.perf_counter()
    labels, energy = slk(x, graph.weights, points, weight, sigma2, kind)
    theirs = time.perf_counter() - began
    method = saf.SLK(
        n_clusters=n_classes,
        prototypes=kind,
        laplacian="graph",
        laplacian_weight=weight,
        sigma2=sigma2,
        seed=seed,
    )
    began = time.perf_counter()
    result = method.run(saf.Problem(rows, graph))
    ours = time.perf_counter() - began
    own = float(result.history.objective[-1])
    mine = np.asarray(result.labels)
    return [energy, own, *scores(y, labels), *scores(y, mine), theirs, ours]


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


if __name__ == "__main__":
    main()
