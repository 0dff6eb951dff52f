"""Projects: how long one takes to open and save, and what a crash takes.

python benchmarks/project.py [--images 50] [--side 2000]
xvfb-run -a -s "-screen 0 1280x800x24" python benchmarks/project.py --kill 50 [--interval 2]

The first makes images with strokes and labels on each, and prints seconds, and those of the
processor, for a project of them.

The second starts the app that many times with work by script (strokes, runs, edits, going to
other images) while the project is kept every so many seconds, kills it (SIGKILL) at a random
moment, and prints how much of the work was lost, in seconds, and whether the file could be opened.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from scipy.ndimage import zoom

import napari_saf as saf
from napari_saf.project import DigestCache, EncodedLabels

NOISE = 0.01
"""Share of pixels whose label is a random one: labels of flows are as ragged."""


def labels_of(side: int, rng: np.random.Generator) -> Any:
    """Return a label image of eight smooth labels with some noise."""
    smooth = zoom(rng.random((8, side // 16, side // 16)), (1, 16, 16), order=1).argmax(axis=0) + 1
    noisy = rng.random(smooth.shape) < NOISE
    return np.where(noisy, rng.integers(1, 9, smooth.shape), smooth).astype(np.uint8)


def strokes_of(side: int) -> Any:
    strokes = np.zeros((side, side), np.uint8)
    strokes[side // 20 : side // 18, side // 20 : side // 2] = 1
    strokes[side // 4 : side // 2, side // 40 : side // 35] = 2
    return strokes


def timed(words: str, function: Callable[[], Any]) -> Any:
    """Call a function and print how long it took."""
    began, busy = time.perf_counter(), time.process_time()
    found = function()
    took, used = time.perf_counter() - began, time.process_time() - busy
    print(f"| {words} | {took:.2f} | {used:.2f} |", flush=True)
    return found


def open_and_save(n_images: int, side: int, folder: Path) -> None:
    """Print how long it takes to open and save a project."""
    side -= side % 16
    rng, images = np.random.default_rng(0), []
    strokes, labels = strokes_of(side), labels_of(side, rng)
    for k in range(n_images):
        path = folder / f"{k}.tif"
        tifffile.imwrite(path, rng.integers(0, 255, (side, side, 3), dtype=np.uint8))
        layers = (
            saf.ProjectLayer("strokes", "strokes", EncodedLabels.of(strokes)),
            saf.ProjectLayer("labels", "labels", EncodedLabels.of(np.roll(labels, 13 * k, axis=1))),
        )
        images.append(saf.ProjectImage(saf.FileReference.of(path), layers))
    path = saf.save_project(folder / "project.napari-saf", saf.Project(tuple(images)))
    mebibytes = path.stat().st_size / 2**20
    print(f"{n_images} images of {side} x {side}, RGB; the project has {mebibytes:.0f} MiB\n")
    print("| | seconds | of the processor |\n|---|---|---|")
    digests = DigestCache()

    def open_it() -> saf.Project:
        project = saf.load_project(path)
        states = {one.state for one in project.find_images(digest=digests)}
        assert states == {"found"}, states
        return project

    project = timed("open, with the content of all images compared", open_it)

    def stroke() -> None:
        strokes[-9:-3, 4:90] = 1
        last = project.images[-1]
        painted = dataclasses.replace(last.layers[0], pixels=EncodedLabels.of(strokes))
        last = dataclasses.replace(last, layers=(painted, *last.layers[1:]))
        saf.save_project(path, dataclasses.replace(project, images=(*project.images[:-1], last)))

    timed("save after one stroke", stroke)


def work(folder: Path, interval: float, seed: int) -> None:
    """Work in the app until killed: note each stroke in a file before and after it is painted."""
    import napari
    from qtpy.QtWidgets import QApplication

    from napari_saf._gui.project.dock import ProjectWidget
    from napari_saf._gui.scribbles.dock import ScribblesWidget

    rng = random.Random(seed)
    viewer = napari.Viewer()
    viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")
    viewer.window.add_plugin_dock_widget("napari-saf", "Project")
    window = QApplication.instance().topLevelWidgets()
    (scribbles,) = {one for top in window for one in top.findChildren(ScribblesWidget)}
    (project,) = {one for top in window for one in top.findChildren(ProjectWidget)}
    project.add_files([folder / "images"])
    project._keeping.setInterval(int(1000 * interval))
    if seed % 2:
        project.save_to(folder / "project")
    n_done = 0
    with (folder / "log.txt").open("a") as log:
        print("ready", time.time(), file=log, flush=True)
        while True:
            if scribbles.input.strokes is None:
                scribbles.new_strokes()
            side = scribbles.strokes.layer.data.shape[0]
            n_done += 1
            rows = np.array([n_done // side % side]), np.array([n_done % side])
            scribbles.strokes.layer.data_setitem(rows, 1 + rng.randrange(2))
            name = project.session.current.name
            print("painted", time.time(), name, rows[0][0], rows[1][0], file=log, flush=True)
            if scribbles.result is not None and rng.random() < 0.1:
                scribbles.result.data_setitem(rows, 2)
            if rng.random() < 0.05 and not project.is_busy:
                project.go_to_next()
            if seed % 2 and rng.random() < 0.02:
                project.save_project()
            end = time.monotonic() + rng.random() * 0.1
            while time.monotonic() < end:
                QApplication.processEvents()
                time.sleep(0.005)


def killed_once(folder: Path, interval: float, seed: int, data: Path) -> tuple[float, str]:
    """Return how many seconds of work a kill at a random moment lost, and what was opened."""
    command = [sys.executable, __file__, "--work", str(folder), "--interval", str(interval)]
    environment = os.environ | {"XDG_DATA_HOME": str(data)}
    log = folder / "log.txt"
    log.write_text("")
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--seed", str(seed)], env=environment, stderr=errors, stdout=errors
        )
    while "ready" not in log.read_text():
        if process.poll() is not None:
            raise RuntimeError((folder / "errors.txt").read_text()[-2000:])
        time.sleep(0.05)
    time.sleep(random.Random(seed).uniform(0.2, 5 * interval))
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = time.time()
    kept = [*(data / "napari-saf" / "recovery").glob("*.napari-saf"), *folder.glob("*.napari-saf")]
    painted: dict[tuple[str, int, int], float] = {}
    for line in log.read_text().splitlines():
        words = line.split()
        if words[0] == "painted" and len(words) == 5:
            painted[words[2], int(words[3]), int(words[4])] = float(words[1])
    found: set[tuple[str, int, int]] = set()
    for path in kept:
        for image in saf.load_project(path).images:  # a FormatError ends the benchmark
            for layer in image.layers:
                if layer.kind == "strokes":
                    places = np.argwhere(layer.pixels.to_array())
                    found |= {(image.file.path.name, int(y), int(x)) for y, x in places}
    lost = [when for place, when in painted.items() if place not in found]
    return (killed - min(lost) if lost else 0.0), f"{len(kept)} kept, {len(found)} pixels"


def kill(n_times: int, interval: float, folder: Path) -> None:
    """Print what kills at random moments lost."""
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    for k in range(3):
        tifffile.imwrite(folder / "images" / f"{k}.tif", rng.integers(0, 255, (64, 64), np.uint8))
    losses = []
    for seed in range(n_times):
        data = folder / f"data{seed}"
        lost, words = killed_once(folder, interval, seed, data)
        losses.append(lost)
        print(f"{seed + 1}: {lost:.1f} s lost, {words}", flush=True)
        shutil.rmtree(data, ignore_errors=True)
        for path in folder.glob("*.napari-saf"):
            path.unlink()
    print(json.dumps({"killed": n_times, "interval": interval, "most lost": round(max(losses), 1)}))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--side", type=int, default=2000)
    parser.add_argument("--kill", type=int)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work, given.interval, given.seed)
        return
    folder = Path(tempfile.mkdtemp(prefix="napari-saf-project-"))
    try:
        if given.kill:
            kill(given.kill, given.interval, folder)
        else:
            open_and_save(given.images, given.side, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
