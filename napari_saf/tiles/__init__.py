"""Images larger than memory: a plan that is learned from blocks, tiles, and a pyramid of labels."""

from napari_saf.tiles._label import LargeJob, LargeLabels, label_large, run_large
from napari_saf.tiles._plan import Plan
