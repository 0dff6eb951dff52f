"""Resolve projects, prototypes and files to a recipe or a dictionary."""

from __future__ import annotations

import os
from pathlib import Path

from napari_saf import io
from napari_saf.dictionary import DICTIONARY_SUFFIX, PatchDictionary
from napari_saf.errors import InvalidInput
from napari_saf.pipeline import Pipeline, load_recipe
from napari_saf.project._archive import PROJECT_SUFFIX, load_project
from napari_saf.project._files import find_files
from napari_saf.project._project import Project
from napari_saf.storage import format_errors, read_json

Model = Pipeline | PatchDictionary
ModelSource = Pipeline | io.PrototypeSet | PatchDictionary | Project | str | os.PathLike[str]
"""Anything that resolves to a recipe or a dictionary, or its file."""


def as_model(source: ModelSource, name: str = "learned") -> Model:
    """Resolve an object or a file to its recipe or dictionary.

    FormatError for a file of another type; InvalidInput if it has no recipe, or the features of
    prototypes are unknown.
    """
    if isinstance(source, str | os.PathLike):
        loaded = _load(Path(source))
        try:
            return as_model(loaded, name)
        except InvalidInput as error:
            raise InvalidInput(f"{os.fspath(source)}: {error}") from error
    if isinstance(source, Project):
        if not source.recipes and len(source.dictionaries) == 1:
            ((name, file),) = source.dictionaries.items()
            (location,) = find_files([file], source.home)
            if location.path is None or location.state != "found":
                raise InvalidInput(f"the dictionary {name} is not at {file.path}")
            return PatchDictionary.load(location.path)
        return source.recipe
    if isinstance(source, io.PrototypeSet):
        return Pipeline.from_prototypes(source)
    if isinstance(source, Pipeline | PatchDictionary):
        return source
    raise InvalidInput(
        f"{name}: expected a project, recipe, prototypes, dictionary or the path of one, got "
        f"{source!r:.60}"
    )


def _load(path: Path) -> Pipeline | io.PrototypeSet | PatchDictionary | Project:
    suffix = path.suffix.lower()
    if suffix == PROJECT_SUFFIX:
        return load_project(path)
    if suffix == DICTIONARY_SUFFIX:
        return PatchDictionary.load(path)
    with format_errors(path, "a project, recipe, file of prototypes or dictionary"):
        plain = read_json(path)
    is_prototypes = isinstance(plain, dict) and plain.get("kind") == "prototypes"
    return io.load_prototypes(path) if is_prototypes else load_recipe(path)
