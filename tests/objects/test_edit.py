"""Edits change what they say, and go back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf.objects import ObjectEditor


def two_squares():
    labels = np.zeros((20, 40), np.uint32)
    labels[5:15, 5:20], labels[5:15, 20:35], labels[0, 0] = 1, 2, 3
    return saf.Objects(labels, np.array([0, 7, 7, 8]))


def test_merged_objects_have_the_first_number():
    editor = ObjectEditor(two_squares())
    assert editor.merge([2, 1]) == 2
    assert (editor.labels == 2).sum() == 300 and editor.objects.numbers.tolist() == [2, 3]
    with pytest.raises(saf.InvalidInput, match="kinds"):
        editor.merge([2, 3])


def test_deleted_objects_are_gone_and_the_others_stay():
    objects = two_squares()
    editor = ObjectEditor(objects)
    editor.delete([1, 3])
    assert np.array_equal(editor.labels, np.where(objects.labels == 2, 2, 0))
    assert editor.objects.kinds.tolist() == [0, 0, 7, 0]
    assert objects.labels.max() == 3  # those that were given


@pytest.mark.parametrize("shape", [(20, 40), (3, 20, 40)])
def test_a_line_parts_an_object_and_loses_no_pixel(shape):
    labels = np.zeros(shape, np.uint32)
    labels[..., 5:15, 5:35] = 1
    editor = ObjectEditor(saf.Objects(labels, np.array([0, 4])))
    assert editor.cut(1, [(0.2, 12), (19, 12.4)]) == [1, 2]
    assert np.array_equal(editor.labels > 0, labels > 0)
    assert (editor.labels[..., 5:15, 20:35] == 1).all() and (
        editor.labels[..., 5:15, 5:12] == 2
    ).all()
    assert editor.objects.kinds.tolist() == [0, 4, 4]
    with pytest.raises(saf.InvalidInput, match="divide"):
        editor.cut(1, [(0, 0), (3, 3)])
    with pytest.raises(saf.InvalidInput, match="divide"):
        editor.cut(1, [(10, 20), (10, 25)])


@given(st.lists(st.tuples(st.sampled_from("mdcur"), st.integers(0, 9)), max_size=12))
@settings(max_examples=40, deadline=None)
def test_undo_and_redo_lead_back_and_forth(steps):
    rng = np.random.default_rng(0)
    objects = saf.split_objects(rng.integers(0, 2, (12, 30)), smallest=1, neck=0)
    editor = ObjectEditor(objects)
    states = [(editor.labels.copy(), editor.objects.kinds)]
    place = 0
    for step, number in steps:
        numbers = editor.objects.numbers
        if step == "u" and place:
            editor.undo()
            place -= 1
        elif step == "r" and editor.can_redo:
            editor.redo()
            place += 1
        elif step in "mdc" and len(numbers) > 2:
            chosen = int(numbers[number % len(numbers)])
            try:
                if step == "c":
                    editor.cut(chosen, [(0, 3 * number), (11, 3 * number)])
                elif step == "m":
                    editor.merge([chosen, int(numbers[0]), int(numbers[-1])])
                else:
                    editor.delete([chosen])
            except saf.InvalidInput:
                assert np.array_equal(editor.labels, states[place][0])
            else:
                place += 1
                states[place:] = [(editor.labels.copy(), editor.objects.kinds)]
        assert np.array_equal(editor.labels, states[place][0])
        assert np.array_equal(editor.objects.kinds, states[place][1])
        assert (editor.can_undo, editor.can_redo) == (place > 0, place < len(states) - 1)


@pytest.mark.parametrize("numbers", [[], [0], [9], [-1], [1, 9]])
def test_numbers_that_no_object_has_are_refused(numbers):
    editor = ObjectEditor(two_squares())
    for call in (editor.delete, editor.merge):
        with pytest.raises(saf.InvalidInput, match="objects"):
            call(numbers)
    assert not editor.can_undo


def test_a_cut_for_which_no_number_is_left_is_refused():
    labels = np.ones((3, 9), np.uint32)
    editor = ObjectEditor(saf.Objects(labels, np.array([0, 1])))
    editor.labels[0, 0] = 2**16 - 1
    editor.adopt(1)
    before = editor.labels.copy()
    with pytest.raises(saf.InvalidInput, match="all numbers are in use"):
        editor.cut(1, [(0, 4), (2, 4)])
    assert np.array_equal(editor.labels, before)


def test_a_huge_painted_number_takes_no_more_memory_than_others():
    objects = two_squares()
    kinds = np.append(objects.kinds, np.zeros(2**16, np.int64))  # 32 bits a pixel
    editor = ObjectEditor(saf.Objects(objects.labels, kinds))
    editor.labels[18, 30:] = 2**32 - 2
    editor.labels[19, 30:] = 2**32 - 1
    editor.adopt(8)
    new = len(kinds)
    assert editor.numbers.tolist() == [1, 2, 3, new, new + 1]
    assert (editor.labels[18:, 30] == [new, new + 1]).all()
