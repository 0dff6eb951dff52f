"""The Sharpen borders dock: move label borders onto the edges of an image."""
