"""What a strategy cannot do is refused in the words of one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import napari_saf as saf
from napari_saf.batch import ApplyOptions
from napari_saf.cli import main
from napari_saf.input import PLAIN, ImageOptions
from napari_saf.io import ExportSelection, Labelling
from napari_saf.io._labelling import Export
from napari_saf.strategies import LIMITS, Strategy
from napari_saf.tiles._engine import as_sent

IMAGE = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((32, 32))).astype(np.float32)
GRAPH = saf.Pipeline(saf.SLK(n_clusters=2), None)
OPTIONS = ImageOptions(**PLAIN)


def atoms() -> saf.PatchDictionary:
    return saf.PatchDictionary.learn([IMAGE], n_atoms=2, patch_size=3)


def command(*words: object) -> None:
    assert main([*map(str, words)]) > 0


def large(pipeline: Any, **options: Any) -> None:
    saf.label_large(IMAGE, pipeline, "mask.ome.zarr", **options)


def run_of_dictionary(*words: object) -> None:
    atoms().save("a.safetensors")
    command(*words[:1], "apply", "a.safetensors", *words[1:])


def into_a_reordered_image() -> None:
    group = zarr.open_group("image.ome.zarr", mode="w")
    group.create_array("0", data=IMAGE.T)
    axes = [{"name": name, "type": "space"} for name in "xy"]
    levels = [{"axes": axes, "datasets": [{"path": "0"}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": levels}
    saf.label_large("image.ome.zarr", saf.SLK(n_clusters=2), "image.ome.zarr/labels/a", tile=32)


def export_of_pixels() -> None:
    Export(Path(), "a", Labelling(zarr.array(np.eye(4, dtype=int))), ExportSelection(masks=".png"))


def send_array() -> None:
    as_sent(saf.ImageSource.open(np.broadcast_to(np.float32(0), (2**14, 2**14))), True)


WHOLE, TILES, FOLDER = Strategy.WHOLE, Strategy.TILES_ON_DISK, Strategy.FOLDER
IN = ("segment", "a.npy", "-o", "m.ome.zarr", "--tile", "32")
CASES: dict[tuple[Strategy, str], Callable[[], object]] = {
    (WHOLE, "graph"): lambda: GRAPH.run(IMAGE),
    (TILES, "graph"): lambda: large(GRAPH),
    (FOLDER, "graph"): lambda: saf.apply_to_images(GRAPH, ["a.npy"], "out"),
    (TILES, "groups"): lambda: large(
        saf.Pipeline(saf.FairClustering(n_clusters=2), ImageOptions(groups="axis:0"))
    ),
    (TILES, "strokes"): lambda: large(saf.Pipeline(saf.LaplacianShot(), OPTIONS)),
    (TILES, "stroke files"): lambda: command(*IN, "--seeds", "a.npy", "--method", "af"),
    (TILES, "map format"): lambda: command(*IN, "--probabilities", ".npy"),
    (TILES, "maps of a dictionary"): lambda: large(atoms(), probabilities="maps.ome.zarr"),
    (TILES, "reconstruction"): lambda: run_of_dictionary(
        "dictionary", "a.npy", "-o", "m.ome.zarr", "--format", ".png"
    ),
    (TILES, "together"): lambda: command("segment", "a.npy", "-o", "m", "--together", "--tile", 32),
    (TILES, "axis order"): into_a_reordered_image,
    (TILES, "pixel exports"): export_of_pixels,
    (FOLDER, "options of a dictionary"): lambda: saf.apply_to_images(
        atoms(), ["a.npy"], "out", options=ApplyOptions(scaling=True)
    ),
    (FOLDER, "dictionary in tiles"): lambda: run_of_dictionary(
        "dictionary", "a.npy", "-o", "out", "--tile", "32"
    ),
    (Strategy.CLUSTER, "array"): send_array,
}


def test_every_limit_is_tried() -> None:
    assert {*CASES} == {(strategy, name) for strategy in LIMITS for name in LIMITS[strategy]}
    assert {*LIMITS} == {*Strategy}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}")
def test_what_a_strategy_cannot_do_is_refused_by_name(
    case: tuple[Strategy, str], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", IMAGE)
    strategy, feature = case
    try:
        CASES[case]()
    except saf.InvalidInput as error:
        text = str(error)
    else:
        text = " ".join(capsys.readouterr().err.split())
    *_, fixed = LIMITS[strategy][feature].split("}")  # what no value is put into
    assert fixed.strip(" :;") in text
    assert not list(Path().glob("m*")) and not Path("out").exists()
