"""Reader of the masks that Export saved; importing it loads no library.

napari chooses among readers by the patterns of their manifests alone: where several plugins match
a file, however specific their patterns are, it asks the person, unless a preference of that person
names one. So a mask such as `cells.labels.tif` opens with that question, since the reader of napari
matches `*.tif`, and an OME-Zarr without one, by the file zarr.json in it, which no other reader
takes. What has such a name and is no mask of ours is passed on to the reader of napari. A mask that
was opened as an image becomes labels by a command in the menu Layers.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import napari
import npe2
from napari.layers import Image, Layer
from napari.utils.notifications import show_info

MASK_PATTERNS = ("*.labels.tif", "*.labels.tiff", "*.labels.png", "*.labels.npy")
"""Those of the manifest that the reader of napari matches, too."""
ZARR_FILE = "zarr.json"
Paths = str | list[str]


def get_reader(path: Paths) -> Callable[[Paths], list[Any]] | None:
    """Return the reader of masks if all names match one of its patterns, else None."""
    names = [Path(name).name.lower() for name in ([path] if isinstance(path, str) else path)]
    patterns = (*MASK_PATTERNS, ZARR_FILE)
    matches = all(any(fnmatch(name, pattern) for pattern in patterns) for name in names)
    return _read if matches else None


def _read(path: Paths) -> list[Any]:
    """Read a mask of ours as a Labels layer; pass other files, and stacks, on to napari."""
    from napari_saf._gui.layers.masks import read_layer
    from napari_saf.io import is_own_mask

    files = [Path(name) for name in ([path] if isinstance(path, str) else path)]
    files = [file.parent if file.name.lower() == ZARR_FILE else file for file in files]
    if isinstance(path, str) and is_own_mask(files[0]):
        return [read_layer(files[0])]
    is_stack = not isinstance(path, str)
    return npe2.read([str(file) for file in files], stack=is_stack, plugin_name="napari")


def show_as_labels(viewer: napari.Viewer) -> None:
    """Replace the active image, opened from a mask of ours, by its labels."""
    from napari_saf._gui.layers.masks import read_layer
    from napari_saf.errors import SafError
    from napari_saf.io import is_own_mask

    layer = viewer.layers.selection.active
    path = layer.source.path if isinstance(layer, Image) else None
    if not path or not is_own_mask(Path(path)):
        show_info("Select an image layer that was opened from a mask saved by napari-saf.")
        return
    try:
        labels = Layer.create(*read_layer(Path(path)))
    except SafError as error:
        show_info(str(error))
        return
    index = viewer.layers.index(layer)
    viewer.layers.remove(layer)
    viewer.layers.insert(index, labels)
