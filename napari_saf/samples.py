"""Sample images that are installed with the package."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io import ImageFile, read_image


class Sample(NamedTuple):
    """Title in menus, file name and licence of a sample image; the README names sources."""

    title: str
    file: str
    licence: str


_OURS, _FREE = "BSD-3-Clause", "no known copyright restrictions"
SAMPLES = {
    "colour_wheel": Sample("Noisy colour wheel", "colour_wheel.png", _OURS),
    "astronaut": Sample("Astronaut (photograph)", "astronaut.png", "public domain"),
    "brick": Sample("Brick wall (texture)", "brick.png", "CC0-1.0"),
    "coins": Sample("Coins (uneven light)", "coins.png", _FREE),
    "histology": Sample("Histology (colonic glands)", "histology.png", _FREE),
    "nuclei": Sample("Nuclei (synthetic stack, 3-D)", "nuclei.tif", _OURS),
}


def sample_path(name: str) -> Path:
    """Return the file of a sample; raise InvalidInput or FormatError if there is none."""
    if name not in SAMPLES:
        raise InvalidInput(f"sample: expected one of {', '.join(SAMPLES)}, got {name!r}")
    package = Path(__file__).parent
    # In a wheel the folder is inside the package, in a checkout beside it.
    folders = package / "_sample_images", package.parent / "sample_images"
    for folder in folders:
        if (folder / SAMPLES[name].file).is_file():
            return folder / SAMPLES[name].file
    raise FormatError(f"{folders[0] / SAMPLES[name].file}: the sample image is missing")


def read_sample(name: str) -> ImageFile:
    """Read a sample image by its key in `SAMPLES`.

    >>> read_sample("nuclei").array.shape
    (24, 96, 96)
    """
    return read_image(sample_path(name))
