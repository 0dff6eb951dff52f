"""The sample images as layers, for File > Open Sample."""

from __future__ import annotations

from typing import Any

__all__ = ["astronaut", "brick", "coins", "colour_wheel", "histology", "nuclei"]

LayerData = list[tuple[Any, dict[str, Any], str]]


def colour_wheel() -> LayerData:
    """Return the noisy colour wheel."""
    return _layer("colour_wheel")


def astronaut() -> LayerData:
    """Return the photograph."""
    return _layer("astronaut")


def brick() -> LayerData:
    """Return the texture."""
    return _layer("brick")


def coins() -> LayerData:
    """Return the coins in uneven light."""
    return _layer("coins")


def histology() -> LayerData:
    """Return the stained tissue."""
    return _layer("histology")


def nuclei() -> LayerData:
    """Return the 3-D stack."""
    return _layer("nuclei")


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
