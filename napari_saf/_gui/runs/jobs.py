"""Runs that label another image as one was labelled, by a recipe."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
from napari.layers import Image, Labels

from napari_saf._gui.layers.large import narrowed
from napari_saf._gui.layers.live import N_COLORS, LiveLayer, label_colors
from napari_saf._gui.layers.placement import (
    NO_IMAGE,
    ImageRegion,
    channel_axis_of,
    image_axes_of,
    labelled_axes,
    pixels_of,
    positions_on_screen,
)
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.runs.run import RunJob
from napari_saf.errors import InvalidInput
from napari_saf.io import Recipe


def repeat_job(
    viewer: napari.viewer.Viewer,
    recipe: Recipe,
    image: Image | None,
    labels: Any = None,
    rescale: bool | None = None,
    *,
    title: str = "",
    strokes: Labels | None = None,
) -> RunJob:
    """Return the run that repeats a recipe on an image layer, in the colours of what it knows.

    One with the axes of the first image is cut as the `labels` that the recipe made; of another
    with more axes than were labelled, the slice on screen is labelled. `rescale` as for
    `Recipe.problem`; the new labels have the title, and lie below the strokes. InvalidInput if
    there is no image, it is not known how it became features, or its axes or channels do not fit.
    """
    if image is None:
        raise InvalidInput(NO_IMAGE)
    recipe = recipe.for_others()
    if recipe.options is None:
        raise InvalidInput("it is not known what the prototypes are made of")
    has_channels = recipe.options.channel_axis is not None and not image.rgb
    cut = _axes_like(labels, image, has_channels)
    n_axes = _n_axes(viewer, recipe.options.window, image, labels, has_channels)
    across, channel = cut or _last_axes(recipe, image, n_axes)
    region = ImageRegion(image, channel, positions_on_screen(viewer, image, across))
    region = narrowed(viewer, region)
    n_channels = 3 if image.rgb else 1 if channel is None else pixels_of(image).shape[channel]
    own = recipe.options.resolve([region.shape], n_channels)
    assert not isinstance(own.window, str)
    window, note = region.fit(own.window)
    options = dataclasses.replace(
        own.for_others(rescale), channel_axis=region.channel_axis_read, window=window
    )
    title, live = title or recipe.method.name.upper(), None
    if recipe.taught is not None:
        width = recipe.taught.vectors.shape[1]
        expected = {"intensity": width, "lab": 3, "texture": width - 1}.get(options.features)
        if expected not in (None, n_channels):
            raise InvalidInput(
                f"{image.name}: expected as many channels as the prototypes have ({expected}), "
                f"got {n_channels}"
            )
        colors = label_colors()
        for label, color in recipe.taught.colors.items():
            colors[(label - 1) % N_COLORS + 1, :3] = color
        names, place = recipe.taught.names, region.placement
        live = LiveLayer(viewer, image, title, place, strokes, colors=colors, names=names)
    job, method = ImageJob(region.pixels, options), recipe.method
    note = note if method.uses_window else ""
    return RunJob(image, job, method, region.placement, strokes=strokes, live=live, note=note)


def _n_axes(
    viewer: napari.viewer.Viewer, window: Any, image: Image, labels: Any, has_channels: bool
) -> int:
    """Return how many axes were labelled; those on screen where nothing tells."""
    if labels is not None:
        return len(labelled_axes(labels))
    if isinstance(window, tuple):
        return len(window)
    return min(int(viewer.dims.ndisplay), int(image.ndim) - has_channels)


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
