"""Prototypes with names and colours, and what they were measured in: a small file."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from napari_saf import storage
from napari_saf.arrays import as_dict, as_whole
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io._image import read_image
from napari_saf.io._masks import check_color, check_name
from napari_saf.io._paths import PROTOTYPE_SUFFIXES, check_suffix
from napari_saf.io._recipe import Recipe, check_repeatable
from napari_saf.methods import method_with_prototypes
from napari_saf.parameters import to_plain
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import MOST_LABELS

_MOST_TABLE_BYTES = 2**25
"""65,535 prototypes of 20 features take half of it."""
_VERSION = importlib.metadata.version("napari-saf")


class _LabelEntry(storage.FileModel):
    label: Annotated[int, Field(gt=0, le=MOST_LABELS)]
    name: storage.Text = ""
    color: list[float] = Field(default_factory=list)
    prototypes: list[list[float]]


class _PrototypeFile(storage.VersionedModel):
    kind: Literal["prototypes"]
    software: Any = None
    input: dict[Any, Any] | None
    labels: Annotated[list[_LabelEntry], Field(min_length=1)]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PrototypeSet:
    """What stands for the labels of an image, to label others with.

    Parameters
    ----------
    vectors : array of shape (n_prototypes, n_features)
        Finite numbers.
    labels : array of int of shape (n_prototypes,), optional
        The label that each stands for, 1 or more; a label may have several. None: 1, 2, ...
    names : mapping of int to str
        Names by label; not all need one.
    colors : mapping of int to sequence of float
        Red, green and blue in [0, 1], by label; not all need one.
    options : ImageOptions or None
        The features that the prototypes are made of, and the scaling of the image before.
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    options: ImageOptions | None = None

    def __post_init__(self) -> None:
        vectors = _check_vectors(self.vectors)
        given = np.arange(1, len(vectors) + 1) if self.labels is None else np.asarray(self.labels)
        if given.shape != (len(vectors),) or given.dtype.kind not in "iu":
            raise InvalidInput(
                f"labels: expected {len(vectors)} whole numbers, got {given.dtype} "
                f"of shape {given.shape}"
            )
        wrong = given[(given < 1) | (given > MOST_LABELS)]
        if len(wrong):
            raise InvalidInput(f"labels: expected 1 to {MOST_LABELS}, got {wrong[0]}")
        for label, name in as_dict(self.names, "names").items():
            check_name(label, name)
        if not isinstance(self.options, ImageOptions | None):
            raise InvalidInput(f"options: expected ImageOptions, got {self.options!r:.60}")
        if self.options is not None:
            check_repeatable(self.options)
        colors = as_dict(self.colors, "colors")
        colors = {label: check_color(color)[:3] for label, color in colors.items()}
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "labels", given.astype(np.int64))
        object.__setattr__(self, "colors", colors)

    @classmethod
    def from_labels(
        cls,
        problem: Problem,
        labels: ArrayLike | None = None,
        n_each: int = 8,
        *,
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, Sequence[float]] | None = None,
    ) -> PrototypeSet:
        """Return what stands for the labels of an image: a few means of the features of each.

        One mean of a label that appears in several ways would be like none of them.

        Parameters
        ----------
        problem : Problem
            Of the image, in the features in which others will be labelled.
        labels : array of int, optional
            Image-shaped or (n_nodes,), 0 where not known: a result, a corrected mask, strokes.
            None: the seeds of the problem.
        n_each : int
            >= 1; means of a label at most, fewer where fewer of its nodes differ.
        names, colors : mapping, optional
            By label.
        """
        try:
            known = problem if labels is None else problem.with_seeds(labels)
        except InvalidInput as error:
            raise InvalidInput(f"labels: {str(error).removeprefix('seeds: ')}") from error
        if known.seeds is None:
            raise InvalidInput("labels: expected some, or a problem with seeds")
        n_means = as_whole(n_each)
        if n_means is None or n_means < 1:
            raise InvalidInput(f"n_each: expected at least 1, a whole number, got {n_each!r}")
        numbers = np.unique(known.seeds[known.seeds > 0])
        points = {int(n): _means(problem.features[known.seeds == n], n_means) for n in numbers}
        given = problem.options
        options = None if given is None or given.features not in FEATURES else given
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
        """Return prototypes by label, the inverse of `by_label`; names of others are left out."""
        if not points:
            raise InvalidInput("prototypes: expected those of at least one label")
        if len({own.shape[1] for own in points.values()}) > 1:
            raise InvalidInput("prototypes: expected as many numbers for each label")
        numbers = sorted(points)
        return cls(
            np.concatenate([points[number] for number in numbers]),
            np.repeat(numbers, [len(points[number]) for number in numbers]),
            {n: name for n, name in (names or {}).items() if n in points},
            {n: color for n, color in (colors or {}).items() if n in points},
            options,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the parameters of the assignment flow that labels by these prototypes."""
        return {"prototypes": self.vectors, "prototype_labels": self.labels}

    def recipe(self) -> Recipe:
        """Return what labels other images by these prototypes, each scaled as `options` say."""
        if self.options is None:
            raise InvalidInput("it is not known what the prototypes are made of")
        method = method_with_prototypes(self.vectors, labels=self.labels)
        plain = {"method": method.name, "parameters": to_plain(method)}
        return Recipe.from_plain({"schema": 1, "input": self.options.to_plain(), **plain})

    def by_label(self) -> dict[int, NDArray[np.float32]]:
        """Return the prototypes (n_own, n_features) of each label, by label, ascending."""
        assert self.labels is not None
        return {int(label): self.vectors[self.labels == label] for label in np.unique(self.labels)}


def save_prototypes(path: str | os.PathLike[str], prototypes: ArrayLike | PrototypeSet) -> Path:
    """Save prototypes.

    Parameters
    ----------
    path : path
        Ends in ``.npy`` or ``.csv`` (comma separated, no header), which hold the numbers alone, a
        row each, or in ``.json``, with names, colours, features and scaling as well.
    prototypes : array of shape (n_prototypes, n_features) or PrototypeSet
        Row l - 1 of an array stands for label l; rows that are not finite are left out.

    Raises
    ------
    InvalidInput
        If the suffix is unknown or there are no prototypes.
    SafError
        If the file cannot be written.
    """
    target = Path(path)
    suffix = check_suffix(target, PROTOTYPE_SUFFIXES)
    if not isinstance(prototypes, PrototypeSet):
        rows = np.asarray(prototypes, dtype=np.float32)
        if rows.ndim != 2:
            raise InvalidInput(f"prototypes: expected a row for each, got shape {rows.shape}")
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        if not rows[finite].size:
            raise InvalidInput("prototypes: expected at least one of finite numbers")
        prototypes = PrototypeSet(rows[finite], finite + 1)
    if suffix == ".json":
        storage.write_json(target, _to_text(prototypes))
        return target
    with storage.atomic_write(target) as temporary, temporary.open("wb") as file:
        if suffix == ".npy":
            np.save(file, prototypes.vectors, allow_pickle=False)
        else:
            # str of a float32 is the shortest text that gives it back.
            np.savetxt(file, prototypes.vectors.astype(str), fmt="%s", delimiter=",")
    return target


def load_prototypes(path: str | os.PathLike[str]) -> PrototypeSet:
    """Load what `save_prototypes` wrote; nothing in the file is executed.

    From ``.npy`` and ``.csv`` come the numbers alone: row l - 1 then stands for label l.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: not JSON, of an unknown version, an entry
        that is unknown, missing or of the wrong kind, numbers that are not finite.
    """
    file = Path(path)
    with storage.format_errors(file, "a file of prototypes"):
        if file.suffix.lower() != ".json":
            return PrototypeSet(read_array(file))
        entries = storage.validated(_PrototypeFile, storage.read_json(file))
        given = {entry.label: entry for entry in entries.labels}
        if len(given) < len(entries.labels):
            raise InvalidInput("labels: expected each label once")
        return PrototypeSet.from_points(
            {n: _check_vectors(one.prototypes) for n, one in given.items()},
            names={n: one.name for n, one in given.items() if "name" in one.model_fields_set},
            colors={n: one.color for n, one in given.items() if "color" in one.model_fields_set},
            options=None if entries.input is None else ImageOptions.from_plain(entries.input),
        )


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (comma separated, no header).

    FormatError names the file and what is wrong with it, such as a ``.csv`` of more than 32 MiB.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix == ".npy":
        return read_image(file).array
    if suffix != ".csv":
        raise FormatError(f"{file}: expected a .npy or .csv file")
    with storage.format_errors(file, "a table of numbers"):
        text = storage.read_limited(file, _MOST_TABLE_BYTES).decode("utf-8-sig")
        lines = (line for line in text.splitlines() if line.strip())
        array = np.array([[float(cell) for cell in line.split(",")] for line in lines], dtype=float)
        if array.size == 0:
            raise InvalidInput("expected numbers, the file is empty")
        return array


def _means(features: NDArray[np.floating], n_means: int) -> NDArray[np.float32]:
    """Return at most so many means that stand for features (n_nodes, n_features), by k-means."""
    means = sampled_means(features, n_means) if n_means > 1 else features[:1]
    if len(means) == 1:
        means = features.mean(axis=0, dtype=np.float64, keepdims=True)
    return np.asarray(means, np.float32)


def _check_vectors(vectors: ArrayLike) -> NDArray[np.float32]:
    array = np.asarray(vectors)
    if array.dtype.kind not in "biuf" or array.ndim != 2 or not array.size:
        raise InvalidInput(
            f"prototypes: expected a row of numbers for each, got {array.dtype} of shape "
            f"{array.shape}"
        )
    with np.errstate(over="ignore"):
        rows = array.astype(np.float32)
    if not np.isfinite(rows).all():
        raise InvalidInput("prototypes: expected finite numbers")
    return rows


def _to_text(prototypes: PrototypeSet) -> str:
    """Return the content of a file, with a line for each label."""

    def to_json(value: object) -> str:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)

    options = None if prototypes.options is None else prototypes.options.to_plain()
    head = {"schema": 1, "kind": "prototypes", "software": _VERSION, "input": options}
    rows = []
    for label, vectors in prototypes.by_label().items():
        row: dict[str, Any] = {"label": label}
        if label in prototypes.names:
            row["name"] = prototypes.names[label].strip()
        if label in prototypes.colors:
            row["color"] = [round(value, 4) for value in prototypes.colors[label]]
        # The shortest numbers that are the same in float32.
        row["prototypes"] = [[float(str(value)) for value in vector] for vector in vectors]
        rows.append(to_json(row))
    lines = [f"{to_json(name)}: {to_json(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, '"labels": [', ",\n".join(rows), "]", "}"])
