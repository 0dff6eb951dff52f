"""Features of a trained network: windows of the image, principal components, a cache on disk."""

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
from numpy.typing import NDArray

from napari_saf.device import check_memory, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput, SafError
from napari_saf.features._extractors import (
    Axes,
    FeatureExtractor,
    Image,
    Mask,
    Patterns,
    perceived,
)
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
"""Units of the network, patches of a transformer, in the inner part of a window at most."""
_MARGIN = 2
"""Units around the inner part, whose features are left to the next window."""
_MOST_SAMPLED = 4096
"""Places by which the principal components are found."""
_MOST_BASIS = 2**24
_FOUND = ("layers", "sha256", "window", "step", "basis")
"""What `fitted` finds, where it is not given."""
_ROWS = 32
MOST_BYTES = 2**31
"""What the folder of the cache holds at most, as it is on disk."""
_lock = threading.Lock()


@documented
@dataclasses.dataclass(frozen=True)
class DeepFeatures(FeatureExtractor):
    """Features of a network that was trained on many images, beside colour, or texture patterns.

    The image is covered by windows that overlap, each of which goes through the network; what the
    chosen layers give is reduced to its principal components and comes up to the image's size by
    bilinear interpolation, then by means over the windows of the graph, where those stop at
    edges. Weights come from a safetensors file; nothing is downloaded, and nothing in the file is
    executed. What `fitted` finds (hash, layers, windows, components) a recipe holds.

    Notes
    -----
    Windows lie at multiples of `step` pixels, so features shift with an image that is shifted by
    such a multiple; those of convolutional networks, away from the borders, by any multiple of
    their stride. With a `step` of one patch a transformer's do, too, at the cost of a window for
    each patch.

    Examples
    --------
    >>> deep = saf.DeepFeatures("vit_small_patch14_dinov2", "weights.safetensors", n_components=16)
    >>> saf.Problem.from_image(np.eye(64), features=deep)  # none is downloaded
    Traceback (most recent call last):
    napari_saf.errors.InvalidInput: weights_file: no such file at weights.safetensors; ...
    """

    # fmt: off
    architecture: str = parameter(
        ARCHITECTURES[0], label="Network", choices=ARCHITECTURES,
        help="Architecture by the name that timm has for it; the weights must be of it.")
    weights_file: str = parameter(
        "", label="Weights", files="*.safetensors",
        help="A file of weights as safetensors, which you have: nothing is downloaded.")
    layers: tuple[int, ...] | None = parameter(
        None, label="Layers", is_list=True, advanced=True,
        help="Blocks or stages whose features are taken, from 0; by default the last block of a "
        "transformer, and the stages at 8 and 16 pixels of others, at 2 and 4 where features are "
        "averaged.")
    n_components: int = parameter(
        32, bounds=(1, 256), label="Components", advanced=True,
        help="Principal components to which features are reduced.")
    around: float = parameter(
        0.0, bounds=(0, 64), label="Averaged over", advanced=True,
        help="Width in pixels of the Gaussian window in which features are averaged, as textures "
        "want it; texture patterns then stand beside them. 0: none.")
    sha256: str = parameter("", label="SHA-256", in_form=False, help="Of the file of weights.")
    window: int = parameter(
        0, bounds=(0, 2**14), label="Window", in_form=False,
        help="Side of the windows in pixels; 0: what suits the first image.")
    step: int = parameter(
        0, bounds=(0, 2**14), label="Step", in_form=False,
        help="Pixels from one window to the next; 0: what suits the first image.")
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
            raise InvalidInput("step: expected as much before as behind it in a window")
        if (self.window == 0) != (self.step == 0) or self.step > self.window:
            raise InvalidInput(f"step: expected at most the window, {self.window}, got {self.step}")

    @property
    def receptive_field(self) -> int:
        """What parts must have around them, so that windows are complete that end in them."""
        own = self._margin + self.step + self.window // 8
        averaged = own + round(4 * self.around) + 3
        return max(averaged, Patterns().receptive_field) if self.around else own

    @property
    def stride(self) -> int:
        return max(1, self.step)

    @property
    def _margin(self) -> int:
        return (self.window - self.step) // 2

    def to_plain(self) -> dict[str, Any]:
        own = to_plain(self) | {"weights_file": Path(self.weights_file).name}
        return {"kind": self.name, **own}

    def network(self) -> Network:
        """Return the network with the weights of the file, which is found by its hash, too."""
        file = find_weights(self.weights_file, self.sha256)
        return load_network(self.architecture, file, self.layers, is_fine=self.around > 0)

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        if self.basis:
            return self
        network = self.network()
        file = find_weights(self.weights_file, self.sha256)
        sha256, every = hash_of(file), [(image, _planes(image, axes)) for image, axes, _ in images]
        remember_weights(file, sha256)
        found = dataclasses.replace(self, sha256=sha256, layers=network.layers)
        if not self.window:
            longest = max(max(planes.shape[1:3]) for _, planes in every)
            step, margin = _window(longest, network.unit)
            found = dataclasses.replace(found, step=step, window=step + 2 * margin)
        key = key_of(found._settings() | {"fit": 2}, *(image for image, _ in every))
        basis = find_array(key)
        if basis is None:
            raw = [found._raw(planes, network) for _, planes in every]
            sizes = [int(info["num_chs"]) for info in network.model.feature_info]
            basis = _principal(raw, found.n_components, [sizes[k] for k in network.layers])
            own = dataclasses.replace(found, basis=_encoded(basis))
            for (image, _), one in zip(every, raw, strict=True):
                keep_array(key_of(own._settings(), image), _reduced(one, basis))
            keep_array(key, basis)
        return dataclasses.replace(found, basis=_encoded(basis))

    def is_fit_of(self, other: FeatureExtractor) -> bool:
        if not isinstance(other, DeepFeatures):
            return False
        found = {name: getattr(other, name) or getattr(self, name) for name in _FOUND}
        name = other.weights_file
        if Path(name).is_file():
            found["sha256"] = hash_of(Path(name))
        return self == dataclasses.replace(other, weights_file=self.weights_file, **found)

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        if not self.basis:
            return self.fitted([(image, axes, mask)]).features(image, axes, mask)
        reduced = find_array(key_of(self._settings(), image))
        planes = _planes(image, axes)
        network = self.network()
        if reduced is None:
            reduced = _reduced(self._raw(planes, network), self._decoded())
        n_deep, plane = reduced.shape[-1], _plane_axes(image, axes)
        beside = Patterns().features(image, axes, mask) if self.around else None
        n_beside = image.shape[-1] if beside is None else beside.shape[-1]
        found = np.empty((*image.shape[:-1], n_beside + n_deep), np.float32)
        # In stripes, and into views of planes: nothing of the image's size is held twice.
        for start in range(0, len(image), _ROWS):
            rows = slice(start, start + _ROWS)
            found[rows, ..., :n_beside] = perceived(image[rows]) if beside is None else beside[rows]
        target = np.moveaxis(found[..., n_beside:], plane, (-3, -2))
        places = np.ndindex(target.shape[:-3])
        for at, one in zip(places, reduced, strict=True):
            for rows, block in _upsampled(one, network.grid, target.shape[-3:-1]):
                target[at][rows] = block
                raise_if_interrupted()
        if self.around:
            average = average_around(found[..., 0], self.around, axes, mask)
            for values in np.moveaxis(found[..., n_beside:], -1, 0):
                values[:] = average(values)
        return found

    def refined(self, features: Image, average: Callable[[Image], Image]) -> Image:
        n_deep = len(self._decoded()) - 1
        means = average(np.ascontiguousarray(features[..., -n_deep:]))
        return np.concatenate([features[..., :-n_deep], means], axis=-1)

    def _settings(self) -> dict[str, Any]:
        """Return what features depend on besides the image."""
        own = to_plain(self) | {"device": self.network().device.type, "version": 1}
        return {name: own[name] for name in own if name not in ("weights_file", "around")}

    def _raw(self, planes: Image, network: Network) -> Image:
        """Return the features (n_planes, n_rows, n_columns, d) of planes on the network's grid."""
        step, margin, grid = self.step, self._margin, network.grid
        if step % network.unit or margin % network.unit:
            raise InvalidInput(
                f"step: expected step and margin in multiples of {network.unit}, as "
                f"{self.architecture} has it, got {step} and {margin}"
            )
        n_planes, *sides, n_channels = planes.shape
        counts = [-(-side // step) for side in sides]
        width = sum(int(network.model.feature_info[k]["num_chs"]) for k in network.layers)
        groups = [[0, 1, 2]] if n_channels == 3 else [[k] * 3 for k in range(n_channels)]
        inner, skip = step // grid, margin // grid
        shape = (n_planes, *(count * inner for count in counts), width * len(groups))
        check_memory(4.0 * math.prod(shape), torch.device("cpu"), "choose a smaller working size")
        found = np.empty(shape, np.float32)
        behind = [n * step + margin - side for n, side in zip(counts, sides, strict=True)]
        around = [(0, 0), (margin, behind[0]), (margin, behind[1]), (0, 0)]
        mirrored, kept = np.pad(planes, around, mode="reflect"), slice(skip, skip + inner)
        places = list(itertools.product(*map(range, (n_planes, len(groups), *counts))))
        for start in range(0, len(places), network.at_once()):
            windows, batch = [], places[start : start + network.at_once()]
            for p, g, r, c in batch:
                rows, columns = (slice(k * step, k * step + self.window) for k in (r, c))
                windows.append(mirrored[p, rows, columns][..., groups[g]])
            raise_if_interrupted()
            for (p, g, r, c), one in zip(batch, network.features(windows).numpy(), strict=True):
                rows, columns = (slice(k * inner, (k + 1) * inner) for k in (r, c))
                found[p, rows, columns, g * width : (g + 1) * width] = one[kept, kept]
        return found[:, : -(-sides[0] // grid), : -(-sides[1] // grid)]

    def _decoded(self) -> Image:
        """Return mean and components (1 + n, d)."""
        try:
            numbers = np.frombuffer(base64.b64decode(self.basis, validate=True), "<f4")
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("basis: expected float32 in base64") from error
        n_rows = int(numbers[0]) if len(numbers) and np.isfinite(numbers).all() else 0
        if n_rows < 2 or (len(numbers) - 1) % n_rows:
            raise InvalidInput("basis: expected a mean and components of the same size")
        return numbers[1:].reshape(n_rows, -1)


def _upsampled(field: Image, grid: int, shape: tuple[int, ...]) -> Iterator[tuple[slice, Image]]:
    """Yield rows of a plane of so many pixels, between places (n_rows, n_columns, n) in a grid."""
    between = []
    for side, count in zip(shape, field.shape, strict=False):
        places = np.clip((np.arange(side) + 0.5) / grid - 0.5, 0, count - 1)
        low = np.minimum(places.astype(int), max(0, count - 2))
        high = np.minimum(low + 1, count - 1)
        between.append((low, high, (places - low).astype(np.float32)))
    above, below, part = between[0]
    left, right, share = between[1]
    for start in range(0, shape[0], _ROWS):
        rows = slice(start, min(start + _ROWS, shape[0]))
        weight = part[rows, None, None]
        tall = field[above[rows]] * (1 - weight) + field[below[rows]] * weight
        wide = tall[:, left] * (1 - share[:, None])
        wide += tall[:, right] * share[:, None]
        yield rows, wide


def _encoded(basis: Image) -> str:
    numbers = np.concatenate([[len(basis)], basis.ravel()]).astype("<f4")
    return base64.b64encode(numbers.tobytes()).decode()


def _window(side: int, unit: int) -> tuple[int, int]:
    """Return step and margin, in pixels, of the fewest windows that are not too large."""
    n_units = -(-side // unit)
    count = -(-n_units // _MOST_UNITS)
    return -(-n_units // count) * unit, _MARGIN * unit


def _plane_axes(image: Image, axes: Axes) -> tuple[int, int]:
    """Return the two axes of planes: those that are labelled together, or the last."""
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
    """Return mean and components (1 + n, d) that reduce features, layers of so many in a row.

    Each layer counts as much; the variances of what comes out sum to that of a uniform variable
    in [0, 1], as those of colours do about.
    """
    flat = [one.reshape(-1, one.shape[-1]) for one in raw]
    stride = max(1, sum(map(len, flat)) // _MOST_SAMPLED)
    rows = np.concatenate([one[::stride] for one in flat]).astype(np.float64)
    mean = rows.mean(axis=0)
    rows -= mean
    products = rows.T @ rows / len(rows)
    ends = np.cumsum(np.resize(sizes, len(mean) // sum(sizes) * len(sizes)))
    blocks = np.split(products.diagonal(), ends[:-1])
    scales = [1 / math.sqrt(max(float(block.sum()), 1e-30)) for block in blocks]
    weights = np.repeat(scales, [len(block) for block in blocks])
    values, vectors = np.linalg.eigh(weights[:, None] * products * weights)
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components].T
    kept = values > 1e-9 * max(values[0], 1e-30)
    values, vectors = values[kept], vectors[kept]
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
    """Return where features are kept, in the user's cache folder."""
    return platformdirs.user_cache_path("napari-saf", appauthor=False) / "features"


def key_of(settings: Mapping[str, object], *arrays: NDArray[Any]) -> str:
    """Return a name for what is computed from arrays by settings, which JSON can hold."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def find_array(key: str) -> NDArray[np.float32] | None:
    """Return what was kept under a name; None if nothing was, or it cannot be read."""
    import zarr

    path = cache_folder() / f"{key}.zarr"
    try:
        stored = zarr.open_array(path, mode="r")
        found = np.asarray(stored[...])
        os.utime(path)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is computed again
        return None
    return found if found.dtype == np.float32 and np.isfinite(found).all() else None


def keep_array(key: str, array: NDArray[np.float32]) -> None:
    """Keep an array, and let those longest unused go; without room for it nothing is kept."""
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
    """Remove the arrays longest unused, until the folder holds no more than it may."""
    entries = []
    for path in folder.glob("*.zarr"):
        try:
            used = path.stat().st_mtime_ns
            sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        except OSError:  # another process was faster
            continue
        entries.append((used, sum(sizes), path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries)[:-1]:
        if total <= MOST_BYTES:
            break
        remove_path(path)
        total -= size
