"""Recipes and dictionaries behind whatever holds them: projects, prototypes, files."""

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

Learned = Pipeline | PatchDictionary
"""All that was learned comes down to one of these."""
Taught = Pipeline | io.PrototypeSet | PatchDictionary | Project | str | os.PathLike[str]
"""Anything learned, in any form, or its file."""


def as_learned(given: Taught, name: str = "learned") -> Learned:
    """Return the recipe or the dictionary that something learned, or its file, stands for.

    FormatError if the file is none of a project, a recipe, prototypes or a dictionary; InvalidInput
    if nothing was taught in a project, it is not known what prototypes are made of, or the argument
    of that name is something else.
    """
    if isinstance(given, str | os.PathLike):
        loaded = _load(Path(given))
        try:
            return as_learned(loaded, name)
        except InvalidInput as error:
            raise InvalidInput(f"{os.fspath(given)}: {error}") from error
    if isinstance(given, Project):
        if not given.recipes and len(given.dictionaries) == 1:
            ((name, file),) = given.dictionaries.items()
            (found,) = find_files([file], given.home)
            if found.path is None or found.state != "found":
                raise InvalidInput(f"the dictionary {name} is not at {file.path}")
            return PatchDictionary.load(found.path)
        return given.recipe
    if isinstance(given, io.PrototypeSet):
        return Pipeline.from_prototypes(given)
    if isinstance(given, Pipeline | PatchDictionary):
        return given
    raise InvalidInput(
        f"{name}: expected a project, recipe, prototypes, dictionary or the path of one, got "
        f"{given!r:.60}"
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
