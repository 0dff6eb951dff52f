"""Recipes: what repeats a run, as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, field_validator

from napari_saf import storage
from napari_saf.errors import InvalidInput
from napari_saf.input import GIVEN_FEATURES, ImageOptions
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import from_plain
from napari_saf.problem import Problem
from napari_saf.regions import merge_regions
from napari_saf.result import Segmentation

_GIVEN = "was given as an array, which a recipe cannot repeat"


class _Regions(storage.FileModel):
    level: float = Field(ge=0, le=1)


class _RecipeFile(storage.VersionedModel):
    """Entries of a recipe; those of any type say where it comes from and are not used."""

    method: Any = Field(None, validate_default=True)
    parameters: dict[Any, Any] = Field(default_factory=dict)
    input: dict[Any, Any] | None = None
    regions: _Regions | None = None
    versions: Any = None
    images: Any = None
    files: Any = None
    labels: Any = None

    @field_validator("method")
    @classmethod
    def _check_method(cls, name: object) -> object:
        if not isinstance(name, str) or name not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}")
        return name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """What repeats a run: the method with its parameters, and how an image becomes a problem.

    `options` are None if the run was on a graph; `raw` is the content of the file. At the `level`
    the parts of labels become regions, see `RegionHierarchy.at_level`; None: labels alone.
    """

    method: AbstractMethod
    options: ImageOptions | None
    raw: dict[str, Any]
    level: float | None = None

    @classmethod
    def from_plain(cls, raw: object) -> Recipe:
        """Return the recipe that `Segmentation.recipe` or a file holds; errors as `load_recipe`."""
        file = storage.validated(_RecipeFile, raw)
        _refuse_given(file.parameters)
        method = from_plain(METHODS[file.method], file.parameters)
        _check_arrays(method, "parameters")
        options = None if file.input is None else ImageOptions.from_plain(file.input)
        if options is not None:
            check_repeatable(options)
        level = None if file.regions is None else file.regions.level
        return cls(method, options, cast("dict[str, Any]", raw), level)

    def with_rescale(self, rescale: bool) -> Recipe:
        """Return the recipe with another `rescale`, see `problem`; the same without a scaling."""
        if self.options is None or self.options.scaling is None:
            return self
        options = dataclasses.replace(self.options, rescale=rescale)
        raw = self.raw | {"input": options.to_plain()}
        return dataclasses.replace(self, options=options, raw=raw)

    def problem(
        self,
        image: ArrayLike,
        *,
        mask: ArrayLike | Literal["finite"] | None = None,
        seeds: ArrayLike | None = None,
        rescale: bool | None = None,
    ) -> Problem:
        """Make another image, of as many channels, a problem as the first one was made one.

        Arguments and errors are those of `Problem.from_image`; a recipe keeps neither mask nor
        seeds. `rescale` says whether the 0.1 and 99.9 percentiles of this image become 0 and 1,
        for images of other brightness, or the values that did in the first one; None: as the
        recipe says, which is True unless a scaling was given. InvalidInput if the recipe is of a
        run on a graph.
        """
        if self.options is None:
            raise InvalidInput("recipe: is of a run on a graph, not on an image")
        check_repeatable(self.options)
        arguments = self.options.for_others(rescale).arguments()
        return Problem.from_image(image, mask=mask, seeds=seeds, **arguments)

    def run(
        self,
        image: ArrayLike,
        *,
        mask: ArrayLike | Literal["finite"] | None = None,
        seeds: ArrayLike | None = None,
        rescale: bool | None = None,
    ) -> Segmentation:
        """Repeat the run on another image: the method on `problem`, with its arguments.

        Where the recipe has a level, the result has `regions` beside the labels.
        """
        problem = self.problem(image, mask=mask, seeds=seeds, rescale=rescale)
        result = self.method.run(problem)
        if self.level is None:
            return result
        assert problem.options is not None and not isinstance(result.labels, list)
        tree = merge_regions(result.labels, image, channel_axis=problem.options.channel_axis)
        recipe = with_level(result.recipe, self.level)
        return dataclasses.replace(result, regions=tree.at_level(self.level), recipe=recipe)


def with_level(recipe: dict[str, Any], level: float | None) -> dict[str, Any]:
    """Return the recipe of a run as that of its regions at a level; None: of its labels."""
    own = {key: value for key, value in recipe.items() if key != "regions"}
    return own if level is None else own | {"regions": {"level": level}}


def save_recipe(
    path: str | os.PathLike[str], recipe: dict[str, Any], *, overwrite: bool = True
) -> Path:
    """Save the recipe of a run (`Segmentation.recipe`) as JSON.

    Raises
    ------
    InvalidInput
        If the recipe holds something that a file cannot repeat, such as a given affinity.
    SafError
        If the file cannot be written, or is there and may not be overwritten.
    """
    _refuse_given(recipe.get("parameters"))
    options = recipe.get("input")
    if isinstance(options, dict) and options.get("features") == GIVEN_FEATURES:
        raise InvalidInput(f"input.features: {_GIVEN}")
    try:
        text = json.dumps(recipe, indent=2, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"recipe: expected values that JSON can hold: {error}") from error
    storage.write_json(Path(path), text, overwrite=overwrite)
    return Path(path)


def load_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Load a recipe.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: not JSON, an unknown version of the schema,
        an unknown method or parameter, a value of the wrong kind or out of bounds, or
        something that a recipe cannot repeat.
    """
    file = Path(path)
    with storage.format_errors(file, "a recipe"):
        return Recipe.from_plain(storage.read_json(file))


def check_repeatable(options: ImageOptions) -> None:
    """Raise InvalidInput if the features were given as an array, which no file holds."""
    if options.features == GIVEN_FEATURES:
        raise InvalidInput(f"input.features: {_GIVEN}")


def _refuse_given(parameters: object) -> None:
    """Refuse what is in a recipe as a trace only, such as a given affinity."""
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if isinstance(value, dict) and "kind" in value and value["kind"] is None:
            raise InvalidInput(f"parameters.{name}: {_GIVEN}")


def _check_arrays(value: Any, where: str) -> None:
    """Refuse arrays of anything but finite numbers."""
    for field in dataclasses.fields(value):
        inner, name = getattr(value, field.name), f"{where}.{field.name}"
        if dataclasses.is_dataclass(inner):
            _check_arrays(inner, name)
        elif isinstance(inner, np.ndarray):
            if inner.dtype.kind not in "iuf" or not inner.size or not np.isfinite(inner).all():
                raise InvalidInput(f"{name}: expected finite numbers, got {inner.dtype}")
