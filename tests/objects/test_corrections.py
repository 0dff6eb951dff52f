"""What corrections of objects teach, and what stays as a person left it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_saf.objects import ObjectEditor, find_parts, learn, split_rest


def pairs_of_discs(rows=4, columns=4, apart=17):
    """A grid of pairs of discs of radius 10, so far apart; their necks are deep or shallow."""
    y, x = np.ogrid[: 30 * rows, : 60 * columns]
    near = np.minimum(abs(x % 60 - 30 + apart / 2), abs(x % 60 - 30 - apart / 2))
    return ((y % 30 - 15) ** 2 + near**2 <= 100).astype(np.uint8)


def split(mask, smallest=20, neck=0.03):
    parts, _ = find_parts(mask, kinds=[1])
    return parts, ObjectEditor(parts.join(smallest=smallest, neck=neck), smallest, neck)


def vertical(editor, number):
    """A line through the middle of an object, from top to bottom."""
    rows, columns = np.nonzero(editor.labels == number)
    middle = (columns.min() + columns.max()) / 2
    return [(rows.min() - 2, middle), (rows.max() + 2, middle)]


def test_cuts_teach_that_necks_part():
    parts, editor = split(pairs_of_discs(), neck=0.5)
    assert len(editor.numbers) == 16
    for number in range(1, 11):
        editor.cut(number, vertical(editor, number))
    after = learn(parts, editor.corrections)
    assert after.neck < 0.5 and after.smallest == 20
    editor.replace(after)
    assert len(editor.numbers) == 32 and np.array_equal(editor.labels > 0, pairs_of_discs() > 0)


def test_merges_teach_that_shallow_necks_part_nothing():
    parts, editor = split(pairs_of_discs(apart=9), neck=0.0)
    assert len(editor.numbers) == 32
    for top, left in [(15 + 30 * k, 30 + 60 * n) for k in range(4) for n in range(3)][:10]:
        editor.merge([editor.labels[top, left - 9], editor.labels[top, left + 9]])
    editor.replace(learn(parts, editor.corrections))
    assert len(editor.numbers) == 16 and editor.split_by[1] > 0


def test_deleted_specks_teach_the_least_size():
    mask = pairs_of_discs()
    mask[1:4:2, 8::20] = mask[2, 8::20] = mask[1:4, 9::20] = 1
    parts, editor = split(mask, smallest=1)
    specks = np.flatnonzero(np.bincount(editor.labels.ravel()) < 10)
    for number in specks[:8]:
        editor.delete([number])
    after = learn(parts, editor.corrections)
    assert after.smallest >= 5
    editor.replace(after)
    assert len(editor.numbers) == 32


def test_without_corrections_or_with_what_no_split_meets_numbers_stay():
    parts, editor = split(pairs_of_discs())
    assert learn(parts, editor.corrections) is None
    for k in range(12):  # objects off the mask
        editor.labels[0, 4 * k : 4 * k + 2] = editor.next_number
        editor.adopt(1)
    assert learn(parts, editor.corrections) is None


numbers = st.tuples(st.integers(1, 60), st.sampled_from([0.0, 0.03, 0.2, 0.6]))


@given(st.lists(st.tuples(st.sampled_from("mdcns"), st.integers(0, 999), numbers), max_size=14))
@settings(max_examples=30, deadline=None)
def test_what_is_by_hand_stays_and_one_step_leads_back(steps):
    rng = np.random.default_rng(0)
    parts, editor = split(rng.random((24, 36)) < 0.62, smallest=4)
    by_hand, deleted = {}, np.zeros(editor.labels.shape, bool)
    for step, place, by in steps:
        known = editor.numbers
        if not len(known):
            break
        a, b = (int(known[place % len(known)]), int(known[place // 7 % len(known)]))
        before = editor.labels.copy()
        if step == "m" and a != b:
            editor.merge([a, b])
        elif step == "d":
            editor.delete([a])
        elif step == "n":
            at = place % 24, place // 17 % 36
            editor.labels[at[0] : at[0] + 4, at[1] : at[1] + 5] = editor.next_number
            editor.adopt(1)
        elif step == "s":
            after = split_rest(parts, editor.corrections, *by)
            kinds, numbers_before = editor.kinds, editor.split_by
            editor.replace(after)
            assert editor.split_by == by
            for number, inside in by_hand.items():
                assert np.array_equal(editor.labels == number, inside)
            assert not editor.labels[deleted].any()
            assert np.array_equal(np.unique(editor.labels)[1:], editor.numbers)
            editor.undo()
            assert np.array_equal(editor.labels, before) and np.array_equal(editor.kinds, kinds)
            assert editor.split_by == numbers_before
            editor.redo()
            continue
        changed = before != editor.labels
        deleted = (deleted | changed) & (editor.labels == 0)
        touched = {*by_hand, *np.unique(editor.labels[changed]), *np.unique(before[changed])}
        by_hand = {n: editor.labels == n for n in touched - {0} if (editor.labels == n).any()}


def test_by_the_same_numbers_untouched_objects_stay():
    parts, editor = split(pairs_of_discs(), neck=0.5)
    first = int(editor.numbers[0])
    editor.delete([first])
    after = split_rest(parts, editor.corrections, 20, 0.5)
    assert np.array_equal(after.labels, editor.labels) and np.array_equal(after.kinds, editor.kinds)
