"""Keys of the viewer that act on docks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import napari
from napari.utils.key_bindings import coerce_keybinding
from qtpy.QtWidgets import QWidget


class Shortcuts:
    """The keys of a dock.

    A key acts on the dock in sight that has it, of several on the one that the mouse visited
    last. A key for which the person has another use is left alone.

    Parameters
    ----------
    keys : mapping of str to str
        From keys, as napari writes them, to names of methods of the dock; one that returns False
        leaves the key to another dock.
    """

    def __init__(self, viewer: napari.Viewer, dock: QWidget, keys: Mapping[str, str]) -> None:
        self._viewer, self._dock, self._keys = viewer, dock, keys
        _visits.append(weakref.ref(self))
        for key in keys:
            if coerce_keybinding(key) not in viewer.keymap:
                viewer.bind_key(key, _create_action(key))

    def visit(self) -> None:
        """Let the keys act on this dock before others."""
        self._forget()
        _visits.append(weakref.ref(self))

    def release(self) -> None:
        """Unregister the dock, and unbind keys that no other dock has."""
        self._forget()
        left = {key for other in _latest_first(self._viewer) for key in other._keys}
        for key in set(self._keys) - left:
            action = self._viewer.keymap.get(coerce_keybinding(key))
            if getattr(action, "is_of_docks", False):
                self._viewer.bind_key(key, None)

    def act(self, key: str) -> bool:
        """Handle a key; return whether the dock is visible and accepted it."""
        if key not in self._keys or not self._dock.isVisible():
            return False
        return getattr(self._dock, self._keys[key])() is not False

    def _forget(self) -> None:
        _visits[:] = [ref for ref in _visits if ref() not in (None, self)]


_visits: list[weakref.ref[Shortcuts]] = []
"""The shortcuts of all docks, the most recently visited one last."""


def shortcut_text(key: str) -> str:
    """Return a key as shown in a tooltip."""
    return key.replace("-", "+")


def _latest_first(viewer: napari.Viewer) -> list[Shortcuts]:
    found = [ref() for ref in reversed(_visits)]
    return [one for one in found if one is not None and one._viewer == viewer]


def _create_action(key: str) -> Callable[[Any], None]:
    def act(viewer: Any) -> None:
        any(shortcuts.act(key) for shortcuts in _latest_first(viewer))

    act.is_of_docks = True  # type: ignore[attr-defined]
    return act
