"""Make the sample images anew: ``python docs/make_samples.py [FOLDER]``.

The colour wheel and the blobs are computed here; the others are files that scikit-image ships,
copied byte for byte.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import skimage.data
import tifffile
from numpy.typing import NDArray
from skimage.color import hsv2rgb

COPIES = {
    "astronaut.png": "astronaut.png",
    "brick.png": "brick.png",
    "coins.png": "coins.png",
    "ihc.png": "histology.png",
}
NAME_OF_THE_STACK = "urn:uuid:5a0f0000-0000-4000-8000-000000000001"
"""Fixed, so that the file comes out the same every time."""


def noisy_colour_wheel(side: int = 192, noise: float = 0.12) -> NDArray[np.uint8]:
    """Return a disc of all hues on grey with Gaussian noise, of shape (side, side, 3)."""
    rng = np.random.default_rng(0)
    axis = (np.arange(side) - (side - 1) / 2) / (0.45 * side)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    radius = np.hypot(y, x)
    hue = np.arctan2(y, x) / (2 * np.pi) % 1
    rgb = hsv2rgb(np.stack([hue, np.minimum(radius, 1), np.ones_like(hue)], axis=-1))
    rgb[radius > 1] = 0.5
    noisy = rgb + noise * rng.standard_normal(rgb.shape)
    return np.asarray(np.clip(np.round(255 * noisy), 0, 255), dtype=np.uint8)


def blobs(shape: tuple[int, int, int] = (24, 96, 96), count: int = 40) -> NDArray[np.uint8]:
    """Return a stack of bright and dim ellipsoids, like stained nuclei, with Poisson noise."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.indices(shape), axis=-1).astype(float)
    expected = np.full(shape, 8.0)
    for _ in range(count):
        centre = rng.uniform(0.08, 0.92, 3) * shape
        radii = rng.uniform([2, 5, 5], [4, 10, 10])
        distance = np.sqrt((((grid - centre) / radii) ** 2).sum(axis=-1))
        brightness = rng.choice([35.0, 90.0])
        inside = brightness / (1 + np.exp(12 * (distance - 1)))
        expected = np.maximum(expected, inside)
    return np.asarray(np.clip(rng.poisson(expected) * 2, 0, 255), dtype=np.uint8)


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shipped = Path(skimage.data.__file__).parent
    for source, target in COPIES.items():
        shutil.copyfile(shipped / source, folder / target)
    iio.imwrite(folder / "colour_wheel.png", noisy_colour_wheel())
    spacing = {f"PhysicalSize{axis}": size for axis, size in {"Z": 1.0, "Y": 0.4, "X": 0.4}.items()}
    units = {f"PhysicalSize{axis}Unit": "µm" for axis in "ZYX"}
    tifffile.imwrite(
        folder / "nuclei.tif",
        blobs(),
        ome=True,
        compression="zlib",
        metadata={"axes": "ZYX", "UUID": NAME_OF_THE_STACK} | spacing | units,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sample_images"))
