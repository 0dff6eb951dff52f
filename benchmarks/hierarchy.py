"""Merge the parts of labels into regions: fit the weights of the cues, and say how good they are.

The labels are those of the self-assignment flow, eight of them, at half the size. Each photograph
is judged with weights, and a level, that were fitted to the others (cross-validation); the weights
printed at the end were fitted to all of them and stand in napari_saf/regions.py.

    python benchmarks/hierarchy.py              # all photographs: some minutes
    python benchmarks/hierarchy.py --images 12

The photographs are sought in bsds_dev and bsds_more under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from regions import FEATURES, Labels, Photograph, split
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import napari_saf as saf
from napari_saf.metrics import segmentation_covering
from napari_saf.regions import ABSORBED, LEAST_SHARE, WEIGHTS, Parts, connected_parts

Array = NDArray[np.float64]
LEVELS = np.linspace(0.01, 0.99, 99)
N_FOLDS = 4
FIRST = np.array([-10, -10, -10, 0, 0, -10, 0, 0, -0.3, 0, 0, 0.0])
"""Weights of the first way from many regions to one: likeness of colours, edges, size."""


def label(photograph: Photograph) -> Labels:
    """Return eight labels."""
    problem = saf.Problem.from_image(
        photograph.small,
        features=FEATURES["lab+texture"](photograph),
        weights="contrast",
        window=25,
    )
    method = saf.SelfAssignmentFlow(max_labels=8, start="spectral")
    return photograph.enlarge(np.asarray(method.run(problem).labels))


class Case:
    """The parts of a label map, and how many of their pixels lie in each region of each person."""

    def __init__(self, labels: Labels, photograph: Photograph) -> None:
        self.least = LEAST_SHARE * labels.size
        self._parts = Parts(connected_parts(labels, ABSORBED * self.least), photograph.image)
        owner, n = self._parts.finest.ravel(), self._parts.n
        self._tables = []
        for reference in photograph.references:
            m = int(reference.max()) + 1
            counts = np.bincount(owner * np.int64(m) + reference.ravel(), minlength=n * m)
            self._tables.append(counts.reshape(n, m).astype(float))

    def samples(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return cues, share of the people who drew one region, and size, of pairs met on the way.

        The pairs are what is merged, and some other neighbours of both.
        """
        parts, tables = copy.deepcopy(self._parts), copy.deepcopy(self._tables)
        rows = []
        for a, b, _ in parts.merges(weights, self.least):
            around = [(k, c) for k in (a, b) for c in list(parts.boundaries[k])[:4]]
            for one, other in {(a, b)} | {pair for pair in around if set(pair) != {a, b}}:
                both = [t[one] @ t[other] / (t[one].sum() * t[other].sum()) for t in tables]
                size = min(parts.sizes[one], parts.sizes[other]) / parts.total
                rows.append([*parts.cues(one, other), np.mean(both), size])
            for table in tables:
                table[a] += table[b]
        table = np.array(rows)
        return table[:, :-2], table[:, -2], table[:, -1]

    def coverings(self, weights: Array) -> Array:
        """Return the covering at each level."""
        parts, tables = copy.deepcopy(self._parts), copy.deepcopy(self._tables)
        found, highest, k = np.zeros(len(LEVELS)), 0.0, 0
        for a, b, height in parts.merges(weights, self.least):
            highest = max(highest, height)
            if k < len(LEVELS) and LEVELS[k] < highest:
                now = np.mean([_covering(table) for table in tables])
                while k < len(LEVELS) and LEVELS[k] < highest:
                    found[k], k = now, k + 1
            for table in tables:
                table[a] += table[b]
                table[b] = 0
        found[k:] = np.mean([_covering(table) for table in tables])
        return found


def _covering(table: Array) -> float:
    drawn = table.sum(axis=0)
    union = drawn + table.sum(axis=1, keepdims=True) - table
    return float(drawn @ (table / np.maximum(union, 1)).max(axis=0) / drawn.sum())


def fit(cases: Sequence[Case]) -> Array:
    """Return the weights of logistic regression, on pairs met first, and with what it found."""
    met = [case.samples(FIRST) for case in cases]
    found = _regression(met)
    return _regression([*met, *(case.samples(found) for case in cases)])


def _regression(met: Sequence[tuple[Array, Array, Array]]) -> Array:
    cues, together, sizes = (np.concatenate(column) for column in zip(*met, strict=True))
    scaler = StandardScaler().fit(cues[:, :-1])
    rows = np.tile(scaler.transform(cues[:, :-1]), (2, 1))
    # Each pair counts as one region and as two, by the share of the people who drew it so.
    given = np.concatenate([sizes * together, sizes * (1 - together)])
    truth = np.repeat([1, 0], len(sizes))
    fitted = LogisticRegression(max_iter=1000).fit(rows, truth, sample_weight=given)
    slopes = fitted.coef_[0] / scaler.scale_
    return np.append(slopes, fitted.intercept_[0] - slopes @ scaler.mean_)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, metavar="N", help="about N photographs only")
    parser.add_argument("--cache", type=Path, help="folder of label maps to use and to add to")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("NAPARI_SAF_DATA", root.parent / "shared" / "data"))
    paths = sorted(p for name in ("bsds_dev", "bsds_more") for p in data.glob(f"{name}/images/*"))
    if not paths:
        print(f"skipped: no photographs in {data}; see NAPARI_SAF_DATA")
        return 0
    cases, plain = [], []
    for path in paths[:: max(1, len(paths) // (options.images or len(paths)))]:
        photograph = Photograph.read(path.parents[1], path.stem, 2)
        stored = options.cache / f"{path.stem}.npy" if options.cache else None
        if stored is not None and stored.exists():
            labels = np.load(stored)
        else:
            labels = label(photograph)
            if stored is not None:
                stored.parent.mkdir(parents=True, exist_ok=True)
                np.save(stored, labels)
        cases.append(Case(labels, photograph))
        plain.append(segmentation_covering(split(labels, 400), photograph.references))
    held_out, each = np.zeros(len(cases)), np.zeros(len(cases))
    folds = np.arange(len(cases)) % N_FOLDS
    for fold in range(N_FOLDS):
        inside = [case for case, own in zip(cases, folds, strict=True) if own != fold]
        weights = fit(inside)
        best = np.mean([case.coverings(weights) for case in inside], axis=0).argmax()
        for k in np.flatnonzero(folds == fold):
            curve = cases[k].coverings(weights)
            held_out[k], each[k] = curve[best], curve.max()
    print(f"{len(cases)} photographs, covering with its standard error")
    for name, values in (
        ("connected parts of eight labels, 400 pixels or more", np.array(plain)),
        ("merged, weights and level fitted to other photographs", held_out),
        ("merged, weights fitted to other photographs, best level of each", each),
    ):
        error = values.std(ddof=1) / len(values) ** 0.5
        print(f"{name:65} {values.mean():.3f} ± {error:.3f}")
    weights = fit(cases)
    curve = np.mean([case.coverings(weights) for case in cases], axis=0)
    print(f"weights fitted to all: {np.round(weights, 2).tolist()}")
    print(f"best level {LEVELS[curve.argmax()]:.2f}: {curve.max():.3f}")
    curve = np.mean([case.coverings(WEIGHTS) for case in cases], axis=0)
    print(f"weights as they are: best level {LEVELS[curve.argmax()]:.2f}: {curve.max():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
