"""Images larger than memory: tiles against the whole image.

python benchmarks/large.py [--mosaics 6] [--windows 3 9 21] [--tiles 128 256 512]

Mosaics of photographs, and a stack of three-dimensional noise, labelled by the assignment
flow with the same 12 prototypes in tiles and as a whole: with the steps of the plan, and with steps
of its own.

The data folder comes from NAPARI_SAF_DATA (default ../shared/data beside the checkout).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions
from napari_saf.tiles import LargeJob, Plan

DATA = Path(os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[1] / "../shared/data"))
Image = NDArray[Any]
N_PROTOTYPES = 12
NEAR = 8


def photographs() -> list[Path]:
    return sorted((DATA / "bsds_dev" / "images").glob("*.jpg"))


def mosaic(number: int, rows: int = 2, columns: int = 3) -> Image:
    """Return photographs side by side, turned to one shape: 1443 x 642 pixels for two rows."""
    paths = photographs()
    first = number * rows * columns
    tiles = [iio.imread(paths[(first + k) % len(paths)]) for k in range(rows * columns)]
    turned = [np.rot90(one) if one.shape[0] > one.shape[1] else one for one in tiles]
    lines = [np.hstack(turned[k * columns : (k + 1) * columns]) for k in range(rows)]
    return np.asarray(np.vstack(lines))


def stack() -> Image:
    """Return a volume of blobs of four brightnesses with noise, one byte a voxel."""
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.standard_normal((96, 160, 160)), 6)
    kinds = np.digitize(smooth, np.quantile(smooth, [0.3, 0.6, 0.85]))
    noisy = 40 + 55 * kinds + rng.normal(0, 25, kinds.shape)
    return np.asarray(np.clip(noisy, 0, 255).astype(np.uint8))


def plan_of(image: Image, window: int, features: str, tile: int) -> tuple[LargeJob, Plan]:
    """Return the plan for prototypes that are means of the features of the image."""
    options = ImageOptions(features, window, "uniform", max_side=None, scaling=(0, 255))  # type: ignore[arg-type]
    nodes = saf.Problem.from_image(image, **options.arguments()).features
    means = sampled_means(nodes, N_PROTOTYPES).astype(np.float32)
    job = LargeJob.of(image, saf.PrototypeSet(means, options=options), tile=tile)
    return job, job.plan()


def tiled(plan: Plan, image: Image) -> tuple[Image, NDArray[np.bool_]]:
    """Return the labels of tiles, and which pixels are near a seam."""
    labels = np.zeros(plan.shape, int)
    values = image[..., None] if image.ndim == len(plan.shape) else image
    for place in plan.tiles():
        region = plan.region(place)
        crop = plan.surroundings(region)
        inner = zip(region, crop, strict=True)
        own = plan.label(values[crop], None)
        labels[region] = own[tuple(slice(r.start - c.start, r.stop - c.start) for r, c in inner)]
    near = np.zeros(plan.shape, bool)
    for axis, (side, n) in enumerate(zip(plan.tile, plan.shape, strict=True)):
        for seam in range(side, n, side):
            index: list[Any] = [slice(None)] * near.ndim
            index[axis] = slice(max(0, seam - NEAR), seam + NEAR)
            near[tuple(index)] = True
    return labels, near


def seams(n_mosaics: int, windows: list[int], tiles: list[int]) -> None:
    print("agreement of tiles with the whole image, least and mean of the images, %")
    print(
        "window tile | steps of the plan: least  mean  near/far | own steps: least  mean  near/far"
    )
    for window in windows:
        found: dict[int, list[list[float]]] = {}
        images = [(mosaic(k), "lab") for k in range(n_mosaics)] + [(stack(), "intensity")]
        for image, features in images:
            volume = features == "intensity"
            job, plan = plan_of(image, window, features, tiles[0])
            values = image[..., None] if volume else image
            fixed = plan.label(values, None)
            free = np.asarray(job.recipe.method.run(job.recipe.problem(image)).labels)
            for tile in tiles:
                if volume and tile > 128:
                    continue
                own_tile = tile // 2 if volume else tile
                own = plan.model_copy(update={"tile": [own_tile] * len(plan.shape)})
                labels, near = tiled(own, image)
                row: list[float] = []
                for whole in (fixed, free):
                    wrong = labels != whole
                    far = max(float(wrong[~near].mean()), 1 / wrong.size)
                    row += [100 * (1 - float(wrong.mean())), float(wrong[near].mean()) / far]
                found.setdefault(tile, []).append(row)
                print(
                    f"  {window:3} {tile:4} {features:9} " + " ".join(f"{x:8.3f}" for x in row),
                    f"steps {len(plan.steps)}",
                    flush=True,
                )
        for tile, rows in found.items():
            least, mean, most = (f(rows, axis=0) for f in (np.min, np.mean, np.max))
            print(
                f"{window:6} {tile:4} | {least[0]:7.3f} {mean[0]:7.3f} {most[1]:6.2f} |"
                f" {least[2]:7.3f} {mean[2]:7.3f} {most[3]:6.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mosaics", type=int, default=6)
    parser.add_argument("--windows", type=int, nargs="+", default=[3, 9, 21])
    parser.add_argument("--tiles", type=int, nargs="+", default=[128, 256, 512])
    given = parser.parse_args()
    seams(given.mosaics, given.windows, given.tiles)


if __name__ == "__main__":
    main()
