"""Immutable patch atoms with their metadata, and the dictionary file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from napari_saf import storage
from napari_saf.arrays import as_path, check_size
from napari_saf.device import torch
from napari_saf.dictionary._distance import all_transforms, check_odd, shapes
from napari_saf.dictionary._sample import distances_between, why_no_atoms
from napari_saf.errors import InvalidInput
from napari_saf.features import FeatureExtractor, Scaling, channels_last, extractor_of

DICTIONARY_SUFFIX = ".safetensors"
_PLAIN = ("s", "window", "shift_window", "distance", "software")
"""Fields that the file header stores unchanged."""
_Count = Annotated[int, Field(ge=0, lt=2**62)]


class _Scaling(storage.FileModel):
    low: float
    high: float


class _Header(storage.VersionedModel):
    patch_size: _Count
    channels: _Count
    scaling: _Scaling
    invariance: Literal["dihedral-8", "dihedral-8 contrast"]
    s: float
    window: _Count
    shift_window: _Count
    distance: float
    usage: list[_Count]
    software: storage.Text
    images: list[storage.Text]
    features: storage.Text = "intensity"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PatchAtoms:
    """Atoms and metadata of a dictionary; the parameters are those of `PatchDictionary`."""

    atoms: NDArray[np.float32]
    usage: NDArray[np.int64]
    scaling: Scaling
    s: float = 0.0
    window: int = 3
    shift_window: int = 3
    any_contrast: bool = False
    distance: float = 0.0
    images: tuple[str, ...] = ()
    features: str = "intensity"
    software: str = storage.VERSION

    def __post_init__(self) -> None:
        atoms = np.require(self.atoms, np.float32, ["C", "W"])
        shape = atoms.shape
        if atoms.ndim != 4 or 0 in shape or shape[1] != shape[2]:
            raise InvalidInput(f"atoms: expected shape (n_atoms, p, p, n_channels), got {shape}")
        check_odd("patch_size", shape[1], 3, 31)
        if not np.isfinite(atoms).all():
            raise InvalidInput("atoms: expected finite numbers")
        check_size("atoms", atoms, atoms[0].size)
        is_plain, features = self.features == "intensity", self._extractor
        points = np.zeros((1, shape[3]), np.float32)
        if why_no_atoms(type(features)) or not (is_plain or features.colours(points) is not None):
            raise InvalidInput(
                f"features: {self.features!r} cannot form atoms with {shape[3]} features per pixel"
            )
        usage = np.asarray(self.usage)
        if usage.shape != shape[:1] or usage.dtype.kind not in "iu" or (usage < 0).any():
            raise InvalidInput(f"usage: expected {shape[0]} counts, got {usage!r}")
        scaling = Scaling.given(self.scaling.low, self.scaling.high)
        most = float(np.finfo(np.float32).max) / 2
        if float(np.abs(atoms).max()) * (scaling.high - scaling.low) > most:
            raise InvalidInput("atoms: expected values within float32 range in units of the image")
        check_odd("window", self.window, 1, None)
        check_odd("shift_window", self.shift_window, 1, 15)
        if not 0 <= self.s <= 1:
            raise InvalidInput(f"s: expected 0 to 1, got {self.s}")
        if not 0 <= self.distance < np.inf:
            raise InvalidInput(f"distance: expected a number of at least 0, got {self.distance}")
        object.__setattr__(self, "atoms", atoms)
        object.__setattr__(self, "usage", usage.astype(np.int64))

    @property
    def n_atoms(self) -> int:
        return len(self.atoms)

    @property
    def patch_size(self) -> int:
        return int(self.atoms.shape[1])

    @property
    def n_channels(self) -> int:
        """Number of channels of suitable images."""
        return self._extractor.channels_of(self.atoms.shape[3]) or 0

    @property
    def receptive_field(self) -> int:
        """Radius of the features, in pixels."""
        return self._extractor.receptive_field

    @property
    def _extractor(self) -> FeatureExtractor:
        extractor = extractor_of(self.features)
        if extractor is None:
            raise InvalidInput(f"features: expected a name, got {self.features!r:.60}")
        return extractor

    def values(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Return scaled features (height, width, n_features) of pixels from `planes`."""
        if self.features != "intensity":
            return self._extractor.features(self.scaling.apply(pixels))
        low, high = self.scaling.low, self.scaling.high
        return np.asarray((pixels.astype(np.float64) - low) / (high - low), np.float32)

    def colours(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the appearance (..., n_channels), scaled, of features (..., n_features)."""
        if self.features == "intensity":
            return values
        colours = self._extractor.colours(values.reshape(-1, values.shape[-1]))
        assert colours is not None
        channels = colours[:, : self.n_channels].reshape(*values.shape[:-1], self.n_channels)
        return np.array(channels, np.float32)

    def planes(self, image: ArrayLike, channel_axis: int | None = None) -> NDArray[Any]:
        """Return an image with its channels last, checked against the dictionary."""
        array = np.asarray(image)
        if channel_axis is None and array.ndim == 3 and array.shape[-1] == self.n_channels:
            channel_axis = 2
        pixels, _ = channels_last(array, channel_axis)
        if pixels.ndim != 3:
            raise InvalidInput(f"image: expected 2 axes plus channels, got {pixels.ndim - 1}")
        if pixels.shape[-1] != self.n_channels:
            raise InvalidInput(
                f"image: expected as many channels as the dictionary has ({self.n_channels}), "
                f"got {pixels.shape[-1]}"
            )
        if min(pixels.shape[:2]) < self.patch_size:
            sides = " x ".join(map(str, pixels.shape[:2]))
            raise InvalidInput(
                f"image: expected sides of at least {self.patch_size} pixels, those of the atoms, "
                f"got {sides}"
            )
        n_bad = int(np.count_nonzero(~np.isfinite(pixels).all(axis=-1)))
        if n_bad:
            total = pixels.shape[0] * pixels.shape[1]
            raise InvalidInput(f"image: {n_bad} of {total} pixels are NaN or infinite")
        return pixels

    def transforms(self) -> NDArray[np.float32]:
        """Return every atom under the 8 symmetries: (n_atoms, 8, p, p, n_channels)."""
        turned = all_transforms(torch.from_numpy(self.atoms).movedim(-1, 1))
        return turned.movedim(2, -1).numpy().copy()

    def distances(self) -> NDArray[np.float32]:
        """Return squared distances (n_atoms, n_atoms), of shapes if `any_contrast`."""
        atoms = torch.from_numpy(self.atoms).movedim(-1, 1).contiguous()
        atoms = shapes(atoms) if self.any_contrast else atoms
        return distances_between(atoms, self.patch_size).numpy()

    def embedding(self) -> NDArray[np.float64]:
        """Embed the atoms in the plane, (n_atoms, 2), by classical scaling of their distances."""
        squared = self.distances().astype(np.float64)
        centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
        values, vectors = np.linalg.eigh(-centred / 2)
        coordinates = np.zeros((self.n_atoms, 2))
        for axis in range(min(2, self.n_atoms)):
            scores = vectors[:, -1 - axis] * np.sqrt(max(values[-1 - axis], 0.0))
            coordinates[:, axis] = scores * np.sign(scores[np.argmax(np.abs(scores))])
        return coordinates

    def without(self, atoms: Sequence[int]) -> Self:
        """Return the dictionary without atoms of the given indices; at least one must remain."""
        dropped = {int(k) for k in atoms}
        unknown = sorted(dropped.difference(range(self.n_atoms)))
        if unknown:
            raise InvalidInput(
                f"atoms: expected indices from 0 to {self.n_atoms - 1}, got {unknown[0]}"
            )
        remaining = [k for k in range(self.n_atoms) if k not in dropped]
        if not remaining:
            raise InvalidInput(f"atoms: expected to keep at least one of {self.n_atoms}")
        return dataclasses.replace(self, atoms=self.atoms[remaining], usage=self.usage[remaining])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save as ``.safetensors``; raise InvalidInput for another suffix."""
        if as_path(path).suffix.lower() != DICTIONARY_SUFFIX:
            raise InvalidInput(f"{path}: expected a name that ends in {DICTIONARY_SUFFIX}")
        header = {
            "schema": 1,
            "patch_size": self.patch_size,
            "channels": self.atoms.shape[3],
            "scaling": dataclasses.asdict(self.scaling),
            "invariance": "dihedral-8 contrast" if self.any_contrast else "dihedral-8",
            "usage": self.usage.tolist(),
            "images": list(self.images),
        }
        header |= {name: getattr(self, name) for name in _PLAIN}
        if self.features != "intensity":  # absent from older files
            header["features"] = self.features
        storage.save_tensors(path, {"atoms": np.ascontiguousarray(self.atoms, dtype="<f4")}, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved dictionary; raise FormatError, naming file and fault, if it is invalid."""
        with storage.format_errors(as_path(path), "a dictionary"):
            tensors, header = storage.load_tensors(path, _Header)
            if "atoms" not in tensors:
                names = ", ".join(sorted(tensors)) or "none"
                raise InvalidInput(f"expected a tensor 'atoms', got {names}")
            atoms, size = tensors["atoms"], header.patch_size
            shape = (len(header.usage), size, size, header.channels)
            if atoms.dtype != np.float32 or atoms.shape != shape:
                raise InvalidInput(
                    f"atoms: expected shape {shape} by the header, of float32, "
                    f"got {atoms.shape} of {atoms.dtype}"
                )
            return cls(
                atoms=atoms,
                usage=np.array(header.usage, dtype=np.int64),
                scaling=Scaling(header.scaling.low, header.scaling.high),
                images=tuple(header.images),
                features=header.features,
                any_contrast="contrast" in header.invariance,
                **{name: getattr(header, name) for name in _PLAIN},
            )
