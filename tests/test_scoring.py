"""Scores of labels beside a truth: measures, what is wrong, and the figure."""

import numpy as np
import pytest
from PIL import Image

import napari_saf as saf

TRUTH = np.kron([[1, 0, 2], [0, 0, 0], [2, 0, 1]], np.ones((4, 4), int))


def values_of(score):
    return dict(zip(score.table["measure"].tolist(), score.table["value"].tolist(), strict=True))


@pytest.mark.parametrize("kind", ["pixels", "objects", "classes"])
def test_the_truth_beside_itself_is_right_everywhere(kind):
    score = saf.score(TRUTH, TRUTH, kind)
    assert np.array_equal(score.errors, 4 * (TRUTH > 0))
    values = values_of(score)
    assert all(values.get(name, 1) == 1 for name in ("accuracy", "F1 at 0.9", "balanced accuracy"))


def test_classes_are_of_connected_regions_or_by_number():
    labels = np.where(TRUTH == 2, 1, TRUTH)
    score = saf.score(labels, TRUTH, "classes")
    assert score.parts[0].n_objects == 4 and values_of(score)["balanced accuracy"] == 0.5
    assert np.array_equal(score.errors, np.array([0, 4, 3])[TRUTH])
    names = {1: "light", 2: "dark"}
    score = saf.score(3 - TRUTH, 3 - TRUTH, "classes", classes=names, true_classes={2: "dark"})
    assert values_of(score)["no class as light"] == 1


def test_pixels_that_do_not_count_are_not_wrong():
    labels = np.ones_like(TRUTH)
    score = saf.score(labels, TRUTH, ignore=0)
    assert not score.errors[TRUTH == 0].any() and values_of(score)["accuracy"] == 0.5


def test_numbers_that_mean_other_classes_are_told():
    renumbered = np.array([2, 0, 1])[TRUTH]
    (note,) = saf.score(renumbered, TRUTH).notes
    assert "1.000" in note and values_of(saf.score(renumbered, TRUTH))["accuracy"] < 0.3
    (note,) = saf.score(renumbered, TRUTH, ignore=2).notes
    assert "1.000" in note
    flaw = TRUTH.copy()
    flaw[0] = 2
    assert not saf.score(flaw, TRUTH).notes


def test_a_volume_and_each_kind_have_a_figure(tmp_path):
    volume = np.stack([TRUTH, TRUTH])
    for kind in ("pixels", "objects", "classes"):
        path = saf.save_score_figure(tmp_path / f"{kind}.png", saf.score(volume, volume, kind))
        with Image.open(path) as image:
            assert image.width > image.height > 100
    with pytest.raises(saf.InvalidInput, match="svg"):
        saf.save_score_figure("a.docx", saf.score(TRUTH, TRUTH))


def test_nothing_beside_objects_has_no_classes_and_is_missed():
    score = saf.score(0 * TRUTH, TRUTH, "classes")
    assert len(score.parts) == 1 and np.array_equal(score.errors, 1 * (TRUTH > 0))


def test_kinds_in_many_regions_are_told_where_objects_are_scored():
    objects = np.kron(np.arange(6).reshape(2, 3), np.pad(np.ones((4, 4), int), 1))
    assert not saf.score(objects, objects, "objects").notes
    assert not saf.score(objects > 0, objects).notes  # classes of pixels
    (note,) = saf.score(objects > 0, objects, "objects").notes
    assert note.startswith("labels: 1 label in 5 regions")
    (note,) = saf.score(objects, np.where(objects, 2, 0), "objects").notes
    assert note.startswith("truth: 1 label in 5 regions")


def test_a_single_class_has_a_confusion_without_a_warning():
    _, classes = saf.score([[1, 1, 0, 0]] * 4, [[1, 1, 0, 1]] * 4, "classes").parts
    assert classes.confusion.tolist() == [[1]]


def test_what_is_no_kind_is_refused():
    with pytest.raises(saf.InvalidInput, match="pixels, objects"):
        saf.score(TRUTH, TRUTH, "colours")
