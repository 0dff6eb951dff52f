"""What rounding may change of labels: next to nothing, by any method, on any processor.

The cases are those of `benchmarks/rounding.py`, whose table is in `docs/limits.md`.
"""

import argparse
import functools
import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MOST = {"saf": 0.5, "af": 0.5, "Scribbles dock": 0.5, "regions": 0.5}
"""Most labels that may change (%), by the first word or the whole name of a case; else 1."""
CASES = (
    *("saf", "saf, strokes", "af, strokes", "Scribbles dock", "regions"),
    *("slk, bo", "slk, ms", "slk, means"),
    *("slk, bo, strokes", "slk, ms, strokes", "slk, means, strokes"),
    *("fair, kmeans", "fair, kmedian", "fair, ncut"),
    *("laplacianshot, strokes", "bavardage, strokes"),
)
SLOW = {"saf, s = 1"}
OTHERS = (
    *("saf", "regions", "Scribbles dock", "slk, ms", "fair, kmeans"),
    *("laplacianshot, strokes", "bavardage, strokes"),
)
"""Cases by another instruction set: each method, most of them without the help of strokes."""
SIDE = 40


@pytest.fixture(scope="module")
def rounding():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        before = set(sys.modules)
        yield importlib.import_module("rounding")
        for name in set(sys.modules) - before:
            if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture(scope="module")
def clean(rounding):
    """Return what finds the labels of a case on a sample, once."""

    @functools.cache
    def labels(case, name):
        return rounding.METHODS[case](*rounding.sample(name, SIDE))

    return labels


def most(case):
    return MOST.get(case, MOST.get(case.split(",")[0], 1.0))


def test_every_case_is_tested(rounding):
    assert set(CASES) | SLOW == set(rounding.METHODS)


@pytest.mark.parametrize("case", CASES)
def test_noise_of_the_last_digits_changes_next_to_no_label(rounding, clean, case):
    for name in rounding.STROKES:
        image, strokes = rounding.sample(name, SIDE)
        noisy = rounding.METHODS[case](rounding.noisy(image, 0), strokes)
        assert rounding.changes(clean(case, name), noisy) <= most(case), name


def test_another_instruction_set_finds_the_same_labels(rounding, clean):
    """By that which every processor has; the benchmark takes AVX2, too, and all cases."""
    arguments = argparse.Namespace(side=SIDE, only=OTHERS)
    others = rounding.labels_by("default", arguments)
    for case in OTHERS:
        for name in rounding.STROKES:
            changed = rounding.changes(others[f"{name}/{case}"], clean(case, name))
            assert changed <= most(case), (case, name)
