"""What rounding may change of labels: next to nothing, by any method, on any processor."""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
from skimage.draw import line
from skimage.transform import resize

import napari_saf as saf
from napari_saf.metrics import matched_accuracy
from napari_saf.samples import read_sample

MOST = {"saf": 0.5, "af": 0.5, "Scribbles dock": 0.5, "regions": 0.5}
"""Most labels that may change (%), by the first word or the whole name of a case; else 1."""
OTHERS = (
    *("saf", "regions", "Scribbles dock", "slk, ms", "fair, kmeans"),
    *("laplacianshot, strokes", "bavardage, strokes"),
)
"""Cases by another instruction set: each method, most of them without the help of strokes."""
SIDE, NOISE = 40, 1e-6
STROKES = {
    "astronaut": (
        [(110, 200, 110, 265), (330, 80, 300, 310)],
        [(30, 110, 140, 110), (60, 330, 200, 340)],
        [(100, 30, 350, 20), (120, 420, 220, 420)],
    ),
    "coins": (
        [(53, 35, 53, 52), (123, 145, 123, 162), (187, 335, 187, 365)],
        [(88, 20, 88, 360), (160, 20, 160, 300)],
    ),
    "histology": (
        [(100, 100, 180, 220), (150, 400, 250, 400), (400, 290, 420, 350)],
        [(260, 310, 330, 230), (200, 490, 400, 430)],
    ),
}
"""Of each class lines from row and column to row and column of the sample."""


def run(method, image, strokes=None):
    groups = np.broadcast_to(np.arange(image.shape[1]) % 2 + 1, image.shape[:2])
    problem = saf.Problem.from_image(image, seeds=strokes, groups=groups)
    return np.asarray(method.run(problem).labels)


def first_click(image, strokes):
    return run(saf.SelfAssignmentFlow(), image)


def regions(image, strokes):
    return saf.merge_regions(first_click(image, strokes), image).at_level()


def scribbles(image, strokes):
    """Return what the Scribbles dock finds."""
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    return np.asarray(choice.method.run(problem).labels)


def alone(method):
    return lambda image, strokes: run(method, image)


def with_strokes(method):
    return lambda image, strokes: run(method, image, strokes)


METHODS = {
    "saf": first_click,
    "saf, strokes": with_strokes(saf.SelfAssignmentFlow()),
    "af, strokes": with_strokes(saf.AssignmentFlow()),
    "Scribbles dock": scribbles,
    "regions": regions,
    "slk, bo": alone(saf.SLK()),
    "slk, ms": alone(saf.SLK(prototypes="ms")),
    "slk, means": alone(saf.SLK(prototypes="means")),
    "slk, bo, strokes": with_strokes(saf.SLK()),
    "slk, ms, strokes": with_strokes(saf.SLK(prototypes="ms")),
    "slk, means, strokes": with_strokes(saf.SLK(prototypes="means")),
    "fair, kmeans": alone(saf.FairClustering(objective="kmeans")),
    "fair, kmedian": alone(saf.FairClustering(objective="kmedian")),
    "fair, ncut": alone(saf.FairClustering(objective="ncut")),
    "laplacianshot, strokes": with_strokes(saf.LaplacianShot()),
    "bavardage, strokes": with_strokes(saf.Bavardage()),
}


@functools.cache
def sample(name):
    """Return a sample, values from 0 to 1, and strokes on it."""
    whole = read_sample(name).array
    scale = SIDE / max(whole.shape[:2])
    shape = tuple(round(scale * n) for n in whole.shape[:2])
    strokes = np.zeros(shape, dtype=np.int64)
    for number, lines in enumerate(STROKES[name], start=1):
        for ends in lines:
            strokes[line(*(int(scale * end) for end in ends))] = number
    return resize(whole, shape, anti_aliasing=True), strokes


@functools.cache
def labels_of(case, name):
    return METHODS[case](*sample(name))


def changes(labels, others):
    """Return which share of the labels differs (%), whatever their numbers."""
    return 100 * (1 - matched_accuracy(labels.ravel(), others.ravel()))


def most(case):
    return MOST.get(case, MOST.get(case.split(",")[0], 1.0))


FEW = ("regions", "slk, ms", "fair, kmeans", "bavardage, strokes")
CASES = [pytest.param(n, marks=() if n in FEW else pytest.mark.exhaustive) for n in METHODS]


@pytest.mark.parametrize("case", CASES)
def test_noise_of_the_last_digits_changes_next_to_no_label(case):
    for name in STROKES:
        image, strokes = sample(name)
        noise = NOISE * np.random.default_rng(0).standard_normal(image.shape)
        noisy = METHODS[case](image * (1 + noise), strokes)
        assert changes(labels_of(case, name), noisy) <= most(case), name


@pytest.mark.exhaustive
def test_another_instruction_set_finds_the_same_labels(tmp_path):
    """By that which every processor has; torch chooses it when it is imported."""
    file = tmp_path / "labels.npz"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    subprocess.run([sys.executable, __file__, str(file)], check=True, env=environment)
    with np.load(file) as others:
        for case in OTHERS:
            for name in STROKES:
                changed = changes(others[f"{name}/{case}"], labels_of(case, name))
                assert changed <= most(case), (case, name)


if __name__ == "__main__":
    pairs = ((name, case) for name in STROKES for case in OTHERS)
    np.savez(sys.argv[1], **{f"{name}/{case}": labels_of(case, name) for name, case in pairs})
