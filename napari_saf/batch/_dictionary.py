"""Apply a dictionary to images: masks, reconstructions, and a table of completed images."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.batch._engine import AbstractTask, Job, OnStep, check_outputs
from napari_saf.dictionary import PatchDictionary, Reconstruction, check_odd
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io import (
    LABELS_MARK,
    ImageFile,
    file_state,
    mask_stem,
    read_image,
    save_masks,
    table_cell,
)
from napari_saf.pipeline import placed_labels
from napari_saf.storage import atomic_write, make_folder, remove_leftovers, write_errors

_TABLE_NAME = "dictionary.csv"
_ANOTHER_FOLDER = "choose another folder, or overwrite"
_COLUMNS = ("image", "error", "psnr", "seconds", "settings", "path", "n_bytes", "modified")
_ENCODING_ERRORS = "surrogateescape"
"""File names that are not valid text are restored to their original bytes."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DictionaryTask(AbstractTask[float]):
    """Apply a dictionary to image files; the result is the peak signal-to-noise ratio in dB.

    For ``name.png`` a mask ``name.labels``, an image ``name.reconstruction.tif`` and a row of
    the table ``dictionary.csv`` are saved in the folder. An image whose row and files exist is
    skipped unless it was modified since; results of another image of the same name, or of other
    settings, are kept unless `overwrite` is set.
    """

    dictionary: PatchDictionary
    folder: Path
    window: int = 3
    reconstruction: Reconstruction = "blended"
    channel_axis: int | None = None
    device: str = "auto"
    mask_format: str = ".tif"
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_odd("window", self.window, 1, None)

    def absolute(self) -> DictionaryTask:
        return dataclasses.replace(self, folder=self.folder.absolute())

    def plan(self, images: Sequence[Path]) -> list[Job]:
        """Return one job per image; all results are saved in the folder."""
        jobs = []
        for image in images:
            stem = mask_stem(image)
            mask = self.folder / f"{stem}{LABELS_MARK}{self.mask_format}"
            jobs.append(Job((image,), (mask,), self.folder / f"{stem}.reconstruction.tif"))
        check_outputs([output for job in jobs for output in job.outputs], images)
        return jobs

    def prepare(self, jobs: Sequence[Job]) -> set[Job]:
        """Rewrite the table with the rows of completed images, and return their jobs."""
        by_name = {table_cell(job.images[0].name): job for job in jobs}
        done, rows = set(), []
        for row in [] if self.overwrite else self._read_rows():
            job = by_name.get(row[0])
            if job is not None:
                state = self._state(job)
                if row[5] != state[0]:
                    raise InvalidInput(
                        f"{self._table}: has results of another {row[0]}, {row[5]}; "
                        f"{_ANOTHER_FOLDER}"
                    )
                if row[5:8] != state or not all(path.exists() for path in job.outputs):
                    continue
                done.add(job)
            rows.append(row)
        header = [*_COLUMNS, *(f"atom_{k}" for k in range(1, self.dictionary.n_atoms + 1))]
        make_folder(self.folder)
        with atomic_write(self._table) as temporary:
            temporary.write_bytes(b"".join(map(_line, [header, *rows])))
        return done

    def run(self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool]) -> float:
        """Label an image and reconstruct it from the atoms."""
        began, state = time.perf_counter(), self._state(job)
        for output in job.outputs:
            remove_leftovers(output)
        file = read_image(job.images[0])
        axis = file.stated_channel_axis if self.channel_axis is None else self.channel_axis
        labelled = self.dictionary.apply(
            file.array,
            channel_axis=axis,
            window=self.window,
            reconstruction=self.reconstruction,
            device=self.device,
            cancelled=cancelled,
        )
        make_folder(job.masks[0].parent)
        placed = placed_labels(file, labelled.labels, axis).placed
        save_masks(job.masks[0], labelled.labels, **placed)
        _save_picture(job.companion, labelled.reconstruction, file)
        seconds = time.perf_counter() - began
        errors = f"{labelled.error:.8g}", f"{labelled.psnr:.4f}"
        name, usage = table_cell(job.images[0].name), map(str, labelled.usage.tolist())
        with write_errors(self._table), open(self._table, "ab") as table:
            table.write(_line([name, *errors, f"{seconds:.3f}", self._settings, *state, *usage]))
            table.flush()
            os.fsync(table.fileno())
        return labelled.psnr

    @property
    def _table(self) -> Path:
        return self.folder / _TABLE_NAME

    @property
    def _settings(self) -> str:
        """A digest of all settings that determine the results."""
        dictionary = self.dictionary
        scaling = (dictionary.scaling.low, dictionary.scaling.high, dictionary.distance)
        options = (dictionary.atoms.shape, scaling, dictionary.shift_window, self.window)
        content = np.ascontiguousarray(dictionary.atoms).tobytes()
        content += repr((*options, self.reconstruction, self.channel_axis)).encode()
        return hashlib.sha256(content).hexdigest()[:12]

    def _state(self, job: Job) -> list[str]:
        """Return the table cells for an image's path, size and modification time."""
        state = file_state(job.images[0], self.folder)
        return [table_cell(state["path"]), str(state["n_bytes"]), str(state["modified"])]

    def _read_rows(self) -> list[list[str]]:
        """Return the complete rows of the table, without a truncated last one."""
        if not self._table.exists():
            return []
        try:
            with open(self._table, newline="", encoding="utf-8", errors=_ENCODING_ERRORS) as file:
                text = "".join(line for line in file if line.endswith("\n"))
            header, *rows = list(csv.reader(io.StringIO(text))) or [list(_COLUMNS)]
        except (OSError, csv.Error) as error:
            raise FormatError(f"{self._table}: cannot be read: {error}") from error
        if header[: len(_COLUMNS)] != list(_COLUMNS):
            raise InvalidInput(f"{self._table}: is not a dictionary table; choose another folder")
        rows = [row for row in rows if len(row) == len(header)]
        if {row[4] for row in rows} - {self._settings}:
            raise InvalidInput(f"{self._table}: was written with other settings; {_ANOTHER_FOLDER}")
        return rows


def _save_picture(path: Path, made: NDArray[np.float32], file: ImageFile) -> None:
    """Save a reconstruction in the data type of its image."""
    import tifffile

    dtype = file.array.dtype
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        made = np.clip(np.rint(made.astype(np.float64)), bounds.min, bounds.max).astype(dtype)
    colour = "rgb" if made.ndim == 3 and made.shape[-1] == 3 else "minisblack"
    planar = None if made.ndim == 2 or colour == "rgb" else "contig"
    with atomic_write(path) as temporary:
        kinds: Any = {"photometric": colour, "planarconfig": planar}
        tifffile.imwrite(temporary, made, compression="zlib", **kinds)


def _line(row: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode(errors=_ENCODING_ERRORS)
