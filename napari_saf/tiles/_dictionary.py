"""Labelling by a patch dictionary in tiles: the nearest atom of each pixel of a large image."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf.arrays import JsonObject
from napari_saf.dictionary import PatchDictionary, check_odd, label_patches
from napari_saf.errors import InvalidInput
from napari_saf.flow import AdamsSchedule, StoppingRule, wait_for_kernels
from napari_saf.io import Axes, map_labels, write_note
from napari_saf.methods import AssignmentFlow
from napari_saf.parts import WINDOWS_OF_HALO
from napari_saf.result import LabelMap
from napari_saf.tiles._job import AbstractLargeJob, Work, opened_with_mask, pixels_of
from napari_saf.tiles._tiling import Tiling, blocks_within, fitting_tile, sides_of

_STEP_PIXELS = 2**18
"""Number of pixels of the blocks from which the steps are determined."""


class DictionaryPlan(Tiling):
    """Plan of labelling a large image by a dictionary, in JSON."""

    plan_kind: Literal["dictionary"] = Field(alias="kind")
    window: int
    n_atoms: int
    steps: list[float]

    @property
    def most_label(self) -> int:
        return self.n_atoms

    @property
    def decided(self) -> str:
        return f"in {len(self.steps)} steps"

    def describe(self, axes: Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        return map_labels(np.array(numbers)), write_note(axes)

    def label(
        self,
        values: NDArray[Any],
        mask: NDArray[np.bool_] | Literal["finite"] | None,
        dictionary: PatchDictionary,
    ) -> tuple[NDArray[Any], None]:
        """Return the labels of pixels, channels last; 0 outside the mask."""
        stepper = AdamsSchedule(tuple(self.steps))
        stop = StoppingRule(entropy=0, changed=0, max_steps=max(1, len(self.steps)))
        pixels, inside = _filled(values, mask, dictionary)
        method = AssignmentFlow(stepper=stepper, stop=stop)
        labels, _ = label_patches(dictionary, pixels, method, self.window)
        if inside is not None:
            labels = np.where(inside, labels, 0).astype(labels.dtype)
        return labels, None


def _filled(
    values: NDArray[Any],
    mask: NDArray[np.bool_] | Literal["finite"] | None,
    dictionary: PatchDictionary,
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return pixels for a dictionary, and the mask of the foreground."""
    if mask is None:
        return dictionary.planes(values, -1), None
    inside = np.isfinite(values).all(axis=-1) if isinstance(mask, str) else mask
    return np.where(inside[..., None], values, dictionary.scaling.low), inside


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DictionaryJob(AbstractLargeJob):
    """Job that labels a large image by a dictionary; see `label_large`, `PatchDictionary.apply`."""

    plan_type = DictionaryPlan

    dictionary: PatchDictionary
    window: int = 3

    @classmethod
    def of(
        cls,
        source: Any,
        dictionary: PatchDictionary,
        *,
        window: int = 3,
        channel_axis: int | None = None,
        mask: Any = None,
        tile: int | None = None,
    ) -> DictionaryJob:
        """Open and check the image and its mask; see `opened_with_mask`."""
        check_odd("window", window, 1, None)
        fields = opened_with_mask(source, channel_axis, mask, tile)
        sides = [min(side, 2 * dictionary.patch_size) for side in fields[0].shape]
        dictionary.planes(np.zeros([*sides, fields[0].n_channels]), -1)
        return cls(*fields, dictionary, window)

    @property
    def request(self) -> JsonObject:
        learned = self.dictionary
        options = learned.scaling, learned.distance, learned.shift_window, learned.features
        content = np.ascontiguousarray(learned.atoms).tobytes()
        content += repr((learned.atoms.shape, *options)).encode()
        digest = hashlib.sha256(content).hexdigest()[:16]
        return {"dictionary": digest, "window": self.window, "tile": self.tile}

    def plan(self) -> DictionaryPlan:
        wait_for_kernels()
        dictionary, image = self.dictionary, self.image
        least = (max(self.window, dictionary.patch_size),) * 2
        block = sides_of(image.shape, least, None)[0]
        n_blocks = max(1, _STEP_PIXELS // math.prod(block))
        pixels = pixels_of(image, self.auxiliary)
        regions = blocks_within(pixels, block, n_blocks)
        strips = [_filled(*pixels.read(region), dictionary)[0] for region in regions]
        if not strips:
            raise InvalidInput("mask: expected pixels to learn from, none of them is within it")
        history = label_patches(dictionary, np.hstack(strips), AssignmentFlow(), self.window)[1]
        reach = 2 * (dictionary.patch_size // 2) + dictionary.shift_window // 2
        reach += dictionary.receptive_field
        halo = [reach + 2 * WINDOWS_OF_HALO[2] * (self.window // 2)] * 2
        sides = fitting_tile(image.shape, least, self.tile, halo, dictionary.n_atoms, 0)
        return DictionaryPlan(
            kind="dictionary",
            window=self.window,
            n_atoms=dictionary.n_atoms,
            steps=np.diff(history.time).tolist(),
            **self.tiling(*sides, halo),
        )

    def work(self, plan: Any, out: Path, is_sent: bool) -> Work:
        return Work(plan, *self.sent(is_sent), out.absolute(), self.dictionary)
