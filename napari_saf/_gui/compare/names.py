"""What results of a comparison are called on screen: by the words of the form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from napari_saf.comparison import Variant, lay_out, open_axes, parameter_named

__all__ = ["OPTION_WORDS", "panel_names", "whole_name"]

OPTION_WORDS = {
    "window": "Scale",
    "features": "Features",
    "weights": "Neighbours",
    "max_side": "Work at",
}
"""What the form calls that which is no parameter of a method."""
_MOST_LETTERS = 68
"""Of the names in a row of panels, in a small window."""
_N_GIVEN = 2
"""Panels of image and truth."""


def whole_name(variant: Variant) -> str:
    """Return all that was chosen for a variant."""
    return _join((_words(variant, axis), value) for axis, value in variant.place)


def panel_names(variants: Sequence[Variant]) -> list[str]:
    """Return for each variant what tells it from the others, in words for which there is room."""
    axes = open_axes(variants)
    if not axes:
        return [whole_name(variant) for variant in variants]
    sides = [_sides(dict(variant.place).get("window", "")) for variant in variants]
    is_short = len(set(sides)) == len({dict(variant.place).get("window") for variant in variants})
    parts = [
        [
            (_words(variant, axis), side if is_short and axis == "window" else value)
            for axis, value in variant.place
            if axis in axes
        ]
        for variant, side in zip(variants, sides, strict=True)
    ]
    most = _MOST_LETTERS // _count_columns(variants)
    names: list[str] = []
    for n_words in (None, 1, 0):
        names = [
            _join((" ".join(words.split()[:n_words]), value) for words, value in pairs)
            for pairs in parts
        ]
        if max(map(len, names)) <= most:
            break
    return names


def _join(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{words} {value}".strip() for words, value in pairs)


def _words(variant: Variant, axis: str) -> str:
    """Return what the form calls an axis; nothing for the method, whose name says what it is."""
    if axis in OPTION_WORDS:
        return OPTION_WORDS[axis]
    item = parameter_named(type(variant.method), axis)
    return "" if item is None else item.label


def _sides(window: str) -> str:
    """Return the sides of a window without those of 1, each once: 3 for 1 x 3 x 3."""
    return " x ".join(dict.fromkeys(side for side in window.split(" x ") if side != "1")) or window


def _count_columns(variants: Sequence[Variant]) -> int:
    """Return how many panels there will be beside each other."""
    layout = lay_out(variants)
    if layout.is_table:
        return layout.n_columns
    return math.ceil(math.sqrt(len(variants) + _N_GIVEN))
