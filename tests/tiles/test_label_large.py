"""Tiles give the labels of the whole image, wherever it lies, and whatever interrupts them."""

import dataclasses
import os
import shutil
from functools import partial

import imageio.v3 as iio
import numpy as np
import ome_zarr_models
import pytest
import tifffile
import zarr

import napari_saf as saf
from napari_saf.device import memory_limit
from napari_saf.errors import Cancelled
from napari_saf.io import ImageSource, ProbabilityStep, _opened
from napari_saf.objects import ObjectStep
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.tiles import LargeJob, iterate_large, run_large
from napari_saf.tiles._tiling import fitting_tile

COLOURS = np.array([[40, 40, 60], [200, 80, 60], [90, 200, 90]])


def picture(shape=(100, 130), seed=0, noise=25):
    """Patches of three colours with noise, uint8, channels last."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, [-(-n // 24) for n in shape])
    for axis in range(len(shape)):
        kinds = kinds.repeat(24, axis)
    kinds = kinds[tuple(slice(0, n) for n in shape)]
    pixels = COLOURS[kinds] + rng.normal(0, noise, (*shape, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def image():
    return picture()


@pytest.fixture(scope="module")
def of_array(image, tmp_path_factory):
    """Return the labels of the image where it is an array."""
    out = tmp_path_factory.mktemp("array") / "e.ome.zarr"
    return saf.label_large(image, recipe(), out, tile=64).labels[:]


@pytest.fixture(scope="module")
def whole(image, tmp_path_factory):
    """Return a run in tiles of 32 pixels that nothing interrupts."""
    out = tmp_path_factory.mktemp("whole") / "whole.ome.zarr"
    return saf.label_large(image, recipe(), out, tile=32)


def whole_recipe(window=3, weights="uniform", **more):
    """The assignment flow with a prototype for each colour."""
    options = ImageOptions("intensity", window, weights, scaling=(0, 255), **more)
    points = COLOURS.astype(np.float32) / 255
    return saf.Pipeline.from_prototypes(saf.PrototypeSet(points, names={1: "sky"}, options=options))


def recipe(*options):
    """The same of few steps, where it does not matter what the labels are."""
    return in_few_steps(whole_recipe(*options))


def in_few_steps(own):
    method = dataclasses.replace(own.method, stop=saf.StoppingRule(max_steps=2))
    return dataclasses.replace(own, method=method)


def write_zarr(path, pixels, version="0.5", chunks=(32, 32, 3), levels=1, **more):
    group = zarr.open_group(path, mode="w", zarr_format=3 if version == "0.5" else 2)
    datasets = []
    for level in range(levels):
        step = 2**level
        group.create_array(str(level), data=pixels[::step, ::step], chunks=chunks, **more)
        scale = [{"type": "scale", "scale": [0.5 * step, 0.5 * step, 1]}]
        datasets.append({"path": str(level), "coordinateTransformations": scale})
    axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
    axes.append({"name": "c", "type": "channel"})
    about = {"multiscales": [{"axes": axes, "datasets": datasets, "version": version}]}
    group.attrs.update({"ome": about | {"version": version}} if version == "0.5" else about)
    return path


def content(folder):
    """What is in the arrays of a store, by file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_tiles_of_a_volume_are_boxes_and_of_slices_planes(tmp_path):
    pixels = picture((20, 40, 44))
    whole = LargeJob.of(pixels, recipe()).plan().label(pixels, None)[0]
    found = saf.label_large(pixels, recipe(), tmp_path / "m.ome.zarr", tile=16)
    assert found.n_tiles == 2 * 3 * 3
    assert (found.labels[:] == whole).mean() > 0.999
    assert found.sizes == {n: int((found.labels[:] == n).sum()) for n in (1, 2, 3)}
    alone = saf.label_large(pixels[:4], recipe((1, 3, 3)), tmp_path / "s.ome.zarr", tile=32)
    assert alone.n_tiles == 4 * 2 * 2


@pytest.mark.parametrize(
    "kind",
    ["zarr04", "sharded", "plain zarr", "tiff", "strips", "png", "npy", "dask", "memmap"],
)
def test_any_source_gives_the_same_labels(tmp_path, image, of_array, kind):
    path = tmp_path / "a"
    if kind == "zarr04":
        source = write_zarr(path, image, "0.4", levels=2)
    elif kind == "sharded":
        source = write_zarr(path, image, chunks=(16, 16, 3), shards=(64, 64, 3))
    elif kind == "plain zarr":
        zarr.create_array(path, data=image, chunks=(40, 40, 3))
        source = path
    elif kind in ("tiff", "strips"):
        source = path.with_suffix(".tif")
        tile = {"tile": (32, 32)} if kind == "tiff" else {"rowsperstrip": 16}
        tifffile.imwrite(source, image, photometric="rgb", compression="zlib", **tile)
    elif kind == "png":
        source = path.with_suffix(".png")
        iio.imwrite(source, image)
    elif kind == "dask":
        dask_array = pytest.importorskip("dask.array")
        source = dask_array.from_array(image, chunks=(50, 50, 3))
    else:
        source = path.with_suffix(".npy")
        np.save(source, image)
        source = np.load(source, mmap_mode="r") if kind == "memmap" else source
    found = saf.label_large(source, recipe(), tmp_path / "m.ome.zarr", tile=64)
    np.testing.assert_array_equal(found.labels[:], of_array)


def test_channels_first_and_none(tmp_path, image, of_array):
    first = np.ascontiguousarray(np.moveaxis(image, -1, 0))
    found = saf.label_large(first, recipe(), tmp_path / "m.ome.zarr", tile=64, channel_axis=0)
    np.testing.assert_array_equal(found.labels[:], of_array)
    grey = saf.PrototypeSet([[0.2], [0.7]], options=ImageOptions("intensity", 3, "uniform"))
    # Three columns wide: no colours.
    narrow = saf.label_large(image[:, :3, 0], grey, tmp_path / "n.ome.zarr")
    assert narrow.shape == (100, 3)


def test_a_pyramid_takes_every_second_pixel_and_is_valid(tmp_path):
    pixels = picture((300, 520))
    source = write_zarr(tmp_path / "a.ome.zarr", pixels, chunks=(128, 128, 3))
    found = saf.label_large(source, recipe(), tmp_path / "m.ome.zarr", tile=256)
    levels = [zarr.open_array(found.path / str(k), mode="r")[:] for k in range(3)]
    assert [level.shape for level in levels] == [(300, 520), (150, 260), (150, 130)]
    np.testing.assert_array_equal(levels[1], levels[0][::2, ::2])
    np.testing.assert_array_equal(levels[2], levels[1][:, ::2])
    store = zarr.open_group(found.path, mode="r")
    assert isinstance(
        ome_zarr_models.open_ome_zarr(store), ome_zarr_models.v05.image_label.ImageLabel
    )
    mask = saf.read_mask(found.path)
    assert mask.scale == (0.5, 0.5) and mask.names == {1: "sky"}
    assert mask.recipe["method"] == "af"
    np.testing.assert_array_equal(mask.labels, levels[0])


def test_labels_lie_within_their_image(tmp_path, image):
    source = write_zarr(tmp_path / "a.ome.zarr", image)
    for name in ("kinds", "others"):
        saf.label_large(source, recipe(), source / "labels" / name, tile=64)
    group = zarr.open_group(source / "labels", mode="r")
    assert group.attrs["ome"]["labels"] == ["kinds", "others"]
    assert isinstance(ome_zarr_models.open_ome_zarr(group), ome_zarr_models.v05.labels.Labels)
    # Not changed by its own labels.
    again = saf.label_large(source, recipe(), source / "labels" / "kinds", tile=64)
    assert again.n_done_before == again.n_tiles


def test_napari_ome_zarr_opens_masks(tmp_path, image, capsys):
    """A mask by itself, and one within its image, as layers with names and colours."""
    reader = pytest.importorskip("napari_ome_zarr").napari_get_reader
    source = write_zarr(tmp_path / "a.ome.zarr", image)
    alone, within = tmp_path / "m.ome.zarr", source / "labels" / "kinds"
    for out, opened in ((alone, alone), (within, source)):
        found = saf.label_large(source, recipe(), out, tile=64)
        data, about, kind = reader(str(opened))(str(opened))[-1]
        finest = data[0] if isinstance(data, list) else data
        np.testing.assert_array_equal(np.asarray(finest), found.labels[:])
        assert kind == "labels" and list(about["scale"]) == [0.5, 0.5]
        assert about["properties"]["name"][0] == "sky"


@pytest.mark.parametrize("given", ["array", "finite"])
def test_a_mask_is_kept(tmp_path, image, given):
    inside = np.ones(image.shape[:2], np.uint8)
    inside[:40] = 0
    pixels, mask = image, inside
    if given == "finite":
        pixels, mask = np.where(inside[..., None], image.astype(np.float32), np.nan), "finite"
    found = saf.label_large(pixels, recipe(), tmp_path / "m.ome.zarr", mask=mask, tile=32)
    np.testing.assert_array_equal(found.labels[:] > 0, inside > 0)
    assert sum(found.sizes.values()) == inside.sum()


@pytest.mark.parametrize("labels", ["learned", "atoms"])
def test_a_mask_and_pixels_without_data_go_together(tmp_path, image, labels):
    image = image[:64, :80]
    inside = np.ones(image.shape[:2], np.uint8)
    inside[:, :20] = 0
    pixels = image.astype(np.int16)
    pixels[:40] = -1
    np.save(tmp_path / "mask.npy", inside)
    source = ImageSource.open(pixels, no_data=-1)
    own = {"mask": tmp_path / "mask.npy", "tile": 32}
    teacher = saf.SelfAssignmentFlow(max_labels=2)
    if labels == "atoms":
        teacher = saf.PatchDictionary.learn(image, n_atoms=4, patch_size=3, n_samples=400)
    found = saf.label_large(source, teacher, tmp_path / "m.ome.zarr", **own).labels[:]
    assert not found[:40].any() and not found[:, :20].any() and found[40:, 20:].all()


@pytest.mark.parametrize(
    "method",
    [saf.SLK(n_clusters=3), saf.FairClustering(n_clusters=3, fairness_weight=1)],
    ids=lambda method: method.name,
)
def test_labels_are_learned_from_blocks(tmp_path, method):
    pixels = picture((200, 200), noise=8)
    groups = "channel:2:80" if method.name == "fair" else None
    found = saf.label_large(
        pixels,
        Pipeline(method, ImageOptions("intensity", 3, "uniform", groups=groups)),
        tmp_path / "m.ome.zarr",
        tile=100,
        learn_pixels=2**15,
    )
    nearest = np.square(pixels[..., None, :] - COLOURS.astype(float)).sum(-1).argmin(-1)
    pairs, counts = np.unique(
        np.stack([nearest.ravel(), found.labels[:].ravel()]), axis=1, return_counts=True
    )
    assert counts[counts > 100].sum() > 0.98 * counts.sum()
    assert len(found.sizes) == 3 and (counts > 100).sum() == 3, pairs


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (Pipeline(saf.AssignmentFlow(), ImageOptions()), {}, "needs strokes"),
        (saf.AssignmentFlow, {}, "recipe: expected"),
        (recipe(), {"mask": np.ones((9, 9))}, r"mask: expected shape \(100, 130\)"),
        (recipe(), {"mask": picture()}, r"got \(100, 130, 3\)"),
    ],
)
def test_what_cannot_be_done_in_tiles_is_refused_by_name(tmp_path, image, given, options, words):
    with pytest.raises(saf.InvalidInput, match=words):
        saf.label_large(image, given, tmp_path / "m.ome.zarr", **options)
    assert not list(tmp_path.iterdir())


def test_pixels_that_are_not_finite_are_counted(tmp_path, image):
    pixels = image.astype(np.float32)
    pixels[90, 120] = np.nan
    with pytest.raises(saf.SafError, match=r"1 of .* NaN .* 'finite'"):
        saf.label_large(pixels, recipe(), tmp_path / "m.ome.zarr", tile=32, learn_pixels=1)


def test_a_mask_between_the_blocks_that_are_looked_at_is_found(tmp_path):
    image = picture((650, 550), noise=8).astype(np.float32)
    inside = np.zeros(image.shape[:2], bool)
    inside[0, 150:450] = inside[-1, -150:] = True
    image[~inside] = np.nan
    source = write_zarr(tmp_path / "a.zarr", image, levels=3, chunks=(128, 128, 3))
    own = {"mask": inside, "learn_pixels": 2**15}
    method = Pipeline(saf.SLK(n_clusters=3), ImageOptions("intensity", 3, "uniform"))
    found = saf.label_large(source, method, tmp_path / "m.ome.zarr", **own)
    assert ((found.labels[:] > 0) == inside).all() and len(found.sizes) == 3
    with pytest.raises(saf.InvalidInput, match="none of them is within"):
        own["mask"] = np.zeros_like(inside)
        saf.label_large(source, method, tmp_path / "n.ome.zarr", **own)


def full_recipe(level=None, objects=False):
    own = recipe()
    step = ObjectStep(smallest=20) if objects else None
    return dataclasses.replace(own, level=level, objects=step)


def test_probabilities_are_those_of_the_labels(tmp_path, image):
    """In the order of the labels, and no image until all of them are there."""
    step, path = ProbabilityStep(kind="uint8"), tmp_path / "p.ome.zarr"
    pipeline = dataclasses.replace(recipe(), probabilities=step)
    job = LargeJob.of(image, pipeline, probability_path=path, tile=64)
    for reached in iterate_large(job, tmp_path / "m.ome.zarr"):
        if reached.tile is not None:
            assert "ome" not in zarr.open_group(path, mode="r").attrs
            break
    found = run_large(job, tmp_path / "m.ome.zarr")
    maps = saf.read_image(path)
    assert maps.axes == "cyx" and maps.array.dtype == "uint8"
    total = maps.array.sum(axis=0, dtype=float) / 255
    assert np.abs(total - 1).max() < 0.01
    assert (maps.array.argmax(axis=0) + 1 == found.labels[:]).mean() > 0.99
    ome_zarr_models.open_ome_zarr(zarr.open_group(path, mode="r"))


def test_probabilities_that_were_removed_meanwhile_are_told(tmp_path, image):
    path = tmp_path / "p.ome.zarr"
    with pytest.raises(ZeroDivisionError):
        saf.label_large(
            image,
            recipe(),
            tmp_path / "m.ome.zarr",
            tile=64,
            probabilities=path,
            progress=lambda *_: 1 / 0,
        )
    shutil.rmtree(path)
    with pytest.raises(saf.InvalidInput, match=r"p.ome.zarr: was removed"):
        saf.label_large(image, recipe(), tmp_path / "m.ome.zarr", tile=64, probabilities=path)


@pytest.mark.parametrize("name", ["p.ome.zarr", "m.objects.csv"])
def test_what_lies_where_maps_or_a_table_go_stays(tmp_path, image, name):
    path, out = tmp_path / name, tmp_path / "m.ome.zarr"
    if path.suffix == ".zarr":
        write_zarr(path, image)
    else:
        path.write_text("mine")
    own = {"tile": 64, "probabilities": tmp_path / "p.ome.zarr"}
    with pytest.raises(saf.InvalidInput, match=name):
        saf.label_large(image, full_recipe(objects=True), out, **own)
    assert path.read_text() == "mine" if path.suffix == ".csv" else saf.read_image(path)
    saf.label_large(image, full_recipe(objects=True), out, overwrite=True, **own)
    assert saf.read_image(tmp_path / "p.ome.zarr").axes == "cyx"


def test_regions_and_objects_are_those_of_the_labels(tmp_path, image):
    pipeline, out = full_recipe(0.5, True), tmp_path / "m.ome.zarr"
    found = saf.label_large(image, pipeline, out, tile=64)
    assert found.kinds == tmp_path / "m.kinds.ome.zarr"
    kinds = saf.read_mask(found.kinds).labels
    regions = saf.merge_regions(kinds, image, channel_axis=-1).at_level(0.5)
    assert np.array_equal(found.labels[:], regions)
    assert saf.read_mask(found.path).recipe["regions"] == {"level": 0.5}
    ome_zarr_models.open_ome_zarr(zarr.open_group(found.path, mode="r"))
    whole, _ = pipeline.objects.run(kinds, None)
    assert whole.notes == found.notes[-1:] and "left out as the ground" in whole.notes[0]
    assert np.array_equal(found.objects.labels[:], whole.labels)
    table = np.genfromtxt(tmp_path / "m.objects.csv", delimiter=",", names=True, dtype=None)
    expected = saf.object_table(whole, image, channel_axis=-1)
    for name in ("pixels", "kind"):
        assert np.array_equal(table[name], expected[name])
    again = saf.label_large(image, pipeline, out, tile=64)
    assert again.n_done_before == again.n_tiles


def test_a_run_that_was_stopped_goes_on(tmp_path, image, whole):
    """Before its plan is made or between tiles, with a line of its journal that was cut off."""
    out, done = tmp_path / "m.ome.zarr", [0]
    options = {"tile": 32, "progress": lambda n, _: done.append(n)}
    for n_done in (0, 18):
        with pytest.raises(Cancelled):
            cancelled = partial(lambda most: done[-1] >= most, n_done)
            saf.label_large(image, recipe(), out, cancelled=cancelled, **options)
    with pytest.raises(saf.FormatError):
        saf.read_labels(out)  # it does not look whole
    journal = tmp_path / "m.ome.zarr.journal"
    text = journal.read_bytes()
    journal.write_bytes(text[:-5])
    done.clear()
    result = saf.label_large(image, recipe(), out, **options)
    assert result.n_done_before == text.count(b"\n") - 2 >= 17
    assert done[0] == result.n_done_before + 1 and done[-1] == result.n_tiles
    assert result.sizes == whole.sizes
    mine, theirs = content(out), content(whole.path)
    for files in (mine, theirs):
        # The name of the store, and of the image, are in there.
        files.pop("zarr.json")
    assert mine == theirs
    assert not list(tmp_path.glob("*.journal"))


def test_a_run_that_was_killed_while_it_made_the_store_begins_again(tmp_path, image, monkeypatch):
    out = tmp_path / "m.ome.zarr"

    def killed(*_, **__):
        out.mkdir(exist_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
        killing.setattr(zarr.Group, "create_array", killed)
        saf.label_large(image, recipe(), out, tile=64)
    assert saf.label_large(image, recipe(), out, tile=64).n_tiles == 6


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_source_that_changed_is_refused(tmp_path, image, is_finished):
    source, out = write_zarr(tmp_path / "a.zarr", image), tmp_path / "m.ome.zarr"
    if is_finished:
        saf.label_large(source, recipe(), out, tile=64)
    else:
        with pytest.raises(ZeroDivisionError):
            saf.label_large(source, recipe(), out, tile=64, progress=lambda *_: 1 / 0)
    zarr.open_array(source / "0", mode="r+")[:8] = 0
    with pytest.raises(saf.InvalidInput, match=r"changed since.*--overwrite"):
        saf.label_large(source, recipe(), out, tile=64)
    assert saf.label_large(source, recipe(), out, tile=64, overwrite=True).n_done_before == 0


def test_a_source_that_changes_meanwhile_is_refused(tmp_path, image):
    source = write_zarr(tmp_path / "a.zarr", image)

    def change(n, count):
        if n == count:
            zarr.open_array(source / "0", mode="r+")[:8] = 0

    with pytest.raises(saf.InvalidInput, match="changed while"):
        saf.label_large(source, recipe(), tmp_path / "m.ome.zarr", tile=64, progress=change)
    with pytest.raises(saf.FormatError):
        saf.read_labels(tmp_path / "m.ome.zarr")


@pytest.mark.parametrize("kind", ["file", "folder", "zarr", "mask", "other recipe"])
def test_what_is_at_the_place_already_stays(tmp_path, image, kind):
    out = tmp_path / "m.ome.zarr"
    if kind == "file":
        out.write_bytes(b"precious")
    elif kind == "folder":
        out.mkdir()
        (out / "notes.txt").write_text("precious")
    elif kind == "zarr":
        write_zarr(out, image)
    elif kind == "mask":
        saf.save_masks(out, np.ones((4, 5), int))
    else:
        saf.label_large(image, recipe(5), out, tile=64)
    before = content(out) if out.is_dir() else out.read_bytes()
    with pytest.raises(saf.InvalidInput, match="is there already"):
        saf.label_large(image, recipe(), out, tile=64)
    assert before == (content(out) if out.is_dir() else out.read_bytes())
    if kind in ("file", "folder"):
        with pytest.raises(saf.InvalidInput, match="no zarr store"):
            saf.label_large(image, recipe(), out, tile=64, overwrite=True)
        assert before == (content(out) if out.is_dir() else out.read_bytes())
    else:
        assert saf.label_large(image, recipe(), out, tile=64, overwrite=True).n_done_before == 0


@pytest.mark.parametrize("place", ["o.ome.zarr", "o.ome.zarr/i.ome.zarr",
                                   "o.ome.zarr/i.ome.zarr/0/m.ome.zarr", "m.ome.zarr",
                                   "m.ome.zarr/n.ome.zarr", "link.ome.zarr"])  # fmt: skip
def test_what_is_read_is_neither_replaced_nor_written_into(tmp_path, image, place):
    """Neither the image, nor its mask, nor a store that holds it."""
    zarr.open_group(tmp_path / "o.ome.zarr", mode="w", zarr_format=3)
    source = write_zarr(tmp_path / "o.ome.zarr" / "i.ome.zarr", image)
    mask = zarr.create_array(tmp_path / "m.ome.zarr", data=np.ones(image.shape[:2], np.uint8))
    (tmp_path / "link.ome.zarr").symlink_to(source)
    before = content(tmp_path)
    with pytest.raises(saf.InvalidInput, match="would replace what it is made of"):
        own = {"mask": mask, "tile": 64, "overwrite": True}
        saf.label_large(source, recipe(), tmp_path / place, **own)
    with pytest.raises(saf.InvalidInput, match="would replace what it is made of"):
        saf.split_large(mask, tmp_path / "m.ome.zarr", overwrite=True)
    assert content(tmp_path) == before


def test_two_processes_do_not_write_one_mask(tmp_path, image):
    fcntl = pytest.importorskip("fcntl")
    out = tmp_path / "m.ome.zarr"
    with open(tmp_path / "m.ome.zarr.journal", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(saf.SafError, match="another process"):
            saf.label_large(image, recipe(), out)


def test_a_damaged_chunk_is_named_and_a_missing_one_counts_as_zarr_says(tmp_path, image):
    source = write_zarr(tmp_path / "a.zarr", image)
    chunk = source / "0" / "c" / "1" / "2" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "m.ome.zarr"
    with pytest.raises(saf.FormatError, match=r"a\.zarr: cannot be read at \[.*damaged.*c/1/2/0"):
        saf.label_large(source, recipe(), out, tile=32, learn_pixels=1)
    assert not out.exists() or not (out / "zarr.json").read_text().count("multiscales")
    chunk.unlink()
    found = saf.label_large(source, recipe(), out, tile=32, overwrite=True)
    assert "1 chunks are not there and count as 0" in found.notes[0]


def test_a_store_that_claims_what_it_has_not_is_refused(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(10**6, 10**6), chunks=(1024, 1024), dtype="u1")
    with pytest.raises(saf.FormatError, match="the zarr array has no chunk files"):
        saf.label_large(path, saf.SelfAssignmentFlow(), tmp_path / "m.ome.zarr")
    (path / "c" / "0").mkdir(parents=True)
    (path / "c" / "0" / "0").write_bytes(b"\0" * 100)
    with pytest.raises(saf.FormatError, match="it says that it has 1000000000000 bytes"):
        saf.label_large(path, saf.SelfAssignmentFlow(), tmp_path / "m.ome.zarr")
    assert sorted(os.listdir(tmp_path)) == ["a.zarr"]


def test_a_picture_that_is_large_or_none_is_refused(tmp_path, monkeypatch):
    iio.imwrite(tmp_path / "a.png", np.zeros((100, 100), np.uint8))
    monkeypatch.setattr(_opened, "MOST_PIECE", 2**15)
    with pytest.raises(saf.FormatError, match=r"a\.png.*save it in tiles"):
        ImageSource.open(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(saf.FormatError, match=r"b\.png: cannot be read as an image"):
        ImageSource.open(tmp_path / "b.png")


def test_names_of_labels_stay_within_the_image(tmp_path, image):
    source = write_zarr(tmp_path / "a.ome.zarr", image)
    for name in ("..", "."):
        with pytest.raises(saf.InvalidInput):
            saf.label_large(source, recipe(), f"{source}/labels/{name}")
    saf.label_large(source, recipe(), f"{source}/labels/../../m.ome.zarr", tile=64)
    assert (tmp_path / "m.ome.zarr").exists() and not (source / "labels").exists()


def test_labels_of_an_older_image_are_of_its_version(tmp_path, image, of_array):
    old = write_zarr(tmp_path / "old.ome.zarr", image, "0.4")
    found = saf.label_large(old, recipe(), old / "labels" / "kinds", tile=64)
    assert np.array_equal(saf.read_mask(found.path).labels, of_array)
    assert saf.read_mask(found.path).names[1] == "sky"
    kinds = zarr.open_group(found.path, mode="r")
    assert kinds.metadata.zarr_format == 2
    assert kinds.attrs["multiscales"][0]["version"] == "0.4"
    ome_zarr_models.open_ome_zarr(kinds)
    assert zarr.open_group(found.path.parent, mode="r").attrs["labels"] == ["kinds"]
    again = saf.label_large(old, recipe(), old / "labels" / "kinds", tile=64)
    assert again.n_done_before == again.n_tiles


def test_a_plan_that_does_not_fit_proposes_what_tiles_know(tmp_path, image):
    with memory_limit(2**16), pytest.raises(saf.ComputeError, match="learn_pixels") as caught:
        saf.label_large(image, saf.SLK(n_clusters=3), tmp_path / "a.ome.zarr", tile=32)
    assert "max_side" not in str(caught.value) and "image" not in str(caught.value)
    job = LargeJob.of(image, in_few_steps(whole_recipe(max_side=64)), tile=32)
    work = job.work(job.plan(), tmp_path / "a.ome.zarr", is_sent=False)
    with memory_limit(2**16), pytest.raises(saf.ComputeError, match="smaller tiles") as caught:
        work.do((0, 0, 0))
    assert "max_side" not in str(caught.value)


def test_tiles_of_many_labels_are_smaller_where_memory_is_bounded():
    image = {"shape": (900,) * 3, "window": (7,) * 3, "halo": (24,) * 3, "reach": (10,) * 3}
    few, many = (fitting_tile(**image, tile=None, n_labels=n, n_features=1) for n in (3, 30))
    assert many[1][0] < few[1][0] and not few[2]
    asked = fitting_tile(**image, tile=96, n_labels=30, n_features=1)
    assert asked[1] == [96] * 3 and "a smaller window" in asked[2][0]
