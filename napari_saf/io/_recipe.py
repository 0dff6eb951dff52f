"""Files of recipes, and the prototypes of labels that they may contain."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter, ValidationError, field_validator

from napari_saf import storage
from napari_saf.arrays import JsonObject, as_dict, as_path, as_whole, check_kind
from napari_saf.errors import InvalidInput
from napari_saf.input import GIVEN_FEATURES, ImageOptions
from napari_saf.io._labels import (
    check_color,
    check_name,
    check_vectors,
    count_labels,
    short_numbers,
)
from napari_saf.methods import METHODS
from napari_saf.points import sampled_means
from napari_saf.problem import Problem
from napari_saf.result import MOST_LABELS

_MOST_TAUGHT = 256
"""Maximum number of prototypes in a recipe, unless there are more labels."""
_GIVEN = "was given as an array, which a recipe cannot repeat"


class LabelEntry(storage.FileModel):
    """Entry of a label: name, colour and prototypes."""

    label: Annotated[int, Field(gt=0)]
    name: storage.Text = ""
    color: list[float] = Field(default_factory=list)
    prototypes: list[list[float]] = Field(default_factory=list)


class _Regions(storage.FileModel):
    level: float = Field(ge=0, le=1)


class DigestEntry(storage.FileModel):
    """Checksums of an image and, in blocks, of its labels.

    Stored in the provenance of a recipe, where earlier versions ignore them.
    """

    image: str
    labels: list[str]

    @classmethod
    def of_recipe(cls, provenance: Mapping[str, Any]) -> list[DigestEntry]:
        """Return the digests in the provenance of a recipe; may be empty."""
        versions = provenance.get("versions")
        entries = versions.get("digest") if isinstance(versions, dict) else None
        try:
            return TypeAdapter(list[cls]).validate_python(entries or [])  # type: ignore[valid-type]
        except ValidationError:
            return []


class RecipeFile(storage.VersionedModel):
    """Entries of a recipe; those of any type are provenance and not used."""

    method: Any = Field(None, validate_default=True)
    parameters: dict[Any, Any] = Field(default_factory=dict)
    input: dict[Any, Any] | None = None
    regions: _Regions | None = None
    objects: dict[Any, Any] | None = None
    probabilities: dict[Any, Any] | None = None
    taught: Annotated[list[LabelEntry], Field(min_length=1)] | None = None
    versions: Any = None
    images: Any = None
    files: Any = None
    labels: Any = None
    uncertainty: Any = None

    @property
    def options(self) -> ImageOptions | None:
        """Options by which the image of the run became a problem."""
        return None if self.input is None else ImageOptions.from_plain(self.input)

    @property
    def prototypes(self) -> PrototypeSet | None:
        """Prototypes learned from strokes."""
        return None if self.taught is None else PrototypeSet.from_entries(self.taught, self.options)

    @property
    def about(self) -> JsonObject:
        """The provenance of the recipe."""
        names = ("versions", "images", "files", "labels", "uncertainty")
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    @field_validator("method")
    @classmethod
    def _check_method(cls, name: object) -> object:
        if not isinstance(name, str) or name not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}")
        return name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PrototypeSet:
    """Prototypes of the labels of an image, for labelling other images.

    Parameters
    ----------
    vectors : array of shape (n_prototypes, n_features)
        Finite numbers.
    labels : array of int of shape (n_prototypes,), optional
        The label of each prototype, 1 or more; a label may have several. None: 1, 2, ...
    names : mapping of int to str
        Names by label; may be incomplete.
    colors : mapping of int to sequence of float
        Red, green and blue in [0, 1], by label; may be incomplete.
    options : ImageOptions or None
        Features and image scaling of the prototypes.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9]], np.ones((8, 8)))
    >>> problem = saf.Problem.from_image(image, features="intensity")
    >>> taught = saf.PrototypeSet.from_labels(problem, 1 + (image > 0.5))
    >>> pipeline = saf.Pipeline.from_prototypes(taught)
    >>> np.array_equal(pipeline.run(image.T).labels, 1 + (image.T > 0.5))  # another image
    True
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    options: ImageOptions | None = None

    def __post_init__(self) -> None:
        vectors = check_vectors(self.vectors)
        labels = np.arange(1, len(vectors) + 1) if self.labels is None else np.asarray(self.labels)
        if labels.shape != (len(vectors),) or labels.dtype.kind not in "iu":
            got = f"{labels.dtype} of shape {labels.shape}"
            raise InvalidInput(f"labels: expected {len(vectors)} whole numbers, got {got}")
        wrong = labels[(labels < 1) | (labels > MOST_LABELS)]
        if len(wrong):
            raise InvalidInput(f"labels: expected 1 to {MOST_LABELS}, got {wrong[0]}")
        for label, name in as_dict(self.names, "names").items():
            check_name(label, name)
        if not isinstance(self.options, ImageOptions | None):
            raise InvalidInput(f"options: expected ImageOptions, got {self.options!r:.60}")
        if self.options is not None:
            check_repeatable(self.options)
        colors = {n: check_color(color)[:3] for n, color in as_dict(self.colors, "colors").items()}
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "labels", labels.astype(np.int64))
        object.__setattr__(self, "colors", colors)

    @classmethod
    def from_labels(
        cls,
        problem: Problem,
        labels: ArrayLike | list[NDArray[Any]] | None = None,
        n_each: int = 8,
        *,
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, Sequence[float]] | None = None,
    ) -> PrototypeSet:
        """Return prototypes of the labels of an image: a few means of the features of each.

        Several means represent labels of varied appearance, unlike a single one.

        Parameters
        ----------
        problem : Problem
            Of the image, in the features in which others will be labelled.
        labels : array of int, optional
            Image-shaped or (n_nodes,), 0 for unknown: a result, a corrected mask or strokes.
            None: the seeds of the problem.
        n_each : int
            Maximum number of means per label, >= 1; fewer if it has fewer distinct nodes.
        names, colors : mapping, optional
            By label.
        """
        try:
            labelled = problem if labels is None else problem.with_seeds(labels)
        except InvalidInput as error:
            raise InvalidInput(f"labels: {str(error).removeprefix('seeds: ')}") from error
        if labelled.seeds is None:
            raise InvalidInput("labels: expected an array, or a problem with seeds")
        n_means = as_whole(n_each)
        if n_means is None or n_means < 1:
            raise InvalidInput(f"n_each: expected at least 1, a whole number, got {n_each!r}")
        numbers = np.unique(labelled.seeds[labelled.seeds > 0])
        points = {int(n): _means(problem.features[labelled.seeds == n], n_means) for n in numbers}
        image_options = problem.options
        options = None if image_options is None or not image_options.extractor else image_options
        return cls.from_points(points, names=names, colors=colors, options=options)

    @classmethod
    def from_points(
        cls,
        points: Mapping[int, NDArray[np.floating]],
        *,
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, Sequence[float]] | None = None,
        options: ImageOptions | None = None,
    ) -> PrototypeSet:
        """Return the set of prototypes given by label, the inverse of `by_label`."""
        if not points:
            raise InvalidInput("prototypes: expected those of at least one label")
        if len({vectors.shape[1] for vectors in points.values()}) > 1:
            raise InvalidInput("prototypes: expected as many numbers for each label")
        numbers = sorted(points)
        return cls(
            np.concatenate([points[number] for number in numbers]),
            np.repeat(numbers, [len(points[number]) for number in numbers]),
            {n: name for n, name in (names or {}).items() if n in points},
            {n: color for n, color in (colors or {}).items() if n in points},
            options,
        )

    @classmethod
    def fit(cls, problem: Problem, labels: ArrayLike | list[NDArray[Any]]) -> PrototypeSet | None:
        """Return `from_labels`, or None if the features do not transfer to other images.

        Labels of several images are a list. The number of means per label decreases with the
        number of labels, to at least one, which bounds the size of a recipe and the run time.
        """
        options = problem.options
        extractor = None if options is None else options.extractor
        if extractor is None or not extractor.is_portable:
            return None
        several = labels if isinstance(labels, list) else [labels]
        numbers = np.concatenate([np.ravel(np.asarray(image)) for image in several])
        n_labels = max(1, len(count_labels(numbers)[0]))
        return cls.from_labels(problem, labels, max(1, min(8, _MOST_TAUGHT // n_labels)))

    @classmethod
    def from_entries(
        cls, entries: Sequence[LabelEntry], options: ImageOptions | None
    ) -> PrototypeSet:
        """Return the prototypes from the label entries of a file."""
        by_label = {entry.label: entry for entry in entries}
        if len(by_label) < len(entries):
            raise InvalidInput("labels: expected each label once")
        return cls.from_points(
            {n: check_vectors(stored.prototypes) for n, stored in by_label.items()},
            names={
                n: stored.name
                for n, stored in by_label.items()
                if "name" in stored.model_fields_set
            },
            colors={
                n: stored.color
                for n, stored in by_label.items()
                if "color" in stored.model_fields_set
            },
            options=options,
        )

    def entries(self) -> list[JsonObject]:
        """Return plain values by label, the inverse of `from_entries`."""
        rows = []
        for label, vectors in self.by_label().items():
            row: JsonObject = {"label": label}
            if label in self.names:
                row["name"] = self.names[label].strip()
            if label in self.colors:
                row["color"] = [round(value, 4) for value in self.colors[label]]
            row["prototypes"] = short_numbers(vectors)
            rows.append(row)
        return rows

    def arguments(self) -> dict[str, Any]:
        """Return the prototypes as parameters of the assignment flow."""
        return {"prototypes": self.vectors, "prototype_labels": self.labels}

    @property
    def named(self) -> dict[str, Any]:
        """Names and colours as arguments of `save_masks`."""
        return {"names": self.names, "colors": self.colors}

    def by_label(self) -> dict[int, NDArray[np.float32]]:
        """Return the prototypes (n_own, n_features) of each label, by label, ascending."""
        assert self.labels is not None
        return {int(label): self.vectors[self.labels == label] for label in np.unique(self.labels)}


def with_level(recipe: JsonObject, level: float | None) -> JsonObject:
    """Return a recipe with the level of regions; None: for labels."""
    labels_only = {key: value for key, value in recipe.items() if key != "regions"}
    return labels_only if level is None else labels_only | {"regions": {"level": level}}


def with_prototypes(recipe: JsonObject, prototypes: PrototypeSet | None) -> JsonObject:
    """Return the recipe of a run with the prototypes learned from its strokes, if any."""
    return recipe if prototypes is None else recipe | {"taught": prototypes.entries()}


def rows_of_json(rows: Sequence[object], indent: str = "") -> str:
    """Return values as JSON, one per line."""
    dumped = (json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows)
    return ",\n".join(f"{indent}{row}" for row in dumped)


def save_recipe(
    path: str | os.PathLike[str], recipe: JsonObject, *, overwrite: bool = True
) -> Path:
    """Save the recipe of a run (`Segmentation.recipe`) as JSON.

    Raises
    ------
    InvalidInput
        If the recipe contains a value that a file cannot store, such as a given affinity.
    SafError
        If the file cannot be written, or exists and `overwrite` is False.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((8, 8))), window=3)
    >>> result = saf.SLK(n_clusters=2).run(problem)
    >>> path = saf.save_recipe("labels.recipe.json", result.recipe)
    >>> saf.load_recipe(path).method.n_clusters
    2
    """
    check_kind(recipe, Mapping, "recipe", "a mapping, such as the recipe of a Segmentation")
    _refuse_given(recipe.get("parameters"))
    options = recipe.get("input")
    if isinstance(options, dict) and options.get("features") == GIVEN_FEATURES:
        raise InvalidInput(f"input.features: {_GIVEN}")
    try:
        entries = {key: value for key, value in recipe.items() if key != "taught"}
        text = json.dumps(entries, indent=2, allow_nan=False, ensure_ascii=False)
        if "taught" in recipe:
            rows = rows_of_json(recipe["taught"], indent="    ")
            text = f'{text.removesuffix("}").rstrip()},\n  "taught": [\n{rows}\n  ]\n}}'
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"recipe: expected values that JSON can hold: {error}") from error
    return storage.write_json(as_path(path), text, overwrite=overwrite)


def check_recipe(raw: object) -> RecipeFile:
    """Return the validated entries of a recipe; InvalidInput names a wrong one."""
    file = storage.validated(RecipeFile, raw)
    _refuse_given(file.parameters)
    return file


def check_repeatable(options: ImageOptions) -> None:
    """Raise InvalidInput if the features were given as an array, which a recipe cannot store."""
    if options.features == GIVEN_FEATURES:
        raise InvalidInput(f"input.features: {_GIVEN}")


def _refuse_given(parameters: object) -> None:
    """Raise InvalidInput for values that a recipe only mentions, such as a given affinity."""
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if isinstance(value, dict) and "kind" in value and value["kind"] is None:
            raise InvalidInput(f"parameters.{name}: {_GIVEN}")


def _means(features: NDArray[np.floating], n_means: int) -> NDArray[np.float32]:
    """Return at most `n_means` k-means centres of features (n_nodes, n_features)."""
    means = sampled_means(features, n_means) if n_means > 1 else features[:1]
    if len(means) == 1:
        means = features.mean(axis=0, dtype=np.float64, keepdims=True)
    return np.asarray(means, np.float32)
