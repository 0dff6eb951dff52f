"""Writing in a thread of its own."""

from __future__ import annotations

from pathlib import Path

from qtpy.QtCore import Signal

from napari_saf._gui.export.source import LabelSource
from napari_saf._gui.runs.background import AbstractTask
from napari_saf.errors import SafError
from napari_saf.io import Export, Wanted

__all__ = ["Writing"]


class Writing(AbstractTask):
    """One export of one layer.

    Before it ends, at most one of `asked` (files are in the way) and `wrote` (what was written)
    is sent.

    Parameters
    ----------
    source : LabelSource
    folder : Path
        Made if only itself is missing.
    name : str
        What the names of the files begin with.
    wanted : Wanted
    may_replace : bool
        Whether files that are there may be replaced.
    """

    asked = Signal(object)
    wrote = Signal(object)

    def __init__(
        self, source: LabelSource, folder: Path, name: str, wanted: Wanted, may_replace: bool
    ) -> None:
        super().__init__()
        self._source = source
        self._folder = folder
        self._name = name
        self._wanted = wanted
        self._may_replace = may_replace

    def _compute(self) -> None:
        try:
            self._write()
        except OSError as error:
            raise SafError(f"{self._folder}: {error.strerror or error}") from error

    def _write(self) -> None:
        labelling = self._source.read(self._cancelled.is_set)
        export = Export(self._folder, self._name, labelling, self._wanted)
        if export.in_the_way and not self._may_replace:
            self.asked.emit(export.in_the_way)
            return
        self._folder.mkdir(exist_ok=True)
        self.wrote.emit(export.write(self._cancelled.is_set))
