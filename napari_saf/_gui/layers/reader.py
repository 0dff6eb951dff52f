"""napari's way to masks of ours: a reader that loads nothing before one is opened.

napari chooses readers by the name of a file alone, and asks where several fit, unless it is told
which one to prefer. So the masks of Export are called as no image is, and napari is told of that
name; what is called so and is no mask of ours is left to napari's own reader.

Folders have no name in this: a reader takes all or none, and napari would ask for every one. So an
OME-Zarr is opened by the file zarr.json in it, which no other reader takes.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import npe2
from napari.settings import get_settings

MASK_PATTERNS = ("*.labels.tif", "*.labels.tiff", "*.labels.png", "*.labels.npy")
"""Those of the manifest that napari's own reader takes, too."""
ZARR_FILE = "zarr.json"
Paths = str | list[str]


def get_reader(path: Paths) -> Callable[[Paths], list[Any]] | None:
    """Return what reads masks, if all files are called like one of ours."""
    names = [Path(one).name.lower() for one in ([path] if isinstance(path, str) else path)]
    patterns = (*MASK_PATTERNS, ZARR_FILE)
    is_named = all(any(fnmatch(name, pattern) for pattern in patterns) for name in names)
    return _read if is_named else None


def _read(path: Paths) -> list[Any]:
    """Read a mask of ours as a Labels layer; anything else, and stacks of files, as napari does."""
    from napari_saf._gui.layers.masks import read_layer
    from napari_saf.io import is_own_mask

    paths = [Path(one) for one in ([path] if isinstance(path, str) else path)]
    paths = [one.parent if one.name.lower() == ZARR_FILE else one for one in paths]
    if isinstance(path, str) and is_own_mask(paths[0]):
        prefer_reader()  # whoever was asked is not asked again
        return [read_layer(paths[0])]
    is_stack = not isinstance(path, str)
    return npe2.read([str(one) for one in paths], stack=is_stack, plugin_name="napari")


def prefer_reader() -> None:
    """Let napari open masks by this reader without a question, unless a person chose another."""
    plugins = get_settings().plugins
    known = plugins.extension2reader
    if not {*MASK_PATTERNS} <= {*known}:
        plugins.extension2reader = dict.fromkeys(MASK_PATTERNS, "napari-saf") | known
