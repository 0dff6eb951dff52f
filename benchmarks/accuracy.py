"""What the flows must reach: football network, low-rank sketch, adaptive stepping.

python benchmarks/accuracy.py [football] [sketch] [adaptive]

The data folder comes from NAPARI_SAF_DATA (default ../shared/data beside the checkout).
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from skimage.io import imread
from skimage.transform import downscale_local_mean

import napari_saf as saf

FLOW = functools.partial(saf.SelfAssignmentFlow, max_labels=16, start="features", epsilon=1.0)
"""So that figures can be compared with earlier ones."""

DATA = Path(os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[1] / "../shared/data"))
IMAGES = ("12003", "24063", "113016")


def half_size_photograph(name: str) -> np.ndarray:
    """Return a photograph at half size, float32 in [0, 1]."""
    image = imread(DATA / "bsds_dev" / "images" / f"{name}.jpg") / 255
    rows, columns = (side // 2 * 2 for side in image.shape[:2])
    halved = downscale_local_mean(image[:rows, :columns], (2, 2, 1))
    return np.asarray(halved, dtype=np.float32)


def columns_of(result: saf.Segmentation) -> np.ndarray:
    """Return the column of the start that each node prefers."""
    labels = np.asarray(result.labels, dtype=int)
    return np.asarray(result.columns[labels.ravel() - 1])


def n_mislabelled(labels: np.ndarray, truth: np.ndarray) -> int:
    """Return how many nodes differ after optimal matching of labels and classes."""
    table = np.zeros((labels.max() + 1, truth.max() + 1))
    np.add.at(table, (labels, truth), 1)
    rows, columns = linear_sum_assignment(-table)
    return len(truth) - int(table[rows, columns].sum())


def football_network() -> tuple[np.ndarray, np.ndarray]:
    """Return the adjacency matrix and the conferences."""
    import networkx

    graph = networkx.read_gml(DATA / "football" / "football.gml", label="id")
    nodes = sorted(graph)
    truth = np.array([graph.nodes[node]["value"] for node in nodes])
    return networkx.to_numpy_array(graph, nodelist=nodes), truth


def football(n_seeds: int = 10) -> dict[float, list[int]]:
    """Return for s = 0 and 1 the number of mislabelled teams of each seed."""
    matrix, truth = football_network()
    leading = np.linalg.eigh(matrix)[1][:, -12:]
    problem = saf.Problem(leading, saf.AffinityGraph(matrix, self_weight="degree"))
    wrong: dict[float, list[int]] = {}
    for s in (0.0, 1.0):
        for seed in range(n_seeds):
            method = FLOW(max_labels=12, s=s, affinity=saf.KernelAffinity(matrix), seed=seed)
            labels = np.asarray(method.run(problem).labels, dtype=int)
            wrong.setdefault(s, []).append(n_mislabelled(labels, truth))
    return wrong


def sketch(n_draws: int = 10) -> list[float]:
    """Return the share of pixels that 100 landmarks label as the exact kernel does, per draw."""
    image = half_size_photograph("12003")
    problem = saf.Problem.from_image(image, features=image, weights="uniform", max_side=None)
    initial = start_assignment(problem)
    exact = FLOW(affinity=saf.GaussianAffinity(landmarks=None))
    reference = columns_of(exact.run(problem, initial=initial))
    shares = []
    for seed in range(n_draws):
        result = FLOW(seed=seed).run(problem, initial=initial)
        shares.append(float((columns_of(result) == reference).mean()))
    return shares


def start_assignment(problem: saf.Problem, n_labels: int = 16) -> np.ndarray:
    """Return the assignment that a default run starts from, in float64."""
    import torch

    from napari_saf.flow import k_centres
    from napari_saf.points import distances

    features = torch.from_numpy(problem.features).double()
    table = distances(features, k_centres(features, n_labels, np.random.default_rng(0))[0])
    return torch.softmax(-table, dim=1).numpy()


def adaptive() -> list[tuple[str, int, int, float]]:
    """Return image, window, evaluations and agreement with Euler h = 0.02."""
    rows = []
    for name in IMAGES:
        image = half_size_photograph(name)
        for window in (3, 9):
            problem = saf.Problem.from_image(
                image, features=image, window=window, weights="uniform", max_side=None
            )
            fine = FLOW(
                stepper=saf.GeometricEuler(step=0.02), stop=saf.StoppingRule(max_steps=6000)
            )
            reference = columns_of(fine.run(problem))
            result = FLOW().run(problem)
            agreement = float((columns_of(result) == reference).mean())
            rows.append((name, window, result.n_evaluations, agreement))
    return rows


def main() -> None:
    wanted = sys.argv[1:] or ["football", "sketch", "adaptive"]
    if not DATA.is_dir():
        raise SystemExit(f"no data at {DATA}: set NAPARI_SAF_DATA")
    if "football" in wanted:
        print("Football network: mislabelled of 115 teams, ten seeds")
        for s, wrong in football().items():
            print(f"  s = {s:g}: {wrong}", flush=True)
    if "adaptive" in wanted:
        print("Adaptive scheme beside Euler h = 0.02, s = 0")
        for name, window, count, agreement in adaptive():
            print(f"  {name} window {window}: {count} evaluations, {agreement:.4f}", flush=True)
    if "sketch" in wanted:
        print("Sketch of 100 landmarks beside the exact kernel, same start, ten draws")
        shares = sketch()
        print(f"  mean {np.mean(shares):.4f}, least {min(shares):.4f}")


if __name__ == "__main__":
    main()
