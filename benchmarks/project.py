"""Projects: how long one takes to open and save, and what a crash takes.

python benchmarks/project.py [--images 50] [--side 2000]
xvfb-run -a -s "-screen 0 1280x800x24" python benchmarks/project.py --kill 50 [--together 5]

python benchmarks/project.py --mutate 2000

The first makes images with strokes and labels on each, and prints seconds, and those of the
processor, for a project of them.

The second starts the app that many times, several at a time, with work by script (strokes, runs,
edits, going to other images), kills it (SIGKILL) at a random moment of four intervals, and prints
how much of the work was lost, in seconds, and whether the file could be opened. The interval at
which work is kept is the app's own; another is for trying this script.

The third changes bytes of a project file that many times, and as often a value in it, after which
it is hashed anew, as who means harm does; it opens each file, looks for its images, and prints what
became of that, and which paths were touched outside of the folder of the project.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from scipy.ndimage import zoom

import napari_saf as saf
from napari_saf.features import FEATURES
from napari_saf.io import Recipe
from napari_saf.parameters import to_plain
from napari_saf.project import DigestCache, EncodedLabels

NOISE = 0.01
"""Share of pixels whose label is a random one: labels of flows are as ragged."""
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.5,
    2**63,
    1e308,
    "",
    "/etc/passwd",
    "../../x",
    "\\0",
    [],
    [0],
    {},
    {"a": 1},
)
"""Values in the place of others."""


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
    """Work in the app until killed: note each stroke in a file after it is painted.

    Every second time the Project dock is open, too, and there is a project that is saved.
    """
    import napari
    from qtpy.QtWidgets import QApplication

    from napari_saf._gui.session.workspace import KEEP_MILLISECONDS

    rng, pause = random.Random(seed), interval / 20
    viewer = napari.Viewer()
    _, scribbles = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")
    workspace, project = scribbles.workspace, None
    session, timer = workspace.session, workspace._timer
    assert timer.interval() == KEEP_MILLISECONDS
    if 1000 * interval != KEEP_MILLISECONDS:
        timer.setInterval(round(1000 * interval))
    if seed % 2:
        _, project = viewer.window.add_plugin_dock_widget("napari-saf", "Project")
        project.add_files([folder / "images"])
        project.save_to(folder / "project")
    else:
        session.add_files(sorted((folder / "images").iterdir()))
        session.go_to(session.entries[0])
    n_done = 0
    with (folder / "log.txt").open("a") as log:
        print("ready", time.time(), file=log, flush=True)
        while True:
            image, strokes = session.current.layer, session.strokes(session.current)
            scribbles.input.choose(image=image, strokes=strokes)
            if strokes is None:
                scribbles.new_strokes()
            layer, n_done = scribbles.strokes.layer, n_done + 1
            side = layer.data.shape[0]
            rows = np.array([n_done // side % side]), np.array([n_done % side])
            layer.data_setitem(rows, 1 + rng.randrange(2))
            print(
                "painted",
                time.time(),
                session.current.name,
                *(int(one[0]) for one in rows),
                file=log,
                flush=True,
            )
            if scribbles.result is not None and rng.random() < 0.1:
                scribbles.result.data_setitem(rows, 2)
            if rng.random() < 0.05:
                k = session.entries.index(session.current) + 1
                session.go_to(session.entries[k % len(session.entries)])
            if project is not None and rng.random() < 0.02:
                project.save_project()
            end = time.monotonic() + rng.random() * pause
            while time.monotonic() < end:
                QApplication.processEvents()
                time.sleep(0.01)


def killed_once(folder: Path, interval: float, seed: int) -> tuple[float, str]:
    """Return how many seconds of work a kill at a random moment lost, and what was opened."""
    (folder / "images").mkdir(parents=True)
    rng, data, log = np.random.default_rng(0), folder / "data", folder / "log.txt"
    for k in range(3):
        tifffile.imwrite(folder / "images" / f"{k}.tif", rng.integers(0, 255, (64, 64), np.uint8))
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        __file__,
        "--work",
        str(folder),
        "--interval",
        str(interval),
    ]
    environment = os.environ | {"XDG_DATA_HOME": str(data)}
    log.write_text("")
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--seed", str(seed)], env=environment, stderr=errors, stdout=errors
        )
    while "ready" not in log.read_text():
        if process.poll() is not None:
            raise RuntimeError((folder / "errors.txt").read_text()[-2000:])
        time.sleep(0.2)
    time.sleep(random.Random(seed).uniform(0.2, 4 * interval))
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    lost, text = lost_by(folder, time.time())
    return lost, text if code == -signal.SIGKILL else f"{text}; ended by itself with {code}"


def lost_by(folder: Path, killed: float) -> tuple[float, str]:
    """Return for how many seconds before the end work is in no file; all of them can be opened."""
    data = folder / "data"
    kept = [*(data / "napari-saf" / "recovery").glob("*.napari-saf"), *folder.glob("*.napari-saf")]
    painted: dict[tuple[str, int, int], float] = {}
    for line in (folder / "log.txt").read_text().splitlines():
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
    text = f"{len(kept)} kept, {len(found)} of {len(painted)} pixels"
    return (killed - min(lost) if lost else 0.0), text


def kill(n_times: int, interval: float, n_together: int, folder: Path) -> None:
    """Print what kills at random moments lost."""
    losses = []
    with ThreadPoolExecutor(n_together) as pool:
        runs = [
            pool.submit(killed_once, folder / str(seed), interval, seed) for seed in range(n_times)
        ]
        for run in as_completed(runs):
            lost, words = run.result()
            losses.append(lost)
            print(f"{len(losses)}: {lost:.1f} s lost, {words}", flush=True)
    print(json.dumps({"killed": n_times, "interval": interval, "most lost": round(max(losses), 1)}))


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a file that was cut, or in which bytes are others, missing, doubled or new."""
    at, n = rng.randrange(len(content)), rng.choice((1, 1, 2, 40))
    before, own, after = content[:at], content[at : at + n], content[at + n :]
    other = bytes(byte ^ rng.randrange(1, 256) for byte in own)
    kinds = (before + other + after, before, before + after, before + own + own + after)
    found = rng.choice([*kinds, before + other + own + after])
    return found if found != content else before


def signed(content: bytes, rng: random.Random) -> bytes:
    """Return a file in which a value is another one, with the hash that belongs to it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    main = json.loads(entries.pop("project.json"))
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(main)
    inner, key = rng.choice(places)
    inner[key] = rng.choice(ODD)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("project.json", json.dumps(main), zipfile.ZIP_DEFLATED)
        for name, runs in entries.items():
            archive.writestr(name, runs)
        archive.comment = b"0" * 64
    whole = stream.getvalue()[:-64]
    return whole + hashlib.sha256(whole).hexdigest().encode()


def mutate(n_times: int, folder: Path) -> None:
    """Print what opening changed files came to."""
    inside, rng, outside = folder / "inside", random.Random(0), set[str]()
    inside.mkdir()
    path, images = inside / "p.napari-saf", inside / "image.npy"
    np.save(images, np.eye(40))
    layer = saf.ProjectLayer("strokes", "s", EncodedLabels.of(np.eye(40, dtype=np.uint8)))
    problem = saf.Problem.from_image(np.eye(40), window=3)
    recipe = Recipe.from_plain(saf.SLK(n_clusters=2).run(problem).recipe)
    image = saf.ProjectImage(saf.FileReference.of(images), (layer,))
    saf.save_project(path, saf.Project((image,), {"slk": recipe}, docks={"a": {"b": 1}}))
    content, is_watching = path.read_bytes(), False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        runs = event in ("exec", "compile", "os.system", "subprocess.Popen", "pickle.find_class")
        touches = event in ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "import")
        if is_watching and (runs or touches):
            name = str(arguments[0]) if arguments else ""
            if runs or not os.path.abspath(name).startswith(str(inside)):
                outside.add(f"{event} {name}"[:120])

    stat = os.stat

    def watched_stat(name: Any, *given: Any, **options: Any) -> Any:
        if not isinstance(name, int):
            watch("open", (os.fspath(name),))
        return stat(name, *given, **options)

    for kind in (*saf.METHODS.values(), *FEATURES.values()):  # annotations are evaluated once
        to_plain(kind())
    saf.load_project(path).find_images()
    sys.addaudithook(watch)
    setattr(os, "stat", watched_stat)  # noqa: B010 - the hook does not hear of it
    for title, change in (("bytes", mutated), ("values, hashed anew", signed)):
        counts = Counter[str]()
        for _ in range(n_times):
            path.write_bytes(change(content, rng))
            is_watching = True
            try:
                saf.load_project(path).find_images()
                counts["opened"] += 1
            except saf.FormatError:
                counts["FormatError"] += 1
            is_watching = False
        print(f"{title}: {dict(counts)}; outside of the folder: {sorted(outside) or 'nothing'}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--side", type=int, default=2000)
    parser.add_argument("--kill", type=int)
    parser.add_argument("--interval", type=float, default=60.0)
    parser.add_argument("--together", type=int, default=5)
    parser.add_argument("--mutate", type=int)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work, given.interval, given.seed)
        return
    folder = Path(tempfile.mkdtemp(prefix="napari-saf-project-"))
    try:
        if given.kill:
            kill(given.kill, given.interval, given.together, folder)
        elif given.mutate:
            mutate(given.mutate, folder)
        else:
            open_and_save(given.images, given.side, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
