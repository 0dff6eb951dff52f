"""What to read of layers that go with part of an image: masks, strokes, features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napari_saf._gui.layers.reading import Index

__all__ = ["axis_of_features", "part_of_features", "part_of_labels"]


def part_of_labels(
    shape: tuple[int, ...],
    n_axes: int,
    axes: Sequence[int],
    fixed: Mapping[int, int],
    channels: int | None,
) -> Index:
    """Return what to read of labels over an image: the slice, where they have the slices.

    Parameters
    ----------
    shape : tuple of int
        Of the labels: as many axes as the image, or as its spatial ones, or one plane for all.
    n_axes : int
        Of the image.
    axes : sequence of int
        Its spatial axes.
    fixed : mapping of int to int
        Those of them of which one slice is labelled, and which: the last one of labels with fewer.
    channels : int or None
        The axis of its channels; labels may have one pixel along it.
    """
    own = axes if len(shape) == len(axes) else range(n_axes)
    if len(shape) != len(own):
        return tuple(slice(None) for _ in shape)
    where = dict(fixed)
    if channels is not None and channels in own and shape[channels] == 1:
        where[channels] = 0
    sides = zip(own, shape, strict=True)
    return tuple(min(where[a], n - 1) if a in where else slice(None) for a, n in sides)


def axis_of_features(shape: tuple[int, ...], sides: Sequence[int]) -> int | None:
    """Return the axis that a shape has beside given sides; the last one that may be meant."""
    found = [k for k in range(len(shape)) if [*shape[:k], *shape[k + 1 :]] == list(sides)]
    return found[-1] if found and len(shape) == len(sides) + 1 else None


def part_of_features(axis: int, axes: Sequence[int], fixed: Mapping[int, int]) -> tuple[Index, int]:
    """Return what to read of an image of features, and where their axis is then.

    Parameters
    ----------
    axis : int
        That of the features.
    axes : sequence of int
        The spatial axes of the image that the others are.
    fixed : mapping of int to int
        Those of them of which one slice is labelled, and which.
    """
    index: list[int | slice] = [fixed.get(a, slice(None)) for a in axes]
    gone = sum(a in fixed for a in axes[:axis])
    index.insert(axis, slice(None))
    return tuple(index), axis - gone
