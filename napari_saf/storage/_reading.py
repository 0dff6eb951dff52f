"""Safe reading: limits on size, plain values only, and every fault as an error with the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_validator

from napari_saf.device import free_memory
from napari_saf.errors import FormatError, InvalidInput

Text = InstanceOf[str]
"""Any text: names of files may hold bytes that are none, which pydantic's ``str`` refuses."""
Model = TypeVar("Model", bound="FileModel")
_ALWAYS = 2**28
_MOST_UNPACKED = 50_000
"""A file may unpack to so many bytes, or so many times its size: zstd makes 1 of 30,000 zeros."""


class FileModel(BaseModel):
    """Entries of a file: no others, of exactly these types, finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class VersionedModel(FileModel):
    """The entries of a file of schema 1."""

    version: int = Field(alias="schema")

    @field_validator("version")
    @classmethod
    def _check_version(cls, version: int) -> int:
        if version != 1:
            raise ValueError("expected 1")
        return version


def validated(model: type[Model], plain: object) -> Model:
    """Return the entries of a file; raise InvalidInput that names the first wrong one."""
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    *parents, name = fault["loc"] or ("",)
    if fault["type"] == "missing":
        raise InvalidInput(f"{_place(parents)}missing entry {name!r}")
    if fault["type"] == "extra_forbidden":
        entries = sorted(field.alias or key for key, field in model.model_fields.items())
        known = "" if parents else f"; known: {', '.join(entries)}"
        raise InvalidInput(f"{_place(parents)}unknown entry {name!r}{known}")
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if fault["type"] in ("model_type", "dict_type"):
        message = "expected an object"
    raise InvalidInput(f"{_place(fault['loc'])}{message}, got {fault['input']!r:.60}")


def _place(keys: Sequence[int | str]) -> str:
    """Return where in a file something is, such as ``labels[3].color: ``."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"{path.removeprefix('.')}: " if path else ""


@contextmanager
def format_errors(file: Path, expected: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a FormatError that names the file.

    `expected` is what the file should be, with its article, as in "a recipe".
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
    """Check what a file of `n_stored` bytes says of the size of its pixels.

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


def read_limited(file: Path, n_bytes: int) -> bytes:
    """Read a file whole; raise InvalidInput if it is larger than `n_bytes`."""
    with file.open("rb") as stream:
        content = stream.read(n_bytes + 1)
    if len(content) > n_bytes:
        raise InvalidInput(f"expected at most {n_bytes // 2**20} MiB")
    return content


def parse_json(content: bytes | str) -> object:
    """Return the values in a JSON text in UTF-8, with or without a byte order mark.

    Raises InvalidInput for a number that is not finite.
    """

    def refuse(name: str) -> object:
        raise InvalidInput(f"expected finite numbers, got {name}")

    text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    plain: object = json.loads(text, parse_constant=refuse)
    return plain
