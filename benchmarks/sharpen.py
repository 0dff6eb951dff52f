"""Borders put where they belong: `saf.sharpen_labels` beside the vote that brings labels up.

True labels are reduced by 4, each block to its most frequent label, and brought up again: exactly,
or with borders off by .7 of a block (a smooth field of displacements with that standard deviation
along each axis). Printed are F-measures of borders within 1 and 2 pixels, means over the images,
and the seconds and processor seconds of 2048 x 2048 pixels.

    python benchmarks/sharpen.py
    python benchmarks/sharpen.py --fast     # three images of each kind

Photographs are sought in the folders bsds_dev and bsds_more, nuclei in nuclei and nuclei_more,
under NAPARI_SAF_DATA (../shared/data).
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, gaussian_filter, zoom
from skimage.io import imread

import napari_saf as saf
from napari_saf.graph import CoarseGrid, GridGraph

Labels = NDArray[Any]
FACTOR = 4
ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("NAPARI_SAF_DATA", ROOT.parent / "shared" / "data"))


def smooth_field(shape: tuple[int, ...], width: float, rng: np.random.Generator) -> NDArray[Any]:
    """Return a random field of standard deviation 1, smooth over `width` blocks."""
    field = gaussian_filter(rng.standard_normal([n // FACTOR for n in shape]), width)
    return np.asarray(zoom(field / field.std(), FACTOR, order=1, grid_mode=True, mode="nearest"))


def reduced(truth: Labels, off: float) -> Labels:
    """Return the most frequent label of each block, after borders were moved by `off` blocks."""
    places = np.indices(truth.shape)
    if off:
        rng = np.random.default_rng(0)
        fields = np.stack([smooth_field(truth.shape, 2, rng) for _ in truth.shape])
        places = np.rint(places + off * FACTOR * fields).astype(int)
    rows, columns = (np.clip(p, 0, n - 1) for p, n in zip(places, truth.shape, strict=True))
    height, width = (n // FACTOR for n in truth.shape)
    moved = truth[rows, columns].reshape(height, FACTOR, width, FACTOR).swapaxes(1, 2)
    blocks = moved.reshape(height, width, -1)
    votes = (blocks[..., None] == blocks[..., None, :]).sum(axis=-1)
    return np.take_along_axis(blocks, votes.argmax(axis=-1)[..., None], axis=-1)[..., 0]


def nearest(labels: Labels, image: NDArray[Any]) -> Labels:
    return np.kron(labels, np.ones((FACTOR, FACTOR), labels.dtype))


def vote(labels: Labels, image: NDArray[Any]) -> Labels:
    grid = CoarseGrid(GridGraph(labels.shape), [FACTOR * n for n in labels.shape])
    return np.asarray(grid.to_image(labels.ravel().astype(np.int64)))


def sharpened(labels: Labels, image: NDArray[Any]) -> Labels:
    return saf.sharpen_labels(nearest(labels, image), image)


def of_the_vote(labels: Labels, image: NDArray[Any]) -> Labels:
    return saf.sharpen_labels(vote(labels, image), image, reach=2 * FACTOR)


WAYS: dict[str, Callable[[Labels, NDArray[Any]], Labels]] = {
    "nearest": nearest,
    "vote": vote,
    "sharpened": sharpened,
    "vote, sharpened": of_the_vote,
}


def borders(labels: Labels) -> NDArray[np.bool_]:
    found = np.zeros(labels.shape, bool)
    found[:-1] |= labels[1:] != labels[:-1]
    found[:, :-1] |= labels[:, 1:] != labels[:, :-1]
    return found


def boundary_f(labels: Labels, truth: Labels) -> list[float]:
    """Return F of the pixels at borders that have one of the other labels within 1, 2 pixels."""
    ours, theirs = borders(labels), borders(truth)
    to_ours, to_theirs = (distance_transform_edt(~edges) for edges in (ours, theirs))
    scores = []
    for tolerance in (1, 2):
        precision = (to_theirs[ours] <= tolerance).mean()
        recall = (to_ours[theirs] <= tolerance).mean()
        scores.append(2 * precision * recall / max(precision + recall, 1e-9))
    return scores


def photographs(folder: str = "bsds_dev", step: int = 1) -> Iterator[tuple[NDArray[Any], Labels]]:
    for path in sorted((DATA / folder / "images").glob("*.jpg"))[::step]:
        with np.load(DATA / folder / "groundtruth" / f"{path.stem}.npz") as archive:
            yield imread(path), archive["segmentation"][0]


def nuclei(folder: str = "nuclei", step: int = 1) -> Iterator[tuple[NDArray[Any], Labels]]:
    for path in sorted((DATA / folder / "images").glob("*.png"))[::step]:
        yield imread(path), imread(DATA / folder / "labels" / path.name)


def synthetic(n_images: int = 4, side: int = 1024) -> Iterator[tuple[NDArray[Any], Labels]]:
    """Yield blobs of six colours, blurred, with noise."""
    for seed in range(n_images):
        rng = np.random.default_rng(seed)
        fields = [smooth_field((side, side), 12, rng) for _ in range(6)]
        truth = np.argmax(fields, axis=0) + 1
        colours = rng.uniform(40, 200, (7, 3))[truth]
        image = gaussian_filter(colours, (0.7, 0.7, 0)) + rng.normal(0, 12, colours.shape)
        yield np.clip(image, 0, 255).astype(np.uint8), truth


SETS: dict[str, Callable[[], Iterator[tuple[NDArray[Any], Labels]]]] = {
    "synthetic": synthetic,
    "photographs": photographs,
    "nuclei": nuclei,
    "other photographs": lambda: itertools.islice(photographs("bsds_more", 4), 20),
    "other nuclei": lambda: nuclei("nuclei_more", 3),
}
"""The last two were not looked at when constants were chosen."""


def row(name: str, n_images: int | None, off: float) -> str:
    """Return a line of the table: F at 1 and 2 pixels, means over the images."""
    scores: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for k, (image, truth) in enumerate(SETS[name]()):
        if k == n_images:
            break
        height, width = (n // FACTOR * FACTOR for n in truth.shape)
        image, truth = image[:height, :width], truth[:height, :width]
        small = reduced(truth, off)
        for way, bring_up in WAYS.items():
            scores[way].append(boundary_f(bring_up(small, image), truth))
    if not scores["vote"]:
        return f"| {name} | skipped: none in {DATA} |"
    means = [np.mean(own, axis=0) for own in scores.values()]
    cells = " | ".join(f"{at_1:.3f} / {at_2:.3f}" for at_1, at_2 in means)
    return f"| {name} ({len(scores['vote'])}), {f'off by {off}' if off else 'exact'} | {cells} |"


def time_of(channels: int) -> str:
    """Return the seconds of an image of 2048 x 2048, the second of two calls."""
    image, truth = next(synthetic(1, 2048))
    image = image if channels > 1 else image[..., 0]
    labels = nearest(reduced(truth, 0.7), image)
    for _ in range(2):
        began, used = time.perf_counter(), time.process_time()
        saf.sharpen_labels(labels, image)
        seconds, processor = time.perf_counter() - began, time.process_time() - used
    return f"2048 x 2048, {channels} channels: {seconds:.2f} s, processor {processor:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="three images of each kind")
    options = parser.parse_args()
    print(f"| F at 1 px / 2 px | {' | '.join(WAYS)} |")
    print(f"|---|{'---|' * len(WAYS)}")
    for name in SETS:
        for off in (0, 0.7):
            print(row(name, 3 if options.fast else None, off), flush=True)
    for channels in (1, 3):
        print(time_of(channels), flush=True)


if __name__ == "__main__":
    main()
