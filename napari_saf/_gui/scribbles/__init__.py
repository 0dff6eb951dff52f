"""The Scribbles dock: a few strokes label the whole image."""
