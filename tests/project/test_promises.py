"""Promised files: one of each kind and schema is kept, and those of later schemas are told so."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from project_cases import pack, parts

import napari_saf as saf
from napari_saf.io import read_mask, save_masks
from napari_saf.io._note import note_path, read_note
from napari_saf.tiles import Plan
from napari_saf.tiles._store import Journal

TESTS = Path(__file__).parents[1]
LATER = {"schema": 9, "novel": True}
WRITTEN = {
    "recipe": {"versions": {"napari-saf": "7.1.0"}},
    "classifier": {"software": "7.1.0"},
    "dictionary": {"software": "7.1.0"},
    "project": {"software": "7.1.0"},
    "classes": {"software": "7.1.0"},
}


def plan_of(path):
    """Return the journal of a run in tiles, which begins with its plan."""
    journal = Journal(path, Plan)
    journal.close()
    return journal


LOADS = {
    "recipe": saf.load_recipe,
    "classifier": saf.load_prototypes,
    "dictionary": saf.PatchDictionary.load,
    "project": saf.load_project,
    "mask": read_note,
    "classes": saf.load_classes,
    "plan": lambda path: plan_of(path).plan,
}


def kept(kind):
    """Return the files of a kind that earlier versions wrote."""
    name = "prototypes" if kind == "classifier" else kind
    return sorted(TESTS.glob(f"*/{name}_*schema_*"))


def newest(kind):
    return max(kept(kind), key=lambda path: (path.stem[-1], path.suffix == ".json"))


def later(kind, folder):
    """Write a file of a later schema, with entries that are not known."""
    old, entries = newest(kind), LATER | WRITTEN.get(kind, {})
    new = folder / old.name
    if kind in ("recipe", "classifier", "classes"):
        new.write_text(json.dumps(json.loads(old.read_text()) | entries))
    elif kind == "dictionary":
        text = {"napari-saf": json.dumps(entries)}
        safetensors.numpy.save_file({"other": np.zeros(2)}, new, metadata=text)
    elif kind == "project":
        main, runs = parts(old)
        new.write_bytes(pack(main | entries, runs, others=[("layers/0.novel", b"1")]))
    elif kind == "mask":
        new = folder / "mask.npy"
        save_masks(new, np.ones((2, 2), np.uint8))
        note = read_note(old).model_dump(by_alias=True)
        note_path(new).write_text(json.dumps(note | entries))
    else:
        new.write_text(json.dumps(json.loads(old.read_text().splitlines()[0]) | entries) + "\n")
    return new


@pytest.mark.parametrize("kind", LOADS)
def test_a_file_of_a_later_schema_says_that_a_newer_version_is_needed(kind, tmp_path):
    said = r"expected 1.*, got 9: a newer version of napari-saf is needed"
    if kind in WRITTEN:
        said += ", 7.1.0 wrote it"
    with pytest.raises(saf.FormatError, match=said):
        LOADS[kind](later(kind, tmp_path))


def damaged(content, draw):
    """Return bytes of which a few runs are others, more or fewer."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(changed) - 1)))
        changed[start : start + draw(st.integers(0, 8))] = draw(PIECES)
    return bytes(changed)


PIECES = st.binary(max_size=8) | st.sampled_from(
    [b"{", b"[[", b'"', b"1e999", b"-1", b"NaN", b"null", b"9" * 30, b'"schema": 2,', b"\\ud800"]
)


@pytest.mark.parametrize("kind", LOADS)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_by_name(kind, data, tmp_path):
    old = newest(kind)
    path = tmp_path / old.name
    if kind == "project":  # its hash would refuse all others
        main, runs = parts(old)
        path.write_bytes(pack(damaged(json.dumps(main).encode(), data.draw), runs))
    elif kind == "mask":
        path = tmp_path / "mask.npy"
        save_masks(path, np.ones((2, 2), np.uint8))
        note = read_note(old).model_dump_json(by_alias=True)
        note_path(path).write_bytes(damaged(note.encode(), data.draw))
    else:
        path.write_bytes(damaged(old.read_bytes(), data.draw))
    try:
        LOADS[kind](path)
    except (saf.FormatError, saf.ComputeError) as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("kind", LOADS)
def test_kept_files_load(kind, tmp_path):
    assert kept(kind)
    for path in kept(kind):
        assert LOADS[kind](Path(shutil.copy(path, tmp_path))) is not None


def test_every_kind_is_promised_on_the_page():
    page = (TESTS.parent / "docs/promises.md").read_text(encoding="utf-8").lower()
    assert all(f"| {kind}" in page for kind in LOADS)


def test_a_mask_of_schema_1_means_what_it_meant():
    mask = read_mask(newest("mask"))
    np.testing.assert_array_equal(mask.labels, [[1, 1, 2], [0, 2, 2]])
    assert (mask.names, mask.colors) == ({1: "sky"}, {2: (0.25, 0.5, 1.0, 1.0)})
    assert mask.prototypes.vectors.tolist() == [[0.25], [0.75]]
    assert mask.recipe["method"] == "saf" and [*mask.scale] == [0.5, 0.25]


def test_a_plan_of_schema_1_knows_what_is_done(tmp_path):
    journal = plan_of(Path(shutil.copy(newest("plan"), tmp_path)))
    assert journal.plan.shape == [100, 130]
    assert [sum(sizes.values()) for sizes in journal.done.values()] == [4096, 4096, 2304]
