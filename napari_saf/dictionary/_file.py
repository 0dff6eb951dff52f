"""The file of a dictionary: atoms as a tensor, all else in the header."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from napari_saf.dictionary._atoms import PatchAtoms
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling
from napari_saf.storage import FileModel, Text, VersionedModel, load_tensors, save_tensors

DICTIONARY_SUFFIX = ".safetensors"
"""What the name of a dictionary ends in."""
_Count = Annotated[int, Field(ge=0, lt=2**62)]


class _Scaling(FileModel):
    low: float
    high: float


class _Header(VersionedModel):
    patch_size: _Count
    channels: _Count
    scaling: _Scaling
    invariance: Literal["dihedral-8"]
    s: float
    window: _Count
    shift_window: _Count
    distance: float
    usage: list[_Count]
    software: Text
    images: list[Text]


def write_dictionary(path: str | os.PathLike[str], dictionary: PatchAtoms) -> None:
    """Write a dictionary; see `PatchDictionary.save`."""
    if Path(path).suffix.lower() != DICTIONARY_SUFFIX:
        raise InvalidInput(f"{path}: expected a name that ends in {DICTIONARY_SUFFIX}")
    header = {
        "schema": 1,
        "patch_size": dictionary.patch_size,
        "channels": dictionary.n_channels,
        "scaling": dataclasses.asdict(dictionary.scaling),
        "invariance": "dihedral-8",
        "s": dictionary.s,
        "window": dictionary.window,
        "shift_window": dictionary.shift_window,
        "distance": dictionary.distance,
        "usage": dictionary.usage.tolist(),
        "software": dictionary.software,
        "images": list(dictionary.images),
    }
    atoms = np.ascontiguousarray(dictionary.atoms, dtype="<f4")
    save_tensors(path, {"atoms": atoms}, header)


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the dictionary in a file; raise InvalidInput if there is none."""
    tensors, header = load_tensors(path, _Header)
    if "atoms" not in tensors:
        names = ", ".join(sorted(tensors)) or "none"
        raise InvalidInput(f"expected a tensor 'atoms', got {names}")
    atoms = tensors["atoms"]
    if atoms.dtype != np.float32:
        raise InvalidInput(f"atoms: expected float32, got {atoms.dtype}")
    shape = (len(header.usage), header.patch_size, header.patch_size, header.channels)
    if atoms.shape != shape:
        raise InvalidInput(f"atoms: expected shape {shape} by the header, got {atoms.shape}")
    same = ("s", "window", "shift_window", "distance", "software")
    return {name: getattr(header, name) for name in same} | {
        "atoms": atoms,
        "usage": np.array(header.usage, dtype=np.int64),
        "scaling": Scaling(header.scaling.low, header.scaling.high),
        "images": tuple(header.images),
    }
