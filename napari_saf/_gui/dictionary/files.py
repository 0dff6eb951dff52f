"""Dictionaries as files of napari: dropped on the viewer, saved with a layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari

from napari_saf._gui.dictionary.partitions import dictionary_of
from napari_saf.dictionary import DICTIONARY_SUFFIX, PatchDictionary
from napari_saf.errors import InvalidInput

__all__ = ["get_reader", "write_dictionary"]

LayerData = list[tuple[Any, ...]]
_NO_LAYER: LayerData = [(None,)]
"""What tells napari that a file was read and that no layer comes of it."""


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], LayerData] | None:
    """Return what reads a dictionary, if a path may be one."""
    paths = [path] if isinstance(path, str) else path
    if all(Path(one).suffix.lower() == DICTIONARY_SUFFIX for one in paths):
        return _read
    return None


def write_dictionary(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save the dictionary whose atoms a layer of labels shows.

    Raises
    ------
    InvalidInput
        If the layer was not made by a dictionary.
    SafError
        If the file cannot be written.
    """
    dictionary = dictionary_of(attributes.get("metadata", {}))
    if dictionary is None:
        raise InvalidInput(
            f"{attributes.get('name', 'layer')}: expected labels that a patch dictionary made"
        )
    dictionary.save(path)
    return [path]


def _read(path: str | list[str]) -> LayerData:
    """Open dictionaries in the dock; without a window, as a stack of atoms.

    Raises
    ------
    FormatError
        If there is no window and a file is no dictionary.
    """
    paths = [path] if isinstance(path, str) else path
    viewer = napari.current_viewer()
    if viewer is None:
        return [_as_layer(Path(one)) for one in paths]
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")
    for one in paths:
        dock.load(Path(one))
    return _NO_LAYER


def _as_layer(path: Path) -> tuple[Any, ...]:
    dictionary = PatchDictionary.load(path)
    is_rgb = dictionary.n_channels == 3
    atoms = dictionary.atoms if is_rgb else dictionary.atoms.mean(axis=-1)
    return (atoms, {"name": path.stem, "rgb": is_rgb}, "image")
