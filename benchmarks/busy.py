"""How long a run takes on an idle machine, and beside others that keep its cores busy.

Prints the seconds of what ``napari-saf segment`` runs by default, in a process of its own, with
one thread, with all of them as this package sets them, and with all of them as GNU OpenMP comes:
the middle of several runs, and the range. Each kind is run in turn, so that what else the machine
does meets all of them.

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
    "one thread": {"OMP_NUM_THREADS": "1"},
    "all threads": {},
    "all, as OpenMP comes": {"GOMP_SPINCOUNT": "300000"},
}
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

CHILD = """
import sys
import time

import napari_saf as saf
from napari_saf.input import ImageOptions
from napari_saf.samples import read_sample
from skimage.transform import resize

side = int(sys.argv[1])
image = resize(read_sample("astronaut").array, (side, side), anti_aliasing=True)
method, options = saf.SelfAssignmentFlow(), ImageOptions().arguments()
method.run(saf.Problem.from_image(image[:64, :64], **options))
began = time.perf_counter()
method.run(saf.Problem.from_image(image, **options))
print(time.perf_counter() - began)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--side", type=int, default=512, help="of the image, in pixels")
    arguments.add_argument("--loops", type=int, nargs="+", default=[0, 2], help="busy loops beside")
    arguments.add_argument("--repeats", type=int, default=5)
    given = arguments.parse_args()
    for n_loops in given.loops:
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with busy(n_loops):
            for _ in range(given.repeats):
                for kind, changes in KINDS.items():
                    seconds[kind].append(timed(given.side, changes))
        middle = {kind: statistics.median(values) for kind, values in seconds.items()}
        print(f"{given.side} x {given.side}, {os.cpu_count()} cores, beside {n_loops} busy loops")
        for kind, values in seconds.items():
            ratio = middle[kind] / middle["one thread"]
            extent = f"{min(values):.2f} to {max(values):.2f}"
            print(f"  {kind:22} {middle[kind]:6.2f} s ({extent}), {ratio:.2f} of one thread")


def timed(side: int, changes: dict[str, str]) -> float:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", CHILD, str(side)]
    run = subprocess.run(command, env=kept | changes, stdout=subprocess.PIPE, text=True, check=True)
    return float(run.stdout)


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
