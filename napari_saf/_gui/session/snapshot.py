"""A project as it is at a moment, made in another thread of what the main thread has read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napari_saf._gui.session.layers import Encoded, PendingLayer
from napari_saf.errors import InvalidInput
from napari_saf.io import Recipe
from napari_saf.project import DigestCache, FileReference, Project, ProjectImage, ProjectLayer

TAUGHT = "strokes on all images"
"""Name of the recipe that strokes on several images taught together."""
Docks = dict[str, dict[str, Any]]
ToReference = Callable[[Path | None], FileReference]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PendingImage:
    """An image with the layers that are put away, and those on screen.

    The function returns its file in a project that is saved at a path, see `Snapshot.build`.
    """

    to_reference: ToReference
    is_in_memory: bool
    away: Sequence[ProjectLayer]
    layers: Sequence[PendingLayer]
    results: tuple[FileReference, ...]
    stores: Sequence[Path]
    reader: str

    @property
    def is_untouched(self) -> bool:
        return not (self.away or self.layers)

    def all_results(self, digests: DigestCache) -> tuple[FileReference, ...]:
        """Return the files that were written of the image, with the labels of a large one."""
        stores = dict.fromkeys(one for one in self.stores if one.exists())
        kept = [one for one in self.results if one.path not in stores]
        return (*kept, *(_reference(one, digests) for one in stores))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The images, recipes and docks of a viewer; dictionaries by `files` where none is open."""

    images: Sequence[PendingImage]
    current: int | None
    recipes: Mapping[str, Recipe]
    docks: Docks
    dictionaries: Sequence[Path]
    files: Mapping[str, FileReference]
    digests: DigestCache
    encoded: Encoded
    has_work: bool

    def build(self, target: Path | None, *, only_touched: bool = False) -> Project:
        """Return the project, to be saved at a path; None: to be compared, nothing is written.

        Images that are in memory alone are written beside the path; only those with layers if
        `only_touched`.
        """
        found, images, current = SharedRecipes(self.recipes), list[ProjectImage](), None
        for k, image in enumerate(self.images):
            if only_touched and image.is_in_memory and image.is_untouched:
                continue
            current = len(images) if k == self.current else current
            found.used |= {layer.recipe for layer in image.away}
            encoded = (one.encode(self.encoded, found.add) for one in image.layers)
            own = (*image.away, *(one for one in encoded if one is not None))
            file = image.to_reference(target)
            results = image.all_results(self.digests)
            images.append(ProjectImage(file, own, results, image.reader))
        kept, applied = found.kept()
        own_files = {one.name: _reference(one, self.digests) for one in self.dictionaries}
        files = own_files or dict(self.files)
        return Project(tuple(images), kept, applied, files, self.docks, current)


def _reference(path: Path, digests: DigestCache) -> FileReference:
    """Refer to a file; where it is gone all else is kept all the same."""
    try:
        return FileReference.of(path, digests)
    except InvalidInput:
        return FileReference(path, "gone", 0)


class SharedRecipes:
    """The recipes of a project while it is put together: those that are the same are one."""

    def __init__(self, known: Mapping[str, Recipe]) -> None:
        self.recipes, self.used = dict(known), set[str]()
        self._names = {_text(recipe.raw): name for name, recipe in known.items()}

    def add(self, raw: Any) -> str:
        """Return the name of a recipe; empty for what none can repeat."""
        text = _text(raw)
        if text not in self._names:
            try:
                recipe = Recipe.from_plain(raw)
            except (TypeError, ValueError, ArithmeticError):
                return ""
            stem, number = recipe.method.name, 1
            while (name := f"{stem}{f' {number}' if number > 1 else ''}") in self.recipes:
                number += 1
            self.recipes[name] = recipe
            self._names[text] = name
        name = self._names[text]
        self.used.add(name)
        return name

    def kept(self) -> tuple[dict[str, Recipe], str]:
        """Return the recipes that are in use, and which of them labels other images."""
        wanted = self.used | {TAUGHT}
        kept = {name: one for name, one in self.recipes.items() if name in wanted}
        from_strokes = [name for name, one in kept.items() if one.taught is not None]
        return kept, next(iter([TAUGHT] * (TAUGHT in kept) + from_strokes[::-1] + [*kept]), "")


def _text(raw: Any) -> str:
    try:
        return json.dumps(raw, sort_keys=True)
    except (TypeError, ValueError):
        return ""
