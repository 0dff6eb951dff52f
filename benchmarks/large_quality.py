"""Quality of large images: learned on blocks and labelled in tiles, against a run of the whole.

python benchmarks/large_quality.py [--mosaics 5] [--learn 1048576] [--nuclei 16]

Photographs of bsds_dev, six to a mosaic, labelled by self-assignment with what is automatic at full
resolution: mean covering of the six, each with the references of those who segmented it. Nuclei of
256 x 256 pixels, four to a row of one sheet: F1 of the foreground, where each label counts as
nuclei if most of its pixels are; and of what strokes on the first four images taught, which labels
the sheet whole and in tiles. Blocks hold at most `--learn` pixels.

The data folder comes from NAPARI_SAF_DATA (default ../shared/data beside the checkout).
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
from large import DATA, photographs
from numpy.typing import NDArray
from scribbles_nuclei import NUCLEUS, draw
from transfer import f1

import napari_saf as saf
from napari_saf._gui.scribbles.dock import DEFAULT_OPTIONS
from napari_saf.metrics import segmentation_covering
from napari_saf.problem import ImageOptions

Labels = NDArray[Any]
SIDE = 256


def in_tiles(image: Labels, recipe: Any, learn: int) -> Labels:
    """Return labels in tiles of 256 pixels, of what blocks of so many pixels taught."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "labels.ome.zarr"
        found = saf.label_large(image, recipe, out, tile=256, learn_pixels=learn)
        return np.asarray(found.labels[:], int)


def whole(image: Labels) -> Labels:
    """Return labels of a run of the whole image, at full resolution."""
    axis = -1 if image.ndim == 3 else None
    options = ImageOptions(channel_axis=axis, max_side=None)
    n_channels = image.shape[-1] if image.ndim == 3 else 1
    options = options.resolve([image.shape[:2]], n_channels)
    problem = saf.Problem.from_image(image, **options.arguments())
    return np.asarray(saf.SelfAssignmentFlow().run(problem).labels, int)


def upright(values: Labels, axes: tuple[int, int] = (0, 1)) -> Labels:
    rows, columns = (values.shape[axis] for axis in axes)
    return np.rot90(values, axes=axes) if rows > columns else values


def coverings(n_mosaics: int, learn: int) -> None:
    """Print the covering of mosaics, learned on blocks and as a whole."""
    rows = []
    for number in range(n_mosaics):
        paths = photographs()[6 * number :][:6]
        images = [upright(iio.imread(path)) for path in paths]
        image = np.vstack([np.hstack(images[:3]), np.hstack(images[3:])])
        references = []
        for path in paths:
            truth = DATA / "bsds_dev" / "groundtruth" / f"{path.stem}.npz"
            with np.load(truth, allow_pickle=False) as archive:
                references.append(upright(archive["segmentation"], (1, 2)))
        height, width = images[0].shape[:2]
        row = []
        for labels in (whole(image), in_tiles(image, saf.SelfAssignmentFlow(), learn)):
            corners = [(height * (k // 3), width * (k % 3)) for k in range(6)]
            parts = [labels[y : y + height, x : x + width] for y, x in corners]
            own = [
                np.mean([segmentation_covering(part, truth) for truth in several])
                for part, several in zip(parts, references, strict=True)
            ]
            row.append(float(np.mean(own)))
        rows.append(row)
        _print(f"mosaic {number}: covering", row)
    _print("mean covering", list(np.mean(rows, axis=0)))


def nuclei(count: int, learn: int) -> None:
    """Print F1 of a sheet of nuclei, by labels that are found, and by strokes."""
    paths = [path for name in ("nuclei", "nuclei_more")
             for path in sorted((DATA / name / "images").glob("fluor*.png"))]  # fmt: skip
    images = {path: iio.imread(path) for path in paths}
    chosen = [path for path, image in images.items() if image.shape == (SIDE, SIDE)][:count]
    truths = [iio.imread(path.parents[1] / "labels" / path.name) for path in chosen]
    strokes = [draw(truth, np.random.default_rng(k)) * (k < 4) for k, truth in enumerate(truths)]
    image, nucleus, drawn = (
        np.vstack([np.hstack(several[k : k + 4]) for k in range(0, len(several) // 4 * 4, 4)])
        for several in ([images[path] for path in chosen], [one > 0 for one in truths], strokes)
    )
    found = [
        f1(_as_nuclei(labels, nucleus), nucleus)
        for labels in (whole(image), in_tiles(image, saf.SelfAssignmentFlow(), learn))
    ]
    _print(f"{len(chosen)} images of nuclei: F1", found)
    options = dataclasses.replace(DEFAULT_OPTIONS, features="intensity", max_side=None)
    part = slice(0, SIDE)
    taught_by = saf.Problem.from_image(image[part], seeds=drawn[part], **options.arguments())
    own: Any = saf.AssignmentFlow().run(taught_by).labels
    taught = saf.PrototypeSet.from_labels(taught_by, own)
    alone: Any = taught.recipe().run(image).labels
    tiles = in_tiles(image, taught, learn)
    _print("strokes: F1", [f1(one == NUCLEUS, nucleus) for one in (alone, tiles)])


def _as_nuclei(labels: Labels, nucleus: NDArray[np.bool_]) -> NDArray[np.bool_]:
    sizes = np.bincount(labels.ravel())
    is_nucleus = 2 * np.bincount(labels[nucleus], minlength=len(sizes)) > sizes
    return np.asarray(is_nucleus[labels])


def _print(title: str, row: list[float]) -> None:
    print(f"{title}: whole {row[0]:.4f}, blocks and tiles {row[1]:.4f}, {row[1] - row[0]:+.4f}; "
          f"{time.process_time():.0f} s so far", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mosaics", type=int, default=5)
    parser.add_argument("--learn", type=int, default=2**20, help="pixels of the blocks")
    parser.add_argument("--nuclei", type=int, default=16, help="images of the sheet")
    given = parser.parse_args()
    nuclei(given.nuclei, given.learn)
    coverings(given.mosaics, given.learn)


if __name__ == "__main__":
    main()
