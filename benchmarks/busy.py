"""How long a run takes on an idle machine, and beside others that keep its cores busy.

Prints the seconds of what ``napari-saf segment`` runs by default, in a process of its own, with
one thread, with all of them as this package sets them, with all of them as GNU OpenMP comes, and
of two such runs at once: the middle of several runs, the range, and the processor time, which
threads that wait for one another must not spend. Each kind is run in turn, so that what else the
machine does meets all of them.

    python benchmarks/busy.py                 # idle, then beside two busy loops
    python benchmarks/busy.py --loops 0 1 4   # beside none, one, four
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = {
    "one thread": (1, {"OMP_NUM_THREADS": "1"}),
    "all threads": (1, {}),
    "all, as OpenMP comes": (1, {"GOMP_SPINCOUNT": "300000"}),
    "two runs, all threads": (2, {}),
    "two, as OpenMP comes": (2, {"GOMP_SPINCOUNT": "300000"}),
}
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

CHILD = """
import sys
import threading
import time

import napari_saf as saf
from napari_saf.flow import _fused
from napari_saf.input import ImageOptions
from napari_saf.samples import read_sample
from skimage.transform import resize

side, n_runs = map(int, sys.argv[1:])
image = resize(read_sample("astronaut").array, (side, side), anti_aliasing=True)
method, options = saf.SelfAssignmentFlow(), ImageOptions().arguments()
_fused.wait_for_kernels()

def run(image):
    method.run(saf.Problem.from_image(image, **options))

run(image[:256, :256])
began, spent = time.perf_counter(), time.process_time()
threads = [threading.Thread(target=run, args=(image,)) for _ in range(n_runs)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.perf_counter() - began, time.process_time() - spent)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--side", type=int, default=512, help="of the image, in pixels")
    arguments.add_argument("--loops", type=int, nargs="+", default=[0, 2], help="busy loops beside")
    arguments.add_argument("--repeats", type=int, default=5)
    given = arguments.parse_args()
    for n_loops in given.loops:
        seconds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        with busy(n_loops):
            for _ in range(given.repeats):
                for kind, (n_runs, changes) in KINDS.items():
                    seconds[kind].append(timed(given.side, n_runs, changes))
        print(f"{given.side} x {given.side}, {os.cpu_count()} cores, beside {n_loops} busy loops")
        one = [statistics.median(times) for times in zip(*seconds["one thread"], strict=True)]
        for kind, times in seconds.items():
            passed, spent = zip(*times, strict=True)
            middle = statistics.median(passed), statistics.median(spent)
            ratios = [own / first for own, first in zip(middle, one, strict=True)]
            print(
                f"  {kind:22} {middle[0]:6.2f} s ({min(passed):.2f} to {max(passed):.2f}), "
                f"{ratios[0]:.2f} of one thread; processor time {middle[1]:.2f} s, {ratios[1]:.2f}"
            )


def timed(side: int, n_runs: int, changes: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that pass, and those of processor time."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", CHILD, str(side), str(n_runs)]
    run = subprocess.run(command, env=kept | changes, stdout=subprocess.PIPE, text=True, check=True)
    passed, spent = map(float, run.stdout.split())
    return passed, spent


@contextmanager
def busy(n_loops: int) -> Iterator[None]:
    """Keep as many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_loops)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
