"""One pipeline, by every way: the same labels, objects, measures and probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.cli import main
from napari_saf.io import ProbabilityStep, read_labels
from napari_saf.methods import run_to_end
from napari_saf.pipeline import Pipeline
from napari_saf.project import Project, save_project

Files = dict[str, NDArray[Any]]
PLAIN = saf.problem.ImageOptions("intensity", 3, "uniform", max_side=None)
TILED = 0.9999
"""Least share of pixels that have the same label in tiles."""


def discs(shape: tuple[int, ...], seed: int, n_channels: int = 0) -> NDArray[np.uint8]:
    """Bright blobs on a dim ground, with noise; in volumes they are balls."""
    rng = np.random.default_rng(seed)
    blobs = gaussian_filter(rng.normal(size=shape), 3 if len(shape) == 2 else 2)
    image = 60 + 120 * (blobs > 0.6 * blobs.max() * 0.5)
    if n_channels:
        image = image[..., None] * np.linspace(0.5, 1, n_channels)
    return np.clip(image + rng.normal(0, 8, image.shape), 0, 255).astype(np.uint8)


def by_strokes(image: NDArray[Any]) -> Pipeline:
    """Strokes of labels 2 and 5, with what they teach, as a dock leaves them."""
    seeds = np.zeros(image.shape, int)
    seeds[image > 190], seeds[image < 50] = 5, 2
    problem = saf.Problem.from_image(image, features="intensity", window=3, seeds=seeds)
    taught = saf.PrototypeSet.from_labels(problem, names={5: "cell"}, colors={2: (0, 0, 1)})
    return Pipeline(saf.AssignmentFlow(), problem.options, prototypes=taught)


def pipeline_of(case: str, image: NDArray[Any]) -> Pipeline:
    """Return what labels the images of a case."""
    clusters = Pipeline(saf.SLK(n_clusters=2), PLAIN)
    maps = ProbabilityStep(".npy")
    objects = saf.ObjectStep(smallest=8)
    return {
        "first click": Pipeline(saf.SelfAssignmentFlow(max_labels=3)),
        "colour": Pipeline(saf.SelfAssignmentFlow(max_labels=3)),
        "strokes": by_strokes(image) if case == "strokes" else clusters,
        "clusters": clusters,
        "regions": dataclasses.replace(clusters, level=0.5),
        "objects": dataclasses.replace(clusters, objects=objects),
        "probabilities": dataclasses.replace(clusters, probabilities=maps),
        "volume": clusters,
    }[case]


CASES = {
    "first click": ((72, 90), 0),
    "colour": ((72, 90), 3),
    "strokes": ((72, 90), 0),
    "clusters": ((72, 90), 0),
    "regions": ((72, 90), 0),
    "objects": ((72, 90), 0),
    "probabilities": ((72, 90), 0),
    "volume": ((14, 40, 36), 0),
}


def by_python(pipeline: Pipeline, folder: Path) -> Files:
    """The pipeline itself, an image at a time: what all others are compared with."""
    files: Files = {}
    for path in sorted(folder.glob("*.npy")):
        labelling = pipeline.run(np.load(path))
        files[f"{path.stem}.labels"] = labelling.labels
        if labelling.objects is not None:
            files[f"{path.stem}.objects"] = labelling.objects.labels
            files[f"{path.stem} pixels"] = labelling.measures["pixels"]
        if labelling.probabilities:
            files[f"{path.stem}.probabilities"] = np.stack([*labelling.probabilities.values()])
    return files


def files_of(folder: Path) -> Files:
    files: Files = {}
    for path in folder.iterdir():
        if path.name.endswith((".tif", ".labels.npy")):
            files[path.name.partition(".tif")[0].removesuffix(".npy")] = read_labels(path).array
        elif path.suffix == ".npy":
            files[path.name.removesuffix(".npy")] = np.load(path)
        elif path.name.endswith(".objects.csv"):
            table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
            files[f"{path.name.partition('.')[0]} pixels"] = table["pixels"]
    return files


def command(*words: object) -> None:
    assert main([*map(str, words)]) == 0


def by_folder_in_python(pipeline: Pipeline, folder: Path) -> Files:
    outcomes = saf.apply_to_images(pipeline, [folder], "out")
    assert [outcome.state for outcome in outcomes] == ["done", "done"]
    again = saf.apply_to_images(pipeline, [folder], "out")
    assert [outcome.state for outcome in again] == ["skipped", "skipped"]
    return files_of(Path("out"))


def by_run_of_a_recipe(pipeline: Pipeline, folder: Path) -> Files:
    path = saf.save_recipe("a.recipe.json", pipeline.plain)
    command("run", path, folder, "-o", "out")
    return files_of(Path("out"))


def by_segment_with_a_recipe(pipeline: Pipeline, folder: Path) -> Files:
    path = saf.save_recipe("a.recipe.json", pipeline.plain)
    command("segment", folder, "-o", "out", "--recipe", path)
    return files_of(Path("out"))


def by_run_of_a_project(pipeline: Pipeline, folder: Path) -> Files:
    path = save_project("a.napari-saf", Project(recipes={"a": pipeline}))
    command("run", path, folder, "-o", "out")
    return files_of(Path("out"))


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Path:
    """Two images of a case, the second one dimmer."""
    monkeypatch.chdir(tmp_path)
    shape, n_channels = CASES[request.param]
    images = tmp_path / "images"
    images.mkdir()
    for k, name in enumerate("ab"):
        np.save(images / f"{name}.npy", discs(shape, k, n_channels) // (k + 1))
    return images


PAIRS = [
    *((case, by_run_of_a_recipe) for case in ("clusters", "strokes", "regions", "objects")),
    *(
        pytest.param(case, by_run_of_a_recipe, marks=pytest.mark.exhaustive)
        for case in ("first click", "colour", "probabilities", "volume")
    ),
    *((case, by_folder_in_python) for case in ("strokes", "regions", "objects", "probabilities")),
    *((case, by_segment_with_a_recipe) for case in ("strokes", "objects", "probabilities")),
    *((case, by_run_of_a_project) for case in ("strokes", "regions")),
]


@pytest.mark.parametrize(
    ("folder", "way"),
    PAIRS,
    indirect=["folder"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_way_gives_what_python_gives(
    folder: Path, way: Callable[[Pipeline, Path], Files], request: pytest.FixtureRequest
) -> None:
    case = request.node.callspec.params["folder"]
    pipeline = pipeline_of(case, np.load(folder / "a.npy"))
    expected, found = by_python(pipeline, folder), way(pipeline, folder)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert all(len(np.unique(expected[f"{name}.labels"])) > 1 for name in "ab")
    if case == "strokes":
        taught = saf.read_mask("out/a.labels.tif")
        assert taught.names == {5: "cell"} and {*np.unique(taught.labels)} <= {2, 5}


TILES = [
    *((case, False) for case in ("first click", "strokes", "volume")),
    *(
        pytest.param(case, False, marks=pytest.mark.exhaustive)
        for case in ("colour", "clusters", "regions", "probabilities")
    ),
    *((case, True) for case in ("strokes", "regions", "probabilities")),
]


@pytest.mark.parametrize(("case", "is_command"), TILES)
@pytest.mark.parametrize("folder", ["first click"], indirect=True)
def test_tiles_give_what_python_gives(case: str, folder: Path, is_command: bool) -> None:
    shape, n_channels = CASES[case]
    np.save(folder / "a.npy", image := discs(shape, 0, n_channels))
    pipeline = pipeline_of(case, image)
    labelling, tile = pipeline.run(image), 16 if case == "volume" else 32
    maps = Path("a.probabilities.ome.zarr") if pipeline.probabilities else None
    if is_command:
        path = saf.save_recipe("a.recipe.json", pipeline.plain)
        step = ["--probabilities", ".ome.zarr"] * (maps is not None)
        command("segment", folder / "a.npy", "-o", "a.ome.zarr", "--recipe", path, "--tile", tile,
                *step)  # fmt: skip
    else:
        saf.label_large(image, pipeline, "a.ome.zarr", tile=tile, probabilities=maps)
    labels = read_labels("a.ome.zarr").array
    assert (labels == labelling.labels).mean() >= TILED
    if maps is not None:
        soft = np.stack([*labelling.probabilities.values()])
        assert np.abs(saf.read_image(maps).array - soft).mean() < 0.01


def test_images_labelled_together_keep_their_masks_and_pixels_without_data() -> None:
    whole, torn = (discs((30, 40), k).astype(np.float32) for k in range(2))
    torn[:4] = np.nan
    sources: list[Any] = [saf.io.ImageFile(whole, axes="yx")]
    sources.append(saf.io.ImageFile(torn, axes="yx", no_data=-1.0))
    masks = [np.ones((30, 40), bool) for _ in sources]
    masks[0][:, :5] = masks[1][:, :5] = False
    pipeline = Pipeline(saf.SLK(n_clusters=2), PLAIN)
    found = run_to_end(pipeline.iterate(sources, mask=masks))
    for labelling, mask, source in zip(found, masks, sources, strict=True):
        np.testing.assert_array_equal(labelling.labels > 0, mask & np.isfinite(source.array))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "saf"}, "method: expected a method"),
        ({"level": 2.0}, "level: expected a number from 0 to 1"),
        ({"objects": 3}, "objects: expected a value of ObjectStep"),
    ],
)
def test_what_no_pipeline_can_be_made_of_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(saf.InvalidInput, match=words):
        Pipeline(**{"method": saf.SLK(), **changes})


def test_regions_have_no_names_of_labels() -> None:
    image = discs((72, 90), 0)
    labelling = dataclasses.replace(by_strokes(image), level=0.3).run(image)
    assert labelling.names == {} and labelling.kinds is not None
    assert all(name == f"region {number}" for number, name in labelling.all_names.items())


def test_objects_of_strokes_on_several_images_are_split_in_each() -> None:
    images = [discs((40, 50), k) for k in range(2)]
    seeds = [np.where(image > 190, 2, np.where(image < 50, 1, 0)) for image in images]
    pipeline = Pipeline(saf.AssignmentFlow(), PLAIN, objects=saf.ObjectStep(smallest=8, kinds=(2,)))
    for labelling, image in zip(
        run_to_end(pipeline.iterate(images, seeds=seeds)), images, strict=True
    ):
        assert labelling.objects.labels.shape == image.shape and len(labelling.measures["object"])
