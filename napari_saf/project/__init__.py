"""Projects: images with strokes, labels, recipes and dock settings, in one movable file."""

from __future__ import annotations

from napari_saf.project._archive import (
    PROJECT_SUFFIX,
    load_project,
    project_digest,
    save_project,
)
from napari_saf.project._files import (
    DigestCache,
    FileReference,
    FoundFile,
    content_digest,
    find_files,
)
from napari_saf.project._model import Model, ModelSource, as_model
from napari_saf.project._project import (
    EncodedLabels,
    Project,
    ProjectImage,
    ProjectLayer,
    Stage,
    fit_jointly,
)
