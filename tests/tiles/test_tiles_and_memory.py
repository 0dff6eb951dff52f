"""Labels in tiles are those of the same recipe in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.input import ImageOptions
from napari_saf.methods import _full_resolution
from napari_saf.pipeline import Pipeline

Image = NDArray[Any]


def things(shape: tuple[int, ...], seed: int = 0) -> Image:
    """Return things of three sizes on a dark ground, in noise, one byte a pixel."""
    rng = np.random.default_rng(seed)
    smooth = [gaussian_filter(rng.standard_normal(shape), width) for width in (2.0, 4.0)]
    bright = sum((one > 1.3 * one.std()).astype(float) for one in smooth)
    blurred = gaussian_filter(20 + 90 * np.asarray(bright), 0.7)
    return np.asarray((blurred + rng.normal(0, 8, shape)).clip(0, 255).astype(np.uint8))


def regions(shape: tuple[int, ...], seed: int = 0) -> Image:
    """Return regions of four colours in noise, channels last."""
    rng = np.random.default_rng(seed)
    kinds = np.stack([gaussian_filter(rng.standard_normal(shape), 9) for _ in range(4)]).argmax(0)
    colours = np.array([[200, 60, 60], [60, 160, 60], [50, 70, 180], [190, 180, 90]])
    noisy = colours[kinds] + rng.normal(0, 25, (*shape, 3))
    return np.asarray(noisy.clip(0, 255).astype(np.uint8))


def first_click(**options: Any) -> Pipeline:
    return Pipeline(saf.SelfAssignmentFlow(), ImageOptions(**options))


def by_strokes(image: Image, **options: Any) -> Pipeline:
    """Return what strokes on a part taught."""
    part = image[:200, :200]
    problem = saf.Problem.from_image(part, **options)
    light = part if part.ndim == 2 else part.mean(axis=-1)
    strokes = np.zeros(light.shape, int)
    strokes[::9] = 1 + (light[::9] > np.median(light) + 20)
    return Pipeline.from_prototypes(saf.PrototypeSet.from_labels(problem, strokes))


def inside(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a mask with a smooth outline."""
    places = np.indices(shape).T / np.array(shape) - 0.5
    return np.asarray((np.square(places).sum(axis=-1) < 0.2).T)


CASES: dict[str, tuple[Image, Pipeline]] = {
    "first click": (things((230, 220)), first_click(max_side=110)),
    "colour": (regions((300, 310)), first_click()),
    "channels": (regions((300, 310)), Pipeline(saf.SLK(n_clusters=4), ImageOptions("lab", 5))),
    "small": (things((150, 170)), first_click()),
    "far reduced": (things((360, 340)), first_click(max_side=45, features="texture")),
    "enlarged": (things((300, 290)), first_click(max_side=140, full_resolution=False)),
    "strokes": (things((300, 290)), by_strokes(things((300, 290), 1), max_side=90, window=5)),
    "in full": (things((300, 310)), by_strokes(things((300, 310), 1), max_side=None, window=5)),
    "stack": (things((3, 150, 160)), first_click(window=(1, 7, 7), max_side=80)),
    "volume": (things((40, 64, 60)), first_click()),
    "reduced volume": (things((36, 60, 54)), first_click(max_side=30)),
    "groups": (
        regions((300, 310)),
        Pipeline(saf.FairClustering(n_clusters=4), ImageOptions("lab", groups="channel:1")),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is learned come from blocks, and memory, too, label in parts."""
    monkeypatch.setattr("napari_saf.parts._BLOCK", {2: 64, 3: 24})
    monkeypatch.setattr("napari_saf.parts._MOST_LEARNED", 2**15)
    monkeypatch.setattr("napari_saf.features._image._READ", 2**14)
    monkeypatch.setattr(_full_resolution, "_MOST_AT_ONCE", 2**15)


FEW = ("first click", "in full")
PARAMS = [pytest.param(n, marks=() if n in FEW else pytest.mark.exhaustive) for n in CASES]


@pytest.mark.parametrize("name", PARAMS)
def test_tiles_have_the_labels_of_memory(tmp_path: Path, name: str) -> None:
    image, recipe = CASES[name]
    expected: Any = recipe.run(image).labels
    tile = 48 if "volume" in name else 96
    found = saf.label_large(image, recipe, tmp_path / "m.ome.zarr", tile=tile)
    assert found.n_tiles > 1 and len(np.unique(expected)) > 1
    assert (found.labels[:] == expected).mean() >= 0.9999


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("in full", "array"),
        pytest.param("stack", "finite", marks=pytest.mark.exhaustive),
    ],
)
def test_masks_have_the_labels_of_memory(tmp_path: Path, name: str, kind: str) -> None:
    image, recipe = CASES[name]
    own = inside(image.shape[:3] if name == "stack" else image.shape[:2])
    mask: Any = own
    if kind == "finite":
        image, mask = image.astype(np.float32), kind
        image[~own] = np.nan
    expected: Any = recipe.run(image, mask=mask).labels
    found = saf.label_large(image, recipe, tmp_path / "m.ome.zarr", tile=96, mask=mask)
    assert ((found.labels[:] > 0) == own).all()
    assert (found.labels[:] == expected).mean() >= 0.9999


def test_more_pixels_than_are_labelled_at_once_are_reduced_and_that_is_told(tmp_path: Path) -> None:
    image, recipe = CASES["small"]
    found = saf.label_large(image, recipe, tmp_path / "m.ome.zarr", tile=64, learn_pixels=2**13)
    smaller = first_click(max_side=int(170 * (2**13 / (150 * 170)) ** 0.5))
    expected: Any = smaller.run(image).labels
    assert (found.labels[:] == expected).mean() >= 0.9999
    assert any("labels are decided at" in note for note in found.notes)


def test_large_volumes_are_labelled_by_what_blocks_of_them_teach(tmp_path: Path) -> None:
    """Where nodes would be larger than things."""
    image = things((40, 60, 64))
    found = saf.label_large(image, first_click(), tmp_path / "m.ome.zarr", learn_pixels=2**10)
    assert any("from blocks" in note for note in found.notes)
    expected: Any = first_click().run(image).labels
    assert (found.labels[:] == expected).mean() > 0.98
