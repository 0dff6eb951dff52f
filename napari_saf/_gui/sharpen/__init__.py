"""The Sharpen borders dock: move the borders of labels onto the edges of an image."""
