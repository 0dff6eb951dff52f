"""Few-shot inference: accuracy on synthetic tasks and Omniglot, and the time of many at once.

python benchmarks/few_shot.py [synthetic] [speed] [omniglot] [--tasks 1000]   (all by default)

A synthetic task has 5 classes, 1 or 5 seeds of each, 75 queries and 640 features. Its classes
are Gaussian in a space of 80 axes, drawn anew for every thousand tasks and turned into 640:
centres are N(0, 0.40^2 / 80) along each axis, and the spread about them, the same for all
classes, has variances that fall like 1 / axis^0.2 and sum to 1. All 640 features carry white
noise of total variance 0.25 besides. How many queries a class has is 15, or drawn with shares
from Dirichlet(2). The distance of the centres was chosen for soft k-means to be right on 60 to
75 % of the queries at one shot; 80 axes are about as many as the features of a network have
that matter. The steeper the variances fall, the better the neighbours of LaplacianShot and the
worse spherical classes do: see ``--decay``.

Intervals hold the mean over tasks with 95 % confidence.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.feature import hog
from skimage.io import imread

import napari_saf as saf
from napari_saf.methods._clustering import Tasks

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
N_WAYS, N_QUERIES, N_FEATURES = 5, 75, 640
N_AXES, DISTANCE, NOISE = 80, 0.40, 0.5
Labels = NDArray[np.int64]
Labeller = Callable[[NDArray[np.float32], Labels], Labels]


NEAREST = saf.LaplacianShot(
    laplacian_weight=0.0, rectification=None, max_iterations=1, preprocessing="none"
)


def soft_k_means(features: NDArray[np.float32], seeds: Labels) -> Labels:
    """Return the labels from which Bavardage starts, after 10 iterations."""
    found = []
    for chunk in range(0, len(features), 100):
        part = slice(chunk, chunk + 100)
        tasks = Tasks(torch.from_numpy(features[part]), torch.from_numpy(seeds[part]))
        state = saf.Bavardage(start_iterations=10)._start_tasks(tasks)
        state.begin()
        found.append(state.by_task(state.v).argmax(dim=2).numpy() + 1)
    return np.concatenate(found)


METHODS: dict[str, Labeller] = {
    "nearest prototype": NEAREST.run_tasks,
    "  of unit rows": dataclasses.replace(NEAREST, preprocessing="centred unit").run_tasks,
    "soft k-means": soft_k_means,
    "LaplacianShot": saf.LaplacianShot().run_tasks,
    "LaplacianShot, 1": saf.LaplacianShot(laplacian_weight=1.0).run_tasks,
    "SLK": saf.SLK().run_tasks,
    "SLK, 0.3": saf.SLK(laplacian_weight=0.3).run_tasks,
    "SLK, bo": saf.SLK(prototypes="bo").run_tasks,
    "Bavardage": saf.Bavardage().run_tasks,
    "Bavardage, printed": saf.Bavardage(
        max_iterations=5, precision=50.0, mean_weight=10.0
    ).run_tasks,
}


def blurred_pixels(image: NDArray[np.float32]) -> NDArray[np.floating]:
    return np.asarray(gaussian_filter(image, 3)[::4, ::4].ravel())


def gradients(image: NDArray[np.float32]) -> NDArray[np.floating]:
    return np.asarray(hog(gaussian_filter(image, 1), pixels_per_cell=(15, 15)))


def draw_tasks(
    rng: np.random.Generator, n_tasks: int, n_shots: int, *, is_balanced: bool, decay: float
) -> tuple[NDArray[np.float32], Labels, Labels]:
    """Return features, seeds and the true labels; see the top of the file."""
    if is_balanced:
        queries = np.tile(np.repeat(np.arange(N_WAYS), N_QUERIES // N_WAYS), (n_tasks, 1))
    else:
        shares = rng.dirichlet(2 * np.ones(N_WAYS), size=n_tasks)
        queries = np.stack([rng.choice(N_WAYS, N_QUERIES, p=share) for share in shares])
    support = np.tile(np.repeat(np.arange(N_WAYS), n_shots), (n_tasks, 1))
    classes = np.concatenate([support, queries], axis=1)
    variances = np.arange(1, N_AXES + 1) ** -float(decay)
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


def interval(values: NDArray[np.float64]) -> str:
    return f"{values.mean():6.2f} ± {1.96 * values.std(ddof=1) / np.sqrt(len(values)):.2f}"


def measure_synthetic(n_tasks: int, decay: float) -> None:
    print(f"synthetic: accuracy in % over {n_tasks} tasks, decay {decay}")
    for n_shots in (1, 5):
        for is_balanced in (False, True):
            scores: dict[str, list[NDArray[np.float64]]] = {name: [] for name in METHODS}
            for first in range(0, n_tasks, 1000):
                rng = np.random.default_rng((n_shots, is_balanced, first))
                count = min(1000, n_tasks - first)
                task = draw_tasks(rng, count, n_shots, is_balanced=is_balanced, decay=decay)
                for name, label in METHODS.items():
                    scores[name].append(accuracies(label(*task[:2]), *task[1:]))
            print(f"{n_shots} shots, {'balanced' if is_balanced else 'Dirichlet(2)'}")
            every = {name: np.concatenate(parts) for name, parts in scores.items()}
            for name, values in every.items():
                ahead = interval(every["Bavardage"] - values)
                print(f"  {name:20} {interval(values)}   Bavardage ahead by {ahead}", flush=True)


def measure_speed(n_tasks: int) -> None:
    print(f"speed: {n_tasks} tasks of one shot at once, and a loop over 30; processor ms a task")
    rng = np.random.default_rng(0)
    features, seeds, _ = draw_tasks(rng, n_tasks, 1, is_balanced=False, decay=0.2)
    for n_features in (N_FEATURES, 64):
        own = np.ascontiguousarray(features[..., :n_features])
        for name, method in (
            ("LaplacianShot", saf.LaplacianShot()),
            ("SLK", saf.SLK(n_clusters=5, laplacian="features")),
            ("SLK, bo", saf.SLK(n_clusters=5, prototypes="bo", laplacian="features")),
            ("Bavardage", saf.Bavardage()),
        ):
            method.run_tasks(own[:50], seeds[:50])
            began = time.process_time()
            together = method.run_tasks(own, seeds)
            batch = 1e3 * (time.process_time() - began) / n_tasks
            began = time.process_time()
            graph = saf.GridGraph((own.shape[1],))
            alone = [
                method.run(saf.Problem(x, graph, seeds=given)).labels
                for x, given in zip(own[:30], seeds[:30], strict=True)
            ]
            loop = 1e3 * (time.process_time() - began) / 30
            same = 100 * np.mean(together[:30] == np.stack(alone))
            print(
                f"  {n_features:3} features {name:14} {batch:6.2f} and {loop:6.2f}: "
                f"{loop / batch:5.1f} times faster, {same:.2f} % of the labels the same",
                flush=True,
            )


def measure_omniglot() -> None:
    print("Omniglot, 20 runs of 20 classes, one shot, 20 queries: accuracy in %")
    for name, function in {"blurred pixels": blurred_pixels, "HOG": gradients}.items():
        features, seeds, labels = read_omniglot(function)
        print(f"{name}: {features.shape[2]} features")
        for title, label in METHODS.items():
            found = interval(accuracies(label(features, seeds), seeds, labels))
            print(f"  {title:20} {found}", flush=True)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("synthetic", "speed", "omniglot")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--tasks", type=int, default=1000, help="such as 10000")
    parser.add_argument("--decay", type=float, default=0.2, help="of the variances by axis")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error(f"expected some of {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    chosen = arguments.parts or parts
    if "synthetic" in chosen:
        measure_synthetic(arguments.tasks, arguments.decay)
    if "speed" in chosen:
        measure_speed(arguments.tasks)
    if "omniglot" in chosen:
        measure_omniglot()


if __name__ == "__main__":
    main()
