"""A project: images, with what lies over them, what labelled them, and how the docks stood."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from napari_saf.errors import InvalidInput
from napari_saf.io import Recipe
from napari_saf.project._files import Digest, FileReference, FoundFile, find_files
from napari_saf.project._layers import ProjectLayer

Stage = Literal["untouched", "taught", "labelled", "exported"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ProjectImage:
    """An image of a project, by its file, with what lies over it.

    Parameters
    ----------
    file : FileReference
    layers : tuple of ProjectLayer
        Strokes and labels, the lowest first.
    results : tuple of FileReference
        Masks and tables that were written of it.
    reader : str
        The plugin of napari that opened the file; empty: napari itself.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> saf.ProjectImage(saf.FileReference.of("image.npy")).stage
    'untouched'
    """

    file: FileReference
    layers: tuple[ProjectLayer, ...] = ()
    results: tuple[FileReference, ...] = ()
    reader: str = ""

    @property
    def stage(self) -> Stage:
        """How far the work on the image is."""
        if self.results:
            return "exported"
        if any(layer.kind == "labels" for layer in self.layers):
            return "labelled"
        return "taught" if self.layers else "untouched"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Images, what was painted on them, what that taught, and how the docks stood.

    Parameters
    ----------
    images : tuple of ProjectImage
    recipes : mapping of str to Recipe
        What labelled images, by name; what strokes taught, with the prototypes, is in them.
    applied : str
        Name of the recipe that labels other images; empty: the only one.
    dictionaries : mapping of str to FileReference
        Files of patch dictionaries by name.
    docks : mapping of str to mapping
        Values of the docks that were open, for JSON.
    current : int or None
        Number of the image that was on screen.
    home : Path or None
        The folder of the file that the project was loaded from.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> pixels = saf.EncodedLabels.of(2 * np.eye(8, dtype=int))
    >>> strokes = saf.ProjectLayer("strokes", "mine", pixels)
    >>> image = saf.ProjectImage(saf.FileReference.of("image.npy"), (strokes,))
    >>> [one.stage for one in saf.Project((image,)).images]
    ['taught']
    """

    images: tuple[ProjectImage, ...] = ()
    recipes: Mapping[str, Recipe] = dataclasses.field(default_factory=dict)
    applied: str = ""
    dictionaries: Mapping[str, FileReference] = dataclasses.field(default_factory=dict)
    docks: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    current: int | None = None
    home: Path | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe that labels other images; InvalidInput if there is none, or it is not said."""
        if self.applied:
            return self.recipes[self.applied]
        if len(self.recipes) != 1:
            names = ", ".join(self.recipes) or "none"
            raise InvalidInput(f"expected a project with a recipe to apply, there are: {names}")
        return next(iter(self.recipes.values()))

    def find_images(
        self,
        folders: Sequence[str | os.PathLike[str]] = (),
        *,
        is_trusted: bool = False,
        digest: Digest | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[FoundFile]:
        """Return where the images are now, see `find_files`.

        They are looked for in the folder of the project and in the given ones, nowhere else, unless
        the project is trusted.
        """
        files, home = [image.file for image in self.images], self.home
        own: dict[str, Any] = {"is_trusted": is_trusted, "digest": digest, "cancelled": cancelled}
        return find_files(files, home, folders, **own)

    def find_dictionaries(
        self,
        folders: Sequence[str | os.PathLike[str]] = (),
        *,
        is_trusted: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> dict[str, FoundFile]:
        """Return where the dictionaries are now by their names, as `find_images`."""
        files = list(self.dictionaries.values())
        own: dict[str, Any] = {"is_trusted": is_trusted, "cancelled": cancelled}
        found = find_files(files, self.home, folders, **own)
        return dict(zip(self.dictionaries, found, strict=True))

    def with_found(self, found: Iterable[FoundFile]) -> Project:
        """Return the project with its images where they were found; others stay as they were."""
        images = []
        for image, one in zip(self.images, found, strict=True):
            if one.state == "found" and one.path is not None:
                file = dataclasses.replace(image.file, path=one.path)
                image = dataclasses.replace(image, file=file)
            images.append(image)
        return dataclasses.replace(self, images=tuple(images))
