"""Images larger than memory: a plan from a reduced size, tiles, and a pyramid of labels."""

from napari_saf.tiles._cluster import connected, local_client, run_tasks
from napari_saf.tiles._dictionary import DictionaryJob
from napari_saf.tiles._engine import LargeStep, TileCount
from napari_saf.tiles._job import AbstractLargeJob
from napari_saf.tiles._label import (
    LARGE,
    LargeLabels,
    is_done,
    is_large,
    iterate_large,
    label_large,
    run_large,
)
from napari_saf.tiles._large_job import LargeJob
from napari_saf.tiles._objects import LargeObjects, split_large
from napari_saf.tiles._plan import Plan
from napari_saf.tiles._store import LabelStore
