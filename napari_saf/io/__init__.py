"""Files: images in; masks, tables, figures, recipes and dictionaries out.

Nothing read from a file is ever executed, and a file that is written replaces an older one
only when it is complete.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from napari_saf.io._binary import save_binary_masks
from napari_saf.io._connected import number_regions
from napari_saf.io._dictionary import DICTIONARY_SUFFIX, load_dictionary, save_dictionary
from napari_saf.io._dictionary_batch import FileOutcome, apply_to_files
from napari_saf.io._find import LABELS_MARK, find_images, is_zarr
from napari_saf.io._image import read_image, read_labels
from napari_saf.io._image_file import ImageFile
from napari_saf.io._masks import MASK_SUFFIXES, mask_stem, mask_suffix, save_masks
from napari_saf.io._prototypes import PrototypeSet, load_prototypes, save_prototypes
from napari_saf.io._recipe import Recipe, load_recipe, save_recipe
from napari_saf.io._regions import TABLE_SUFFIXES, region_table, save_regions
from napari_saf.io._replace import make_folder, replacing

if TYPE_CHECKING:
    from napari_saf.io._figure import save_figure as save_figure

__all__ = [
    "DICTIONARY_SUFFIX",
    "LABELS_MARK",
    "MASK_SUFFIXES",
    "TABLE_SUFFIXES",
    "FileOutcome",
    "ImageFile",
    "PrototypeSet",
    "Recipe",
    "apply_to_files",
    "find_images",
    "is_zarr",
    "load_dictionary",
    "load_prototypes",
    "load_recipe",
    "make_folder",
    "mask_stem",
    "mask_suffix",
    "number_regions",
    "read_image",
    "read_labels",
    "region_table",
    "replacing",
    "save_binary_masks",
    "save_dictionary",
    "save_figure",
    "save_masks",
    "save_prototypes",
    "save_recipe",
    "save_regions",
]


def __getattr__(name: str) -> object:
    # matplotlib takes half a second to load.
    if name == "save_figure":
        return importlib.import_module("napari_saf.io._figure").save_figure
    raise AttributeError(f"module 'napari_saf.io' has no attribute {name!r}")
