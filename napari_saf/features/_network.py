"""Pretrained networks: timm architectures with weights from a safetensors file."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napari_saf.arrays import Float32s
from napari_saf.device import Tensor, raise_if_interrupted, resolve_device, torch
from napari_saf.errors import FormatError, InvalidInput, SafError, one_line
from napari_saf.features._timm import import_timm
from napari_saf.storage import check_room, data_folder, make_folder, read_json, write_json

ARCHITECTURES = (
    "vit_small_patch14_dinov2",
    "vit_base_patch14_dinov2",
    "vit_small_patch16_dinov3",
    "vit_base_patch16_dinov3",
    "convnext_tiny",
    "vgg16",
    "resnet50",
)
"""Suggested timm architectures."""
_USUAL_REDUCTIONS, _FINE_REDUCTIONS = (8, 16), (2, 4)
"""Strides of the default stages of convolutional networks."""
_TYPES = {"cuda": "float16"}
"""Types of devices on which half precision is faster."""
_MOST_AT_ONCE = {"cpu": 1, "cuda": 16, "mps": 4}
_BLOCK = 2**20


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Network with its weights, and the layers of features with their strides `reductions`."""

    model: Any
    layers: tuple[int, ...]
    reductions: tuple[int, ...]
    device: torch.device
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def grid(self) -> int:
        """Pixels between positions with features."""
        return min(self.reductions)

    @property
    def unit(self) -> int:
        """Divisor of valid image sides in pixels."""
        return max(self.reductions)

    def features(self, windows: Sequence[Float32s]) -> Tensor:
        """Return features (n, n_rows, n_columns, n_features) of equal images (n, ..., 3)."""
        dtype = next(self.model.parameters()).dtype
        images = torch.from_numpy(np.stack(windows)).to(self.device).movedim(-1, 1)
        mean, deviation = (
            torch.tensor(x, device=self.device)[:, None, None] for x in (self.mean, self.deviation)
        )
        with torch.inference_mode():
            outputs = self.model.forward_intermediates(
                ((images - mean) / deviation).to(dtype),
                indices=list(self.layers),
                norm=True,
                stop_early=True,
                intermediates_only=True,
            )
            size = [side // self.grid for side in images.shape[2:]]
            layers = [
                layer.float()
                if list(layer.shape[2:]) == size
                else torch.nn.functional.interpolate(layer.float(), size, mode="bilinear")
                for layer in outputs
            ]
            return torch.cat(layers, dim=1).movedim(1, -1).cpu()

    def at_once(self) -> int:
        return _MOST_AT_ONCE.get(self.device.type, 1)


def load_network(
    architecture: str, file: Path, layers: tuple[int, ...] | None, *, is_fine: bool = False
) -> Network:
    """Return a network with weights from a file; InvalidInput, FormatError or ComputeError."""
    state = file.stat()
    device = resolve_device("auto")
    model, missing = _load(architecture, file, device, (state.st_size, state.st_mtime_ns))
    reductions = [int(layer["reduction"]) for layer in model.feature_info]
    usual = _FINE_REDUCTIONS if is_fine else _USUAL_REDUCTIONS
    chosen, config = _chosen_layers(reductions, layers, usual), model.pretrained_cfg
    used = _used_names(model, chosen) if missing else set()
    _check_names(file, architecture, "lacks", [name for name in missing if name in used])
    return Network(
        model,
        chosen,
        tuple(reductions[k] for k in chosen),
        device,
        tuple(config["mean"]),
        tuple(config["std"]),
    )


@functools.lru_cache(maxsize=1)
def _load(
    architecture: str, file: Path, device: torch.device, state: tuple[int, int]
) -> tuple[Any, list[str]]:
    """Return a model without its head, and the names of missing weights."""
    model = _make_model(architecture)
    missing = _fill(model, architecture, file)
    dtype = getattr(torch, _TYPES.get(device.type, "float32"))
    return model.eval().requires_grad_(False).to(device, dtype), missing


def _used_names(model: Any, layers: Sequence[int]) -> set[str]:
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    pruned = copy.deepcopy(model, tensors)  # shares the weights
    pruned.prune_intermediate_layers(list(layers))
    return set(pruned.state_dict())


def _make_model(architecture: str) -> Any:
    """Return an architecture without pretrained weights, offline."""
    timm = import_timm()
    # names with schemes such as hf-hub: would download
    if not architecture.replace("_", "").replace(".", "").isalnum() or not timm.is_model(
        architecture
    ):
        near = timm.list_models(f"*{architecture}*")[:3] if architecture.isidentifier() else []
        examples = ", ".join(near or ARCHITECTURES)
        raise InvalidInput(
            f"architecture: expected a name in timm, such as {examples}, got {architecture!r:.60}"
        )
    create = functools.partial(timm.create_model, architecture, pretrained=False, num_classes=0)
    with torch.random.fork_rng(devices=[]):  # random initial weights, replaced later
        try:
            model = create(dynamic_img_size=True)
        except TypeError:  # only transformers take an image size
            model = create()
    if not hasattr(model, "forward_intermediates"):
        raise InvalidInput(f"architecture: timm cannot extract layer features of {architecture}")
    return model


def _fill(model: Any, architecture: str, file: Path) -> list[str]:
    """Load the weights of a file into a model without its head; return the missing names."""
    weights, expected = _read_weights(file), set(model.state_dict())
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        if convert is not None:
            weights = convert(weights, model)
        model.prune_intermediate_layers(list(range(len(model.feature_info))))
        missing, unknown = model.load_state_dict(weights, strict=False)
    except Exception as error:  # conversions raise arbitrary errors for other weights
        raise FormatError(
            f"{file}: expected weights of {architecture}: {one_line(error)[:200]}"
        ) from error
    heads = model.pretrained_cfg.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    unknown = [name for name in unknown if not name.startswith((*heads, "mask_token"))]
    _check_names(file, architecture, "has", [name for name in unknown if name not in expected])
    return list(missing)


def _check_names(file: Path, architecture: str, verb: str, names: Sequence[str]) -> None:
    if names:
        raise FormatError(
            f"{file}: expected weights of {architecture}: it {verb} {names[0]!r} "
            f"and {len(names) - 1} more"
        )


def _read_weights(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, without executing code."""
    import safetensors.torch

    try:
        with file.open("rb") as stream:
            begin = stream.read(9)
        check_room(file.stat().st_size)
        if begin[8:9] != b"{":
            raise FormatError(
                f"{file}: expected weights as safetensors; pickles (.pt, .pth, .bin) may execute "
                "code and are not read"
            )
        weights: dict[str, Tensor] = safetensors.torch.load_file(file)
    except (FormatError, MemoryError):
        raise
    except Exception as error:  # safetensors raises arbitrary errors for damaged files
        raise FormatError(f"{file}: cannot be read as safetensors: {one_line(error)}") from error
    wrong = next((name for name, x in weights.items() if not x.is_floating_point()), None)
    counters = wrong is not None and wrong.endswith("num_batches_tracked")
    if wrong is not None and not counters:
        raise FormatError(f"{file}: expected floating-point weights, {wrong!r} has another type")
    return {name: x.float() if x.is_floating_point() else x for name, x in weights.items()}


def _chosen_layers(
    reductions: Sequence[int], layers: tuple[int, ...] | None, usual: tuple[int, ...]
) -> tuple[int, ...]:
    """Return layer indices from 0, by default the last of a transformer or the usual stages."""
    n_layers = len(reductions)
    if layers is None:
        if len(set(reductions)) == 1:
            return (n_layers - 1,)
        return tuple(k for k, reduction in enumerate(reductions) if reduction in usual) or (
            n_layers - 1,
        )
    if not layers or any(not -n_layers <= k < n_layers for k in layers):
        raise InvalidInput(
            f"layers: expected numbers from 0 to {n_layers - 1}, got {', '.join(map(str, layers))}"
        )
    return tuple(sorted({k % n_layers for k in layers}))


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a file; FormatError if it cannot be read."""
    try:
        state = file.stat()
        return _hash(file, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error


@functools.lru_cache(maxsize=8)
def _hash(file: Path, size: int, changed: int) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            raise_if_interrupted()
    return digest.hexdigest()


def known_weights() -> Path:
    """Return the path of the file that stores the last path of weights by hash."""
    return data_folder() / "weights.json"


def find_weights(name: str, sha256: str) -> Path:
    """Return the path of weights by name or hash, or raise InvalidInput."""
    paths = [Path(name)] * bool(name)
    paths += [Path(path) for key, path in _known_paths().items() if key == sha256]
    for candidate in paths:
        if candidate.is_file() and (not sha256 or hash_of(candidate) == sha256):
            return candidate
    if not name:
        raise InvalidInput("weights_file: choose a file of weights (safetensors)")
    digest = f" with the SHA-256 {sha256[:12]}..." if sha256 else ""
    problem = "another file" if paths[0].is_file() else "no such file"
    raise InvalidInput(f"weights_file: {problem} at {name}; expected weights{digest}")


def remember_weights(file: Path, sha256: str) -> None:
    """Store the path of weights by hash."""
    paths, path = _known_paths(), str(file.absolute())
    if paths.get(sha256) == path:
        return
    try:
        make_folder(known_weights().parent)
        write_json(known_weights(), json.dumps(paths | {sha256: path}, indent=1))
    except SafError:
        return


def _known_paths() -> dict[str, str]:
    try:
        plain = read_json(known_weights())
    except (OSError, ValueError):
        return {}
    items = plain.items() if isinstance(plain, dict) else ()
    return {key: path for key, path in items if isinstance(path, str)}
