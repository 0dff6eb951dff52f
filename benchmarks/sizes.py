"""How good labels stay as an image grows, and how long they take, beside two peers.

python benchmarks/sizes.py [--sides 1 2 4 8 16] [--images fluor_01 fluor_19] [--no-peers]

A sheet is k x k mirrored copies of an image of nuclei of 256 x 256 pixels: the nuclei keep their
size, as in the field of a microscope with more pixels. Strokes lie in the first copy only, the same
at every size. ``--light`` lets it fall to a third across the sheet. The columns: F1 of the
foreground and F of its border within 1 pixel, from strokes (what the Scribbles dock does) and of a
first click (each label called by what most of it is); seconds; the same of a random forest on
scikit-image's multi-scale features from these strokes, and the seconds of SLIC with 4,000 segments;
memory of the process so far. Rows of ``size alone`` are the same labels without full resolution.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt
from scribbles_nuclei import NUCLEUS, Strokes, draw, forest_of_scales
from skimage.segmentation import slic

import napari_saf as saf
from napari_saf.flow import wait_for_kernels

DATA = Path(os.environ.get("NAPARI_SAF_DATA", "../shared/data")) / "nuclei"
Image = NDArray[Any]
Mask = NDArray[np.bool_]


def sheet(array: Image, k: int) -> Image:
    """Return k x k copies, every second one mirrored, so that nothing jumps where they meet."""
    row = np.concatenate([array[:, :: 1 - 2 * (i % 2)] for i in range(k)], axis=1)
    return np.concatenate([row[:: 1 - 2 * (i % 2)] for i in range(k)], axis=0)


def border(mask: Mask) -> Mask:
    return np.asarray(mask & ~binary_erosion(mask, border_value=1))


def boundary_f(found: Mask, truth: Mask) -> float:
    """Return F of the border pixels within a pixel of a border of the other mask."""
    ours, theirs = border(found), border(truth)
    if not ours.any():
        return 0.0
    near = [distance_transform_edt(~edge) <= 1 for edge in (ours, theirs)]
    precision, recall = near[1][ours].mean(), near[0][theirs].mean()
    return float(2 * precision * recall / max(1e-9, precision + recall))


def named(labels: Image, truth: Mask) -> Mask:
    """Call every label nucleus or ground, by what most of its pixels are."""
    counts = np.bincount(labels.ravel())
    inside = np.bincount(labels.ravel(), weights=truth.ravel())
    return np.asarray((inside > counts / 2)[labels])


def from_strokes(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    choice = saf.choose_for_strokes(image, strokes)
    chosen = choice.options.arguments() | options
    problem = saf.Problem.from_image(image, seeds=strokes, **chosen)
    return np.asarray(choice.method.run(problem).labels == NUCLEUS)


def first_click(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    labels = saf.SelfAssignmentFlow().run(saf.Problem.from_image(image, **options)).labels
    return named(np.asarray(labels), truth)


def forest(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    return np.asarray(forest_of_scales(image, strokes))


def superpixels(image: Image, strokes: Strokes, truth: Mask, **options: Any) -> Mask:
    axis = -1 if image.ndim == 3 else None
    return named(slic(image, n_segments=4000, channel_axis=axis, start_label=1), truth)


WAYS: dict[str, Callable[..., Mask]] = {
    "strokes": from_strokes,
    "strokes, size alone": lambda *data: from_strokes(*data, full_resolution=False),
    "first click": first_click,
    "first click, size alone": lambda *data: first_click(*data, full_resolution=False),
    "forest": forest,
    "SLIC": superpixels,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--images", nargs="+", default=["fluor_01", "fluor_19"])
    parser.add_argument("--light", action="store_true", help="let the light fall across the sheet")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    wait_for_kernels()
    print(f"{'':>24} side    F1  border  seconds   us/px    GiB")
    for name in options.images:
        image = iio.imread(DATA / "images" / f"{name}.png")[:256, :256]
        objects = iio.imread(DATA / "labels" / f"{name}.png")[:256, :256]
        strokes = draw(objects, np.random.default_rng(0))
        print(name, image.shape, image.dtype)
        for k in options.sides:
            large, truth = sheet(image[..., :3] if image.ndim == 3 else image, k), sheet(objects, k)
            if options.light:
                light = 1 - np.add(*np.indices(truth.shape)) / (3 * len(truth))
                large = (large * light.reshape(*light.shape, *[1] * (large.ndim - 2))).astype(
                    large.dtype
                )
            seeds = np.zeros(truth.shape, np.uint8)
            seeds[: strokes.shape[0], : strokes.shape[1]] = strokes
            for way, label in list(WAYS.items())[: 4 if options.no_peers else None]:
                began = time.perf_counter()
                found = label(large, seeds, truth > 0)
                seconds = time.perf_counter() - began
                both = (found & (truth > 0)).sum()
                f1 = 2 * both / max(1, found.sum() + (truth > 0).sum())
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                print(
                    f"{way:>24} {len(truth):>5} {f1:5.3f}   {boundary_f(found, truth > 0):5.3f} "
                    f"{seconds:8.2f} {1e6 * seconds / truth.size:7.2f} {memory:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
