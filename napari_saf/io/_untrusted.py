"""Files from anywhere: read up to a size, parsed as plain values, faults told in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf.device import free_memory
from napari_saf.errors import FormatError, InvalidInput

__all__ = [
    "HEADER_KEY",
    "check_room",
    "faults_named",
    "parse_json",
    "parse_tensors",
    "read_at_most",
]

HEADER_KEY = "napari-saf"
"""Where the header of a safetensors file holds what this project wrote there."""

_ALWAYS = 2**28
_MOST_UNPACKED = 50_000
"""A file may unpack to so many bytes, or so many times its size: zstd makes 1 of 30,000 zeros."""


@contextmanager
def faults_named(file: Path, expected: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a FormatError that names the file.

    Parameters
    ----------
    file : Path
        The file that is read.
    expected : str
        What the file should be, with its article, as in "a recipe".
    """
    try:
        yield
    except FormatError:
        raise
    except InvalidInput as error:
        raise FormatError(f"{file}: {error}") from error
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        fault = " ".join(str(error).split())[:200]
        raise FormatError(f"{file}: not {expected}: {fault}") from error


def check_room(n_bytes: int, n_stored: int | None = None) -> None:
    """Check what a file says of the size of its image: a small one may claim a large image.

    Parameters
    ----------
    n_bytes : int
        Of the pixels.
    n_stored : int, optional
        Of the file.

    Raises
    ------
    MemoryError
        If as much is not free.
    ValueError
        If no compression makes so much of so little.
    """
    if n_stored is not None and n_bytes > max(_ALWAYS, _MOST_UNPACKED * n_stored):
        raise ValueError(f"it says that it has {n_bytes} bytes of pixels, in a file of {n_stored}")
    if n_bytes > free_memory():
        raise MemoryError


def read_at_most(file: Path, n_bytes: int) -> bytes:
    """Read a file whole; raise InvalidInput if it is larger than `n_bytes`."""
    with file.open("rb") as stream:
        content = stream.read(n_bytes + 1)
    if len(content) > n_bytes:
        raise InvalidInput(f"expected at most {n_bytes // 2**20} MiB")
    return content


def parse_json(content: bytes | str) -> object:
    """Return what JSON in UTF-8 says; raise InvalidInput for a number that is not finite.

    Some editors begin a file with a mark of byte order, which is left out.
    """
    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    plain: object = json.loads(text, parse_constant=_refuse_constant)
    return plain


def parse_tensors(content: bytes, schema: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the tensors of a safetensors file of this project, and its header.

    Raises
    ------
    InvalidInput
        If it is none, or of another schema.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as error:
        fault = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"not a safetensors file, or a damaged one: {fault}") from error
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    if HEADER_KEY not in metadata:
        raise InvalidInput(f"expected an entry {HEADER_KEY!r} in the header: no file of napari-saf")
    header = parse_json(metadata[HEADER_KEY])
    if not isinstance(header, dict):
        raise InvalidInput(f"header: expected an object, got {type(header).__name__}")
    found = header.get("schema")
    if found != schema or isinstance(found, bool):
        raise InvalidInput(f"schema: expected {schema}, got {found!r}")
    return tensors, header


def _refuse_constant(name: str) -> object:
    raise InvalidInput(f"expected finite numbers, got {name}")
