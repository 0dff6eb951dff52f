"""Projects: images with strokes, labels, recipes and dock settings, in one movable file."""

from __future__ import annotations

from napari_saf.project._archive import (
    PROJECT_SUFFIX,
    Model,
    ModelSource,
    as_model,
    load_project,
    project_digest,
    save_project,
)
from napari_saf.project._autosave import (
    ProjectFile,
    is_saved_here_before,
    note_recent,
    recent_projects,
    recoverable_projects,
    remove_autosave,
)
from napari_saf.project._batch import export_all, image_tasks, label_all, thumbnail_of
from napari_saf.project._files import (
    DigestCache,
    FileReference,
    FoundFile,
    content_digest,
    find_files,
)
from napari_saf.project._model import (
    NO_PIXELS,
    DockValues,
    ImageEntry,
    LayerState,
    ProjectModel,
    ProjectState,
    Transform,
    checksum,
    encoded_pixels,
)
from napari_saf.project._project import (
    EncodedLabels,
    Project,
    ProjectImage,
    ProjectLayer,
    Stage,
    fit_jointly,
    layers_digest,
)
