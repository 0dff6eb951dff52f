"""The images of OME-Zarr groups."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.io._opened import Opened, Sizes
from napari_saf.storage import check_room

if TYPE_CHECKING:
    import zarr

    from napari_saf.io._checked_store import CheckedStore


def open_zarr(store: CheckedStore, number: int | None = None) -> Opened:
    """Return the multiscale image of an OME-Zarr group (0.1 to 0.6), or a plain array.

    `number` selects one of several images. Only metadata is read; the store checks chunks.
    """
    import zarr

    try:
        group: Any = zarr.open(store, mode="r")
    except FileNotFoundError as error:
        raise ValueError("no zarr store is there") from error
    if not isinstance(group, zarr.Group):
        store.arrays[""] = group
        return _opened([group], "", {}, {})
    attributes = _ome_attributes(group)
    if not attributes.get("multiscales"):
        images = images_of_group(group)
        if images:
            raise ValueError(f"it holds {len(images)} images, such as {images[0]}: name one")
        raise ValueError("the folder holds no OME-Zarr image")
    multiscales = attributes["multiscales"]
    n_images = len(multiscales)
    if (n_images > 1 and number is None) or (number or 0) >= n_images:
        raise ValueError(f"it holds {n_images} images: name one by #0, #1, ... at the end")
    multiscale = multiscales[number or 0]
    levels: list[Any] = [_member(group, dataset["path"]) for dataset in multiscale["datasets"]]
    store.arrays.update({level.path: level for level in levels})
    stored = levels[0]
    if stored.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got {stored.dtype}")
    systems = multiscale.get("coordinateSystems") or [{}]  # from 0.6 on
    axes = multiscale.get("axes", systems[0].get("axes", "tczyx"))[-stored.ndim :]
    if len(axes) != stored.ndim:
        raise ValueError(f"{len(axes)} axes are named, the array has {stored.ndim}")
    # Before version 0.4 axes were strings.
    described = [{"name": axis} if isinstance(axis, str) else axis for axis in axes]
    kinds = {"channel": "c", "time": "t"}
    names = [kinds.get(str(axis.get("type")), str(axis["name"]).lower()[:1]) for axis in described]
    scale, translation = _placement(multiscale, stored.ndim)
    entries = zip(names, scale, described, strict=False)
    sizes = {name: (size, str(axis.get("unit", "pixel"))) for name, size, axis in entries}
    moved = {n: first for n, first in zip(names, translation, strict=False) if first and n != "c"}
    return _opened(levels, "".join(names), sizes, moved)


def _opened(levels: list[Any], axes: str, sizes: Sizes, origin: dict[str, float]) -> Opened:
    from napari_saf.io._checked_store import check_codecs, check_count

    first = levels[0]

    def read() -> NDArray[Any]:
        check_room(first.nbytes)
        check_codecs(first)
        check_count(first)
        return np.asarray(first[...])

    text = json.dumps(first.metadata.to_dict(), sort_keys=True, default=str)
    state = {"metadata": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return Opened(axes=axes, read=read, levels=levels, sizes=sizes, origin=origin, state=state)


def _ome_attributes(group: zarr.Group) -> Any:
    attributes: Any = dict(group.attrs)
    return attributes.get("ome", attributes)


def images_of_group(group: zarr.Group) -> list[str]:
    """Return the paths of the images in a group ("" for the group itself), plate or file.

    Files converted by bioformats2raw have an image per series, plates one per field.
    """
    attributes = _ome_attributes(group)
    if attributes.get("multiscales"):
        return [""] * len(attributes["multiscales"])
    if "plate" in attributes:
        wells = [str(well["path"]) for well in attributes["plate"].get("wells", ())]
        images = []
        for well in wells:
            fields = _ome_attributes(_member(group, well)).get("well", {}).get("images", ())
            images += [f"{well}/{field['path']}" for field in fields]
        return images
    if "bioformats2raw.layout" in attributes:
        listed = _ome_attributes(group["OME"]).get("series") if "OME" in group else None
        numbers = sorted((name for name in group.group_keys() if name.isdigit()), key=int)
        return [str(name) for name in listed or numbers]
    return []


def _member(group: zarr.Group, name: object) -> Any:
    """Return an array or group within a group; raise ValueError for a path outside it."""
    if not isinstance(name, str) or ".." in name.split("/") or name.startswith("/"):
        raise ValueError(f"level {name!r}: expected a place within the folder")
    return group[name]


def _placement(multiscale: Any, n_axes: int) -> tuple[list[float], list[float]]:
    """Return pixel sizes and origin along each axis; empty if unknown."""
    scale, translation, is_known = np.ones(n_axes), np.zeros(n_axes), False
    pending = [
        transformation
        for level in (multiscale["datasets"][0], multiscale)
        for transformation in level.get("coordinateTransformations", [])
    ]
    while pending:
        transformation = pending.pop(0)
        type_ = transformation.get("type")
        if type_ == "sequence":
            pending = [*transformation["transformations"], *pending]
        elif type_ == "scale":
            factors = _numbers(transformation["scale"], "scale", n_axes)
            if not (factors > 0).all():
                raise ValueError(f"scale: expected {n_axes} sizes above 0, got {factors.tolist()}")
            scale, translation, is_known = scale * factors, translation * factors, True
        elif type_ == "translation":
            steps = _numbers(transformation["translation"], "translation", n_axes)
            translation = translation + steps
            is_known = True
        elif type_ != "identity":
            raise ValueError(f"coordinate transformation {type_!r}: expected scale or translation")
    return (scale.tolist(), translation.tolist()) if is_known else ([], [])


def _numbers(values: Any, name: str, n_axes: int) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=float)
    if numbers.shape != (n_axes,) or not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected {n_axes} finite numbers, got {numbers.tolist()}")
    return numbers
