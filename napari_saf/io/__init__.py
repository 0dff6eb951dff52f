"""Files: images in; masks, tables, figures, recipes and dictionaries out.

Nothing read from a file is ever executed, and a file that is written replaces an older one
only when it is complete.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from napari_saf.io._array import read_array
from napari_saf.io._binary import save_binary_masks
from napari_saf.io._connected import number_regions
from napari_saf.io._dictionary import DICTIONARY_SUFFIX, load_dictionary, save_dictionary
from napari_saf.io._dictionary_batch import FileOutcome, apply_to_files
from napari_saf.io._export import Export, Labelling, Wanted
from napari_saf.io._find import LABELS_MARK, find_images, is_zarr
from napari_saf.io._image import read_image, read_labels
from napari_saf.io._image_file import ImageFile
from napari_saf.io._legend import file_stem
from napari_saf.io._masks import MASK_SUFFIXES, mask_stem, mask_suffix, save_masks
from napari_saf.io._prototypes import (
    PROTOTYPE_SUFFIXES,
    PrototypeSet,
    load_prototypes,
    save_prototypes,
)
from napari_saf.io._recipe import Recipe, load_recipe, save_recipe
from napari_saf.io._regions import TABLE_SUFFIXES, region_table, save_regions
from napari_saf.io._replace import (
    hidden_name,
    make_folder,
    remove,
    remove_leftovers,
    replacing,
)
from napari_saf.io._source import FileState
from napari_saf.io._words import printable, table_cell

if TYPE_CHECKING:
    from napari_saf.io._figure import FIGURE_SUFFIXES as FIGURE_SUFFIXES
    from napari_saf.io._figure import middle_plane as middle_plane
    from napari_saf.io._figure import save_figure as save_figure
    from napari_saf.io._figure import show_image as show_image

__all__ = [
    "DICTIONARY_SUFFIX",
    "FIGURE_SUFFIXES",
    "LABELS_MARK",
    "MASK_SUFFIXES",
    "PROTOTYPE_SUFFIXES",
    "TABLE_SUFFIXES",
    "Export",
    "FileOutcome",
    "FileState",
    "ImageFile",
    "Labelling",
    "PrototypeSet",
    "Recipe",
    "Wanted",
    "apply_to_files",
    "file_stem",
    "find_images",
    "hidden_name",
    "is_zarr",
    "load_dictionary",
    "load_prototypes",
    "load_recipe",
    "make_folder",
    "mask_stem",
    "mask_suffix",
    "middle_plane",
    "number_regions",
    "printable",
    "read_array",
    "read_image",
    "read_labels",
    "region_table",
    "remove",
    "remove_leftovers",
    "replacing",
    "save_binary_masks",
    "save_dictionary",
    "save_figure",
    "save_masks",
    "save_prototypes",
    "save_recipe",
    "save_regions",
    "show_image",
    "table_cell",
]


def __getattr__(name: str) -> object:
    # matplotlib takes half a second to load.
    if name in ("FIGURE_SUFFIXES", "middle_plane", "save_figure", "show_image"):
        return getattr(importlib.import_module("napari_saf.io._figure"), name)
    raise AttributeError(f"module 'napari_saf.io' has no attribute {name!r}")
