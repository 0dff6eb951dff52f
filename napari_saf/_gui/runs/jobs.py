"""Runs that label another image as one was labelled: by a recipe, or by prototypes."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
from napari.layers import Image

from napari_saf._gui.layers.placement import (
    NO_IMAGE,
    ImageRegion,
    channel_axis_of,
    image_axes_of,
    pixels_of,
    positions_on_screen,
)
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import InvalidInput
from napari_saf.io import PrototypeSet, Recipe


def repeat_job(
    viewer: napari.viewer.Viewer,
    recipe: Recipe,
    image: Image | None,
    n_axes: int,
    labels: Any = None,
    rescale: bool | None = None,
) -> RunJob:
    """Return the run that repeats a recipe on an image layer.

    Of an image with more axes than the `n_axes` (without channels) that were labelled, the slice on
    screen is; one with the axes of the first image is cut as the `labels` that the recipe made.
    `rescale` as for `Recipe.problem`. InvalidInput if there is no image, or it has too few axes.
    """
    if image is None:
        raise InvalidInput(NO_IMAGE)
    assert recipe.options is not None
    has_channels = recipe.options.channel_axis is not None and not image.rgb
    across, channel = _axes_like(labels, image, has_channels) or _last_axes(recipe, image, n_axes)
    region = ImageRegion(image, channel, positions_on_screen(viewer, image, across))
    n_channels = 3 if image.rgb else 1 if channel is None else pixels_of(image).shape[channel]
    own = recipe.options.resolve([region.shape], n_channels)
    assert not isinstance(own.window, str)
    window, note = region.fit(own.window)
    options = dataclasses.replace(
        own.for_others(rescale), channel_axis=region.channel_axis_read, window=window
    )
    note = note if recipe.method.uses_window else ""
    job = ImageJob(region.pixels, options)
    return RunJob(image, job, recipe.method, region.placement, note=note)


def prototypes_job(
    viewer: napari.viewer.Viewer,
    found: PrototypeSet,
    image: Image | None,
    n_axes: int,
    labels: Any = None,
    rescale: bool | None = None,
) -> RunJob:
    """Return the run that labels an image layer by prototypes; see `repeat_job`.

    InvalidInput, too, if it is not known what the prototypes are made of, or the image has other
    channels.
    """
    request = repeat_job(viewer, found.recipe(), image, n_axes, labels, rescale)
    options, image = request.image_job.options, request.image
    expected = {"intensity": found.vectors.shape[1], "lab": 3}.get(options.features)
    n_channels = 3 if image.rgb else 1
    if options.channel_axis is not None and not image.rgb:
        pixels = request.image_job.pixels
        pairs = zip(pixels.index, pixels.data.shape, strict=True)
        sides = [side for at, side in pairs if isinstance(at, slice)]
        n_channels = sides[options.channel_axis]
    if expected not in (None, n_channels):
        raise InvalidInput(
            f"{image.name}: expected as many channels as the prototypes have ({expected}), "
            f"got {n_channels}"
        )
    return request


_Cut = tuple[tuple[int, ...], int | None]
"""The axes of an image of which one slice is labelled, and that of its channels."""


def _axes_like(labels: Any, image: Image, has_channels: bool) -> _Cut | None:
    """Return how an image is cut that has the axes of the one that was labelled first, or None."""
    recorded = None if labels is None else image_axes_of(labels)
    if recorded is None:
        return None
    axes, singletons = recorded
    own_channels = channel_axis_of(labels)
    if own_channels is not None:
        across = tuple(axis for axis in singletons if axis != own_channels)
        return (across, own_channels) if has_channels and image.ndim == len(axes) else None
    if image.ndim != len(axes) + has_channels:
        return None
    if not has_channels:
        return singletons, None
    channel = next(axis for axis in range(image.ndim) if axis not in axes)
    return tuple(axes[axis] for axis in singletons), channel


def _last_axes(recipe: Recipe, image: Image, n_axes: int) -> _Cut:
    """Return how any other image is cut: the last axes are labelled."""
    assert recipe.options is not None
    channel = None if image.rgb else recipe.options.channel_axis
    n_wanted = n_axes + (channel is not None)
    n_fixed = image.ndim - n_wanted
    if n_fixed < 0:
        raise InvalidInput(f"{image.name}: expected an image of {n_wanted} axes, got {image.ndim}")
    across = tuple(range(n_fixed))
    return across, None if channel is None else n_fixed + channel % n_wanted
