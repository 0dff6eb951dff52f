"""Networks that were trained by others: the weights of a file in an architecture of timm."""

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
from numpy.typing import NDArray

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
"""Some of the names that timm knows."""
_USUAL_REDUCTIONS, _FINE_REDUCTIONS = (8, 16), (2, 4)
"""Of the stages of convolutional networks whose features are taken."""
_TYPES = {"cuda": "float16"}
"""In which type devices compute that gain by half precision."""
_MOST_AT_ONCE = {"cpu": 1, "cuda": 16, "mps": 4}
_BLOCK = 2**20


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network with its weights, and the layers whose features are taken.

    `reductions` say of each layer how many pixels of the image one of its own is of.
    """

    model: Any
    layers: tuple[int, ...]
    reductions: tuple[int, ...]
    device: torch.device
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def grid(self) -> int:
        """Pixels from one place that has features to the next."""
        return min(self.reductions)

    @property
    def unit(self) -> int:
        """What sides of images must be multiples of."""
        return max(self.reductions)

    def features(self, windows: Sequence[NDArray[np.float32]]) -> Tensor:
        """Return features (n, n_rows, n_columns, n_features) of equal images (n, ..., 3)."""
        kind = next(self.model.parameters()).dtype
        images = torch.from_numpy(np.stack(windows)).to(self.device).movedim(-1, 1)
        mean, deviation = (
            torch.tensor(x, device=self.device)[:, None, None] for x in (self.mean, self.deviation)
        )
        with torch.inference_mode():
            found = self.model.forward_intermediates(
                ((images - mean) / deviation).to(kind),
                indices=list(self.layers),
                norm=True,
                stop_early=True,
                intermediates_only=True,
            )
            size = [side // self.grid for side in images.shape[2:]]
            layers = [
                one.float()
                if list(one.shape[2:]) == size
                else torch.nn.functional.interpolate(one.float(), size, mode="bilinear")
                for one in found
            ]
            return torch.cat(layers, dim=1).movedim(1, -1).cpu()

    def at_once(self) -> int:
        """Return how many windows are computed together."""
        return _MOST_AT_ONCE.get(self.device.type, 1)


def load_network(
    architecture: str, file: Path, layers: tuple[int, ...] | None, *, is_fine: bool = False
) -> Network:
    """Return the network of an architecture with the weights of a safetensors file.

    InvalidInput for an unknown architecture or layer, FormatError naming the file if it holds no
    weights of that architecture, or not those of these layers and of the ones before, ComputeError
    if timm cannot be used.
    """
    state = file.stat()
    where = resolve_device("auto")
    model, missing = _load(architecture, file, where, (state.st_size, state.st_mtime_ns))
    reductions = [int(one["reduction"]) for one in model.feature_info]
    usual = _FINE_REDUCTIONS if is_fine else _USUAL_REDUCTIONS
    chosen, about = _chosen_layers(reductions, layers, usual), model.pretrained_cfg
    used = _used_names(model, chosen) if missing else set()
    _check_names(file, architecture, "lacks", [name for name in missing if name in used])
    return Network(
        model,
        chosen,
        tuple(reductions[k] for k in chosen),
        where,
        tuple(about["mean"]),
        tuple(about["std"]),
    )


@functools.lru_cache(maxsize=1)
def _load(
    architecture: str, file: Path, device: torch.device, state: tuple[int, int]
) -> tuple[Any, list[str]]:
    """Return a model without its head, and the names of the weights that the file lacks."""
    model = _make_model(architecture)
    missing = _fill(model, architecture, file)
    kind = getattr(torch, _TYPES.get(device.type, "float32"))
    return model.eval().requires_grad_(False).to(device, kind), missing


def _used_names(model: Any, layers: Sequence[int]) -> set[str]:
    """Return the names of the weights that features of layers depend on."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    pruned = copy.deepcopy(model, tensors)  # which shares the weights
    pruned.prune_intermediate_layers(list(layers))
    return set(pruned.state_dict())


def _make_model(architecture: str) -> Any:
    """Return an architecture without its weights; nothing is asked of any other machine."""
    timm = import_timm()
    # Other schemes of names, such as hf-hub:, are downloads.
    if not architecture.replace("_", "").replace(".", "").isalnum() or not timm.is_model(
        architecture
    ):
        near = timm.list_models(f"*{architecture}*")[:3] if architecture.isidentifier() else []
        known = ", ".join(near or ARCHITECTURES)
        raise InvalidInput(
            f"architecture: timm knows none of that name ({architecture!r:.60}); "
            f"some that it knows: {known}"
        )
    options: dict[str, Any] = {"pretrained": False, "num_classes": 0}
    with torch.random.fork_rng(devices=[]):  # of the weights that those of the file replace
        try:
            model = timm.create_model(architecture, dynamic_img_size=True, **options)
        except TypeError:  # only transformers have a size of images
            model = timm.create_model(architecture, **options)
    if not hasattr(model, "forward_intermediates"):
        raise InvalidInput(f"architecture: {architecture} does not give features of its layers")
    return model


def _fill(model: Any, architecture: str, file: Path) -> list[str]:
    """Give a model, less its head, the weights of a file; return the names of those it lacks."""
    weights, known = _read_weights(file), set(model.state_dict())
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        if convert is not None:
            weights = convert(weights, model)
        model.prune_intermediate_layers(list(range(len(model.feature_info))))
        missing, unknown = model.load_state_dict(weights, strict=False)
    except Exception as error:  # whatever a conversion raises for other weights
        raise FormatError(
            f"{file}: expected weights of {architecture}: {one_line(error)[:200]}"
        ) from error
    heads = model.pretrained_cfg.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    unknown = [name for name in unknown if not name.startswith((*heads, "mask_token"))]
    _check_names(file, architecture, "has", [name for name in unknown if name not in known])
    return list(missing)


def _check_names(file: Path, architecture: str, verb: str, names: Sequence[str]) -> None:
    if names:
        raise FormatError(
            f"{file}: expected weights of {architecture}: it {verb} {names[0]!r} "
            f"and {len(names) - 1} more"
        )


def _read_weights(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, which holds nothing that could be executed."""
    import safetensors.torch

    try:
        with file.open("rb") as stream:
            begin = stream.read(9)
        check_room(file.stat().st_size)
        if begin[8:9] != b"{":
            raise FormatError(
                f"{file}: expected weights as safetensors; a pickle (.pt, .pth, .bin) may execute "
                "anything and is not read"
            )
        weights: dict[str, Tensor] = safetensors.torch.load_file(file)
    except (FormatError, MemoryError):
        raise
    except Exception as error:  # whatever the library raises for a damaged file
        raise FormatError(f"{file}: cannot be read as safetensors: {one_line(error)}") from error
    wrong = next((name for name, one in weights.items() if not one.is_floating_point()), None)
    counters = wrong is not None and wrong.endswith("num_batches_tracked")
    if wrong is not None and not counters:
        raise FormatError(f"{file}: expected floating point weights, {wrong!r} has none")
    return {name: one.float() if one.is_floating_point() else one for name, one in weights.items()}


def _chosen_layers(
    reductions: Sequence[int], layers: tuple[int, ...] | None, usual: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the layers from 0 on: those given, or the last of a transformer, some of others."""
    n_layers = len(reductions)
    if layers is None:
        if len(set(reductions)) == 1:
            return (n_layers - 1,)
        return tuple(k for k, one in enumerate(reductions) if one in usual) or (n_layers - 1,)
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
    """Return the file that says where files of weights were last, by their hashes."""
    return data_folder() / "weights.json"


def find_weights(name: str, sha256: str) -> Path:
    """Return where the weights of a recipe are, or InvalidInput if nobody has named them here.

    What has that hash counts, whatever its name.
    """
    places = [Path(name)] * bool(name)
    places += [Path(place) for key, place in _places().items() if key == sha256]
    for place in places:
        if place.is_file() and (not sha256 or hash_of(place) == sha256):
            return place
    if not name:
        raise InvalidInput("weights_file: choose a file of weights (safetensors)")
    told = f" with the SHA-256 {sha256[:12]}..." if sha256 else ""
    other = "another file" if places[0].is_file() else "no such file"
    raise InvalidInput(f"weights_file: {other} at {name}; expected weights{told}")


def remember_weights(file: Path, sha256: str) -> None:
    """Note where a file of weights is, for recipes that need it."""
    places, place = _places(), str(file.absolute())
    if places.get(sha256) == place:
        return
    try:
        make_folder(known_weights().parent)
        write_json(known_weights(), json.dumps(places | {sha256: place}, indent=1))
    except SafError:
        return


def _places() -> dict[str, str]:
    try:
        plain = read_json(known_weights())
    except (OSError, ValueError):
        return {}
    items = plain.items() if isinstance(plain, dict) else ()
    return {key: place for key, place in items if isinstance(place, str)}
