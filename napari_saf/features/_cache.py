"""Arrays that were computed before, on disk: the ones longest unused leave first."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from napari_saf.errors import SafError
from napari_saf.storage import atomic_write, make_folder, remove_path

MOST_BYTES = 2**31
"""What the folder holds at most, as it is on disk."""
_lock = threading.Lock()


def cache_folder() -> Path:
    """Return where features are kept, in the user's cache folder."""
    return platformdirs.user_cache_path("napari-saf", appauthor=False) / "features"


def key_of(settings: Mapping[str, object], *arrays: NDArray[Any]) -> str:
    """Return a name for what is computed from arrays by settings, which JSON can hold."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def find_array(key: str) -> NDArray[np.float32] | None:
    """Return what was kept under a name; None if nothing was, or it cannot be read."""
    import zarr

    path = cache_folder() / f"{key}.zarr"
    try:
        stored = zarr.open_array(path, mode="r")
        found = np.asarray(stored[...])
        os.utime(path)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is computed again
        return None
    return found if found.dtype == np.float32 and np.isfinite(found).all() else None


def keep_array(key: str, array: NDArray[np.float32]) -> None:
    """Keep an array, and let those longest unused go; without room for it nothing is kept."""
    import zarr

    folder = cache_folder()
    if array.nbytes > MOST_BYTES // 2:
        return
    try:
        make_folder(folder)
        with atomic_write(folder / f"{key}.zarr") as temporary:
            stored = zarr.create_array(
                temporary, shape=array.shape, dtype="float32", chunks=array.shape
            )
            stored[...] = array
    except (SafError, OSError):
        return
    with _lock:
        _trim(folder)


def _trim(folder: Path) -> None:
    """Remove the arrays longest unused, until the folder holds no more than it may."""
    entries = []
    for path in folder.glob("*.zarr"):
        try:
            used = path.stat().st_mtime_ns
            sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        except OSError:  # another process was faster
            continue
        entries.append((used, sum(sizes), path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries)[:-1]:
        if total <= MOST_BYTES:
            break
        remove_path(path)
        total -= size
