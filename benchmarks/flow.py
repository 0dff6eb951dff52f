"""Speed and memory of the flows: ratios measured side by side in one run.

python benchmarks/flow.py [--height 321 --width 481] [--device auto]
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np
import psutil
import torch

import napari_saf as saf
from napari_saf.device import DeviceName, resolve_device
from napari_saf.features import distances
from napari_saf.flow import AffinityOperator, GaussianAffinity, SelfAssignmentField, k_centres
from napari_saf.samples import read_sample

FLOW = functools.partial(saf.SelfAssignmentFlow, max_labels=16, start="features", epsilon=1.0)
"""So that figures can be compared with earlier ones."""

N_LABELS = 16


def photograph(height: int, width: int) -> np.ndarray:
    """Return the sample photograph at a size, float32 in [0, 1]."""
    from skimage.transform import resize

    image = read_sample("astronaut").array
    resized = resize(image, (height, width), anti_aliasing=True)
    return np.asarray(resized, dtype=np.float32)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(
    calls: dict[str, Callable[[], object]], device: torch.device, rounds: int
) -> dict[str, float]:
    """Return the median time of each call; they take turns, so that noise hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds + 2):
        for name, call in calls.items():
            synchronize(device)
            began = time.perf_counter()
            call()
            synchronize(device)
            if k >= 2:
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in times.items()}


def floor_calls(field: SelfAssignmentField, v: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return the work no evaluation can do without, part by part."""
    both = torch.cat([sketch(field._operator, v), v], dim=1)
    factor = torch.randn(both.shape[1], v.shape[1], dtype=v.dtype, device=v.device)
    out = torch.empty_like(v)
    return {
        "product down": lambda: both.T @ v,
        "product up": lambda: torch.mm(both, factor, out=out),
        "exponential": lambda: torch.exp(v, out=out),
        "copy": lambda: out.copy_(v),
    }


def make_field(
    image: np.ndarray, window: int, s: float, device: torch.device
) -> tuple[SelfAssignmentField, torch.Tensor]:
    problem = saf.Problem.from_image(
        image, window=window, features=image, weights="uniform", max_side=None
    )
    features = torch.from_numpy(problem.features).to(device)
    rng = np.random.default_rng(0)
    v = -distances(features, k_centres(features, N_LABELS, rng)[0])
    operator = GaussianAffinity().bind(features, rng)
    averager = problem.graph.averager(device, torch.float32)
    return SelfAssignmentField(operator, averager, features, N_LABELS, s=s, rho=0.1), v


def sketch(operator: AffinityOperator, v: torch.Tensor) -> torch.Tensor:
    """Return all rows of the sketch of an affinity, also those that pixels share."""
    basis = operator.product(v).basis
    rows = v.new_zeros(basis.shape)
    one = torch.eye(basis.shape[1], dtype=v.dtype, device=v.device)
    for _ in basis.plus(torch.zeros_like(rows), one, rows):
        pass
    return rows


def evaluation_table(image: np.ndarray, device: torch.device, rounds: int) -> None:
    print("\nOne evaluation (ms, medians; floor = 2 products, 2 exponentials, 6 copies)")
    print("| s | window | floor | evaluation | ratio |\n|---|---|---|---|---|")
    for s in (0.0, 1.0):
        # Both windows in one round-robin, so that their ratio is measured side by side.
        fields = {w: make_field(image, w, s, device) for w in (3, 21)}
        out = torch.empty_like(fields[3][1])
        calls = floor_calls(*fields[3])
        for w, (field, v) in fields.items():
            calls[f"window {w}"] = partial(field, v, out)
        t = milliseconds(calls, device, rounds)
        floor = t["product down"] + t["product up"] + 2 * t["exponential"] + 6 * t["copy"]
        for w in fields:
            own = t[f"window {w}"]
            print(f"| {s:g} | {w} | {floor:.1f} | {own:.1f} | {own / floor:.2f} |")
        print(f"\nwindow 21 / window 3: {t['window 21'] / t['window 3']:.2f}\n")


def plain_step(image: np.ndarray, window: int, device: torch.device) -> Callable[[], object]:
    """Return one Euler step h = 0.1 for s = 0 as one would write it, with avg_pool2d."""
    field, v = make_field(image, window, 0.0, device)
    phi = sketch(field._operator, v)
    shape = (*image.shape[:2], N_LABELS)

    def step() -> None:
        nonlocal v
        w = torch.softmax(v, dim=1)
        mass = w.sum(dim=0)
        inner = phi.T @ w
        gradient = 2 * (phi @ inner) / mass - (inner**2).sum(dim=0) / mass**2
        likelihood = (v + gradient / 0.1).view(shape).permute(2, 0, 1)[None]
        mean = torch.nn.functional.avg_pool2d(
            likelihood, window, 1, window // 2, count_include_pad=False
        )
        v = v + 0.1 * torch.softmax(mean[0].permute(1, 2, 0).reshape(-1, N_LABELS), dim=1)
        v = (v - v.amax(dim=1, keepdim=True)).clamp(min=float(np.log(1e-10)))

    return step


def whole_table(image: np.ndarray, device: torch.device, windows: tuple[int, ...]) -> None:
    print("\nWhole labelling, s = 0, all started alike (s)")
    print(
        "| window | defaults | evaluations | status | Euler h = 0.1, same kernels | steps "
        "| Euler h = 0.1, plain torch (steps x median step) | plain / defaults | same / defaults |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    name = cast("DeviceName", device.type)
    for window in windows:
        problem = saf.Problem.from_image(
            image, window=window, features=image, weights="uniform", max_side=None
        )
        FLOW(device=name).run(problem, max_iterations=2)
        best = min(
            (FLOW(device=name).run(problem) for _ in range(3)),
            key=lambda result: result.seconds,
        )
        euler = FLOW(stepper=saf.GeometricEuler(), device=name).run(problem)
        step = plain_step(image, window, device)
        plain = milliseconds({"step": step}, device, 7)["step"] * euler.n_evaluations / 1e3
        print(
            f"| {window} | {best.seconds:.2f} | {best.n_evaluations} | {best.status.value} "
            f"| {euler.seconds:.2f} | {euler.n_evaluations} | {plain:.2f} "
            f"| {plain / best.seconds:.1f} | {euler.seconds / best.seconds:.1f} |"
        )


def _peak_growth(image: np.ndarray, s: float, window: int, queue: object) -> None:
    """Send the largest growth of the resident memory seen in a run, sampled every 0.5 ms."""
    problem = saf.Problem.from_image(
        image, window=window, features=image, weights="uniform", max_side=None
    )
    small = saf.Problem.from_image(
        image[:64, :64].copy(), features=image[:64, :64].copy(), weights="uniform", max_side=None
    )
    FLOW(s=s, device="cpu").run(small)
    process, peak, done = psutil.Process(), 0, threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(5e-4):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    FLOW(s=s, device="cpu").run(problem, max_iterations=8)
    done.set()
    watcher.join()
    queue.put(peak - before)  # type: ignore[attr-defined]


def memory_table(image: np.ndarray) -> None:
    n_nodes = image.shape[0] * image.shape[1]
    field = 4 * n_nodes * N_LABELS
    operator = GaussianAffinity().bind(
        torch.from_numpy(image.reshape(n_nodes, -1)), np.random.default_rng(0)
    )
    n_bytes = sketch(operator, torch.zeros(n_nodes, 1)).nbytes
    print("\nPeak growth of the resident memory, in fields of n x c float32, sketch taken off")
    print("| s | window | MiB | sketch MiB | fields |\n|---|---|---|---|---|")
    context = multiprocessing.get_context("spawn")
    for s, window in ((0.0, 3), (0.0, 21), (1.0, 3)):
        queue = context.SimpleQueue()
        child = context.Process(target=_peak_growth, args=(image, s, window, queue))
        child.start()
        grown = queue.get()
        child.join()
        print(
            f"| {s:g} | {window} | {grown / 2**20:.0f} | {n_bytes / 2**20:.0f} "
            f"| {(grown - n_bytes) / field:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--height", type=int, default=321)
    parser.add_argument("--width", type=int, default=481)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--windows", type=int, nargs="+", default=[3, 21])
    options = parser.parse_args()
    device = resolve_device(options.device)
    image = photograph(options.height, options.width)
    print(f"{image.shape}, c = {N_LABELS}, {device.type}, {torch.get_num_threads()} threads")
    evaluation_table(image, device, options.rounds)
    whole_table(image, device, tuple(options.windows))
    if device.type == "cpu":
        memory_table(image)


if __name__ == "__main__":
    main()
