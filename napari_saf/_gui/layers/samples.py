"""The sample images as layers, for File > Open Sample."""

from __future__ import annotations

from functools import partial
from typing import Any

LayerData = list[tuple[Any, dict[str, Any], str]]


def _layer(name: str) -> LayerData:
    from napari_saf.samples import SAMPLES, read_sample

    image = read_sample(name)
    options: dict[str, Any] = {"name": SAMPLES[name].title.split(" (")[0]}
    options["rgb"] = image.channel_axis is not None
    if image.scale is not None:
        options["scale"] = image.scale
    if image.units is not None:
        options["units"] = image.units
    return [(image.array, options, "image")]


colour_wheel = partial(_layer, "colour_wheel")
astronaut = partial(_layer, "astronaut")
brick = partial(_layer, "brick")
coins = partial(_layer, "coins")
histology = partial(_layer, "histology")
nuclei = partial(_layer, "nuclei")
