"""Patch dictionaries as files: atoms in a safetensors file, the rest as JSON in its header."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._untrusted import HEADER_KEY, faults_named, parse_tensors, read_at_most

__all__ = ["DICTIONARY_SUFFIX", "load_dictionary", "save_dictionary"]

DICTIONARY_SUFFIX = ".safetensors"
"""What the name of a dictionary ends in."""
_SCHEMA = 1
_INVARIANCE = "dihedral-8"
_MOST_BYTES = 2**28
_ENTRIES = {
    "schema": int,
    "patch_size": int,
    "channels": int,
    "scaling": dict,
    "invariance": str,
    "s": float,
    "window": int,
    "shift_window": int,
    "distance": float,
    "usage": list,
    "software": str,
    "images": list,
}


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
    if target.suffix.lower() != DICTIONARY_SUFFIX:
        raise InvalidInput(f"{target}: expected a name that ends in {DICTIONARY_SUFFIX}")
    header = {
        "schema": _SCHEMA,
        "patch_size": dictionary.patch_size,
        "channels": dictionary.n_channels,
        "scaling": dataclasses.asdict(dictionary.scaling),
        "invariance": _INVARIANCE,
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
    with faults_named(file, "a dictionary"):
        return _parse(read_at_most(file, _MOST_BYTES))


def _parse(content: bytes) -> PatchDictionary:
    tensors, header = parse_tensors(content, _SCHEMA)
    atoms = _atoms(tensors)
    _check_header(header)
    shape = (len(header["usage"]), *(header["patch_size"],) * 2, header["channels"])
    if atoms.shape != shape:
        raise InvalidInput(f"atoms: expected shape {shape} by the header, got {atoms.shape}")
    return PatchDictionary(
        atoms=atoms,
        usage=np.array(header["usage"], dtype=np.int64),
        scaling=Scaling(float(header["scaling"]["low"]), float(header["scaling"]["high"])),
        s=float(header["s"]),
        window=header["window"],
        shift_window=header["shift_window"],
        distance=float(header["distance"]),
        images=tuple(header["images"]),
        software=header["software"],
    )


def _atoms(tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    if "atoms" not in tensors:
        raise InvalidInput(f"expected a tensor 'atoms', got {', '.join(sorted(tensors)) or 'none'}")
    atoms = tensors["atoms"]
    if atoms.dtype != np.float32:
        raise InvalidInput(f"atoms: expected float32, got {atoms.dtype}")
    return atoms


def _check_header(header: dict[str, Any]) -> None:
    """Refuse a header unless each of its entries is of the kind that it should be."""
    if set(header) != set(_ENTRIES):
        wrong = sorted(set(header) ^ set(_ENTRIES))[0]
        word = "unknown" if wrong in header else "missing"
        raise InvalidInput(f"header: {word} entry {wrong!r}")
    for name, kind in _ENTRIES.items():
        _check_kind(name, header[name], kind)
    _check_values(header)


def _check_values(header: dict[str, Any]) -> None:
    if header["invariance"] != _INVARIANCE:
        raise InvalidInput(f"invariance: expected {_INVARIANCE!r}, got {header['invariance']!r}")
    if set(header["scaling"]) != {"low", "high"}:
        raise InvalidInput(f"scaling: expected low and high, got {sorted(header['scaling'])}")
    for name, value in header["scaling"].items():
        _check_kind(f"scaling.{name}", value, float)
    for count in header["usage"]:
        _check_kind("usage", count, int)
    for image in header["images"]:
        _check_kind("images", image, str)


def _check_kind(name: str, value: object, kind: type) -> None:
    """Refuse a value of another kind, or a number too large to be one of ours."""
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InvalidInput(f"{name}: expected {kind.__name__}, got {value!r:.60}")
    if isinstance(value, int) and not abs(value) < 2**62:
        raise InvalidInput(f"{name}: expected a smaller number, got {value!r:.60}")
