"""A dictionary at work on many files: what is done stays done, whatever stops the work."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.dictionary import PatchDictionary, PatchSegmentation, Reconstruction
from napari_saf.dictionary._distance import check_odd
from napari_saf.errors import FormatError, InvalidInput, SafError
from napari_saf.io._atomic_write import atomic_write, make_folder, remove_leftovers
from napari_saf.io._image import read_image
from napari_saf.io._image_file import ImageFile
from napari_saf.io._masks import save_masks
from napari_saf.io._paths import FileState, mask_stem, table_cell
from napari_saf.methods import Cancelled, not_cancelled

__all__ = ["TABLE_NAME", "FileOutcome", "apply_to_files"]

TABLE_NAME = "dictionary.csv"
_COLUMNS = ("image", "error", "psnr", "seconds", "settings", "path", "n_bytes", "modified")
_NAMES = "surrogateescape"
"""Names of files that are no text come back as the bytes that they are."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file.

    Attributes
    ----------
    path : Path
        The image.
    state : {"done", "skipped", "failed"}
        Skipped is what an earlier run had done.
    fault : Exception or None
        Why it failed.
    error, psnr : float or None
        As in `PatchSegmentation`; None if nothing was computed.
    seconds : float
        Duration, reading and writing included.
    """

    path: Path
    state: Literal["done", "skipped", "failed"]
    fault: Exception | None = None
    error: float | None = None
    psnr: float | None = None
    seconds: float = 0.0


def apply_to_files(
    dictionary: PatchDictionary,
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    window: int = 3,
    reconstruction: Reconstruction = "blended",
    mask_format: str = ".tif",
    channel_axis: int | None = None,
    device: str = "auto",
    overwrite: bool = False,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Iterator[FileOutcome]:
    """Apply a dictionary to image files, one after another.

    For ``name.png`` a mask ``name_labels``, an image ``name_reconstruction.tif`` and a row of
    the table ``dictionary.csv`` come to the folder `out`. An image whose row and files are
    there is skipped unless it was changed since, so that work that was stopped goes on where it
    was; a file is complete or absent. What came from another image of the same name stays. A file
    that is wrong does not stop the others.

    Parameters
    ----------
    dictionary : PatchDictionary
        What to apply.
    paths : sequence of path
        Images.
    out : path
        Folder for all that is written; made if need be.
    window, reconstruction, channel_axis, device
        See `PatchDictionary.apply`.
    mask_format : str
        Suffix of the masks, see `save_masks`.
    overwrite : bool
        Whether to do everything anew.
    cancelled : callable
        Once it returns True the work ends; what is done stays.

    Yields
    ------
    FileOutcome
        One an image, in order.

    Raises
    ------
    InvalidInput
        If two images would have one name in `out`, a result would replace an image, or the
        table there is that of other settings or other images and may not be overwritten.
    SafError
        If the table cannot be written.
    """
    check_odd("window", window, 1, None)
    images, folder = [Path(path) for path in paths], Path(out)
    places = [_Place.of(image, folder, mask_format) for image in images]
    _check_places(places)
    settings = _digest(dictionary, window, reconstruction, channel_axis)
    table = _Table(folder / TABLE_NAME, dictionary.n_atoms, settings, overwrite=overwrite)
    states = {place.name: FileState.of(place.image, folder) for place in places}
    table.begin(states, {place.name for place in places if not place.is_complete()})
    for place in places:
        if cancelled():
            return
        if place.name in table.done:
            yield FileOutcome(place.image, "skipped")
            continue
        began = time.perf_counter()
        for target in (place.mask, place.reconstruction):
            remove_leftovers(target)
        try:
            found = _apply_to_file(
                dictionary,
                place,
                channel_axis,
                window=window,
                reconstruction=reconstruction,
                device=device,
                cancelled=cancelled,
            )
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001  (no file keeps the others)
            seconds = time.perf_counter() - began
            yield FileOutcome(place.image, "failed", error, seconds=seconds)
            continue
        seconds = time.perf_counter() - began
        table.append(place.name, states[place.name], found, seconds)
        yield FileOutcome(place.image, "done", None, found.error, found.psnr, seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """An image and where its results go."""

    image: Path
    mask: Path
    reconstruction: Path

    @classmethod
    def of(cls, image: Path, folder: Path, mask_format: str) -> _Place:
        stem = mask_stem(image)
        mask = folder / f"{stem}_labels{mask_format}"
        return cls(image, mask, folder / f"{stem}_reconstruction.tif")

    @property
    def name(self) -> str:
        """The name of the image, as it is in the table."""
        return table_cell(self.image.name)

    def is_complete(self) -> bool:
        return self.mask.exists() and self.reconstruction.exists()


def _check_places(places: list[_Place]) -> None:
    images = {os.path.realpath(place.image) for place in places}
    seen: set[Path] = set()
    for place in places:
        if place.mask in seen:
            raise InvalidInput(f"{place.mask}: two images would be saved under this name")
        seen.add(place.mask)
        for one in (place.mask, place.reconstruction):
            if os.path.realpath(one) in images:
                raise InvalidInput(f"{one}: the result would replace an image")


def _digest(
    dictionary: PatchDictionary, window: int, reconstruction: str, channel_axis: int | None
) -> str:
    """Return a short name for all that decides on the results."""
    scaling = (dictionary.scaling.low, dictionary.scaling.high, dictionary.distance)
    options = (dictionary.atoms.shape, scaling, dictionary.shift_window, window)
    content = np.ascontiguousarray(dictionary.atoms).tobytes()
    content += repr((*options, reconstruction, channel_axis)).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def _apply_to_file(
    dictionary: PatchDictionary, place: _Place, channel_axis: int | None, **options: Any
) -> PatchSegmentation:
    file = read_image(place.image)
    axis = file.stated_channel_axis if channel_axis is None else channel_axis
    found = dictionary.apply(file.array, channel_axis=axis, **options)
    # An axis of channels that the file does not know leaves its scale without a meaning.
    known = len(file.label_axes) == 2 and (axis is None or axis == file.channel_axis)
    save_masks(
        place.mask,
        found.labels,
        scale=file.scale if known else None,
        units=file.units if known else None,
        axes=file.label_axes if known else None,
    )
    _save_picture(place.reconstruction, found.reconstruction, file)
    return found


def _save_picture(path: Path, made: NDArray[np.float32], file: ImageFile) -> None:
    """Save a reconstruction in the type of its image."""
    import tifffile

    kind = file.array.dtype
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        made = np.clip(np.rint(made.astype(np.float64)), bounds.min, bounds.max).astype(kind)
    colour = "rgb" if made.ndim == 3 and made.shape[-1] == 3 else "minisblack"
    planar = None if made.ndim == 2 or colour == "rgb" else "contig"
    with atomic_write(path) as temporary:
        tifffile.imwrite(
            temporary, made, photometric=colour, planarconfig=planar, compression="zlib"
        )


class _Table:
    """The rows of a CSV, one added at a time; a row that was cut off is dropped."""

    def __init__(self, path: Path, n_atoms: int, settings: str, *, overwrite: bool) -> None:
        self._path = path
        self._settings = settings
        self._header = [*_COLUMNS, *(f"atom_{k}" for k in range(1, n_atoms + 1))]
        self._rows = [] if overwrite else self._read()
        others = {row[4] for row in self._rows} - {settings}
        if others:
            raise InvalidInput(
                f"{path}: is of another dictionary or other settings; choose another folder, or "
                "overwrite"
            )

    @property
    def done(self) -> set[str]:
        """Names of the images that have a row."""
        return {row[0] for row in self._rows}

    def begin(self, states: dict[str, FileState], incomplete: set[str]) -> None:
        """Write the table without the rows of images that are to be done, again or at last."""
        kept = []
        for row in self._rows:
            state = states.get(row[0])
            if state is not None and row[5] != _cells(state)[0]:
                raise InvalidInput(
                    f"{self._path}: has results of another {row[0]}, {row[5]}; choose another "
                    "folder, or overwrite"
                )
            is_as_it_was = state is None or row[5:8] == _cells(state)
            if is_as_it_was and row[0] not in incomplete:
                kept.append(row)
        self._rows = kept
        make_folder(self._path.parent)
        with atomic_write(self._path) as temporary:
            temporary.write_bytes(b"".join(map(_line, [self._header, *self._rows])))

    def append(self, name: str, state: FileState, found: PatchSegmentation, seconds: float) -> None:
        """Add the row of an image, on the disk before this returns."""
        measures = (f"{found.error:.8g}", f"{found.psnr:.4f}", f"{seconds:.3f}", self._settings)
        row = [name, *measures, *_cells(state), *map(str, found.usage.tolist())]
        try:
            with open(self._path, "ab") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SafError(f"{self._path}: cannot be written: {error.strerror or error}") from error

    def _read(self) -> list[list[str]]:
        if not self._path.exists():
            return []
        try:
            with open(self._path, newline="", encoding="utf-8", errors=_NAMES) as file:
                whole = "".join(line for line in file if line.endswith("\n"))
            rows = list(csv.reader(io.StringIO(whole)))
        except (OSError, csv.Error) as error:
            raise FormatError(f"{self._path}: cannot be read: {error}") from error
        if rows and rows[0][: len(_COLUMNS)] != list(_COLUMNS):
            raise InvalidInput(f"{self._path}: is no table of a dictionary; choose another folder")
        return [row for row in rows[1:] if len(row) == len(rows[0])]


def _cells(state: FileState) -> list[str]:
    return [table_cell(state.path), str(state.n_bytes), str(state.modified)]


def _line(row: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode(errors=_NAMES)
