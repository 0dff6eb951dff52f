"""Layers of the viewer: read, made, followed, placed."""
