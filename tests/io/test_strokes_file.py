"""Strokes as files: what was painted comes back, and nothing else is believed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save

from napari_saf.errors import FormatError
from napari_saf.io import PaintedClass, load_strokes, save_strokes

CLASSES = {1: PaintedClass("Kern", (1.0, 0.5, 0.0)), 7: PaintedClass("φόντο", (0.0, 0.25, 1.0))}
SHAPE = (4, 5)


@given(
    npst.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int32, np.int64]),
        npst.array_shapes(min_dims=2, max_dims=4, max_side=6),
        elements=st.integers(0, 100),
    )
)
def test_strokes_come_back(tmp_path_factory, strokes):
    path = tmp_path_factory.mktemp("strokes") / "s.safetensors"
    save_strokes(path, strokes, CLASSES)
    found, classes = load_strokes(path, strokes.shape)
    np.testing.assert_array_equal(found, strokes)
    assert classes == CLASSES


def test_many_classes_keep_their_numbers(tmp_path):
    strokes = np.zeros(SHAPE, dtype=np.int32)
    strokes[0, :3] = 255, 256, 70_000
    found, _ = load_strokes(save_strokes(tmp_path / "s", strokes, {}), SHAPE)
    np.testing.assert_array_equal(found, strokes)


def test_a_file_is_as_large_as_what_was_painted(tmp_path):
    strokes = np.zeros((300, 400, 50), dtype=np.uint8)
    strokes[3, 4:10, 20] = 1
    assert save_strokes(tmp_path / "s", strokes, CLASSES).stat().st_size < 1000


def test_strokes_can_be_painted_while_they_are_saved(tmp_path, monkeypatch):
    class Painted(np.ndarray):
        """Erased as soon as somebody has looked where something is."""

        def nonzero(self):
            found = np.array(self).nonzero()
            strokes[...] = 0
            return found

    strokes = np.zeros((6, 7), dtype=np.uint8)
    strokes[2:4, 3] = 5
    save_strokes(tmp_path / "s", strokes.view(Painted), {})
    found, _ = load_strokes(tmp_path / "s", (6, 7))
    assert set(np.unique(found)) == {0, 5}
    assert not strokes.any()


def content(places=(0, 3), numbers=(1, 2), **changes):
    header = {"schema": 1, "shape": list(SHAPE), "classes": []} | changes
    tensors = {"places": np.array(places), "numbers": np.array(numbers, dtype=np.int32)}
    return save(tensors, metadata={"napari-saf": json.dumps(header)})


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"no strokes",
        content()[:-3],
        content(places=(0, 20)),
        content(places=(-1, 2)),
        content(places=(0, 1, 2)),
        content(places=(0.0, 1.0)),
        content(numbers=(0, 1)),
        content(numbers=(-3, 1)),
        content(schema=2),
        content(shape=[5, 4]),
        content(shape="no"),
        content(classes=[[1, "a"]]),
        content(classes=[[1, "a", [0, "b", 0]]]),
        content(classes=5),
        save({"places": np.arange(2)}, metadata={"napari-saf": "{}"}),
        save({"places": np.arange(2)}),
    ],
)
def test_damaged_files_are_refused(tmp_path, damaged):
    path = tmp_path / "s.safetensors"
    path.write_bytes(damaged)
    with pytest.raises(FormatError, match=r"s\.safetensors"):
        load_strokes(path, SHAPE)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FormatError, match="none"):
        load_strokes(tmp_path / "none", SHAPE)
