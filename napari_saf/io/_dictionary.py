"""Patch dictionaries as files: atoms in a safetensors file, the rest as JSON in its header."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._paths import check_suffix
from napari_saf.io._reading import (
    HEADER_KEY,
    FileModel,
    Text,
    VersionedModel,
    format_errors,
    parse_tensors,
    read_limited,
)

__all__ = ["DICTIONARY_SUFFIX", "load_dictionary", "save_dictionary"]

DICTIONARY_SUFFIX = ".safetensors"
"""What the name of a dictionary ends in."""
_MOST_BYTES = 2**28
_Count = Annotated[int, Field(ge=0, lt=2**62)]


class _Scaling(FileModel):
    low: float
    high: float


class _Header(VersionedModel):
    """Entries of the header, in the order in which they are written."""

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


def save_dictionary(path: str | os.PathLike[str], dictionary: PatchDictionary) -> Path:
    """Save a dictionary.

    Parameters
    ----------
    path : path
        Ends in ``.safetensors``.
    dictionary : PatchDictionary
        What to save.

    Raises
    ------
    InvalidInput
        If the name ends otherwise.
    SafError
        If the file cannot be written.
    """
    from safetensors.numpy import save

    target = Path(path)
    check_suffix(target, (DICTIONARY_SUFFIX,))
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
    atoms = {"atoms": np.ascontiguousarray(dictionary.atoms, dtype="<f4")}
    content = save(atoms, metadata={HEADER_KEY: json.dumps(header, allow_nan=False)})
    with atomic_write(target) as temporary:
        temporary.write_bytes(content)
    return target


def load_dictionary(path: str | os.PathLike[str]) -> PatchDictionary:
    """Load a dictionary; nothing in the file is executed.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: no such file, not a safetensors file,
        truncated, of an unknown version, without atoms, or with impossible values.
    """
    file = Path(path)
    with format_errors(file, "a dictionary"):
        tensors, header = parse_tensors(read_limited(file, _MOST_BYTES), _Header)
        if "atoms" not in tensors:
            names = ", ".join(sorted(tensors)) or "none"
            raise InvalidInput(f"expected a tensor 'atoms', got {names}")
        atoms = tensors["atoms"]
        if atoms.dtype != np.float32:
            raise InvalidInput(f"atoms: expected float32, got {atoms.dtype}")
        shape = (len(header.usage), header.patch_size, header.patch_size, header.channels)
        if atoms.shape != shape:
            raise InvalidInput(f"atoms: expected shape {shape} by the header, got {atoms.shape}")
        return PatchDictionary(
            atoms=atoms,
            usage=np.array(header.usage, dtype=np.int64),
            scaling=Scaling(header.scaling.low, header.scaling.high),
            s=header.s,
            window=header.window,
            shift_window=header.shift_window,
            distance=header.distance,
            images=tuple(header.images),
            software=header.software,
        )
