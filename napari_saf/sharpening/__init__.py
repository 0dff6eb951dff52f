"""Sharpening: movement of label borders onto image edges."""

from napari_saf.sharpening._sharpen import Part as Part
from napari_saf.sharpening._sharpen import Sharpener as Sharpener
from napari_saf.sharpening._sharpen import sharpen_labels as sharpen_labels
