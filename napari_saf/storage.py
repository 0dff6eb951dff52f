"""Atomic writes, bounded reads, JSON and safetensors I/O.

Nothing read from a file is executed. File formats are defined where they are read.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import platformdirs
import psutil
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, field_validator

from napari_saf.device import free_memory
from napari_saf.errors import Cancelled, ComputeError, FormatError, InvalidInput, SafError, one_line

Text = InstanceOf[str]
"""Any string: file names may hold surrogates, which pydantic's ``str`` refuses."""
Model = TypeVar("Model", bound="FileModel")
VERSION = importlib.metadata.version("napari-saf")
_KEY = "napari-saf"
"""Key of this project's header in safetensors metadata."""
_MOST_BYTES = 2**28
_MOST_JSON_BYTES = 2**24
_ALWAYS = 2**28
_MOST_UNPACKED = 50_000
"""Maximum compression ratio of pixels: zstd reaches 30,000 on zeros."""


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`, and rename it to `path` at the end.

    A file or folder; if the block raises, it is removed and `path` is unchanged. Links are followed
    and modes kept. SafError on failure or, without `overwrite`, if the file exists by then.
    """
    target = Path(path)
    with write_errors(target):
        real = Path(os.path.realpath(target)) if target.is_symlink() else target
        temporary = _temporary_name(real)
        try:
            yield temporary
            if temporary.is_dir():
                _swap_folders(temporary, real)
            elif not overwrite:
                _rename_exclusively(temporary, real)
            else:
                if real.exists():
                    shutil.copymode(real, temporary)
                os.replace(temporary, real)
        finally:
            remove_path(temporary)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert OSError to a SafError that names the file."""
    try:
        yield
    except OSError as error:
        raise SafError(f"{path}: cannot be written: {error.strerror or error}") from error


def hidden_name(path: Path) -> str:
    return f".saf-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}"


def _temporary_name(path: Path) -> Path:
    """Return a unique short name in the same folder with the same suffix."""
    suffix = re.search(r"(\.ome)?\.[^.]{1,8}$", path.name)
    unique = f"{os.getpid()}-{secrets.token_hex(4)}{suffix[0] if suffix else ''}"
    return path.with_name(f"{hidden_name(path)}-{unique}")


def _rename_exclusively(temporary: Path, target: Path) -> None:
    """Rename a file; raise FileExistsError if the target exists."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # some file systems do not support links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already") from None
        os.replace(temporary, target)


def _swap_folders(new: Path, target: Path) -> None:
    """Replace a folder, in two renames, as no system does it atomically."""
    old = _temporary_name(target)
    if target.exists():
        os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        if old.exists():
            os.replace(old, target)
        raise
    remove_path(old)


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafError(f"{path}: cannot create the folder: {error.strerror or error}") from error


def data_folder() -> Path:
    return platformdirs.user_data_path("napari-saf", appauthor=False)


def remove_path(path: Path) -> None:
    """Remove a file or folder if it exists, ignoring errors."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path` left by this process or by dead ones."""
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    prefix = f"{hidden_name(real)}-"
    for file in real.parent.iterdir() if real.parent.is_dir() else ():
        if file.name.startswith(prefix):
            process = file.name.removeprefix(prefix).partition("-")[0]
            is_own = process == str(os.getpid())
            if is_own or (process.isdecimal() and not psutil.pid_exists(int(process))):
                remove_path(file)


class FileModel(BaseModel):
    """Strict pydantic model of file content: no other entries, finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class VersionedModel(FileModel):
    newest: ClassVar[int] = 1
    version: Any = Field(alias="schema")

    @field_validator("version")
    @classmethod
    def _check_version(cls, version: object) -> object:
        if version != cls.newest or isinstance(version, bool):
            raise ValueError(f"expected {cls.newest}")
        return version


def validated(model: type[Model], plain: object) -> Model:
    """Validate file content; InvalidInput names the first wrong entry."""
    check_not_newer(model, plain)
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    *parents, name = fault["loc"] or ("",)
    if fault["type"] == "missing":
        raise InvalidInput(f"{_place(parents)}missing entry {name!r}")
    if fault["type"] == "extra_forbidden":
        entries = sorted(field.alias or key for key, field in model.model_fields.items())
        hint = "" if parents else f"; known: {', '.join(entries)}"
        raise InvalidInput(f"{_place(parents)}unknown entry {name!r}{hint}")
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if fault["type"] in ("model_type", "dict_type"):
        message = "expected an object"
    raise InvalidInput(f"{_place(fault['loc'])}{message}, got {fault['input']!r:.60}")


def check_not_newer(model: type[FileModel], plain: object) -> None:
    """Raise InvalidInput if a file has a later schema, naming the version that wrote it."""
    entries = plain if isinstance(plain, dict) else {}
    version, versions = entries.get("schema"), entries.get("versions")
    if issubclass(model, VersionedModel) and type(version) is int and version > model.newest:
        software = versions.get("napari-saf") if isinstance(versions, dict) else None
        software = entries.get("software", software)
        wrote = f", {software:.20} wrote it" if isinstance(software, str) else ""
        needed = f"a newer version of napari-saf is needed{wrote}"
        raise InvalidInput(f"schema: expected {model.newest}, got {version}: {needed}")


def _place(keys: Sequence[int | str]) -> str:
    """Return the location of an entry, such as ``labels[3].color: ``."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"{path.removeprefix('.')}: " if path else ""


@contextmanager
def format_errors(file: object, expected: str) -> Iterator[None]:
    """Convert errors while reading `expected` ("a recipe") to a FormatError naming the file."""
    try:
        yield
    except (FormatError, ComputeError, Cancelled):
        raise
    except InvalidInput as error:
        raise FormatError(f"{file}: {error}") from error
    except MemoryError as error:
        raise ComputeError(f"{file}: not enough memory to read {expected}") from error
    except Exception as error:  # libraries raise any exception for damaged files
        is_missing = isinstance(error, FileNotFoundError) and not Path(str(file)).exists()
        fault = (isinstance(error, OSError) and error.strerror) or one_line(error)
        reason = f"cannot be read as {expected}: {fault}"
        raise FormatError(f"{file}: {'no such file' if is_missing else reason}") from error


def check_room(n_bytes: int, n_stored: int | None = None) -> None:
    """Raise MemoryError if pixels exceed memory, ValueError if their size is implausible."""
    if n_stored is not None:
        check_unpacked(n_bytes, n_stored)
    if n_bytes > free_memory():
        raise MemoryError


def check_unpacked(n_bytes: int, n_stored: int) -> None:
    """Raise ValueError if the compression ratio is impossible."""
    if n_bytes > max(_ALWAYS, _MOST_UNPACKED * n_stored):
        raise ValueError(f"it says that it has {n_bytes} bytes of pixels, in a file of {n_stored}")


def read_limited(file: Path, n_bytes: int) -> bytes:
    """Read a file; raise InvalidInput if it is larger than `n_bytes`."""
    with file.open("rb") as stream:
        content = stream.read(n_bytes + 1)
    if len(content) > n_bytes:
        raise InvalidInput(f"expected at most {n_bytes // 2**20} MiB")
    return content


def decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("its content is not UTF-8 text") from error


def parse_json(content: bytes | str) -> object:
    """Parse JSON; InvalidInput for a number that is not finite."""

    def refuse(name: str) -> object:
        raise InvalidInput(f"expected finite numbers, got {name}")

    text = decoded(content) if isinstance(content, bytes) else content
    plain: object = json.loads(text, parse_constant=refuse)
    return plain


def read_json(file: Path) -> object:
    return parse_json(read_limited(file, _MOST_JSON_BYTES))


def write_json(path: Path, text: str, *, overwrite: bool = True) -> Path:
    """Write a JSON text; surrogates in names become escapes, which JSON reads back."""
    with atomic_write(path, overwrite=overwrite) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
    return path


def save_tensors(
    path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]], header: Mapping[str, object]
) -> Path:
    content = safetensors.numpy.save(tensors, metadata={_KEY: json.dumps(header, allow_nan=False)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def load_tensors(
    path: str | os.PathLike[str], model: type[Model]
) -> tuple[dict[str, NDArray[Any]], Model]:
    """Return the tensors and the header of a file; InvalidInput if not written by napari-saf."""
    content = read_limited(Path(path), _MOST_BYTES)
    try:
        tensors = safetensors.numpy.load(content)
    except MemoryError:
        raise
    except Exception as error:  # the library raises any exception for damaged files
        fault = one_line(error)
        raise InvalidInput(f"not a safetensors file, or a damaged one: {fault}") from error
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    if _KEY not in metadata:
        raise InvalidInput(f"expected an entry {_KEY!r} in the header: no file of napari-saf")
    return tensors, validated(model, parse_json(metadata[_KEY]))
