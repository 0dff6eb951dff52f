"""Borders between labels, moved onto the edges of the image."""

from napari_saf.sharpening._sharpen import sharpen_labels as sharpen_labels
