"""Who runs methods in a viewer, and who watches."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

if TYPE_CHECKING:
    from napari_saf._gui.runs.session import Session

__all__ = ["Hub", "Watcher", "hub_of"]


class Watcher(Protocol):
    """What is told of the runs of a viewer, in the main thread."""

    def run_began(self, session: Session) -> None:
        """Take note that a run is under way."""

    def run_returned(self, session: Session, result: Any) -> None:
        """Take note of what came of a run, once its layer shows it."""

    def run_ended(self, session: Session) -> None:
        """Take note that a run is over."""


@dataclasses.dataclass(slots=True, eq=False)
class _Result:
    """A result layer, and the slice of an image that it labels: axes and positions, if any."""

    image: ReferenceType[Any]
    layer: ReferenceType[Any]
    fixed: frozenset[tuple[int, int]]
    is_hidden: bool = False

    def hide(self) -> None:
        layer = self.layer()
        if layer is not None and layer.visible:
            layer.visible = False
            self.is_hidden = True


class Hub:
    """The sessions of a viewer, their results and who watches them; keeps none of them alive."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
        self._results: list[_Result] = []
        self._watchers: WeakSet[Watcher] = WeakSet()

    @property
    def is_watched(self) -> bool:
        """Whether anybody watches."""
        return len(self._watchers) > 0

    def join(self, session: Session) -> None:
        """Announce a session."""
        self._sessions.add(session)

    def leave(self, session: Session) -> None:
        """Say that a session is over, and its run with it."""
        self._sessions.discard(session)
        self.ended(session)

    def show_result(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> None:
        """Keep a new result in sight, and hide the earlier ones at its place of the image, once.

        Parameters
        ----------
        image, layer : Layer
            What is labelled, and the labels.
        index : tuple of int or slice
            The part of the image: other slices stay in sight, a volume hides those of its slices.
        """
        fixed = frozenset((axis, at) for axis, at in enumerate(index) if isinstance(at, int))
        here = [r for r in self._results_of(image) if r.fixed <= fixed or fixed <= r.fixed]
        layer = _unwrapped(layer)
        if here and here[-1].layer() is layer and not here[-1].is_hidden:
            return
        for result in here:
            result.hide()
        self._results = [r for r in self._results if r.layer() not in (None, layer)]
        self._results.append(_Result(ref(_unwrapped(image)), ref(layer), fixed))
        layer.visible = True

    def hide_results(self, image: Any) -> None:
        """Hide all results on an image."""
        for result in self._results_of(image):
            result.hide()

    def _results_of(self, image: Any) -> list[_Result]:
        own = _unwrapped(image)
        return [result for result in self._results if result.image() is own]

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of all runs, those under way included."""
        self._watchers.add(watcher)
        for session in list(self._sessions):
            if session.is_running:
                watcher.run_began(session)

    def unwatch(self, watcher: Watcher) -> None:
        """Tell somebody nothing any more; runs that nobody watches are not recorded on."""
        self._watchers.discard(watcher)
        if not self.is_watched:
            for session in list(self._sessions):
                session.stop_recording()

    def began(self, session: Session) -> None:
        """Tell that a run is under way; another that writes to its layer ends."""
        for other in list(self._sessions):
            if other is not session and other.is_running and other.live is session.live:
                other.stop()
        for watcher in list(self._watchers):
            watcher.run_began(session)

    def returned(self, session: Session, result: Any) -> None:
        """Tell what came of a run."""
        for watcher in list(self._watchers):
            watcher.run_returned(session, result)

    def ended(self, session: Session) -> None:
        """Tell that a run is over."""
        for watcher in list(self._watchers):
            watcher.run_ended(session)


_HUBS: WeakKeyDictionary[Any, Hub] = WeakKeyDictionary()


def hub_of(viewer: Any) -> Hub:
    """Return the hub of a viewer."""
    return _HUBS.setdefault(_unwrapped(viewer), Hub())


def _unwrapped(held: Any) -> Any:
    """Return a viewer or layer itself, of which a plugin may hold a proxy."""
    return getattr(held, "__wrapped__", held)
