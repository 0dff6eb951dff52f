"""Import of timm without torchvision.

timm needs torchvision for training transforms only; if it is missing or was built for another
torch, placeholders replace it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from napari_saf.errors import ComputeError, one_line

_PACKAGE = "torchvision"
_lock = threading.Lock()


def import_timm() -> Any:
    try:
        with _lock:
            if "timm" not in sys.modules and not _is_usable():
                with _placeholders():
                    import timm
            import timm
    except Exception as error:  # whatever a build for another torch raises
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            message = "deep features need timm: pip install 'napari-saf[deep]'"
        else:
            message = f"timm cannot be imported: {one_line(error)}"
        raise ComputeError(message) from error
    return timm


def _is_usable() -> bool:
    try:
        import torchvision  # noqa: F401
    except Exception:  # noqa: BLE001 - arbitrary errors of a build for another torch
        return False
    return True


@contextmanager
def _placeholders() -> Iterator[None]:
    """Replace modules of torchvision by placeholders within the context."""
    modules, finder = _pop_modules(), _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _pop_modules()
        sys.modules.update(modules)


def _pop_modules() -> dict[str, types.ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return {name: sys.modules.pop(name) for name in names}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != _PACKAGE:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _placeholder(name)


class _Placeholder(type):
    """Metaclass of placeholder classes, which can be subclassed but not instantiated."""

    def __getattr__(cls, name: str) -> Any:
        return _placeholder(name)

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        raise ImportError(f"{cls.__name__} needs {_PACKAGE}, which could not be imported")


def _placeholder(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Placeholder(name, (), {})
