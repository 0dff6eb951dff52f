"""Many images: one engine, resumable, in one process or several.

A task says what is done with a job (the images that are labelled as one problem), what an earlier
run has done already, and what must not be overwritten; `run_batch` does the jobs.
"""

from napari_saf.batch._apply import ApplyOptions, apply_to_images
from napari_saf.batch._dictionary import DictionaryTask
from napari_saf.batch._engine import (
    AbstractTask,
    Job,
    Outcome,
    Tiles,
    check_outputs,
    plan_jobs,
    run_batch,
)
from napari_saf.batch._labelling import Companions, LabelSummary, LabelTask, least_certain
