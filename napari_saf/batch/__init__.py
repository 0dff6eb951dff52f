"""Batch processing: resumable jobs, in one process or several.

A task defines how a job (the images labelled as one problem) is processed, which jobs are already
complete and which files must not be overwritten; `run_batch` executes the jobs.
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
