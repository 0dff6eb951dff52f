"""What the first click gives, with the settings that the docks begin with, and what peers give.

    python benchmarks/defaults.py                  # everything: 25 minutes
    python benchmarks/defaults.py labels --images 12

labels    photographs of people's segmentations: covering of connected parts (400 pixels or more),
          with the labels as they are, the regions that come into view, and the best level of each;
          peers at the best of a few settings for all. Weights and level of the merges were fitted
          to these photographs.
weights   those weights and level fitted anew: each photograph is judged with what was fitted to
          three fourths, of which it is none; beside them weights fitted to all, and those of the
          program.
agreement share of the pixels that keep their label with another seed, 10 % brighter, one row and
          column cut off, and as JPEG of quality 70.
count     fixed numbers of labels beside the automatic one, on photographs, nuclei and mosaics of
          textures: as it is, and by the share of variance that is best on other images (four
          folds).
nested    features, scale, working size, start, share of variance and level of the regions chosen
          together, all kinds of images alike, on three folds of the images and judged on the
          fourth: one setting after another is changed to the best, twice. Four facades side by
          side, like four textures, are told apart.
trade     covering of the regions in view and processor time, with one of these settings changed.

The images are sought under NAPARI_SAF_DATA (../shared/data). What strokes give is printed by
scribbles.py and scribbles_nuclei.py.
"""

from __future__ import annotations

import argparse
import copy
import functools
import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from regions import Labels, Photograph, split
from scipy.ndimage import gaussian_filter
from skimage import graph
from skimage.color import rgb2lab
from skimage.segmentation import felzenszwalb, slic
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import napari_saf as saf
from napari_saf._gui.forms.image_input import DEFAULT_OPTIONS
from napari_saf.methods import run_to_end
from napari_saf.methods._flow import _LEFT
from napari_saf.metrics import segmentation_covering
from napari_saf.points import global_means
from napari_saf.regions import USUAL_LEVEL, WEIGHTS, RegionGraph, find_separate, least_size

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]
DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
LEVELS = np.linspace(0, 1, 21)
MERGE_LEVELS = np.linspace(0.01, 0.99, 99)
N_AROUND = 9
FIRST = np.array([-10, -10, -10, 0, 0, -10, 0, 0, -0.3, 0, 0, 0.0])
"""Weights of the first way from many regions to one: likeness of colours, edges, size."""
COUNTS = range(2, 9)
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
N_FOLDS = 4
QUARTERS = np.kron([[1, 2], [3, 4]], np.ones((128, 128), int))
Setting = tuple[Any, ...]
CHOICES: dict[str, Setting] = {
    "features": ("texture", "colour"),
    "window": (13, 7, 21),
    "max_side": ("auto", 160, None),
    "start": ("k-means", "features", "spectral"),
    "share": (_LEFT, 0.2, 0.4),
}
"""What is chosen together; the first of each is the default."""
DEFAULTS = tuple(values[0] for values in CHOICES.values())


def problem_of(image: Pixels) -> saf.Problem:
    """Return the problem that the Segment dock makes of an image."""
    return saf.Problem.from_image(image, **DEFAULT_OPTIONS.arguments())


def click(image: Pixels, **changes: Any) -> saf.Segmentation:
    """Run what the Segment dock runs at first."""
    method = next(iter(saf.METHODS.values()))
    return method(**changes).run(problem_of(image))


def photographs(count: int | None) -> Iterator[tuple[Photograph, Pixels]]:
    """Yield about so many photographs, None for all, as floats and as bytes."""
    paths = sorted(p for name in ("bsds_dev", "bsds_more") for p in DATA.glob(f"{name}/images/*"))
    for path in paths[:: max(1, len(paths) // (count or len(paths)))] if paths else ():
        photograph = Photograph.read(path.parents[1], path.stem, 2)
        yield photograph, np.rint(255 * photograph.image).astype(np.uint8)


# Covering


def peers(photograph: Photograph) -> Iterator[tuple[str, str, Labels]]:
    """Yield a method, its setting and its labels."""
    for scale in (100, 200, 400, 600, 800, 1000):
        found = felzenszwalb(photograph.image, scale=scale, sigma=0.8, min_size=400)
        yield "Felzenszwalb", f"scale {scale}", found + 1
    pieces = slic(photograph.image, n_segments=400, compactness=20, start_label=1)
    for step in (0.04, 0.06, 0.08, 0.1, 0.12, 0.15):
        near = graph.rag_mean_color(photograph.image, pieces)
        yield "SLIC + merging", f"threshold {step}", graph.cut_threshold(pieces, near, step) + 1
    for sigma in (2, 4):
        blurred = gaussian_filter(rgb2lab(photograph.small), (sigma, sigma, 0))
        for count in (2, 3, 4):
            means = KMeans(count, n_init=3, random_state=0).fit_predict(blurred.reshape(-1, 3))
            labels = photograph.enlarge(means.reshape(blurred.shape[:2]) + 1)
            yield "k-means of blurred L*a*b*", f"{count} means, sigma {sigma}", labels


def labels(count: int | None) -> None:
    """Print coverings with their standard error, and how far ours are ahead."""
    own: list[list[float]] = []
    theirs: dict[str, dict[str, list[float]]] = {}
    seconds: list[list[float]] = []
    for photograph, image in photographs(count):
        began = time.perf_counter()
        steps = next(iter(saf.METHODS.values()))().iterate(problem_of(image))
        np.asarray(next(steps).labels)
        first = time.perf_counter() - began
        result = run_to_end(steps)
        ran = time.perf_counter() - began
        tree = saf.merge_regions(result.labels, image)
        shown = tree.at_level()
        seconds.append([first, ran, time.perf_counter() - began])
        references = photograph.references
        levels = [segmentation_covering(tree.at_level(x), references) for x in LEVELS]
        parts = segmentation_covering(split(np.asarray(result.labels), 400), references)
        own.append([parts, segmentation_covering(shown, references), max(levels)])
        for method, setting, found in peers(photograph):
            scores = theirs.setdefault(method, {}).setdefault(setting, [])
            scores.append(segmentation_covering(split(found, 400), references))
    table = np.array(own)
    print(f"\n{len(table)} photographs: covering, with its standard error")
    for name, column in zip(
        ("labels, parts", "regions in view", "best level"), table.T, strict=True
    ):
        print(f"{name:28} {_mean(column)}")
    for method, settings in theirs.items():
        best = max(settings, key=lambda setting: float(np.mean(settings[setting])))
        peer = np.array(settings[best])
        ahead = [_mean(column - peer) for column in table[:, :2].T]
        print(f"{method:28} {_mean(peer)}  {best}; labels {ahead[0]}, regions {ahead[1]} ahead")
    each = np.median(seconds, axis=0)
    print("seconds to first labels, last labels, regions:", *(f"{x:.2f}" for x in each))


# Weights of the merges


class Case:
    """The parts of a label map, and how many of their pixels lie in each region of each person."""

    def __init__(self, labels: Labels, photograph: Photograph) -> None:
        self.least = least_size(labels, find_separate(labels))
        self._graph = RegionGraph.of(labels, photograph.image, self.least)
        owner, n = self._graph.finest.ravel(), self._graph.n
        self._tables = []
        for reference in photograph.references:
            m = int(reference.max()) + 1
            counts = np.bincount(owner * np.int64(m) + reference.ravel(), minlength=n * m)
            self._tables.append(counts.reshape(n, m).astype(float))

    @functools.cached_property
    def first(self) -> tuple[Array, Array, Array]:
        return self.samples(FIRST)

    def samples(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return cues, share of the people who drew one region, and size, of pairs met on the way.

        The pairs are what is merged, and some other neighbours of both.
        """
        parts, tables = copy.deepcopy(self._graph), copy.deepcopy(self._tables)
        rows = []
        for a, b, _ in parts.merges(weights, self.least):
            of_a, of_b = parts.rows_of(a), parts.rows_of(b)
            around = np.unique([*np.intersect1d(of_a, of_b), *of_a[:4], *of_b[:4]])
            for (one, other), cues in zip(parts.pairs[around], parts.cues(around), strict=True):
                both = [t[one] @ t[other] / (t[one].sum() * t[other].sum()) for t in tables]
                size = min(parts.sizes[one], parts.sizes[other]) / parts.total
                rows.append([*cues, np.mean(both), size])
            for table in tables:
                table[a] += table[b]
        table = np.array(rows)
        return table[:, :-2], table[:, -2], table[:, -1]

    def coverings(self, weights: Array) -> Array:
        """Return the covering at each level."""
        parts, tables = copy.deepcopy(self._graph), copy.deepcopy(self._tables)
        found, highest, k = np.zeros(len(MERGE_LEVELS)), 0.0, 0
        for a, b, height in parts.merges(weights, self.least):
            highest = max(highest, height)
            if k < len(MERGE_LEVELS) and MERGE_LEVELS[k] < highest:
                now = np.mean([_covering(table) for table in tables])
                while k < len(MERGE_LEVELS) and MERGE_LEVELS[k] < highest:
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
    met = [case.first for case in cases]
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


def weights(count: int | None) -> None:
    """Print the covering of merged regions, with weights of other photographs and of all."""
    pairs = list(photographs(count))
    maps = [np.asarray(click(image).labels) for _, image in pairs]
    cases = [Case(own, photograph) for own, (photograph, _) in zip(maps, pairs, strict=True)]
    print(f"\n{len(cases)} photographs: covering of merged regions, with its standard error")
    held_out, each = np.zeros(len(cases)), np.zeros(len(cases))
    folds = np.arange(len(cases)) % N_FOLDS
    for fold in range(N_FOLDS):
        inside = [case for case, own in zip(cases, folds, strict=True) if own != fold]
        found = fit(inside)
        best = _best_level(np.array([case.coverings(found) for case in inside]))
        for k in np.flatnonzero(folds == fold).tolist():
            curve = cases[k].coverings(found)
            held_out[k], each[k] = curve[best], curve.max()
    print(f"weights and level fitted to other photographs {_mean(held_out)}")
    print(f"weights fitted to others, best level of each {_mean(each)}")
    fitted = fit(cases)
    for name, own in (("fitted to all of them", fitted), ("of the program", WEIGHTS)):
        curves = np.array([case.coverings(own) for case in cases])
        best = _best_level(curves)
        print(f"weights {name}, level {MERGE_LEVELS[best]:.2f} {_mean(curves[:, best])}")
        if own is WEIGHTS:
            usual = int(np.abs(MERGE_LEVELS - USUAL_LEVEL).argmin())
            print(f"weights {name}, level {USUAL_LEVEL} {_mean(curves[:, usual])}")
    print(f"weights fitted to all of them: {np.round(fitted, 2).tolist()}")


def _best_level(curves: Array) -> int:
    """Return the index of the level that is best with those around it, which differ by chance."""
    around = np.ones(N_AROUND) / N_AROUND
    return int(np.convolve(curves.mean(axis=0), around, "valid").argmax()) + N_AROUND // 2


# Agreement


def agreement(count: int | None) -> None:
    """Print which share of the pixels keeps its label, labels matched as well as they can be."""
    rows = []
    for _, image in photographs(count):
        plain = np.asarray(click(image).labels)
        brighter = np.clip(np.rint(1.1 * image.astype(float)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        iio.imwrite(file, image, extension=".jpg", quality=70)
        jpeg = iio.imread(file.getvalue(), extension=".jpg")
        others = ((image, 1), (brighter, 0), (image[1:, 1:], 0), (jpeg, 0))
        rows.append(
            [
                saf.metrics.matched_accuracy(
                    plain[-len(other) :, -other.shape[1] :], np.asarray(found.labels)
                )
                for other, seed in others
                for found in [click(other, seed=seed)]
            ]
        )
    print(f"\n{len(rows)} photographs: share of the pixels that keep their label")
    for name, column in zip(
        ("other seed", "brighter", "cut", "JPEG"), np.array(rows).T, strict=True
    ):
        below = f"least {column.min():.3f}, below nine tenths {(column < 0.9).sum()}"
        print(f"{name:28} {_mean(column)}, {below}")


# Number of labels


def mosaics(count: int) -> Iterator[tuple[Pixels, Labels]]:
    """Yield images of four textures each, and which is where."""
    names = sorted({path.stem.split("_")[0] for path in DATA.glob("brodatz/*/*.png")})
    for seed in range(count if names else 0):
        rng = np.random.default_rng(seed)
        files = [
            sorted(DATA.glob(f"brodatz/*/{name}_*.png")) for name in rng.permutation(names)[:4]
        ]
        tiles = [iio.imread(own[rng.integers(len(own))])[:128, :128] for own in files]
        yield np.block([tiles[:2], tiles[2:]]), QUARTERS


def facades(count: int) -> Iterator[tuple[Pixels, Labels]]:
    """Yield images of four facades each, and which is where."""
    tiles = [iio.imread(p)[:128, :128, :3] for p in sorted(DATA.glob("facades/brick/*/*.png"))]
    for seed in range(count if tiles else 0):
        one, two, three, four = np.random.default_rng(seed).permutation(len(tiles))[:4]
        image = np.block([[[tiles[one]], [tiles[two]]], [[tiles[three]], [tiles[four]]]])
        yield image, QUARTERS


def nuclei() -> Iterator[tuple[Pixels, Labels]]:
    for path in sorted(
        p for name in ("nuclei", "nuclei_more") for p in DATA.glob(f"{name}/images/*")
    ):
        truth = iio.imread(path.parents[1] / "labels" / path.name)
        yield iio.imread(path), 1 + (truth > 0)


def counts(count: int | None) -> None:
    """Print the covering with fixed numbers of labels, and with the automatic one."""
    sets: dict[str, list[tuple[Pixels, Any, int]]] = {
        "photographs, parts": [(i, p.references, 400) for p, i in photographs(count or 40)],
        "nuclei, kinds": [(i, [t], 0) for i, t in nuclei()][:: 60 // min(count or 20, 60)],
        "mosaics, parts": [(i, [t], 400) for i, t in mosaics(min(count or 12, 12))],
    }
    scores, chosen, owners, as_it_is = [], [], [], []
    for name, items in sets.items():
        for image, references, least in items:
            runs = [np.asarray(click(image, max_labels=k).labels) for k in COUNTS]
            scores.append([segmentation_covering(split(one, least), references) for one in runs])
            first = click(image)
            covering = segmentation_covering(split(np.asarray(first.labels), least), references)
            as_it_is.append([covering, len(first.history.label_shares[0])])
            problem = problem_of(image)
            points = np.asarray(problem.graph.average(problem.features))
            chosen.append([len(global_means(points, COUNTS[-1], share)) for share in SHARES])
            owners.append(name)
    table, numbers, kinds = np.array(scores), np.array(chosen), np.array(owners)
    auto = np.take_along_axis(table, numbers - COUNTS[0], axis=1)
    folds = np.arange(len(table)) % N_FOLDS
    print(
        "\ncovering"
        + " " * 14
        + "".join(f"{k:7}" for k in COUNTS)
        + "   as it is (labels)   held out (labels)"
    )
    weights = np.array([1 / (kinds == kind).sum() for kind in kinds])
    best = [
        int((auto * weights[:, None])[folds != fold].sum(axis=0).argmax())
        for fold in range(N_FOLDS)
    ]
    held_out = auto[np.arange(len(table)), np.array(best)[folds]]
    own = numbers[np.arange(len(table)), np.array(best)[folds]]
    for name in sets:
        rows = kinds == name
        fixed = "".join(f"{x:7.3f}" for x in table[rows].mean(axis=0))
        now = np.array(as_it_is)[rows].mean(axis=0)
        held = f"{_mean(held_out[rows])} ({own[rows].mean():.1f})"
        print(f"{name:22}{fixed}   {now[0]:.3f} ({now[1]:.1f})   {held}")
    print(f"share of variance left, by fold: {[SHARES[k] for k in best]}")


# All of it together


def nested(count: int | None) -> None:
    """Print what settings give that were chosen on other images, beside the defaults."""
    items: list[tuple[str, Pixels, Any, int]]
    items = [("photographs", i, p.references, 400) for p, i in photographs(count or 40)]
    items += [("nuclei", i, [t], 0) for i, t in nuclei()][:: 60 // min(count or 20, 60)]
    items += [("mosaics", i, [t], 400) for i, t in mosaics(min(count or 12, 12))]
    items += [("facades", i, [t], 400) for i, t in facades(min(count or 12, 6))]
    kinds = np.array([kind for kind, *_ in items])

    @functools.cache
    def coverings(k: int, setting: Setting) -> Array:
        return _coverings(*items[k], dict(zip(CHOICES, setting, strict=True)))

    def table(rows: NDArray[np.int64], setting: Setting) -> Array:
        return np.array([coverings(int(k), setting) for k in rows])

    def score(rows: NDArray[np.int64], setting: Setting) -> Array:
        own, of = table(rows, setting), kinds[rows]
        alone = sum(own[of == kind, -1].mean() for kind in np.unique(of))
        return np.asarray(own[of == "photographs", :-1].mean(axis=0) + alone)

    def best(rows: NDArray[np.int64]) -> tuple[Setting, int]:
        """Return the setting and the level, found by changing one thing after another, twice."""
        now = DEFAULTS
        for at, values in 2 * list(enumerate(CHOICES.values())):
            tried = [(*now[:at], value, *now[at + 1 :]) for value in values]
            now = max(tried, key=lambda setting: float(score(rows, setting).max()))
        return now, int(score(rows, now).argmax())

    every, held_out = np.arange(len(items)), np.empty((len(items), 2))
    for fold in range(N_FOLDS):
        setting, level = best(every[every % N_FOLDS != fold])
        print(f"fold {fold + 1}: {setting}, level {LEVELS[level]:.2f}", flush=True)
        own = every[every % N_FOLDS == fold]
        held_out[own] = table(own, setting)[:, [level, -1]]
    setting, level = best(every)
    print(f"best of all: {setting}, level {LEVELS[level]:.2f}\n{'covering':24} held out")
    usual = int(np.abs(LEVELS - USUAL_LEVEL).argmin())
    for kind, column in (("photographs", 0), *((kind, 1) for kind in np.unique(kinds))):
        rows = every[kinds == kind]
        found = held_out[rows, column]
        ours = table(rows, DEFAULTS)[:, (usual, -1)[column]]
        tuned = table(rows, setting)[:, (level, -1)[column]]
        print(
            f"{kind + (', regions', ', labels')[column]:24} {_mean(found)}; defaults "
            f"{_mean(ours)}, ahead by {_mean(found - ours)}; best of all {_mean(tuned)}"
        )


def trade(count: int | None) -> None:
    """Print what changing one setting gives, and what time it takes."""
    settings = [dict(zip(CHOICES, DEFAULTS, strict=True))]
    settings += [settings[0] | {name: x} for name, own in CHOICES.items() for x in own[1:]]
    scores: list[list[float]] = [[] for _ in settings]
    seconds: list[list[float]] = [[] for _ in settings]
    for photograph, image in photographs(count or 40):
        for k, setting in enumerate(settings):
            began = time.process_time()
            labels = _labels(image, setting)
            regions = saf.merge_regions(labels, image).at_level()
            seconds[k].append(time.process_time() - began)
            scores[k].append(segmentation_covering(regions, photograph.references))
    print(f"\n{len(scores[0])} photographs: regions in view, ahead of defaults, processor seconds")
    for setting, own, spent in zip(settings, scores, seconds, strict=True):
        changed = {name: x for name, x in setting.items() if x != settings[0][name]}
        shown, ahead = _mean(np.array(own)), _mean(np.subtract(own, scores[0]))
        print(f"{changed or 'defaults'!s:28} {shown}  {ahead}  {np.median(spent):.2f}")


def _coverings(
    kind: str, image: Pixels, references: Sequence[Labels], least: int, setting: dict[str, Any]
) -> Array:
    """Return the coverings of regions at all levels, 0 but for photographs, and of the labels."""
    labels = _labels(image, setting)
    curve = [0.0] * len(LEVELS)
    if kind == "photographs":
        tree = saf.merge_regions(labels, image)
        curve = [segmentation_covering(tree.at_level(x), references) for x in LEVELS]
    return np.array([*curve, segmentation_covering(split(labels, least), references)])


def _labels(image: Pixels, setting: dict[str, Any]) -> Labels:
    features = setting["features"]
    if features == "colour":
        features = "lab" if image.ndim == 3 else "intensity"
    problem = saf.Problem.from_image(
        image, features=features, window=setting["window"], max_side=setting["max_side"]
    )
    points = np.asarray(problem.graph.average(problem.features))
    number = len(global_means(points, COUNTS[-1], setting["share"]))
    method = saf.SelfAssignmentFlow(max_labels=number, start=setting["start"])
    return np.asarray(method.run(problem).labels)


def _mean(values: Array) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


PARTS = {
    "labels": labels,
    "weights": weights,
    "agreement": agreement,
    "count": counts,
    "nested": nested,
    "trade": trade,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="by default all")
    parser.add_argument("--images", type=int, metavar="N", help="about N images of each kind only")
    options = parser.parse_args(arguments)
    if not DATA.is_dir():
        print(f"skipped: no {DATA}; see NAPARI_SAF_DATA")
        return 0
    for part in options.parts or PARTS:
        PARTS[part](options.images)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
