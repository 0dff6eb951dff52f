"""Single things of a kind: split where they touch, measured, corrected, handed over."""

from napari_saf.objects._split import Objects, Parts, find_parts, split_objects

__all__ = ["Objects", "Parts", "find_parts", "split_objects"]
