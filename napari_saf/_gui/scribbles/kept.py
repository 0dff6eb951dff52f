"""Strokes on disk: written while a person paints, offered where the image is opened again."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
import weakref
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from platformdirs import user_data_path
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QPushButton

from napari_saf._gui.runs.background import FunctionTask
from napari_saf._gui.scribbles.strokes import Strokes
from napari_saf._gui.settings import current_settings
from napari_saf.errors import SafError
from napari_saf.io import PaintedClass, make_folder, save_strokes

__all__ = ["KeptStrokes", "RestoreButton", "last_kept"]

_REST_MILLISECONDS = 2000
_WRITING_SECONDS = 10
_MOST_FILES = 100
_MOST_DAYS = 30
_STAMP = "%Y%m%d-%H%M%S-%f"
_SUFFIX = ".strokes.safetensors"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """What is to be written, and where."""

    target: Path
    pixels: NDArray[Any]
    classes: dict[int, PaintedClass]

    def write(self) -> None:
        if self.pixels.any():  # else the last strokes that there were stay
            make_folder(self.target.parent)
            save_strokes(self.target, self.pixels, self.classes)
            _remove_old(self.target.parent)


class KeptStrokes(QObject):
    """Writes strokes to disk two seconds after they changed, each layer to a file of its own.

    Parameters
    ----------
    strokes : Strokes
        Whose names and colours are kept with them.
    """

    failed = Signal(str)

    def __init__(self, strokes: Strokes) -> None:
        super().__init__()
        self._strokes = strokes
        self._image: Image | None = None
        self._task: FunctionTask | None = None
        self._targets: weakref.WeakKeyDictionary[Labels, Path] = weakref.WeakKeyDictionary()
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(_REST_MILLISECONDS)
        self._rest.timeout.connect(self._on_rest)

    def touch(self, image: Image | None) -> None:
        """Take note that the strokes on an image changed."""
        self._image = image
        if image is not None and not self._rest.isActive():
            self._rest.start()

    def flush(self) -> None:
        """Write now what waits."""
        if self._rest.isActive():
            self._rest.stop()
            if self._task is not None:
                self._task.wait(_WRITING_SECONDS)  # else it would end with what was before
            copy = self._copy()
            try:
                if copy is not None:
                    copy.write()
            except SafError as error:
                self.failed.emit(str(error))

    def _on_rest(self) -> None:
        if self._task is not None:
            self._rest.start()
            return
        copy = self._copy()
        if copy is None:
            return
        self._task = FunctionTask(lambda report, cancelled: copy.write())
        self._task.failed.connect(self._on_failed)
        self._task.finished.connect(self._on_finished)
        self._task.start()

    def _copy(self) -> _Copy | None:
        layer = self._strokes.layer
        image, self._image = self._image, None
        if image is None or layer is None or not isinstance(layer.data, np.ndarray):
            return None
        if not current_settings().keeps_strokes:
            return None
        target = self._targets.get(layer)
        if target is None:
            name = f"{_key(image, layer.data.shape)}-{datetime.now():{_STAMP}}{_SUFFIX}"
            target = self._targets[layer] = _folder() / name
        return _Copy(target, layer.data, self._strokes.describe())

    def _on_failed(self, error: Exception) -> None:
        self.failed.emit(str(error))

    def _on_finished(self) -> None:
        self._task = None


class RestoreButton(QPushButton):
    """Shown where strokes on an image are on disk."""

    def __init__(self) -> None:
        super().__init__("Restore")
        self.path: Path | None = None
        self.setToolTip("Bring back the strokes painted on this image.")
        self.setVisible(False)

    def offer(self, image: Image | None, shape: tuple[int, ...]) -> None:
        """Show whether there are strokes of this shape on an image; None: there are not."""
        self.path = None if image is None else last_kept(image, shape)
        self.setVisible(self.path is not None)
        if self.path is not None:
            painted = datetime.fromtimestamp(self.path.stat().st_mtime)
            self.setToolTip(
                f"Bring back the strokes painted on this image; last kept {painted:%Y-%m-%d %H:%M}."
            )


def last_kept(image: Image, shape: tuple[int, ...]) -> Path | None:
    """Return the file of the last strokes of this shape on an image, or None."""
    with contextlib.suppress(OSError):
        files = _folder().glob(f"{_key(image, shape)}-*{_SUFFIX}")
        return max(files, key=lambda path: path.stat().st_mtime, default=None)
    return None


def _folder() -> Path:
    return user_data_path("napari-saf", appauthor=False) / "strokes"


def _key(image: Image, shape: tuple[int, ...]) -> str:
    """Return a short name for an image: by its file, or else its name."""
    place = str(image.source.path or image.name)
    return hashlib.sha256(json.dumps([place, list(shape)]).encode()).hexdigest()[:16]


def _remove_old(folder: Path) -> None:
    """Remove the files of long ago, and the oldest of very many."""
    files = [(path.stat().st_mtime, path) for path in folder.glob(f"*{_SUFFIX}")]
    files.sort(reverse=True)
    oldest = time.time() - _MOST_DAYS * 86400
    for k, (changed, path) in enumerate(files):
        if k >= _MOST_FILES or changed < oldest:
            path.unlink(missing_ok=True)
