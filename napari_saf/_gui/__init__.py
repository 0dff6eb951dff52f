"""The napari plugin: the only package that imports napari and Qt."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

from qtpy.QtCore import QEventLoop
from qtpy.QtWidgets import QApplication, QLabel, QMainWindow

_SECONDS = 0.005


def __getattr__(name: str) -> Any:
    """Return the dock class of this name, such as `SegmentWidget`, for the manifest."""
    if not name.endswith("Widget"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"{__name__}.{name.removesuffix('Widget').lower()}.dock"
    widgets = QApplication.topLevelWidgets()
    windows = [widget for widget in widgets if isinstance(widget, QMainWindow)]
    visible = [window for window in windows if window.isVisible()]
    if module not in sys.modules and visible:
        _load(module, visible[-1])
    return getattr(importlib.import_module(module), name)


def _load(module: str, window: Any) -> None:
    """Import a module in a thread while the window stays responsive: the first takes seconds."""
    loading = threading.Thread(target=_import, args=(module,))
    note = QLabel("loading napari-saf …", window, autoFillBackground=True)
    note.setContentsMargins(20, 10, 20, 10)
    note.adjustSize()
    note.move(window.rect().center() - note.rect().center())
    note.show()
    loading.start()
    while loading.is_alive():
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents)
        loading.join(_SECONDS)
    note.hide()
    note.deleteLater()


def _import(module: str) -> None:
    for name in (module, "torch", "sklearn.cluster"):
        importlib.import_module(name)
    from napari_saf._gui.settings import current_settings

    current_settings()  # the first call reads the manifests of all plugins
