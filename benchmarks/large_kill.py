"""Tiles whose processes are killed at random moments, against a run that nothing disturbs.

python benchmarks/large_kill.py [--times 20] [--side 1024] [--tile 128] [--labels 4] [--seed 0]

A sheet of photographs is labelled by the command line, undisturbed. Then every second time one of
two workers is killed (SIGKILL), and else the command itself, of one process or with two workers, at
a moment drawn from the whole of an undisturbed run: imports, plan, tiles, coarse levels, end. A
command that was killed is given again. The arrays of all levels must be the same, byte for byte,
and nothing else may be left in the store.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from large import sheet


def arrays(out: Path) -> dict[str, bytes]:
    """Return what is in a store by file, but for the attributes, which hold its name."""
    files = [path for path in out.rglob("*") if path.is_file()]
    found = {str(path.relative_to(out)): path.read_bytes() for path in files}
    del found["zarr.json"]
    return found


def workers(command: psutil.Process) -> list[psutil.Process]:
    """Return the processes that do tiles for a command."""
    try:
        return [one for one in command.children() if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


class Run:
    """One labelling, which is disturbed at most once."""

    def __init__(self, source: Path, out: Path, options: list[str]) -> None:
        own = ["segment", str(source), "-o", str(out), *options]
        self.command = [sys.executable, "-m", "napari_saf", *own]
        self.out = out

    def start(self) -> psutil.Popen:
        return psutil.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, process: psutil.Popen) -> str:
        """Wait for a command; return what it says."""
        text = str(process.communicate()[0], "utf-8")
        if process.returncode:
            raise SystemExit(f"{' '.join(self.command)}\n{text}")
        return text.strip().splitlines()[-1]

    def kill(self, moment: float, of_worker: bool, rng: random.Random) -> str | None:
        """Kill once, and have the work finished; return when, None if all was done before.

        A worker that is not there yet is waited for.
        """
        process = self.start()
        time.sleep(moment)
        victim = process
        if of_worker:
            while process.poll() is None and not workers(process):
                time.sleep(0.02)
            victim = rng.choice(workers(process) or [process])
        place = self.where()
        if process.poll() is not None or not victim.is_running():
            self.end(process)
            return None
        victim.kill()
        if not of_worker:
            process.communicate()
            process = self.start()
        return f"{place}; {self.end(process)}"

    def where(self) -> str:
        """Return how far the work is."""
        journal = self.out.with_name(f"{self.out.name}.journal")
        try:
            n_lines = journal.read_bytes().count(b"\n")
        except FileNotFoundError:
            return "after the end" if self.out.exists() else "before the plan"
        return f"after {n_lines - 1} tiles" if n_lines else "in the plan"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--tile", type=int, default=128)
    parser.add_argument("--labels", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given, n_wrong, k = parser.parse_args(), 0, 0
    rng = random.Random(given.seed)
    options = ["--window", "3", "--max-labels", str(given.labels), "--tile", str(given.tile)]
    with tempfile.TemporaryDirectory() as name:
        folder, seconds = Path(name), dict[int, float]()
        source = folder / "sheet.ome.zarr"
        sheet(source, given.side)
        for n_processes in (1, 2):
            own = [*options, "--jobs", str(n_processes)]
            run, began = Run(source, folder / f"expected{n_processes}.ome.zarr", own), time.time()
            print(run.end(run.start()), flush=True)
            seconds[n_processes] = time.time() - began
        expected = arrays(folder / "expected1.ome.zarr")
        assert expected == arrays(folder / "expected2.ome.zarr")
        while k < given.times:
            of_worker, n_processes = k % 2 == 0, 1 if k % 4 == 1 else 2
            own, moment = [*options, "--jobs", str(n_processes)], rng.random()
            run = Run(source, folder / f"{k}.ome.zarr", own)
            text = run.kill(moment * seconds[n_processes], of_worker, rng)
            if text is None:
                run.out.rename(folder / f"spare{rng.random()}")
                continue
            is_same = arrays(run.out) == expected
            n_wrong, k = n_wrong + (not is_same), k + 1
            victim = "worker" if of_worker else f"command of {n_processes}"
            print(f"{k}: {victim}, {moment * seconds[n_processes]:.1f} s, {text}: "
                  f"{'the same' if is_same else 'DIFFERENT'}", flush=True)  # fmt: skip
    print(f"{given.times} kills, {n_wrong} stores differ")


if __name__ == "__main__":
    main()
