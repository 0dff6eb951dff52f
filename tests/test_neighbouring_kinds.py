"""What is handed to a public function in place of what it takes works, or is refused in words."""

import functools
import inspect

import numpy as np
import pytest

import napari_saf as saf

LABELS = np.zeros((20, 24), np.int32)
LABELS[2:9, 3:11], LABELS[11:18, 12:22] = 1, 2
IMAGE = (LABELS / 2 + 0.05 * np.random.default_rng(0).random(LABELS.shape)).astype(np.float32)
FRAMES = np.stack([LABELS, np.roll(LABELS, 1, 1)])


@functools.cache
def measures():
    return saf.measure_objects(saf.split_objects(FRAMES, axis=0))


@functools.cache
def classes():
    return saf.learn_classes(measures(), {1: 1, 2: 2})


@functools.cache
def values():
    """One of each kind of thing that the package makes, and what stands for it in a file."""
    problem = saf.Problem.from_image(IMAGE, max_side=None, window=3)
    result = saf.SLK(n_clusters=2).run(problem)
    objects = saf.split_objects(FRAMES, axis=0)
    [mask] = saf.save_masks("mask.tif", LABELS)
    np.save("image.npy", IMAGE)
    recipe = saf.save_recipe("r.recipe.json", result.recipe)
    return {
        "labels": LABELS,
        "image": IMAGE,
        "inside": LABELS > 0,
        "list": [[1, 1, 0], [2, 0, 0]],
        "images": [IMAGE, IMAGE],
        "objects": objects,
        "tracks": saf.track_objects(objects),
        "segmentation": result,
        "problem": problem,
        "graph": problem.graph,
        "recipe": saf.load_recipe(recipe),
        "dict": result.recipe,
        "prototypes": saf.PrototypeSet(np.eye(2)),
        "classes": classes(),
        "labelling": saf.read_mask(mask),
        "file": saf.read_image("image.npy"),
        "source": saf.ImageSource.open("image.npy"),
        "runs": saf.EncodedLabels.of(LABELS),
        "regions": saf.merge_regions(LABELS, IMAGE),
        "comparison": saf.compare(IMAGE, [saf.Variant(saf.SLK(n_clusters=2))]),
        "method": saf.SLK(n_clusters=2),
        "path": mask,
        "text": str(mask),
        "image path": "image.npy",
        "recipe path": recipe,
        "nothing": None,
        "number": 3,
    }


@functools.cache
def fitting():
    """Arguments that fit, by the name of the function; each is replaced in turn."""
    known = values()
    objects, slk = known["objects"], saf.SLK(n_clusters=2)
    calls = {
        "measure_objects": (saf.measure_objects, [objects, FRAMES]),
        "learn_classes": (saf.learn_classes, [measures(), {1: 1, 2: 2}]),
        "save_classes": (saf.save_classes, ["c.json", known["classes"]]),
        "load_classes": (saf.load_classes, ["missing.json"]),
        "object_bounds": (saf.object_bounds, [objects, {1: FRAMES / 9.0, 2: FRAMES / 9.0}]),
        "track_objects": (saf.track_objects, [objects]),
        "object_table": (saf.object_table, [objects, FRAMES]),
        "save_objects": (saf.save_objects, ["o.geojson", objects]),
        "load_objects": (saf.load_objects, ["missing.geojson", LABELS.shape]),
        "Objects": (saf.Objects, [LABELS, np.arange(3)]),
        "save_tracks": (saf.save_tracks, ["tracks", known["tracks"]]),
        "segment_like": (saf.segment_like, [IMAGE, (2, 3, 9, 11)]),
        "split_objects": (saf.split_objects, [LABELS]),
        "merge_regions": (saf.merge_regions, [LABELS, IMAGE]),
        "sharpen_labels": (saf.sharpen_labels, [LABELS, IMAGE]),
        "region_table": (saf.region_table, [LABELS, IMAGE]),
        "number_regions": (saf.number_regions, [LABELS]),
        "measure_large": (saf.measure_large, [LABELS, IMAGE]),
        "save_masks": (saf.save_masks, ["m.tif", LABELS]),
        "save_binary_masks": (saf.save_binary_masks, ["b.png", LABELS]),
        "save_figure": (saf.save_figure, ["f.svg", LABELS]),
        "save_regions": (saf.save_regions, ["r.csv", LABELS]),
        "save_recipe": (saf.save_recipe, ["s.recipe.json", known["dict"]]),
        "load_recipe": (saf.load_recipe, [known["recipe path"]]),
        "save_prototypes": (saf.save_prototypes, ["p.json", np.eye(2)]),
        "load_prototypes": (saf.load_prototypes, ["missing.json"]),
        "probability_maps": (
            saf.probability_maps,
            [known["problem"], known["segmentation"]],
        ),
        "save_probabilities": (saf.save_probabilities, ["p.tif", known["image"][None]]),
        "read_image": (saf.read_image, [known["path"]]),
        "read_labels": (saf.read_labels, [known["path"]]),
        "read_mask": (saf.read_mask, [known["path"]]),
        "compare": (saf.compare, [IMAGE, [saf.Variant(slk)]]),
        "variants_of": (saf.variants_of, [[slk], {}]),
        "comparison_table": (saf.comparison_table, [known["comparison"], LABELS]),
        "score": (saf.score, [LABELS, LABELS]),
        "save_score_figure": (saf.save_score_figure, ["s.png", saf.score(LABELS, LABELS)]),
        "save_comparison": (saf.save_comparison, ["c.csv", known["comparison"], IMAGE]),
        "choose_for_strokes": (saf.choose_for_strokes, [IMAGE, LABELS]),
        "apply_to_images": (saf.apply_to_images, [known["recipe"], ["image.npy"], "applied"]),
        "label_large": (saf.label_large, [IMAGE, known["recipe"], "l.ome.zarr"]),
        "split_large": (saf.split_large, [LABELS, "s.ome.zarr"]),
        "patch_distance": (saf.patch_distance, [np.ones((1, 9)), np.ones((1, 9))]),
        "load_project": (saf.load_project, ["missing.napari-saf"]),
        "save_project": (saf.save_project, ["p.napari-saf", None]),
        "Problem.from_image": (saf.Problem.from_image, [IMAGE]),
        "Problem.from_images": (saf.Problem.from_images, [[IMAGE, IMAGE]]),
        "run": (slk.run, [known["problem"]]),
        "PrototypeSet": (saf.PrototypeSet, [np.eye(2)]),
        "EncodedLabels.of": (saf.EncodedLabels.of, [LABELS]),
        "ImageSource.open": (saf.ImageSource.open, [IMAGE]),
    }
    for name, metric in vars(saf.metrics).items():
        if inspect.isfunction(metric):
            n_needed = sum(
                one.default is one.empty for one in inspect.signature(metric).parameters.values()
            )
            calls[f"metrics.{name}"] = (metric, [LABELS] * n_needed)
    return calls


FUNCTIONS = {name for name in saf.__all__ if inspect.isfunction(getattr(saf, name, None))}
NAMES = [
    *FUNCTIONS, "Objects", "Problem.from_image", "Problem.from_images", "run", "PrototypeSet",
    "EncodedLabels.of", "ImageSource.open",
    *(f"metrics.{name}" for name, one in vars(saf.metrics).items() if inspect.isfunction(one)),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder for all tests: what is tried is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("kinds"))
        yield


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.filterwarnings("ignore")
def test_another_kind_works_or_is_refused_in_words(name):
    function, arguments = fitting()[name]
    for k in range(len(arguments)):
        for kind, value in values().items():
            given = [*arguments[:k], value, *arguments[k + 1 :]]
            try:
                function(*given)
            except saf.SafError as error:
                assert str(error), kind


@pytest.mark.parametrize("function", [saf.track_objects, saf.object_table])
def test_labels_in_place_of_objects_are_told_what_makes_objects_of_them(function):
    with pytest.raises(saf.InvalidInput, match=r"objects: .*split_objects.*shape \(2, 20, 24\)"):
        function(FRAMES)
    with pytest.raises(saf.InvalidInput, match=r"objects: .*split_objects.*shape \(20, 24\)"):
        saf.save_objects("o.geojson", LABELS)
    with pytest.raises(saf.InvalidInput, match=r"path: expected a path.*shape \(20, 24\)"):
        saf.load_objects(LABELS)
    with pytest.raises(saf.InvalidInput, match="got Objects; give its labels"):
        saf.region_table(values()["objects"])


def test_strokes_of_one_class_are_refused_in_words():
    """None of them can be left out: there is no other class that it could be taken for."""
    strokes = np.zeros(IMAGE.shape, int)
    strokes[4, 4:8] = strokes[14, 14:18] = 1
    with pytest.raises(saf.InvalidInput, match="seeds"):
        saf.choose_for_strokes(IMAGE, strokes)
