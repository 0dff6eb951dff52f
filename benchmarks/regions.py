"""Region quality on photographs with human segmentations: SAF beside its peers.

Every method labels every photograph at every one of its settings; every label map is scored by
the same code. ODS is the best fixed setting over the set, OIS the best setting per image; "held
out" gives each image the setting that is best over the others.

    python benchmarks/regions.py            # all photographs
    python benchmarks/regions.py --fast     # three photographs

The photographs are sought in the folder bsds_dev under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, gaussian_filter
from skimage import graph
from skimage.color import rgb2lab
from skimage.io import imread
from skimage.measure import label as connected_components
from skimage.segmentation import felzenszwalb, slic
from skimage.transform import downscale_local_mean
from sklearn.cluster import KMeans
from sklearn.kernel_approximation import Nystroem

import napari_saf as saf
from napari_saf.metrics import region_agreement

Labels = NDArray[np.integer[Any]]
Features = NDArray[np.float32]
Maps = Iterator[tuple[str, Labels, float]]
"""Setting, label map, processor seconds it takes to make."""

FRAGMENTS = (0, 400)
"""Post-processing, the same for all methods: labels as they are (0), or split into connected
components, those of fewer pixels than this given to the nearest other one."""

MEASURES = ("covering", "PRI", "VI")
_SIGN = np.array([1, 1, -1])


@dataclasses.dataclass(frozen=True, eq=False)
class Photograph:
    """A photograph, what people saw in it, and a smaller version."""

    image: NDArray[np.float32]
    references: NDArray[np.uint16]
    shrink: int

    @classmethod
    def read(cls, folder: Path, name: str, shrink: int) -> Photograph:
        """Return the photograph of this name."""
        image = imread(folder / "images" / f"{name}.jpg").astype(np.float32) / 255
        with np.load(folder / "groundtruth" / f"{name}.npz", allow_pickle=False) as archive:
            return cls(image, archive["segmentation"], shrink)

    @functools.cached_property
    def small(self) -> NDArray[np.float32]:
        """Block means of the image."""
        k = self.shrink
        height, width, _ = self.image.shape
        padded = np.pad(self.image, ((0, -height % k), (0, -width % k), (0, 0)), mode="edge")
        return np.asarray(downscale_local_mean(padded, (k, k, 1)), dtype=np.float32)

    def enlarge(self, labels: Labels) -> Labels:
        """Return labels of the small version in the size of the photograph."""
        height, width, _ = self.image.shape
        large = labels.repeat(self.shrink, axis=0).repeat(self.shrink, axis=1)
        return large[:height, :width]


# What methods that work on features of pixels may be given


def colour(photograph: Photograph) -> Features:
    """Lab / 100 of the small version."""
    return np.asarray(rgb2lab(photograph.small) / 100, dtype=np.float32)


def colour_and_position(photograph: Photograph) -> Features:
    """Lab / 100, and the place."""
    return np.concatenate([colour(photograph), place(photograph)], axis=-1)


def colour_and_texture(photograph: Photograph) -> Features:
    """Lab / 100, and the texture."""
    return np.concatenate([colour(photograph), texture(photograph)], axis=-1)


def colour_texture_and_position(photograph: Photograph) -> Features:
    """Lab / 100, the texture, and half the place."""
    return np.concatenate([colour_and_texture(photograph), place(photograph) / 2], axis=-1)


def place(photograph: Photograph) -> Features:
    """Row and column over the longest side."""
    shape = photograph.small.shape[:2]
    places = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
    return np.asarray(places / max(shape), dtype=np.float32)


def texture(photograph: Photograph) -> Features:
    """Twice the standard deviation of L / 100 around the pixel."""
    light = colour(photograph)[..., :1]
    mean = gaussian_filter(light, (2, 2, 0))
    variance = gaussian_filter(light**2, (2, 2, 0)) - mean**2
    return np.asarray(2 * np.sqrt(np.maximum(variance, 0)), dtype=np.float32)


FEATURES: dict[str, Callable[[Photograph], Features]] = {
    "lab": colour,
    "lab+position": colour_and_position,
    "lab+texture": colour_and_texture,
    "lab+texture+position": colour_texture_and_position,
}


Average = tuple[Literal["uniform", "nonlocal", "contrast"], int]
"""Weights and window of averages: of the flow in SAF, of the features in the other methods."""


def problem_of(photograph: Photograph, features: str, average: Average) -> saf.Problem:
    """Return the small version as a problem."""
    weights, window = average
    return saf.Problem.from_image(
        photograph.small, features=FEATURES[features](photograph), weights=weights, window=window
    )


def averaged(photograph: Photograph, features: str, average: Average) -> Features:
    """Return features (n_pixels, n_features) of the small version, averaged."""
    problem = problem_of(photograph, features, average)
    return np.asarray(problem.graph.average(problem.features))


# Methods: each yields a label map, numbered from 1, for every one of its settings.
# docs/regions.md says how the settings were chosen.


def self_assignment(photograph: Photograph, s: float, rho: float) -> Maps:
    """SAF on the small version, started at spectral clusters."""
    averages: tuple[Average, ...] = (("nonlocal", 7), ("contrast", 25))
    for name, average, n_labels, sigma2 in itertools.product(
        ("lab+texture", "lab+texture+position"), averages, (2, 3, 4, 6), (0.03, 0.1, 0.3)
    ):
        began = time.process_time()
        method = saf.SelfAssignmentFlow(
            s=s,
            max_labels=n_labels,
            start="spectral",
            epsilon=1.0,
            rho=rho,
            affinity=saf.GaussianAffinity(sigma2=sigma2),
            stop=saf.StoppingRule(entropy=1e-2, max_steps=150),
        )
        problem = problem_of(photograph, name, average)
        labels = photograph.enlarge(np.asarray(method.run(problem).labels))
        seconds = time.process_time() - began
        setting = f"{name}, {_words(average)}, c = {n_labels}, sigma2 = {sigma2}"
        yield setting, labels, seconds


def k_means(photograph: Photograph) -> Maps:
    """Lloyd's algorithm on averaged features of the small version."""
    averages: tuple[Average, ...] = (("uniform", 3), ("nonlocal", 11), ("contrast", 25))
    for name, average, n_labels in itertools.product(
        ("lab+position", "lab+texture", "lab+texture+position"), averages, (2, 3, 4, 6, 8)
    ):
        began = time.process_time()
        labels = clusters(averaged(photograph, name, average), n_labels, photograph)
        seconds = time.process_time() - began
        yield f"{name}, {_words(average)}, k = {n_labels}", labels, seconds


def spectral_clustering(photograph: Photograph) -> Maps:
    """Normalised cuts of the Gaussian affinity of the features, by the Nystroem method."""
    average: Average = ("contrast", 15)
    for name, sigma2 in itertools.product(
        ("lab", "lab+texture", "lab+texture+position"), (0.03, 0.1, 0.3)
    ):
        began = time.process_time()
        sketch = Nystroem(gamma=1 / sigma2, n_components=100, random_state=0)
        basis = sketch.fit_transform(averaged(photograph, name, average))
        degrees = np.maximum(basis @ basis.sum(axis=0), 1e-6)
        vectors = np.linalg.svd(basis / np.sqrt(degrees)[:, None], full_matrices=False)[0]
        shared = time.process_time() - began
        for n_labels in (2, 3, 4, 6, 8):
            began = time.process_time()
            rows = vectors[:, :n_labels]
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            labels = clusters(rows, n_labels, photograph)
            setting = f"{name}, {_words(average)}, k = {n_labels}, sigma2 = {sigma2}"
            yield setting, labels, shared + time.process_time() - began


def clusters(rows: Features, n_labels: int, photograph: Photograph) -> Labels:
    """Return the clusters of the pixels of the small version by k-means, in full size."""
    fitted = KMeans(n_labels, n_init=3, random_state=0).fit(rows)
    return photograph.enlarge(fitted.labels_.reshape(photograph.small.shape[:2]) + 1)


def _words(average: Average) -> str:
    weights, window = average
    return f"{weights} window {window}"


def graph_based(photograph: Photograph) -> Maps:
    """Felzenszwalb and Huttenlocher's method on the photograph in full size."""
    for scale, sigma, size in itertools.product(
        (100, 200, 300, 400, 600, 800, 1200, 1600, 2400), (0.8, 1.5), (400, 1200)
    ):
        began = time.process_time()
        labels = felzenszwalb(photograph.image, scale=scale, sigma=sigma, min_size=size) + 1
        setting = f"scale = {scale}, sigma = {sigma}, min_size = {size}"
        yield setting, labels, time.process_time() - began


def merged_superpixels(photograph: Photograph) -> Maps:
    """SLIC in full size, then the regions of most similar mean Lab merged, one pair at a time."""
    lab = rgb2lab(photograph.image)
    for n_segments, compactness in itertools.product((200, 600), (10, 20)):
        began = time.process_time()
        pixels = slic(photograph.image, n_segments, compactness, start_label=0)
        regions = graph.rag_mean_color(lab, pixels)
        for threshold in (8, 12, 16, 20, 25, 30):
            # The graph keeps what was merged: a larger threshold goes on where this one ends.
            labels = 1 + graph.merge_hierarchical(
                pixels, regions, threshold, False, True, _merge_colours, _colour_distance
            )
            setting = f"n_segments = {n_segments}, compactness = {compactness}, cut = {threshold}"
            yield setting, labels, time.process_time() - began


def _merge_colours(regions: Any, source: int, target: int) -> None:
    """Add the colour of a region to the one that takes it in."""
    own, other = regions.nodes[target], regions.nodes[source]
    own["total color"] += other["total color"]
    own["pixel count"] += other["pixel count"]
    own["mean color"] = own["total color"] / own["pixel count"]


def _colour_distance(regions: Any, source: int, target: int, other: int) -> dict[str, float]:
    """Return the edge from a merged region to a neighbour."""
    step = regions.nodes[target]["mean color"] - regions.nodes[other]["mean color"]
    return {"weight": float(np.linalg.norm(step))}


METHODS: dict[str, Callable[[Photograph], Maps]] = {
    "SAF, s = 0": functools.partial(self_assignment, s=0, rho=0.02),
    "SAF, s = 0.5": functools.partial(self_assignment, s=0.5, rho=0.02),
    "SAF, s = 1": functools.partial(self_assignment, s=1, rho=0.1),
    "k-means": k_means,
    "spectral (Nystroem)": spectral_clustering,
    "Felzenszwalb": graph_based,
    "SLIC + merging": merged_superpixels,
}


# Scores


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Scores (n_settings, n_fragments, n_measures) of a method on a photograph, and seconds."""

    settings: list[str]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64]


def split(labels: Labels, fragments: int) -> Labels:
    """Return the connected components, those that are too small given to the nearest other."""
    if fragments == 0:
        return labels
    parts = np.asarray(connected_components(labels, connectivity=1))
    small = (np.bincount(parts.ravel()) < fragments)[parts]
    if small.all() or not small.any():
        return parts
    nearest = distance_transform_edt(small, return_distances=False, return_indices=True)
    return np.asarray(parts[tuple(nearest)])


@dataclasses.dataclass(frozen=True)
class Task:
    """What to do with a photograph."""

    folder: Path
    shrink: int
    methods: tuple[str, ...]
    cache: Path | None

    def __call__(self, name: str) -> dict[str, Scores]:
        """Return the scores of the methods on the photograph of this name."""
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        photograph = Photograph.read(self.folder, name, self.shrink)
        found = {method: self._scores(method, name, photograph) for method in self.methods}
        print(f"{name} done", file=sys.stderr, flush=True)
        return found

    def _scores(self, method: str, name: str, photograph: Photograph) -> Scores:
        if self.cache is None:
            return score(METHODS[method](photograph), photograph)
        path = self.cache / f"{name} {method}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as archive:
                return Scores(list(archive["settings"]), archive["values"], archive["seconds"])
        scores = score(METHODS[method](photograph), photograph)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **dataclasses.asdict(scores))
        return scores


def score(maps: Maps, photograph: Photograph) -> Scores:
    """Return the scores of label maps."""
    rows = []
    for setting, labels, seconds in maps:
        parts = (split(labels, fragments) for fragments in FRAGMENTS)
        agreements = [region_agreement(part, photograph.references) for part in parts]
        rows.append((setting, [dataclasses.astuple(a) for a in agreements], seconds))
    settings, values, seconds_each = zip(*rows, strict=True)
    return Scores(list(settings), np.array(values), np.array(seconds_each))


# Tables


def table(results: Sequence[dict[str, Scores]], which: int) -> Iterator[str]:
    """Yield the lines of the table for one post-processing."""
    columns = [f"{m} {kind}" for m in MEASURES for kind in ("ODS", "OIS")]
    yield f"| method | settings | {' | '.join(columns)} | s/image | setting at ODS covering |"
    yield f"|---|---|{'---|' * (len(columns) + 2)}"
    for method in results[0]:
        own = [result[method] for result in results]
        values = np.stack([scores.values[:, which] for scores in own]) * _SIGN
        fixed = values.mean(axis=0)
        best, best_each = fixed.max(axis=0) * _SIGN, values.max(axis=1).mean(axis=0) * _SIGN
        chosen = int(fixed[:, 0].argmax())
        numbers = [f"{x:.3f}" for pair in zip(best, best_each, strict=True) for x in pair]
        seconds = statistics.median(scores.seconds[chosen] for scores in own)
        yield (
            f"| {method} | {len(fixed)} | {' | '.join(numbers)} | {seconds:.2f} | "
            f"{own[0].settings[chosen]} |"
        )


def behind(results: Sequence[dict[str, Scores]], which: int) -> Iterator[str]:
    """Yield the lines of the table of how far each method is behind the first in covering."""
    yield "| method | held out | behind held out | behind in ODS | behind in OIS |"
    yield "|---|---|---|---|---|"
    covering = {
        method: np.stack([result[method].values[:, which, 0] for result in results])
        for method in results[0]
    }
    held_out = {method: _held_out(own) for method, own in covering.items()}
    fixed = {method: own[:, own.mean(axis=0).argmax()] for method, own in covering.items()}
    free = {method: own.max(axis=1) for method, own in covering.items()}
    for method in covering:
        distances = (_behind_first(method, own) for own in (held_out, fixed, free))
        yield f"| {method} | {held_out[method].mean():.3f} | {' | '.join(distances)} |"


def _held_out(covering: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, of a table (n_images, n_settings), each row's entry at the others' best setting."""
    others = covering.sum(axis=0) - covering
    return np.take_along_axis(covering, others.argmax(axis=1)[:, None], axis=1)[:, 0]


def _behind_first(method: str, covering: dict[str, NDArray[np.float64]]) -> str:
    first = max(covering, key=lambda other: float(covering[other].mean()))
    if method == first:
        return "first"
    difference = covering[first] - covering[method]
    error = difference.std(ddof=1) / len(difference) ** 0.5
    return f"{difference.mean():.3f} ± {error:.3f}"


def report(results: Sequence[dict[str, Scores]], shrink: int) -> str:
    """Return the tables in markdown."""
    lines = [
        f"{len(results)} photographs. SAF, k-means and spectral clustering at 1/{shrink} of the "
        "side lengths, the others in full size. Seconds are processor time at the setting named, "
        "median over photographs."
    ]
    for which, fragments in enumerate(FRAGMENTS):
        title = "Labels as they are"
        if fragments:
            title = f"Connected components of at least {fragments} pixels"
        lines += ["", f"### {title}", "", *table(results, which), "", *behind(results, which)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, metavar="N", help="the first N photographs only")
    parser.add_argument("--fast", action="store_true", help="three photographs")
    parser.add_argument("--shrink", type=int, default=4, help="size at which features are taken")
    parser.add_argument("--only", default="", help="methods with this in their name")
    parser.add_argument("--cache", type=Path, help="folder of scores to use and to add to")
    parser.add_argument("--jobs", type=int, default=1, help="photographs at a time")
    parser.add_argument("-o", "--output", type=Path, help="write the tables there, too")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[1]
    data = Path(os.environ.get("NAPARI_SAF_DATA", root.parent / "shared" / "data"))
    folder = data / "bsds_dev"
    names = sorted(path.stem for path in (folder / "images").glob("*.jpg"))
    if not names:
        print(f"skipped: no photographs in {folder}; see NAPARI_SAF_DATA")
        return 0
    names = names[:: max(1, len(names) // 3)][:3] if options.fast else names[: options.images]
    methods = tuple(method for method in METHODS if options.only.lower() in method.lower())
    work = Task(folder, options.shrink, methods, options.cache)
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(work, names))
    text = report(results, options.shrink)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
