"""Autosave of strokes: written while painting, offered when the image is opened again."""

from __future__ import annotations

import contextlib
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

from napari_saf._gui.runs.background import FunctionTask
from napari_saf._gui.scribbles.strokes import Strokes
from napari_saf._gui.settings import current_settings
from napari_saf.errors import SafError
from napari_saf.io import PaintedClass, make_folder, save_strokes

_INTERVAL_MILLISECONDS = 2000
_WRITING_SECONDS = 10
_MOST_FILES = 100
_MOST_DAYS = 30
_STAMP = "%Y%m%d-%H%M%S-%f"
_SUFFIX = ".strokes.safetensors"


class StrokeAutosave(QObject):
    """Writes strokes to disk two seconds after they changed, each layer to a file of its own."""

    failed = Signal(str)

    def __init__(self, strokes: Strokes) -> None:
        super().__init__()
        self._strokes = strokes
        self._image: Image | None = None
        self._task: FunctionTask | None = None
        self._targets: weakref.WeakKeyDictionary[Labels, Path] = weakref.WeakKeyDictionary()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_INTERVAL_MILLISECONDS)
        self._timer.timeout.connect(self._save_in_thread)

    @property
    def is_pending(self) -> bool:
        """Whether strokes are still to be written."""
        return bool(self._timer.isActive()) or self._task is not None

    def schedule(self, image: Image | None) -> None:
        """Save soon: the strokes on an image changed."""
        self._image = image
        if image is not None and not self._timer.isActive():
            self._timer.start()

    def flush(self) -> None:
        """Save now what was scheduled."""
        if self._timer.isActive():
            self._timer.stop()
            if self._task is not None:
                self._task.wait(_WRITING_SECONDS)  # else it would end with what was before
            content = self._content()
            try:
                if content is not None:
                    _write(*content)
            except SafError as error:
                self.failed.emit(str(error))

    def _save_in_thread(self) -> None:
        if self._task is not None:
            self._timer.start()
            return
        content = self._content()
        if content is not None:
            self._task = FunctionTask(lambda report, cancelled: _write(*content))
            self._task.failed.connect(self._on_failed)
            self._task.finished.connect(self._on_finished)
            self._task.start()

    def _content(self) -> tuple[Path, NDArray[Any], dict[int, PaintedClass]] | None:
        """Return what to write, and where; None where there is nothing or nobody wants it."""
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
        return target, layer.data, self._strokes.named_classes()

    def _on_failed(self, error: Exception) -> None:
        self.failed.emit(str(error))

    def _on_finished(self) -> None:
        self._task = None


def last_saved(image: Image, shape: tuple[int, ...]) -> Path | None:
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


def _write(target: Path, pixels: NDArray[Any], classes: dict[int, PaintedClass]) -> None:
    """Write strokes, and remove the files of long ago and the oldest of very many."""
    if not pixels.any():  # the last strokes that there were stay
        return
    make_folder(target.parent)
    save_strokes(target, pixels, classes)
    files = [(path.stat().st_mtime, path) for path in target.parent.glob(f"*{_SUFFIX}")]
    oldest = time.time() - _MOST_DAYS * 86400
    for k, (changed, path) in enumerate(sorted(files, reverse=True)):
        if k >= _MOST_FILES or changed < oldest:
            path.unlink(missing_ok=True)
