"""Speed and memory of the flows: ratios measured side by side in one run.

    python benchmarks/flow.py                            # all but the last: 10 minutes
    python benchmarks/flow.py evaluation --columns 4 16 64 --windows 3 9 21
    OMP_NUM_THREADS=1 python benchmarks/flow.py whole volume peers

evaluation  an evaluation by torch, a step by the compiled kernels (an evaluation, the corrected
            state, the estimate of its error) and a floor: two products of the sketch and W, two
            exponentials and six copies of a field.
whole       a whole labelling by torch and by the kernels, which start alike.
volume      the same on 64 x 128 x 128 voxels with noise, and what late evaluations still change.
peers       512 x 512 pixels: the flows beside methods of scikit-image and scikit-learn.
memory      peak growth of the resident memory, in fields of nodes x labels.
large       4096 x 4096 pixels: seconds and memory: minutes, 10 GiB.

Times are processor time of all threads; on a graphics card the time that passes.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, cast

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

import napari_saf as saf
from napari_saf.device import DeviceName, resolve_device
from napari_saf.flow import (
    AffinityOperator,
    AssignmentField,
    GaussianAffinity,
    SelfAssignmentField,
    _fused,
    k_centres,
)
from napari_saf.flow._simplex import SeedConstraint, normalize_
from napari_saf.input import PLAIN, ImageOptions
from napari_saf.points import distances
from napari_saf.samples import read_sample

FLOW = functools.partial(saf.SelfAssignmentFlow, max_labels=16, start="features", epsilon=1.0)
"""So that figures can be compared with earlier ones."""
FLOWS: dict[str, float | None] = {"AF": None, "SAF, s = 0": 0.0, "SAF, s = 1": 1.0}
N_LABELS = 16
ENGINES = ("kernels", "torch")

Calls = dict[str, Callable[[], object]]


def photograph(height: int, width: int) -> NDArray[np.float32]:
    """Return the sample photograph at a size, float32 in [0, 1]."""
    from skimage.transform import resize

    image = read_sample("astronaut").array
    resized = resize(image, (height, width), anti_aliasing=True)
    return np.asarray(resized, dtype=np.float32)


def plain_problem(image: NDArray[np.float32], window: int) -> saf.Problem:
    return saf.Problem.from_image(image, **(PLAIN | {"window": window, "features": image}))


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Return the milliseconds that a call takes."""
    if device.type != "cuda":
        began = time.process_time()
        call()
        return 1e3 * (time.process_time() - began)
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began)


def milliseconds(
    calls: Calls, device: torch.device, rounds: int, unread: int = 2
) -> dict[str, float]:
    """Return the median time of each call; they take turns, so that noise hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds + unread):
        for name, call in calls.items():
            taken = timed(call, device)
            if k >= unread:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def by(engine: str, call: Callable[[], Any]) -> Any:
    """Call with the compiled kernels, or with torch alone."""
    os.environ[_fused.SWITCH] = "1" if engine == "kernels" else "0"
    try:
        return call()
    finally:
        del os.environ[_fused.SWITCH]


# One evaluation


def make_field(
    image: NDArray[np.float32], window: int, s: float | None, n_labels: int, device: torch.device
) -> tuple[AssignmentField | SelfAssignmentField, torch.Tensor]:
    """Return the field of a flow, None for the assignment flow, and a state."""
    problem = plain_problem(image, window)
    features = torch.from_numpy(problem.features).to(device)
    rng = np.random.default_rng(0)
    points = k_centres(features, n_labels, rng)[0]
    table = distances(features, points)
    averager = problem.graph.averager(device, torch.float32)
    if s is None:
        return AssignmentField(averager, table, points, 0.1), -table
    operator = GaussianAffinity().bind(features, rng)
    return SelfAssignmentField(operator, averager, features, len(points), s=s, rho=0.1), -table


def sketch(operator: AffinityOperator, v: torch.Tensor) -> torch.Tensor:
    """Return all rows of the sketch of an affinity, also those that pixels share."""
    basis = operator.product(v).basis
    rows = v.new_zeros(basis.shape)
    one = torch.eye(basis.shape[1], dtype=v.dtype, device=v.device)
    for _ in basis.plus(torch.zeros_like(rows), one, rows):
        pass
    return rows


def floor_calls(image: NDArray[np.float32], n_labels: int, device: torch.device) -> Calls:
    """Return the work of the floor, part by part."""
    field, v = make_field(image, 3, 0.0, n_labels, device)
    assert isinstance(field, SelfAssignmentField)
    both = torch.cat([sketch(field._operator, v), v], dim=1)
    factor = torch.randn(both.shape[1], v.shape[1], dtype=v.dtype, device=v.device)
    out = torch.empty_like(v)
    return {
        "product down": lambda: both.T @ v,
        "product up": lambda: torch.mm(both, factor, out=out),
        "exponential": lambda: torch.exp(v, out=out),
        "copy": lambda: out.copy_(v),
    }


def engine_calls(
    image: NDArray[np.float32], window: int, s: float | None, n_labels: int, device: torch.device
) -> Calls:
    """Return an evaluation by torch, and a step by the kernels where they are there."""
    field, v = make_field(image, window, s, n_labels, device)
    out = torch.empty_like(v)
    calls: Calls = {f"torch {window}": functools.partial(field, v, out)}
    own, start = make_field(image, window, s, n_labels, device)
    constraint = SeedConstraint()
    run: Any = saf.AdamsBashforthMoulton().start(own, normalize_(start.clone()), constraint)
    if run._fused is not None:
        for _ in range(2):
            run.advance()
        calls[f"kernels {window}"] = functools.partial(run._attempt, 0.2)
    return calls


def evaluation_table(
    image: NDArray[np.float32], windows: Sequence[int], columns: Sequence[int], rounds: int,
    device: torch.device,
) -> None:  # fmt: skip
    print("\nOne evaluation (ms, medians; floor = 2 products, 2 exponentials, 6 copies)")
    print("| flow | labels | window | floor | torch | / floor | kernels, step | / floor |")
    print("|---|---|---|---|---|---|---|---|")
    for n_labels in columns:
        for name, s in FLOWS.items():
            calls = floor_calls(image, n_labels, device)
            for window in windows:
                calls |= engine_calls(image, window, s, n_labels, device)
            t = milliseconds(calls, device, rounds)
            floor = t["product down"] + t["product up"] + 2 * t["exponential"] + 6 * t["copy"]
            for window in windows:
                one, other = t[f"torch {window}"], t.get(f"kernels {window}", float("nan"))
                print(
                    f"| {name} | {n_labels} | {window} | {floor:.1f} | {one:.1f} "
                    f"| {one / floor:.2f} | {other:.1f} | {other / floor:.2f} |",
                    flush=True,
                )


# Whole labellings


def flow_of(problem: saf.Problem, s: float | None, n_labels: int, device: str) -> Any:
    """Return the self-assignment flow, or the assignment flow with as many prototypes."""
    name = cast("DeviceName", device)
    if s is not None:
        return FLOW(s=s, max_labels=n_labels, device=name)
    features = torch.from_numpy(problem.features)
    points = k_centres(features, n_labels, np.random.default_rng(0))[0]
    return saf.AssignmentFlow(prototypes=points.numpy(), device=name)


def columns_of(result: saf.Segmentation) -> NDArray[np.int64]:
    """Return the column of each node: labels are numbered by size, which changes."""
    return np.asarray(np.asarray(result.columns)[np.asarray(result.labels) - 1])


def compare_engines(
    name: str, problem: saf.Problem, method: Any, rounds: int, device: torch.device
) -> saf.Segmentation:
    """Print the seconds of a run by torch and by the kernels, and how many labels are the same."""
    found: dict[str, saf.Segmentation] = {}

    def run(engine: str) -> None:
        found[engine] = by(engine, lambda: method.run(problem))

    t = milliseconds({one: functools.partial(run, one) for one in ENGINES}, device, rounds, 1)
    other, one = (found[engine] for engine in ENGINES)
    own, ratio = t["kernels"], t["kernels"] / t["torch"]
    print(
        f"| {name} | {one.n_evaluations}, {other.n_evaluations} | {t['torch'] / 1e3:.2f} "
        f"| {own / 1e3:.2f} | {ratio:.2f} | {1e3 * own / problem.n_nodes:.2f} "
        f"| {100 * float((columns_of(one) == columns_of(other)).mean()):.3f} |",
        flush=True,
    )
    return other


WHOLE = (
    "| flow | evaluations | torch (s) | kernels (s) | kernels / torch | us a node | same (%) |"
    "\n|---|---|---|---|---|---|---|"
)


def whole_table(
    image: NDArray[np.float32], windows: Sequence[int], columns: Sequence[int], rounds: int,
    device: torch.device,
) -> None:  # fmt: skip
    print(f"\nWhole labelling\n{WHOLE}")
    for n_labels in columns:
        for window in windows:
            problem = plain_problem(image, window)
            for name, s in FLOWS.items():
                title = f"{name}, window {window}, {n_labels} labels"
                method = flow_of(problem, s, n_labels, device.type)
                compare_engines(title, problem, method, rounds, device)
    first = saf.Problem.from_image(image, **ImageOptions().arguments())
    compare_engines("first click", first, saf.SelfAssignmentFlow(), rounds, device)


def volume_table(rounds: int, device: torch.device) -> None:
    """Eight grey boxes in noise of a standard deviation as large as a step between them."""
    z, y, x = np.mgrid[:64, :128, :128]
    truth = z // 32 * 4 + y // 64 * 2 + x // 64
    noise = np.random.default_rng(0).normal(0, 1 / 7, truth.shape)
    image = np.asarray(truth / 7 + noise, dtype=np.float32)
    print(f"\n64 x 128 x 128 voxels with noise, 8 labels\n{WHOLE}")
    late = []
    for window in (3, 5):
        problem = saf.Problem.from_image(image, **(PLAIN | {"window": window}))
        for name, s in FLOWS.items():
            method = flow_of(problem, s, 8, device.type)
            title = f"{name}, window {window}"
            end = compare_engines(title, problem, method, rounds, device)
            late += [late_changes(title, problem, method, end)]
    print("\nLabels that are not yet the last ones (%), after so many of the evaluations")
    print("| flow | 1/4 | 1/2 | 3/4 |\n|---|---|---|---|")
    print("\n".join(late))


def late_changes(title: str, problem: saf.Problem, method: Any, end: saf.Segmentation) -> str:
    """Return a line: the share of the nodes that still change label, in the course of a run."""
    shares = []
    for k in (1, 2, 3):
        early = method.run(problem, max_iterations=end.n_evaluations * k // 4)
        shares.append(f"{100 * float((columns_of(early) != columns_of(end)).mean()):.2f}")
    return f"| {title} | {' | '.join(shares)} |"


# Peers


def peers_table(rounds: int, device: torch.device) -> None:
    """Methods of other libraries, each with what its documentation proposes, on the same image."""
    from skimage import graph
    from skimage.color import rgb2lab
    from skimage.filters import gaussian
    from skimage.segmentation import felzenszwalb, random_walker, slic
    from sklearn.cluster import KMeans, SpectralClustering

    image = photograph(512, 512)
    seeds = np.zeros(image.shape[:2], np.uint8)
    for k, place in enumerate(((230, 120), (60, 250), (430, 250), (250, 450)), start=1):
        seeds[place[0] : place[0] + 5, place[1] : place[1] + 60] = k
    few: dict[str, Any] = {"max_side": None, "window": 3, "features": "lab", "weights": "uniform"}

    def merged() -> None:
        pieces = slic(image, n_segments=400, compactness=20, start_label=1)
        graph.cut_threshold(pieces, graph.rag_mean_color(image, pieces), 0.1)

    def means(n_labels: int) -> None:
        pixels = gaussian(rgb2lab(image), 2, channel_axis=-1).reshape(-1, 3)
        KMeans(n_labels, n_init=1, random_state=0).fit_predict(pixels)

    def spectral() -> None:
        # All pixels at this size do not end within minutes: those of a sixteenth of the sides.
        small = rgb2lab(photograph(64, 64)).reshape(-1, 3) / 100
        SpectralClustering(4, gamma=10, random_state=0, assign_labels="kmeans").fit_predict(small)

    def strokes() -> None:
        saf.AssignmentFlow().run(saf.Problem.from_image(image, seeds=seeds, **few))

    def first_click() -> saf.Segmentation:
        problem = saf.Problem.from_image(image, **ImageOptions().arguments())
        return saf.SelfAssignmentFlow().run(problem)

    calls: Calls = {
        "felzenszwalb": lambda: felzenszwalb(image, scale=400, sigma=0.8, min_size=400),
        "SLIC + merging": merged,
        "k-means of blurred L*a*b*, 4 labels": lambda: means(4),
        "k-means of blurred L*a*b*, 16 labels": lambda: means(16),
        "spectral clustering, 64 x 64 only": spectral,
        "random walker, four labels": lambda: random_walker(
            image, seeds, beta=130, mode="cg_j", channel_axis=-1
        ),
        "SAF, first click": first_click,
        "SAF, first click, regions": lambda: saf.merge_regions(
            first_click().labels, image
        ).at_level(),
        "SAF, 16 labels, in full": lambda: FLOW().run(plain_problem(image, 3)),
        "AF, 16 prototypes, in full": lambda: flow_of(
            plain_problem(image, 3), None, N_LABELS, device.type
        ).run(plain_problem(image, 3)),
        "AF, four labels of strokes, in full": strokes,
    }
    t = milliseconds(calls, device, rounds, 1)
    print("\n512 x 512 x 3, all that a call needs, reading features included")
    print("| method | s | of SAF, first click |\n|---|---|---|")
    for name, taken in t.items():
        print(f"| {name} | {taken / 1e3:.2f} | {taken / t['SAF, first click']:.2f} |")


# Memory


def _peak_growth(
    image: NDArray[np.float32], s: float | None, window: int, n_steps: int | None
) -> tuple[int, float]:
    """Return the largest growth of the resident memory in a run, sampled, and the seconds."""
    problem = plain_problem(image, window)
    small = plain_problem(image[:64, :64].copy(), 3)
    flow_of(small, s, N_LABELS, "cpu").run(small)
    process, peak, done = psutil.Process(), 0, threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(5e-4):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    method = flow_of(problem, s, N_LABELS, "cpu")
    taken = timed(lambda: method.run(problem, max_iterations=n_steps), torch.device("cpu"))
    done.set()
    watcher.join()
    return peak - before, taken / 1e3


def grown(
    image: NDArray[np.float32], s: float | None, window: int, n_steps: int | None
) -> tuple[int, float]:
    """Return the bytes and seconds of a run in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_growth, image, s, window, n_steps).result()


def memory_table(image: NDArray[np.float32]) -> None:
    n_nodes = image.shape[0] * image.shape[1]
    field = 4 * n_nodes * N_LABELS
    operator = GaussianAffinity().bind(
        torch.from_numpy(image.reshape(n_nodes, -1)), np.random.default_rng(0)
    )
    n_bytes = sketch(operator, torch.zeros(n_nodes, 1)).nbytes
    print("\nPeak growth of the resident memory, in fields of n x c float32, sketch taken off")
    print("| flow | window | engine | MiB | sketch MiB | fields |\n|---|---|---|---|---|---|")
    for name, s in FLOWS.items():
        own = 0 if s is None else n_bytes
        for window in (3, 21):
            for engine in ENGINES:
                n, _ = by(engine, functools.partial(grown, image, s, window, 8))
                print(
                    f"| {name} | {window} | {engine} | {n / 2**20:.0f} | {own / 2**20:.0f} "
                    f"| {(n - own) / field:.1f} |",
                    flush=True,
                )


def large_table(side: int, engines: Sequence[str]) -> None:
    image = photograph(side, side)
    print(f"\n{side} x {side} x 3, {N_LABELS} labels, window 3, to the end")
    print("| flow | engine | s | us a pixel | GiB |\n|---|---|---|---|---|")
    for name, s in (("AF", None), ("SAF, s = 0", 0.0)):
        for engine in engines:
            n, seconds = by(engine, functools.partial(grown, image, s, 3, None))
            print(
                f"| {name} | {engine} | {seconds:.0f} | {1e6 * seconds / side**2:.2f} "
                f"| {n / 2**30:.1f} |",
                flush=True,
            )


def main() -> None:
    tables = ("evaluation", "whole", "volume", "peers", "memory", "large")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(tables))
    parser.add_argument("--height", type=int, default=321)
    parser.add_argument("--width", type=int, default=481)
    parser.add_argument("--side", type=int, default=4096, help="of the large image")
    parser.add_argument("--engines", nargs="+", default=ENGINES, help="for the large image")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, nargs="+", default=[3, 21])
    parser.add_argument("--columns", type=int, nargs="+", default=[N_LABELS], help="labels")
    given = parser.parse_args()
    device = resolve_device(given.device)
    _fused.wait_for_kernels()
    image = photograph(given.height, given.width)
    print(f"{image.shape}, {device.type}, {torch.get_num_threads()} threads", flush=True)
    wide = image, given.windows, given.columns, given.rounds, device
    calls: dict[str, Callable[[], None]] = {
        "evaluation": lambda: evaluation_table(*wide),
        "whole": lambda: whole_table(*wide),
        "volume": lambda: volume_table(given.rounds, device),
        "peers": lambda: peers_table(given.rounds, device),
        "memory": lambda: memory_table(image),
        "large": lambda: large_table(given.side, given.engines),
    }
    for name in given.tables or tables[:-1]:
        calls[name]()


if __name__ == "__main__":
    main()
