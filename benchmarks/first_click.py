#!/usr/bin/env python
"""The first click on nuclei beside thresholds, k-means and Felzenszwalb's regions.

    python benchmarks/first_click.py                # all tables but the last: 10 minutes
    python benchmarks/first_click.py peers --images 12
    python benchmarks/first_click.py sizes [--sides 1 2 4 8 16] [--names fluor_01] [--no-peers]

peers     F1 of the foreground, and average precision of objects (at an IoU of .5, after
          `split_objects`), of what a first click gives and of peers, each at the one setting that
          is best for all; on how many images the first click is ahead of that setting.
halves    window and number of labels of a first click chosen on every second image, reported on
          the others, and peers likewise.
choice    which images are taken for things on a ground, of nuclei and photographs, and the time
          that takes.
sizes     how good labels stay as an image grows, and how long they take. A sheet is k x k mirrored
          copies of 256 x 256 pixels of nuclei, which keep their size. Strokes lie in the first copy
          only, the same at every size; ``--light`` lets the light fall to a third across the sheet.
          Columns: F1 of the foreground and F of its border within 1 pixel, seconds, and the memory
          of the process so far, for strokes (what the Scribbles dock does), a first click, the same
          without full resolution ("size alone"), a random forest on scikit-image's multi-scale
          features from these strokes, and SLIC with 4,000 segments.

Each label is called nucleus or ground by what most of its pixels are. Felzenszwalb's regions are
put into four kinds by k-means of their mean colours. Images are cut to 640 x 640 (nuclei) or
400 x 400 (nuclei_more). They are sought under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scribbles import NUCLEUS, Strokes, draw, f1, forest_of_scales
from skimage.color import rgb2gray, rgb2lab
from skimage.filters import threshold_local, threshold_multiotsu, threshold_otsu
from skimage.segmentation import felzenszwalb, slic
from sklearn.cluster import KMeans

import napari_saf as saf
from napari_saf.features import Foreground, ground_of
from napari_saf.flow import wait_for_kernels

Labels = NDArray[np.integer[Any]]
Pixels = NDArray[np.uint8]
Image = NDArray[Any]
Mask = NDArray[np.bool_]
DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data"))
ABOVE = float(np.nextafter(0.5, 1))
"""The least intersection over union above .5."""
SETS = {"nuclei": 640, "nuclei_more": 400}
CLICK = "first click"
MOST_LABELS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """An image, its nuclei numbered, and the set it is of."""

    image: Pixels
    nuclei: Labels
    origin: str

    @functools.cached_property
    def grey(self) -> NDArray[np.float64]:
        return rgb2gray(self.image) if self.image.ndim == 3 else self.image / 255

    @functools.cached_property
    def lab(self) -> NDArray[np.float64]:
        return rgb2lab(self.image) if self.image.ndim == 3 else 100 * self.grey[..., None]


def samples(count: int | None) -> list[Sample]:
    """Return the samples, or about so many, evenly spaced."""
    found = []
    for name, side in SETS.items():
        for path in sorted((DATA / name / "images").glob("*")):
            nuclei = iio.imread(next((DATA / name / "labels").glob(f"{path.stem}.*")))
            image = iio.imread(path)[:side, :side]
            found.append(Sample(image, nuclei[:side, :side].astype(int), name))
    return found[:: max(1, len(found) // count) if count else 1]


# Ways to label


def click(sample: Sample, window: Any = "auto", n_bright: int | None = None) -> Labels:
    """Return the labels of a first click; so many at most, where the ground is bright."""
    problem = saf.Problem.from_image(sample.image, window=window)
    assert problem.options is not None
    extractor = problem.options.extractor
    is_bright = isinstance(extractor, Foreground) and extractor.ground == "bright"
    method = saf.SelfAssignmentFlow(max_labels=n_bright if is_bright else None)
    return np.asarray(method.run(problem).labels)


def multi_otsu(count: int, sample: Sample) -> Labels:
    try:
        found = np.digitize(sample.grey, threshold_multiotsu(sample.grey, count))
    except ValueError:  # fewer values than classes
        found = sample.grey > threshold_otsu(sample.grey)
    return np.asarray(1 + found)


def local_threshold(side: int, offset: float, sample: Sample) -> Labels:
    """Return what is brighter than a Gaussian mean around it by a part of the range."""
    grey = gaussian_filter(sample.grey, 1)
    apart = grey - threshold_local(grey, side, "gaussian")
    return np.asarray(1 + np.digitize(apart, np.array([-offset, offset]) * np.ptp(grey)))


def k_means(values: str, sigma: float, count: int, sample: Sample) -> Labels:
    image = getattr(sample, values).reshape(*sample.grey.shape, -1)
    points = gaussian_filter(image, (sigma, sigma, 0)).reshape(-1, image.shape[-1])
    means = KMeans(count, n_init=3, random_state=0).fit(points[::7])
    return np.asarray(1 + means.predict(points).reshape(sample.grey.shape))


def regions(scale: float, sample: Sample) -> Labels:
    found = felzenszwalb(sample.image, scale=scale, sigma=0.8, min_size=20).ravel()
    flat = sample.lab.reshape(found.size, -1)
    sizes = np.bincount(found)
    means = np.stack([np.bincount(found, weights=one) / sizes for one in flat.T], axis=1)
    count = min(MOST_LABELS, len(sizes))
    kinds = KMeans(count, n_init=3, random_state=0).fit_predict(means, sample_weight=sizes)
    return np.asarray(1 + kinds[found].reshape(sample.grey.shape))


PEERS: dict[str, dict[str, Callable[[Sample], Labels]]] = {
    "Otsu": {"": functools.partial(multi_otsu, 2)},
    "multi-Otsu": {f"{k} classes": functools.partial(multi_otsu, k) for k in (3, 4)},
    "local threshold": {
        f"side {side}, offset {offset}": functools.partial(local_threshold, side, offset)
        for side in (31, 61, 101, 151)
        for offset in (0, 0.02, 0.05, 0.1)
    },
    "k-means, intensity": {
        f"{k} means, sigma {sigma}": functools.partial(k_means, "grey", sigma, k)
        for k in (2, 3, 4)
        for sigma in (0.5, 1)
    },
    "k-means, L*a*b*": {
        f"{k} means, sigma {sigma}": functools.partial(k_means, "lab", sigma, k)
        for k in (2, 3, 4)
        for sigma in (0.5, 1)
    },
    "Felzenszwalb": {
        f"scale {scale}": functools.partial(regions, scale) for scale in (10, 30, 100, 300)
    },
}
CLICKS: dict[str, Callable[[Sample], Labels]] = {
    f"window {window}, {n_bright} labels on bright ground": functools.partial(
        click, window=window, n_bright=n_bright
    )
    for window in (3, 5, 7)
    for n_bright in (3, 4)
}

# Scores


def named(labels: Labels, truth: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Call each label nucleus or ground, by what most of its pixels are."""
    inside = np.bincount(labels.ravel(), weights=truth.ravel())
    return np.asarray((inside > np.bincount(labels.ravel()) / 2)[labels])


def average_precision(mask: NDArray[np.bool_], sample: Sample) -> float:
    """Return the share of objects, found or true, that have a partner with an IoU above .5.

    The mask of any way is split at the edges of the image, too, as the Objects dock does.
    """
    if not mask.any():
        return 0.0
    found = saf.split_objects(mask.astype(np.uint8), image=sample.image)
    return saf.metrics.score_objects(found.labels, sample.nuclei, [ABOVE]).precision[ABOVE]


def scores(way: Callable[[Sample], Labels], every: Sequence[Sample]) -> NDArray[np.float64]:
    return np.array([f1(named(way(one), one.nuclei > 0), one.nuclei > 0) for one in every])


def precisions(way: Callable[[Sample], Labels], every: Sequence[Sample]) -> NDArray[np.float64]:
    masks = (named(way(one), one.nuclei > 0) for one in every)
    return np.array([average_precision(mask, one) for mask, one in zip(masks, every, strict=True)])


# Parts


def peers(every: list[Sample]) -> None:
    """Print a row a way: F1 and average precision by set, and wins of the first click."""
    origin = np.array([one.origin for one in every])
    runs = [click(one) for one in every]
    own = np.array(
        [
            f1(named(labels, one.nuclei > 0), one.nuclei > 0)
            for labels, one in zip(runs, every, strict=True)
        ]
    )
    most = max(int(labels.max()) for labels in runs)
    print(f"{len(every)} images, least F1 {own.min():.3f}, at most {most} labels")
    kept = dict(zip(map(id, every), runs, strict=True))
    _row(CLICK, "", own, precisions(lambda one: kept[id(one)], every), origin, None)
    for name, settings in PEERS.items():
        found = {setting: scores(way, every) for setting, way in settings.items()}
        best = max(found, key=lambda setting: float(found[setting].mean()))
        average = precisions(settings[best], every)
        _row(name, best, found[best], average, origin, int((own > found[best]).sum()))


def _row(
    name: str,
    setting: str,
    own: NDArray[np.float64],
    average: NDArray[np.float64],
    origin: NDArray[np.str_],
    n_wins: int | None,
) -> None:
    cells = [f"F1 {own.mean():.3f}  AP {average.mean():.3f}"]
    for kind in SETS:
        rows = origin == kind
        if rows.any():
            cells.append(f"{kind} {own[rows].mean():.3f} {average[rows].mean():.3f}")
    wins = "" if n_wins is None else f"first click ahead on {n_wins} of {len(own)}"
    print(f"{name:20}", *cells, wins, setting, sep="  ", flush=True)


def halves(every: list[Sample]) -> None:
    """Print what settings give that are best on the other half."""
    second = np.arange(len(every)) % 2
    for name, settings in {CLICK: CLICKS, **PEERS}.items():
        table = {setting: scores(way, every) for setting, way in settings.items()}
        held_out, chosen = np.empty(len(every)), []
        for half in (0, 1):
            best = max(table, key=lambda one: float(table[one][second != half].mean()))
            chosen.append(best)
            held_out[second == half] = table[best][second == half]
        means = [held_out[second == half].mean() for half in (0, 1)]
        print(
            f"{name:20}  F1 {held_out.mean():.3f}, by half {means[0]:.3f} {means[1]:.3f}"
            f"  {'; '.join(dict.fromkeys(chosen))}",
            flush=True,
        )


def photographs() -> Iterator[Pixels]:
    for name in ("bsds_dev", "bsds_more"):
        yield from map(iio.imread, sorted((DATA / name / "images").glob("*")))


def choice(every: list[Sample]) -> None:
    """Print how many images have a ground."""
    for name, images in (("nuclei", (one.image for one in every)), ("photographs", photographs())):
        grounds, seconds = [], []
        for image in images:
            array = image[..., None] if image.ndim == 2 else image[..., :3]
            began = time.process_time()
            grounds.append(ground_of([array], [None]))
            seconds.append(time.process_time() - began)
        counts = {str(one): grounds.count(one) for one in ("dark", "bright", None)}
        print(f"{name:12} {counts}, {1000 * np.median(seconds):.0f} ms", flush=True)


# Sheets


def sheet(array: Image, k: int) -> Image:
    """Return k x k copies, every second one mirrored, so that nothing jumps where they meet."""
    row = np.concatenate([array[:, :: 1 - 2 * (i % 2)] for i in range(k)], axis=1)
    return np.concatenate([row[:: 1 - 2 * (i % 2)] for i in range(k)], axis=0)


def boundary_f(found: Mask, truth: Mask) -> float:
    """Return F of the border pixels within a pixel of a border of the other mask."""
    return saf.metrics.score_pixels(found, truth, widths=[1]).boundary_f1[1]


def from_strokes(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    choice = saf.choose_for_strokes(image, strokes)
    chosen = choice.options.arguments() | options
    problem = saf.Problem.from_image(image, seeds=strokes, **chosen)
    return np.asarray(choice.method.run(problem).labels == NUCLEUS)


def first_click_of(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    labels = saf.SelfAssignmentFlow().run(saf.Problem.from_image(image, **options)).labels
    return named(np.asarray(labels), truth)


def forest_on_sheet(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    return np.asarray(forest_of_scales(image, strokes))


def superpixels(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    axis = -1 if image.ndim == 3 else None
    return named(slic(image, n_segments=4000, channel_axis=axis, start_label=1), truth)


WAYS: dict[str, Callable[..., Mask]] = {
    "strokes": from_strokes,
    "strokes, size alone": lambda *data: from_strokes(*data, full_resolution=False),
    "first click": first_click_of,
    "first click, size alone": lambda *data: first_click_of(*data, full_resolution=False),
    "forest": forest_on_sheet,
    "SLIC": superpixels,
}


def sizes(options: argparse.Namespace) -> None:
    """Print quality and seconds by size of the image."""
    wait_for_kernels()
    print(f"{'':>24} side    F1  border  seconds   us/px    GiB")
    for name in options.names:
        image, objects = read_sheet(name)
        strokes = draw(objects, np.random.default_rng(0))
        print(name, image.shape, image.dtype)
        for k in options.sides:
            large, truth = sheet(image, k), sheet(objects, k) > 0
            if options.light:
                light = 1 - np.add(*np.indices(truth.shape)) / (3 * len(truth))
                light = light.reshape(*light.shape, *[1] * (large.ndim - 2))
                large = (large * light).astype(large.dtype)
            seeds = np.zeros(truth.shape, np.uint8)
            seeds[: strokes.shape[0], : strokes.shape[1]] = strokes
            for way, label in list(WAYS.items())[: 4 if options.no_peers else None]:
                began = time.perf_counter()
                found = label(large, seeds, truth)
                seconds = time.perf_counter() - began
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                print(
                    f"{way:>24} {len(truth):>5} {f1(found, truth):5.3f}   "
                    f"{boundary_f(found, truth):5.3f} {seconds:8.2f} "
                    f"{1e6 * seconds / truth.size:7.2f} {memory:6.2f}",
                    flush=True,
                )


def read_sheet(name: str) -> tuple[Image, Image]:
    """Return the copy that sheets are made of, and its nuclei."""
    pair = (iio.imread(DATA / "nuclei" / kind / f"{name}.png") for kind in ("images", "labels"))
    image, objects = (array[:256, :256, ...] for array in pair)
    return image[..., :3] if image.ndim == 3 else image, objects


PARTS: dict[str, Callable[[list[Sample]], None]] = {
    "peers": peers,
    "halves": halves,
    "choice": choice,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join([*PARTS, "sizes"]))
    parser.add_argument("--images", type=int, metavar="N", help="about N images of nuclei only")
    parser.add_argument("--sides", type=int, nargs="+", default=[1, 2, 4, 8], help="of sheets")
    parser.add_argument("--names", nargs="+", default=["fluor_01", "fluor_19"], help="of sheets")
    parser.add_argument("--light", action="store_true", help="let the light fall across sheets")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args(arguments)
    if not DATA.is_dir():
        print(f"skipped: no {DATA}; see NAPARI_SAF_DATA")
        return 0
    if "sizes" in options.parts:
        sizes(options)
    parts = [part for part in options.parts or PARTS if part != "sizes"]
    every = samples(options.images) if parts else []
    for part in parts:
        PARTS[part](every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
