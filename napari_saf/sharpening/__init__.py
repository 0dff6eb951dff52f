"""Borders between labels, moved onto the edges of the image."""

from napari_saf.sharpening._sharpen import Part as Part
from napari_saf.sharpening._sharpen import Sharpener as Sharpener
from napari_saf.sharpening._sharpen import sharpen_labels as sharpen_labels
