"""The Segment dock: label an image without annotations."""
