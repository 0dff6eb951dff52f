"""Files: images in, masks and recipes out.

Nothing read from a file is ever executed, and a file that is written replaces an older one
only when it is complete.
"""

from napari_saf.io._image import ImageFile, read_image
from napari_saf.io._masks import MASK_SUFFIXES, mask_stem, mask_suffix, save_masks
from napari_saf.io._recipe import Recipe, load_recipe, save_recipe
from napari_saf.io._replace import replacing

__all__ = [
    "MASK_SUFFIXES",
    "ImageFile",
    "Recipe",
    "load_recipe",
    "mask_stem",
    "mask_suffix",
    "read_image",
    "replacing",
    "save_masks",
    "save_recipe",
]
