"""Values of a wrong kind, anywhere, are an error of this package that says so."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.input import PLAIN

RNG = np.random.default_rng(0)
IMAGE = RNG.random((10, 12))
SEEDS = np.zeros((10, 12), dtype=np.uint8)
SEEDS[1, 1:5], SEEDS[8, 3:9] = 1, 2
GROUPS = np.arange(120).reshape(10, 12) % 2 + 1
PROBLEM = saf.Problem.from_image(IMAGE, seeds=SEEDS, groups=GROUPS, **PLAIN)
VALUES = [None, "x", "", b"x", [], {}, set(), object(), 1.5, -1, True, float("nan"), 1j, 10**30]
VALUES += [np.array([1, 2]), np.array(3), np.float32(2.5), (1, 2), [None], ["a"]]


def fails_well(function, **arguments):
    """Call a function, which may succeed, or fail as this package fails."""
    for value in VALUES:
        for name in arguments:
            try:
                function(**(arguments | {name: value}))
            except saf.SafError as error:
                assert str(error)


def test_a_path_is_no_image_and_what_reads_one_is_named():
    for path in ("photo.png", Path("photo.png")):
        with pytest.raises(saf.SafError, match=r"expected an array, got .*photo.png.*read_image"):
            saf.Problem.from_image(path)


@pytest.mark.parametrize("method", [*saf.METHODS.values(), saf.PatchDictionaryLearning])
def test_settings_of_methods(method):
    def run(**settings):
        method(**settings).run(PROBLEM, max_iterations=1)

    for field in dataclasses.fields(method):
        fails_well(run, **{field.name: None})


OPTIONS = (
    "features",
    "window",
    "weights",
    "channel_axis",
    "scaling",
    "max_side",
    "seeds",
    "groups",
)


@pytest.mark.parametrize("name", [*OPTIONS, "mask", "image"])
def test_arguments_of_an_image(name):
    fails_well(lambda **given: saf.Problem.from_image(**({"image": IMAGE} | given)), **{name: None})


def test_arguments_of_a_run():
    def run(problem=PROBLEM, **given):
        saf.SelfAssignmentFlow().run(problem, **({"max_iterations": 1} | given))

    fails_well(run, problem=PROBLEM)
    fails_well(run, initial=None)
    fails_well(run, max_iterations=1)
