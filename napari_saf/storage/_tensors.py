"""Safetensors files with a JSON header; never a pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.storage._atomic_write import atomic_write
from napari_saf.storage._reading import Model, parse_json, read_limited, validated

_KEY = "napari-saf"
"""Where the header of a safetensors file holds what this project wrote there."""
_MOST_BYTES = 2**28


def save_tensors(
    path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]], header: Mapping[str, object]
) -> Path:
    """Write tensors and a header to a file, complete or not at all."""
    from safetensors.numpy import save

    content = save(tensors, metadata={_KEY: json.dumps(header, allow_nan=False)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def load_tensors(
    path: str | os.PathLike[str], model: type[Model]
) -> tuple[dict[str, NDArray[Any]], Model]:
    """Return the tensors of a file and its header; raise InvalidInput if it is none of ours."""
    from safetensors.numpy import load

    content = read_limited(Path(path), _MOST_BYTES)
    try:
        tensors = load(content)
    except Exception as error:  # whatever the library raises for a damaged file
        fault = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"not a safetensors file, or a damaged one: {fault}") from error
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    if _KEY not in metadata:
        raise InvalidInput(f"expected an entry {_KEY!r} in the header: no file of napari-saf")
    return tensors, validated(model, parse_json(metadata[_KEY]))
