"""Everything that can be wrong: one line, its code, and the folder as it was."""

import os

import numpy as np
import psutil
import pytest
import zarr

import napari_saf as saf
from napari_saf.input import ImageOptions
from napari_saf.io import save_masks

RNG = np.random.default_rng(0)
EYE = np.eye(8, 9)
BLOCK = np.arange(72).reshape(8, 9) < 2
ARRAYS = {
    "a": RNG.random((8, 9)),
    "b": RNG.random((8, 9)),
    "x/same": EYE,
    "y/same": EYE,
    "rgb": RNG.random((8, 9, 3)),
    "stack": RNG.random((4, 5, 6)),
    "flat": np.full((8, 9), 7),
    "nan": np.where(BLOCK, np.nan, EYE),
    "inf": np.where(BLOCK, np.inf, EYE),
    "empty": np.zeros((8, 9), int),
    "negative": -EYE,
    "labels": EYE.astype(np.uint8),
    "two": np.uint8(EYE) + BLOCK,
    "masks/a.labels": EYE.astype(np.uint8),
    "eye": np.eye(3),
}
CONTENTS = {
    "in/notes.txt": b"",
    "file": b"mine",
    "old.npy": b"precious",
    "old.csv": b"precious",
    "full/labels.figure.png": b"precious",
    "full/comparison.csv": b"precious",
    "full/a_s_1.labels.tif": b"precious",
    "half/a_s_0.recipe.json": b"precious",
    "half/b-2.labels.tif": b"precious",
    **{f"nothing{suffix}": b"" for suffix in (".png", ".tif", ".npy", ".csv")},
    **{f"junk{suffix}": b"no image" for suffix in (".png", ".tif", ".npy")},
    "words.csv": b"a,b",
    "torn.csv": b"1,2\n3",
}
MASKS = [".tif", ".png", ".ome.zarr"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hold what no command may change: images, masks, files of others, and a dictionary."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("x", "y", "in", "full", "half", "masks"):
        (folder / name).mkdir()
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    for suffix in MASKS:
        [mask] = save_masks(folder / f"mask{suffix}", np.eye(9, dtype=int))
        if mask.is_file():
            for name in (f"mask{suffix}.napari-saf", f"mask{suffix}.csv"):
                (folder / name).write_bytes(mask.read_bytes())
    zarr.create_array(folder / "scan.zarr", data=RNG.random((40, 40)), chunks=(32, 32))
    image = RNG.random((20, 20))
    saf.PatchDictionary.learn([image], n_atoms=2, patch_size=3).save(folder / "d.safetensors")
    result = saf.SelfAssignmentFlow(max_labels=2).run(saf.Problem.from_image(image))
    saf.save_recipe(folder / "saf.recipe.json", result.recipe)
    taught = saf.PrototypeSet(np.eye(2), options=ImageOptions("intensity"))
    saf.save_prototypes(folder / "taught.json", taught)
    (folder / "loop.png").symlink_to("loop.png")
    return folder


@pytest.fixture
def fails(cli, folder, monkeypatch):
    """Run a command that must fail with one line, and leave the folder as it was."""
    monkeypatch.chdir(folder)

    def content():
        return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}

    def run(line):
        before = content()
        outcome = cli(line)
        assert content() == before
        assert outcome.out == "" and "Traceback" not in outcome.err
        return outcome

    return run


AF = "segment a.npy -o m.tif --method af"
TILES = "segment scan.zarr -o m.ome.zarr --tile 32"
ATOMS = "dictionary apply d.safetensors a.npy -o m.ome.zarr --tile 32"
SWEEP = "fair-sweep a.npy -o out --groups"
ERRORS = {
    # Images
    "segment none.png -o m.tif": ["none.png: no such file"],
    "segment nan.npy -o m.tif": ["nan.npy", "2 of 72 pixels"],
    "segment flat.npy -o m.tif": ["flat.npy", "7"],
    "segment in -o out": ["in: expected images"],
    "segment loop.png -o out/": ["loop.png"],
    **{f"segment nothing{suffix} -o m.tif": [suffix] for suffix in (".png", ".tif", ".npy")},
    **{f"segment junk{suffix} -o m.tif": [suffix] for suffix in (".png", ".tif", ".npy")},
    "segment a.npy rgb.npy -o out --together": ["channels"],
    # What goes with an image
    "segment a.npy -o m.tif --mask empty.npy": ["mask", "empty"],
    f"{AF} --seeds empty.npy": ["not 0"],
    f"{AF} --seeds negative.npy": ["negative.npy"],
    f"{AF} --seeds labels.npy": ["two or more classes"],
    f"{AF} --prototypes none.npy": ["none.npy"],
    **{f"{AF} --prototypes {name}.csv": [f"{name}.csv"] for name in ("nothing", "words", "torn")},
    # Values
    "segment a.npy -o m.tif --recipe none.json": ["none.json"],
    # Where it goes
    "segment a.npy -o old.npy": ["old.npy", "--overwrite"],
    "segment a.npy -o a.npy --overwrite": ["a.npy", "made of"],
    "segment x/same.npy y/same.npy -o out": ["under this name"],
    "segment a.npy b.npy -o m.tif": ["m.tif"],
    "segment a.npy -o file/m.tif": ["file"],
    # A mask given for something else
    **{f"run mask{suffix} a.npy -o m.npy": ["as a project, recipe"] for suffix in MASKS},
    **{f"segment a.npy --recipe mask{suffix} -o m.npy": ["as a recipe"] for suffix in MASKS},
    **{f"run mask{suffix}.napari-saf a.npy -o m.npy": ["no project"] for suffix in MASKS[:2]},
    # Tiles
    f"{TILES} --seeds labels.npy --method af": ["--seeds"],
    f"{TILES} --probabilities .tif": [".ome.zarr"],
    f"{TILES} --groups axis:0 --method fair": ["groups"],
    # Export
    "export labels.npy -o full": ["labels.figure.png", "--overwrite"],
    "export masks/a.labels.npy -o masks --masks .npy --overwrite": ["a.labels.npy", "made of"],
    "export a.npy -o out": ["a.npy", "label image"],
    "export labels.npy -o out --recipe": ["recipe"],
    "export labels.npy -o in --regions .csv --image eye.npy": ["image", "shape"],
    "export labels.npy -o in --prototypes .npy --image eye.npy": ["image", "shape"],
    "export labels.npy -o out --regions .csv --image none.png": ["none.png: no such file"],
    "export labels.npy -o in --connected --min-pixels 9": ["no region has 9 pixels"],
    # Objects
    "objects mask.tif -o t.csv --image eye.npy": ["shape"],
    "objects mask.ome.zarr -o o.ome.zarr --image eye.npy": ["shape"],
    "objects mask.tif -o t.xls": ["t.xls", ".csv"],
    "objects mask.tif -o old.csv": ["old.csv", "--overwrite"],
    "objects mask.tif -o t.csv --kinds 9,8": ["mask.tif", "kinds", "8, 9"],
    # Sharpen
    "sharpen mask.tif eye.npy -o s.tif": ["eye.npy", "shape"],
    "sharpen labels.npy a.npy -o labels.npy --overwrite": ["labels.npy"],
    # Compare
    "compare a.npy -o old.csv": ["old.csv", "--overwrite"],
    "compare a.npy -o full --grid s=0,1 --max-labels 2": ["full", "--overwrite"],
    "compare a.npy -o out --grid smell=1": ["smell"],
    "compare a.npy -o out --truth eye.npy": ["eye.npy"],
    "compare a.npy -o b.csv --method bavardage": ["seeds"],
    # Fair sweep
    f"{SWEEP} channel:0 --weights -1,2": ["-1"],
    f"{SWEEP} channel:0 --proportions 0.5,0.6": ["proportions"],
    "fair-sweep x/same.npy y/same.npy -o out --masks": ["under this name"],
    "fair-sweep a.npy b.npy -o half --masks --weights 0,1,2": ["b-2.labels.tif", "--overwrite"],
    # Dictionaries
    "dictionary learn a.npy -o d.npz --patch-size 3": ["safetensors"],
    "dictionary learn a.npy -o d.safetensors --patch-size 3": ["--overwrite"],
    "dictionary learn a.npy -o e.safetensors --patch-size 3 --features position": ["atoms"],
    "dictionary apply a.npy a.npy -o out": ["safetensors file"],
    "dictionary apply d.safetensors x y -o out": ["two images"],
}


@pytest.mark.parametrize("line", ERRORS)
def test_what_is_wrong_is_one_line(fails, line):
    outcome = fails(line)
    assert outcome.is_error(*ERRORS[line])
    assert "codec" not in outcome.err and "Errno" not in outcome.err


LEVEL, SCALING = "is not a level from 0 to 1", "such as 0,255"
USAGE = {
    "": "Usage",
    "magic": "magic",
    "segment a.npy": "--output",
    f"{AF} --s 1": "--s",
    "segment a.npy -o m.tif --prototypes taught.json --method slk": "'slk'",
    "segment a.npy -o m.tif --prototypes taught.json --features multiscale": "'multiscale'",
    "segment a.npy -o m.tif --prototypes taught.json --scaling first": "--scaling",
    "segment a.npy -o m.tif --step 0.1": "--stepper euler",
    "segment a.npy -o m.tif --recipe saf.recipe.json --method af": "--method",
    "segment a.npy -o m.tif --choose": "--seeds",
    "segment a.npy -o m.tif --choose --method slk --seeds two.npy": "'af'",
    "segment a.npy -o m.tif --probability-kind uint8": "--probabilit",
    "segment a.npy -o m.tif --object-smallest 3": "--object",
    "segment a.npy b.npy -o out --mask mask.npy": "--mask",
    "segment a.npy b.npy -o out --seeds labels.npy": "--seeds",
    "segment a.npy -o out --jobs 0": "--jobs",
    **{f"segment a.npy -o m.tif --regions={given}": LEVEL for given in ("1.5", "nan", "many")},
    **{
        f"segment a.npy -o m.npy --scaling {given}": SCALING
        for given in ("0", "3,3", "5,1", "0,inf", "nan,1", "a,b", "1,2,3")
    },
    "export labels.npy -o out --name 2": "--name",
    "export labels.npy -o out --unit um": "--unit",
    "export labels.npy -o out --prototypes .npy": "--prototypes",
    "export labels.npy -o out --prototypes .csv --image a.npy --per-label 4": "--per-label",
    "export labels.npy -o out --regions .csv --min-pixels 2": "--connected or --numbered",
    "objects mask.tif labels.npy -o t.csv --image eye.npy": "--image",
    "objects mask.tif -o t.csv --track-reach 3": "--track",
    "objects mask.ome.zarr -o t.csv --halo 8": "--halo",
    "sharpen masks a.npy -o out": "IMAGE",
    "compare a.npy -o out --grid s=0 --grid s=1": "--grid",
    "compare a.npy -o out --n-clusters 3": "--n-clusters",
    "fair-sweep a.npy -o out": "--groups",
    "fair-sweep a.npy b.npy -o out --fairness-weight 5": "--fairness-weight",
    "dictionary apply d.safetensors a.npy -o out --tile 32": "--tile",
    f"{ATOMS} --reconstruction complete": "--reconstruction",
}


@pytest.mark.parametrize("line", USAGE)
def test_wrong_usage_is_code_2(fails, line):
    outcome = fails(line)
    assert outcome.code == 2 and USAGE[line] in outcome.err


def test_not_enough_memory_is_told_before_the_run(fails, monkeypatch):
    class Full:
        available = 10**4

    monkeypatch.setattr(psutil, "virtual_memory", Full)
    assert fails("segment a.npy -o m.tif").is_error("not enough memory", "0.0 MiB are free")


def test_fewer_values_than_labels_is_said_and_goes_on(cli, tmp_path):
    np.save(tmp_path / "a.npy", np.repeat(np.uint8([[0, 1]]), 4, axis=1).repeat(8, axis=0))
    plain = ("--features", "intensity", "--weights", "uniform", "--window", "1")
    outcome = cli("segment", "a.npy", "-o", "m.npy", "--max-labels", "9", *plain)
    assert outcome.code == 0
    assert outcome.err.startswith("napari-saf: note: ")
    assert len(np.unique(np.load("m.npy"))) == 2


def test_debug_shows_where(cli, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((8, 9)))
    outcome = cli("segment", "a.npy", "-o", "m.tif", "--debug")
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert outcome.err.strip().splitlines()[-1].startswith("napari-saf: error: ")
    assert os.listdir(tmp_path) == ["a.npy"]
