"""Layers of the viewer: read into problems, created from results, watched, arranged."""
