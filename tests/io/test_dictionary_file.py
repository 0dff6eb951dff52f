"""Dictionaries as files: what is saved comes back, what is damaged is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import napari_saf as saf
from napari_saf.features import Scaling

GOLDEN = Path(__file__).parent / "dictionary_schema_1.safetensors"
KEY = "napari-saf"


def make(n_atoms=3, size=5, channels=2):
    atoms = np.random.default_rng(0).random((n_atoms, size, size, channels))
    return saf.PatchDictionary(
        atoms=atoms,
        usage=np.arange(n_atoms)[::-1],
        scaling=Scaling(-3.5, 1e30),
        s=0.5,
        window=5,
        shift_window=1,
        any_contrast=True,
        distance=0.25,
        images=("a.png", "ä b.tif"),
        software="0.1.0",
    )


def header_of(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])


def write(path, header, atoms=None, **tensors):
    atoms = np.zeros((2, 3, 3, 1), np.float32) if atoms is None else atoms
    text = header if isinstance(header, str) else json.dumps(header)
    path.write_bytes(save({"atoms": atoms, **tensors}, metadata={KEY: text}))
    return path


def test_what_is_saved_comes_back(tmp_path):
    dictionary = make()
    dictionary.save(tmp_path / "d.safetensors")
    again = saf.PatchDictionary.load(tmp_path / "d.safetensors")
    for name in ("scaling", "s", "window", "shift_window", "any_contrast", "distance", "images",
                 "software"):  # fmt: skip
        assert getattr(again, name) == getattr(dictionary, name)
    np.testing.assert_array_equal(again.atoms, dictionary.atoms)
    np.testing.assert_array_equal(again.usage, dictionary.usage)
    assert [path.name for path in tmp_path.iterdir()] == ["d.safetensors"]


def test_files_of_schema_1_can_be_read_for_ever():
    dictionary = saf.PatchDictionary.load(GOLDEN)
    expected = np.arange(18, dtype=np.float32).reshape(2, 3, 3, 1) / 18
    np.testing.assert_allclose(dictionary.atoms, expected)
    assert dictionary.usage.tolist() == [7, 3]
    assert dictionary.scaling == Scaling(0.0, 255.0)
    assert (dictionary.s, dictionary.window, dictionary.shift_window) == (0.25, 5, 3)
    assert dictionary.distance == 0.125
    assert dictionary.images == ("wall.png", "söller.tif")
    assert dictionary.software == "0.1.0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "schema: expected 1, got 2"),
        ({"patch_size": 5}, r"atoms: expected shape \(2, 5, 5, 1\)"),
        ({"patch_size": "3"}, "patch_size: expected a valid integer"),
        ({"usage": [1, -1]}, "usage"),
        ({"scaling": {"low": 1, "high": 1}}, "low below high"),
        ({"scaling": {"low": -1e308, "high": 1e308}}, "scaling: expected low below high"),
        ({"scaling": {"low": 0}}, "scaling: missing entry 'high'"),
        ({"invariance": "none"}, "invariance"),
        ({"s": 7}, "s: expected 0 to 1"),
        ({"window": 4}, "window"),
        ({"colour": 1}, "unknown entry 'colour'"),
    ],
)
def test_impossible_headers_are_named(tmp_path, changes, words):
    path = write(tmp_path / "d.safetensors", header_of(GOLDEN) | changes)
    with pytest.raises(saf.FormatError, match=words) as raised:
        saf.PatchDictionary.load(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "atoms",
    [np.zeros((2, 3, 3, 1)), np.full((2, 3, 3, 1), np.nan, np.float32), np.zeros(3, np.float32)],
)
def test_impossible_atoms_are_refused(tmp_path, atoms):
    with pytest.raises(saf.FormatError, match="atoms"):
        saf.PatchDictionary.load(write(tmp_path / "d.safetensors", header_of(GOLDEN), atoms))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "d.safetensors"
    others = {
        "atoms": save(
            {"weights": np.zeros(3, np.float32)}, metadata={KEY: json.dumps(header_of(GOLDEN))}
        ),
        "no file of napari-saf": save({"atoms": np.zeros(3, np.float32)}),
        "not a safetensors file": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "damaged": b"",
    }
    for words, content in others.items():
        path.write_bytes(content)
        with pytest.raises(saf.FormatError, match=words):
            saf.PatchDictionary.load(path)
    for missing in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(saf.FormatError, match=r"cannot be read|no such file"):
            saf.PatchDictionary.load(missing)


def test_names_must_end_as_dictionaries_do(tmp_path):
    with pytest.raises(saf.InvalidInput, match="safetensors"):
        make().save(tmp_path / "d.npy")
    with pytest.raises(saf.SafError, match="cannot be written"):
        make().save(tmp_path / "none" / "d.safetensors")


@pytest.mark.parametrize(("size", "scaling"), [(1e38, (0, 1)), (1e15, (-1e30, 1e30))])
def test_atoms_too_large_for_an_image_are_refused(tmp_path, size, scaling):
    atoms = np.full((3, 3, 3, 1), size, np.float32)
    with pytest.raises(saf.InvalidInput, match="atoms: expected"):
        saf.PatchDictionary(atoms=atoms, usage=np.ones(3, int), scaling=Scaling(*scaling))
