"""Classes of objects from a few clicks, beside a forest, an SVM and logistic regression.

python benchmarks/classes.py blood [--draws 20]
python benchmarks/classes.py digits [--draws 20] [--objects 1000]
python benchmarks/classes.py speed [--objects 5000]

blood   Stained cells of 40 images: objects of Otsu's threshold on green, holes filled, split by
        `split_objects`; how many boxes are matched (an intersection over union of bounding boxes
        above .5), and of the objects that match one, red and white cells and platelets are told
        apart. With ``--all`` the others are there, too, without a class, as debris.
digits  Digits of MNIST strewn on a canvas, ten classes.
speed   Processor time, and that on the clock, of measures, choice, the space of an image, and of a
        click: `classify` after `with_clicks`.
screen  From a click in the Objects dock to the painted frame, among discs of three classes; run
        with ``xvfb-run -a``. Processor time is that of all threads, the renderer in software too;
        that of the main thread alone is beside it.

One, three and five clicks a class, drawn at random; balanced accuracy of the objects that were not
clicked, mean of draws and its standard error. All see the same measures, standardised but for the
forest: "automatic" chooses groups of measures and method by the clicks, as `learn_classes` does by
default; methods by name have shape, intensity and texture; in the table "outline" all have that
group alone.
Data is sought under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import csv
import functools
import gzip
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.filters import threshold_otsu
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import napari_saf as saf
from napari_saf.objects import class_methods

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
CLASSES = ("RBC", "WBC", "Platelets")
SEED = 1
"""Of the draws; settings were chosen on others."""
PITCH = 36
"""Pixels between digits; a digit has 28."""


def blood() -> tuple[list[saf.ObjectMeasures], list[NDArray[np.int64]]]:
    """Return the measures of the objects of each image, and their classes by the boxes, or 0."""
    with open(DATA / "blood" / "boxes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    measures, truths, n_boxes, n_matched = [], [], 0, 0
    for name in sorted({row["image"] for row in rows}):
        image = iio.imread(next((DATA / "blood" / "images").glob(f"{name}.*")))[..., :3]
        of_image = [row for row in rows if row["image"] == name]
        sides = ("y_min", "x_min", "y_max", "x_max")
        boxes = np.array([[float(row[side]) for side in sides] for row in of_image])
        kinds = np.array([CLASSES.index(row["class"]) + 1 for row in of_image])
        green = image[..., 1].astype(float)
        cells = ndimage.binary_fill_holes(green < threshold_otsu(green))
        objects = saf.split_objects(cells, image=image, neck=0.1, smallest=100)
        slices = ndimage.find_objects(objects.labels.astype(int))
        bounds = np.array([[[side.start, side.stop] for side in box] for box in slices])
        low = np.maximum(bounds[:, None, :, 0], boxes[None, :, :2])
        high = np.minimum(bounds[:, None, :, 1], boxes[None, :, 2:])
        shared = (high - low).clip(0).prod(axis=2)
        size = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)[:, None]
        overlap = shared / (size + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared)
        n_boxes += len(boxes)
        n_matched += int((overlap.max(axis=0) > 0.5).sum())
        truths.append(np.where(overlap.max(axis=1) > 0.5, kinds[overlap.argmax(axis=1)], 0))
        measures.append(saf.measure_objects(objects, image))
    counts = dict(zip(CLASSES, np.bincount(np.concatenate(truths), minlength=4)[1:], strict=True))
    print(f"{n_matched} of {n_boxes} boxes are matched; objects by class {counts}")
    return measures, truths


def canvas(n_objects: int, seed: int) -> tuple[saf.Objects, NDArray[np.uint8], NDArray[np.int64]]:
    """Return digits as objects, their image, and their classes."""

    def read(name: str, skipped: int) -> NDArray[np.uint8]:
        with gzip.open(next((DATA / "mnist").glob(f"t10k-{name}*"))) as file:
            return np.frombuffer(file.read(), np.uint8, offset=skipped)

    digits, classes = read("images", 16).reshape(-1, 28, 28), read("labels", 8)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(digits), n_objects, replace=False)
    side = int(np.ceil(np.sqrt(n_objects)))
    image = np.zeros((side * PITCH, side * PITCH), np.uint8)
    labels = np.zeros(image.shape, np.uint32)
    for k, index in enumerate(chosen):
        row, column = (PITCH * place + rng.integers(0, 9) for place in divmod(k, side))
        at = (slice(row, row + 28), slice(column, column + 28))
        image[at] = digits[index]
        labels[at] = np.where(digits[index] > 60, k + 1, 0)
    objects = saf.Objects(labels, np.append(0, np.ones(n_objects, int)))
    return objects, image, classes[chosen].astype(np.int64) + 1


def joined(measures: list[saf.ObjectMeasures], kept: NDArray[np.bool_]) -> saf.ObjectMeasures:
    """Return the measures of some objects of several images as those of one image."""
    values = np.concatenate([image.values for image in measures])[kept]
    first = measures[0]
    return saf.ObjectMeasures(np.arange(1, len(values) + 1), values, first.names, first.groups)


def balanced(truth: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the balanced accuracy on things that have a class."""
    has_class = truth > 0
    pairs = labels[has_class].tolist(), truth[has_class].tolist()
    return saf.metrics.score_classes(*pairs).balanced_accuracy


def peers() -> dict[str, Callable[[], Any]]:
    """Return the classifiers of scikit-learn, without what is theirs to learn."""
    return {
        "random forest": lambda: RandomForestClassifier(100, random_state=0),
        "SVM": lambda: make_pipeline(StandardScaler(), SVC(C=10)),
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    }


def ways(groups: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the options of `learn_classes` of each of its ways."""
    in_use = groups or ["shape", "intensity", "texture"]
    named = {name: {"method": name, "groups": in_use} for name in class_methods()}
    return {"automatic": {"groups": groups}, **named}


def compare(
    title: str,
    measures: saf.ObjectMeasures,
    truth: NDArray[np.int64],
    n_draws: int,
    groups: list[str] | None = None,
) -> None:
    """Print a table: a line a way, a column a number of clicks."""
    shots = (1, 3, 5)
    is_used = np.isin(measures.groups, groups) if groups else np.ones(len(measures.names), bool)
    table: dict[str, list[list[float]]] = {}
    for column, n_clicks in enumerate(shots):
        rng = np.random.default_rng(SEED)
        for _ in range(n_draws):
            seeds = np.zeros(len(truth), np.int64)
            for label in np.unique(truth[truth > 0]):
                seeds[rng.choice(np.flatnonzero(truth == label), n_clicks, replace=False)] = label
            clicks = {int(k) + 1: int(seeds[k]) for k in np.flatnonzero(seeds)}
            results = {}
            for way, options in ways(groups).items():
                classes = saf.learn_classes(measures, clicks, **options)
                results[way] = classes.classify(measures).classes
            values, is_seed = measures.values[:, is_used], seeds > 0
            for way, make in peers().items():
                results[way] = make().fit(values[is_seed], seeds[is_seed]).predict(values)
            for way, labels in results.items():
                scores = table.setdefault(way, [[] for _ in shots])
                scores[column].append(balanced(np.where(is_seed, 0, truth), labels))
    print(f"\n{title}, {len(truth)} objects, {n_draws} draws")
    print(f"{'':16}" + "".join(f"{n:>14} a class" for n in shots))
    for way, columns in table.items():
        cells = [f"{np.mean(s):.3f} +- {np.std(s) / len(s) ** 0.5:.3f}" for s in columns]
        print(f"{way:16}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def speed(n_objects: int) -> None:
    """Print what each step of the classes of a canvas takes."""
    objects, image, truth = canvas(n_objects, 0)

    def timed(title: str, call: Callable[[], Any]) -> Any:
        began, clock = time.process_time(), time.perf_counter()
        result = call()
        took = time.process_time() - began, time.perf_counter() - clock
        print(f"{title:32} {1000 * took[0]:8.0f} ms, on the clock {1000 * took[1]:8.0f} ms")
        return result

    measures = timed(f"measures of {n_objects}", lambda: saf.measure_objects(objects, image))
    rows = [np.flatnonzero(truth == k)[:3] for k in range(1, 11)]
    clicks = {int(k) + 1: int(truth[k]) for k in np.concatenate(rows)}
    saf.learn_classes(measures, clicks)  # what is loaded once
    timed("choice", lambda: saf.learn_classes(measures, clicks))
    for name in class_methods():
        classes = saf.learn_classes(measures, clicks, method=name, groups=["outline"])
        space = timed(f"{name}: space", functools.partial(classes.space, measures))
        classes.classify(space)
        for k in range(3):
            more = {**clicks, 100 + k: int(truth[99 + k])}
            taught = classes.with_clicks(measures, more)
            timed(f"{name}: click", functools.partial(taught.classify, space))


def screen(n_objects: int) -> None:
    """Print how long clicks take until the frame is painted."""
    import napari
    from qtpy.QtCore import QEventLoop, QTimer

    def wait(is_over: Callable[[], object]) -> None:
        """Handle events as the application does: asleep until one arrives."""
        loop, timer = QEventLoop(), QTimer(interval=20)
        timer.start()
        while not is_over():
            loop.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)

    side, rng = int(np.ceil(n_objects**0.5)), np.random.default_rng(0)
    kinds = rng.integers(1, 4, (side, side))
    around, sizes = np.hypot(*np.mgrid[-12:12, -12:12]), np.kron(kinds, np.ones((24, 24), int))
    labels = (np.tile(around, (side, side)) < 4 + 1.7 * sizes) + np.uint8(1)
    image = rng.normal(50, 3, labels.shape).astype(np.float32) + 30 * sizes * (labels == 2)
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    viewer.add_image(image, name="photo")
    viewer.add_labels(labels, name="cells")
    dock = viewer.window.add_plugin_dock_widget("napari-saf", "Objects")[1]
    background, section = dock.panel.background, dock.classes
    wait(lambda: dock.choices.kinds.ticked and not background.is_busy)
    dock.start()
    wait(lambda: dock.layer is not None and not background.is_busy)
    changed: list[float] = []
    painted: list[float] = []
    section.changed.connect(lambda keys: changed.append(time.perf_counter()))
    canvas = viewer.window._qt_viewer.canvas._scene_canvas
    canvas.events.draw.connect(lambda event: painted.append(time.perf_counter()))
    times = []
    for k in range(40):
        if k == 20:  # measures and method are chosen
            wait(lambda: section.learned.agreement is not None and not background.is_busy)
            section._choice.setInterval(10**6)
        if section.label != kinds[divmod(k, side)]:
            section.choose_label(int(kinds[divmod(k, side)]))
        row, column = divmod(k, side)
        changed.clear()
        began = time.perf_counter(), time.process_time(), time.thread_time()
        dock.canvas.picked.emit(int(dock.layer.data[24 * row + 12, 24 * column + 12]), False)
        if k < 20:
            wait(lambda: not background.is_busy)
            continue
        wait(lambda: changed and painted and painted[-1] > changed[0])
        ends = painted[-1], time.process_time(), time.thread_time()
        times.append([1000 * (end - start) for end, start in zip(ends, began, strict=True)])
        wait(lambda: not background.is_busy)
    clock, processor, main_thread = np.median(times, axis=0)
    print(
        f"{len(dock.tools.editor.numbers)} objects by {section.learned.method}: from a click to "
        f"the frame {clock:.0f} ms on the clock, {processor:.0f} ms of processor time, "
        f"{main_thread:.0f} ms of it of the main thread"
    )
    viewer.close()


def main() -> None:
    """Print the tables."""
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("blood", "digits", "speed", "screen"))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--objects", type=int)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    if options.part == "speed":
        speed(options.objects or 5000)
    elif options.part == "screen":
        screen(options.objects or 5000)
    elif options.part == "blood":
        measures, truths = blood()
        truth = np.concatenate(truths)
        kept = np.ones(len(truth), bool) if options.all else truth > 0
        compare("blood", joined(measures, kept), truth[kept], options.draws)
    else:
        objects, image, truth = canvas(options.objects or 1000, 0)
        measured = saf.measure_objects(objects, image)
        compare("digits", measured, truth, options.draws)
        compare("digits, outline", measured, truth, options.draws, ["outline"])


if __name__ == "__main__":
    main()
