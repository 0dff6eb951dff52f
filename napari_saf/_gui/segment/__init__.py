"""The Segment dock: label an image without labels."""
