"""``napari-saf info``."""

from __future__ import annotations

from typing import Any

import click

from napari_saf import io
from napari_saf.cli import _methods as flags
from napari_saf.cli import report
from napari_saf.errors import SafError


@flags.command("info", [flags.IMAGES])
def info(args: Any) -> int:
    """Say what image files hold, a line for each image.

    A file that holds several images, as TIFF of several series, plates and converted files do,
    is a folder of images: each can be labelled by the name that is shown, or all of them.
    """
    code = 0
    for path in io.find_images(args.images):
        try:
            click.echo(f"{path}: {_described(io.ImageSource.open(path))}")
        except SafError as error:
            code = report(error, debug=bool(click.get_current_context().obj), about=str(path))
    return code


def _described(image: io.ImageSource) -> str:
    sides = " x ".join(map(str, image.shape))
    words = [f"{sides} ({image.axes})" if image.axes else sides, str(image.dtype)]
    if image.n_channels > 1:
        words.append(f"{image.n_channels} channels")
    sizes = [f"{n} {size:.6g} {unit}" for n, (size, unit) in image.sizes.items() if n in image.axes]
    words += [f"pixels {', '.join(sizes)}"] if sizes else []
    origin = [f"{name} {first:.6g}" for name, first in image.origin.items()]
    words += [f"begins at {', '.join(origin)}"] if origin else []
    words += [f"{image.n_levels} levels"] if image.n_levels > 1 else []
    words += [f"no data: {image.no_data:g}"] if image.no_data is not None else []
    return "; ".join([*words, *image.notes])
