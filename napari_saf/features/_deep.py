"""Features of a pretrained network: windows, principal components, cache on disk."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import itertools
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import platformdirs

from napari_saf.arrays import Array, Float32s, JsonObject, Mask
from napari_saf.device import check_memory, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput, SafError
from napari_saf.features._extractors import Axes, FeatureExtractor, Image, Patterns, perceived
from napari_saf.features._image import average_around
from napari_saf.features._network import (
    ARCHITECTURES,
    Network,
    find_weights,
    hash_of,
    load_network,
    remember_weights,
)
from napari_saf.parameters import documented, parameter, to_plain
from napari_saf.storage import atomic_write, make_folder, remove_path

_MOST_UNITS = 32
"""Most units (strides, or patches) in the inner part of a window."""
_MARGIN = 2
"""Units of margin around the inner part of a window."""
_MOST_SAMPLED = 4096
"""Most positions sampled for the principal components."""
_MOST_BASIS = 2**24
_FITTED = ("layers", "sha256", "window", "step", "basis")
"""Fields that `fitted` determines unless specified."""
_ROWS = 32
MOST_BYTES = 2**31
"""Largest size of the cache folder on disk."""
_lock = threading.Lock()


@documented
@dataclasses.dataclass(frozen=True)
class DeepFeatures(FeatureExtractor):
    """Features of a pretrained network, combined with colour or texture patterns.

    The network is applied to overlapping windows of the image; features of the chosen layers are
    reduced to their principal components, upsampled bilinearly, then averaged over the windows of
    the graph within edges. Weights are read from a safetensors file; nothing is downloaded, and
    nothing in the file is executed. Recipes contain the results of `fitted` (hash, layers, windows,
    components).

    Notes
    -----
    Windows start at multiples of `step` pixels, so features are equivariant to such shifts; those
    of convolutional networks, away from the borders, to multiples of their stride. With a `step` of
    one patch those of a transformer are equivariant to shifts by patches, at the cost of one window
    per patch.

    Examples
    --------
    >>> deep = saf.DeepFeatures("vit_small_patch14_dinov2", "weights.safetensors", n_components=16)
    >>> saf.Problem.from_image(np.eye(64), features=deep)  # weights are never downloaded
    Traceback (most recent call last):
    napari_saf.errors.InvalidInput: weights_file: no such file at weights.safetensors; ...
    """

    # fmt: off
    architecture: str = parameter(
        ARCHITECTURES[0], label="Network", choices=ARCHITECTURES,
        help="Name of the architecture in timm; must match the weights.")
    weights_file: str = parameter(
        "", label="Weights", files="*.safetensors",
        help="Local safetensors file of the weights; nothing is downloaded.")
    layers: tuple[int, ...] | None = parameter(
        None, label="Layers", is_list=True, advanced=True,
        help="Indices of the blocks or stages with the features, from 0; by default the last block "
        "of a transformer, or the stages of other networks with a stride of 8 and 16 pixels, 2 and "
        "4 if features are averaged.")
    n_components: int = parameter(
        32, bounds=(1, 256), label="Components", advanced=True,
        help="Number of principal components of the features.")
    around: float = parameter(
        0.0, bounds=(0, 64), label="Averaged over", advanced=True,
        help="Width in pixels of the Gaussian window in which features are averaged, for textures; "
        "texture patterns are then added. 0: no averaging.")
    sha256: str = parameter("", label="SHA-256", in_form=False, help="Of the file of weights.")
    window: int = parameter(
        0, bounds=(0, 2**14), label="Window", in_form=False,
        help="Side of the windows in pixels; 0: chosen for the first image.")
    step: int = parameter(
        0, bounds=(0, 2**14), label="Step", in_form=False,
        help="Pixels from one window to the next; 0: chosen for the first image.")
    basis: str = parameter(
        "", label="Basis", in_form=False,
        help="Mean and principal components of the first images, float32 in base64.")
    # fmt: on
    name: ClassVar[str] = "deep"
    title: ClassVar[str] = "deep (a network)"
    is_equivariant: ClassVar[bool] = False

    def __post_init__(self) -> None:
        layers: Any = self.layers
        if layers is not None:
            numbers = np.atleast_1d(np.asarray(layers))
            if numbers.dtype.kind not in "iuf" or (numbers % 1).any():
                raise InvalidInput(f"layers: expected whole numbers, got {layers!r:.60}")
            object.__setattr__(self, "layers", tuple(int(k) for k in numbers))
        super().__post_init__()
        if len(self.basis) > _MOST_BASIS:
            raise InvalidInput(f"basis: expected at most {_MOST_BASIS} letters")
        if self.window and (self.window - self.step) % 2:
            raise InvalidInput("step: expected equal margins on both sides, window - step even")
        if (self.window == 0) != (self.step == 0) or self.step > self.window:
            raise InvalidInput(f"step: expected at most the window, {self.window}, got {self.step}")

    @property
    def receptive_field(self) -> int:
        """Pixels around a region that its windows cover."""
        reach = self._margin + self.step + self.window // 8
        averaged = reach + round(4 * self.around) + 3
        return max(averaged, Patterns().receptive_field) if self.around else reach

    @property
    def stride(self) -> int:
        return max(1, self.step)

    @property
    def _margin(self) -> int:
        return (self.window - self.step) // 2

    def to_plain(self) -> JsonObject:
        values = to_plain(self) | {"weights_file": Path(self.weights_file).name}
        return {"kind": self.name, **values}

    def network(self) -> Network:
        """Return the network with its weights, looked up by file name or hash."""
        file = find_weights(self.weights_file, self.sha256)
        return load_network(self.architecture, file, self.layers, is_fine=self.around > 0)

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        if self.basis:
            return self
        network = self.network()
        file = find_weights(self.weights_file, self.sha256)
        sha256, every = hash_of(file), [(image, _planes(image, axes)) for image, axes, _ in images]
        remember_weights(file, sha256)
        result = dataclasses.replace(self, sha256=sha256, layers=network.layers)
        if not self.window:
            longest = max(max(planes.shape[1:3]) for _, planes in every)
            step, margin = _window(longest, network.unit)
            result = dataclasses.replace(result, step=step, window=step + 2 * margin)
        key = key_of(result._settings() | {"fit": 2}, *(image for image, _ in every))
        basis = find_array(key)
        if basis is None:
            raw = [result._raw(planes, network) for _, planes in every]
            sizes = [int(info["num_chs"]) for info in network.model.feature_info]
            basis = _principal(raw, result.n_components, [sizes[k] for k in network.layers])
            extractor = dataclasses.replace(result, basis=_encoded(basis))
            for (image, _), values in zip(every, raw, strict=True):
                keep_array(key_of(extractor._settings(), image), _reduced(values, basis))
            keep_array(key, basis)
        return dataclasses.replace(result, basis=_encoded(basis))

    def is_fit_of(self, template: FeatureExtractor) -> bool:
        if not isinstance(template, DeepFeatures):
            return False
        fit = {name: getattr(template, name) or getattr(self, name) for name in _FITTED}
        name = template.weights_file
        if Path(name).is_file():
            fit["sha256"] = hash_of(Path(name))
        return self == dataclasses.replace(template, weights_file=self.weights_file, **fit)

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        if not self.basis:
            return self.fitted([(image, axes, mask)]).features(image, axes, mask)
        reduced = find_array(key_of(self._settings(), image))
        planes = _planes(image, axes)
        network = self.network()
        if reduced is None:
            reduced = _reduced(self._raw(planes, network), self._decoded())
        n_deep, plane_axes = reduced.shape[-1], _plane_axes(image, axes)
        texture = Patterns().features(image, axes, mask) if self.around else None
        n_other = image.shape[-1] if texture is None else texture.shape[-1]
        result = np.empty((*image.shape[:-1], n_other + n_deep), np.float32)
        # in stripes, without a second array of the image size
        for start in range(0, len(image), _ROWS):
            rows = slice(start, start + _ROWS)
            result[rows, ..., :n_other] = (
                perceived(image[rows]) if texture is None else texture[rows]
            )
        target = np.moveaxis(result[..., n_other:], plane_axes, (-3, -2))
        for index, plane in zip(np.ndindex(target.shape[:-3]), reduced, strict=True):
            for rows, block in _upsampled(plane, network.grid, target.shape[-3:-1]):
                target[index][rows] = block
                raise_if_interrupted()
        if self.around:
            average = average_around(result[..., 0], self.around, axes, mask)
            for values in np.moveaxis(result[..., n_other:], -1, 0):
                values[:] = average(values)
        return result

    def refined(self, features: Image, average: Callable[[Image], Image]) -> Image:
        n_deep = len(self._decoded()) - 1
        means = average(np.ascontiguousarray(features[..., -n_deep:]))
        return np.concatenate([features[..., :-n_deep], means], axis=-1)

    def _settings(self) -> JsonObject:
        """Return the settings that features depend on besides the image."""
        values = to_plain(self) | {"device": self.network().device.type, "version": 1}
        return {name: values[name] for name in values if name not in ("weights_file", "around")}

    def _raw(self, planes: Image, network: Network) -> Image:
        """Return the features (n_planes, n_rows, n_columns, d) of planes on the network's grid."""
        step, margin, grid = self.step, self._margin, network.grid
        if step % network.unit or margin % network.unit:
            raise InvalidInput(
                f"step: expected step and margin in multiples of {network.unit} pixels for "
                f"{self.architecture}, got {step} and {margin}"
            )
        n_planes, *sides, n_channels = planes.shape
        counts = [-(-side // step) for side in sides]
        width = sum(int(network.model.feature_info[k]["num_chs"]) for k in network.layers)
        groups = [[0, 1, 2]] if n_channels == 3 else [[k] * 3 for k in range(n_channels)]
        inner, skip = step // grid, margin // grid
        shape = (n_planes, *(count * inner for count in counts), width * len(groups))
        check_memory(4.0 * math.prod(shape), torch.device("cpu"), "choose a smaller working size")
        result = np.empty(shape, np.float32)
        behind = [n * step + margin - side for n, side in zip(counts, sides, strict=True)]
        around = [(0, 0), (margin, behind[0]), (margin, behind[1]), (0, 0)]
        mirrored, inside = np.pad(planes, around, mode="reflect"), slice(skip, skip + inner)
        indices = list(itertools.product(*map(range, (n_planes, len(groups), *counts))))
        for start in range(0, len(indices), network.at_once()):
            windows, batch = [], indices[start : start + network.at_once()]
            for p, g, r, c in batch:
                rows, columns = (slice(k * step, k * step + self.window) for k in (r, c))
                windows.append(mirrored[p, rows, columns][..., groups[g]])
            raise_if_interrupted()
            for (p, g, r, c), values in zip(batch, network.features(windows).numpy(), strict=True):
                rows, columns = (slice(k * inner, (k + 1) * inner) for k in (r, c))
                result[p, rows, columns, g * width : (g + 1) * width] = values[inside, inside]
        return result[:, : -(-sides[0] // grid), : -(-sides[1] // grid)]

    def _decoded(self) -> Image:
        try:
            numbers = np.frombuffer(base64.b64decode(self.basis, validate=True), "<f4")
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("basis: expected float32 in base64") from error
        n_rows = int(numbers[0]) if len(numbers) and np.isfinite(numbers).all() else 0
        if n_rows < 2 or (len(numbers) - 1) % n_rows:
            raise InvalidInput("basis: expected a mean and components of the same size")
        return numbers[1:].reshape(n_rows, -1)


def _upsampled(field: Image, grid: int, shape: tuple[int, ...]) -> Iterator[tuple[slice, Image]]:
    """Yield rows of a plane of this `shape`, interpolated from a field on a `grid`."""
    between = []
    for side, count in zip(shape, field.shape, strict=False):
        positions = np.clip((np.arange(side) + 0.5) / grid - 0.5, 0, count - 1)
        low = np.minimum(positions.astype(int), max(0, count - 2))
        high = np.minimum(low + 1, count - 1)
        between.append((low, high, (positions - low).astype(np.float32)))
    above, below, part = between[0]
    low, high, share = between[1]
    for start in range(0, shape[0], _ROWS):
        rows = slice(start, min(start + _ROWS, shape[0]))
        weight = part[rows, None, None]
        tall = field[above[rows]] * (1 - weight) + field[below[rows]] * weight
        wide = tall[:, low] * (1 - share[:, None])
        wide += tall[:, high] * share[:, None]
        yield rows, wide


def _encoded(basis: Image) -> str:
    numbers = np.concatenate([[len(basis)], basis.ravel()]).astype("<f4")
    return base64.b64encode(numbers.tobytes()).decode()


def _window(side: int, unit: int) -> tuple[int, int]:
    """Return step and margin, in pixels, for the fewest windows of allowed size."""
    n_units = -(-side // unit)
    count = -(-n_units // _MOST_UNITS)
    return -(-n_units // count) * unit, _MARGIN * unit


def _plane_axes(image: Image, axes: Axes) -> tuple[int, int]:
    """Return the two axes of planes: the two spatial axes, or the last two."""
    n_axes = image.ndim - 1
    if n_axes < 2:
        raise InvalidInput("features 'deep': expected an image of two axes or more")
    chosen = sorted(axes) if axes is not None and len(axes) == 2 else (n_axes - 2, n_axes - 1)
    return chosen[0], chosen[1]


def _planes(image: Image, axes: Axes) -> Image:
    """Return the planes (n_planes, n_rows, n_columns, channels) of an image."""
    moved = np.moveaxis(image, _plane_axes(image, axes), (-3, -2))
    return moved.reshape(-1, *moved.shape[-3:])


def _principal(raw: list[Image], n_components: int, sizes: list[int]) -> Image:
    """Return mean and components (1 + n, d) of layers of these `sizes`, equally weighted."""
    flat = [values.reshape(-1, values.shape[-1]) for values in raw]
    stride = max(1, sum(map(len, flat)) // _MOST_SAMPLED)
    rows = np.concatenate([values[::stride] for values in flat]).astype(np.float64)
    mean = rows.mean(axis=0)
    rows -= mean
    products = rows.T @ rows / len(rows)
    ends = np.cumsum(np.resize(sizes, len(mean) // sum(sizes) * len(sizes)))
    blocks = np.split(products.diagonal(), ends[:-1])
    scales = [1 / math.sqrt(max(float(block.sum()), 1e-30)) for block in blocks]
    weights = np.repeat(scales, [len(block) for block in blocks])
    values, vectors = np.linalg.eigh(weights[:, None] * products * weights)
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components].T
    is_significant = values > 1e-9 * max(values[0], 1e-30)
    values, vectors = values[is_significant], vectors[is_significant]
    largest = np.abs(vectors).argmax(axis=1)
    vectors *= np.sign(vectors[np.arange(len(vectors)), largest])[:, None]
    scale = 1 / math.sqrt(12 * max(float(values.sum()), 1e-30))
    return np.concatenate([mean[None], vectors * weights * scale]).astype(np.float32)


def _reduced(raw: Image, basis: Image) -> Image:
    if raw.shape[-1] != basis.shape[1]:
        raise InvalidInput(
            f"basis: expected components of {raw.shape[-1]} features, got {basis.shape[1]}"
        )
    return np.asarray((raw - basis[0]) @ basis[1:].T, np.float32)


def cache_folder() -> Path:
    return platformdirs.user_cache_path("napari-saf", appauthor=False) / "features"


def key_of(settings: Mapping[str, object], *arrays: Array) -> str:
    """Return a hash of JSON-compatible settings and arrays."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def find_array(key: str) -> Float32s | None:
    """Return the cached array; None if missing or unreadable."""
    import zarr

    path = cache_folder() / f"{key}.zarr"
    try:
        stored = zarr.open_array(path, mode="r")
        array = np.asarray(stored[...])
        os.utime(path)
    except Exception:  # noqa: BLE001 - any unreadable array is recomputed
        return None
    return array if array.dtype == np.float32 and np.isfinite(array).all() else None


def keep_array(key: str, array: Float32s) -> None:
    """Cache an array and evict the least recently used; skipped if the disk is full."""
    import zarr

    folder = cache_folder()
    if array.nbytes > MOST_BYTES // 2:
        return
    try:
        make_folder(folder)
        with atomic_write(folder / f"{key}.zarr") as temporary:
            stored = zarr.create_array(
                temporary, shape=array.shape, dtype="float32", chunks=array.shape
            )
            stored[...] = array
    except (SafError, OSError):
        return
    with _lock:
        _trim(folder)


def _trim(folder: Path) -> None:
    """Remove the least recently used arrays beyond the size limit."""
    entries = []
    for path in folder.glob("*.zarr"):
        try:
            used = path.stat().st_mtime_ns
            sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        except OSError:  # removed by another process
            continue
        entries.append((used, sum(sizes), path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries)[:-1]:
        if total <= MOST_BYTES:
            break
        remove_path(path)
        total -= size
