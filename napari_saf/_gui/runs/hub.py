"""Who runs methods in a viewer, and who watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

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


class Hub:
    """The sessions of a viewer and those who watch them; keeps none of them alive."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
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

    def hide_results(self, image: Any) -> None:
        """Hide what the sessions made of an image."""
        for session in list(self._sessions):
            session.hide_results(image)

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
        """Tell that a run is under way."""
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
    """Return the hub of a viewer, of which a plugin may hold a proxy."""
    return _HUBS.setdefault(getattr(viewer, "__wrapped__", viewer), Hub())
