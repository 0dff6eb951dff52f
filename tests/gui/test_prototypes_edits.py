"""Edits of labels without a window: what they change, and what they leave."""

import dataclasses

import numpy as np
import pytest
from gui_cases import blocks
from label_cases import QUADRANTS, result_of
from napari.components import ViewerModel
from napari.layers import Image, Labels

import napari_saf as saf
from napari_saf._gui.layers.live import EditedLayer
from napari_saf._gui.layers.reading import ProblemReader
from napari_saf._gui.prototypes.editor import UndoHistory, UndoStep
from napari_saf._gui.prototypes.edits import (
    EditTarget,
    count_pixels,
    delete,
    free_number,
    merge,
    refine,
    split,
    why_not,
)
from napari_saf._gui.prototypes.labels import (
    FileSource,
    LabelState,
    LayerSource,
    prototype_set,
)
from napari_saf.methods import not_cancelled
from napari_saf.recording import PackedArray

pytestmark = [pytest.mark.gui]

IMAGE = blocks()


def source_of(labels, image=IMAGE, **options):
    metadata = result_of(image, labels, **options)
    return LayerSource(Labels(labels.copy(), metadata=metadata))


def edit(how, source, *numbers, state=None, image=IMAGE):
    """Edit the labels of a source."""
    target = EditTarget.of(source.layer, Image(image, rgb=image.ndim == 3))
    target = dataclasses.replace(target, state=state or source.state, selected=numbers)
    return how(target, target.read(not_cancelled), not_cancelled)


def run(edited):
    """Return the labels after the run that an edit asks for."""
    job, method, start = edited.run
    problem, numbers = start.begin(ProblemReader().read(job, not_cancelled), method)
    initial = start.initial(problem, numbers, method)
    return start.finish(method.run(problem, initial), numbers)


def test_merging_keeps_the_prototypes_of_both():
    source = source_of(QUADRANTS)
    points = source.state.prototypes
    edited = edit(merge, source, 2, 4)
    np.testing.assert_array_equal(edited.labels, np.where(QUADRANTS == 4, 2, QUADRANTS))
    source.state = edited.change(source.state.renamed(4, "grass"))
    again = source.state
    assert again.names == {2: "grass"}
    np.testing.assert_array_equal(again.prototypes[2], np.concatenate([points[2], points[4]]))
    table = source.layer.metadata["napari_saf"]["prototypes"]
    np.testing.assert_allclose(table[1], (points[2][0] + points[4][0]) / 2, rtol=1e-6)
    assert len(table) == 3


def test_splitting_finds_what_a_label_is_made_of():
    start = np.where(QUADRANTS == 4, 1, QUADRANTS)
    source = source_of(start)
    edited = edit(split, source, 1)
    result = run(edited)
    np.testing.assert_array_equal(result.labels[start != 1], start[start != 1])
    found, truth = result.labels[start == 1], QUADRANTS[start == 1]
    assert max((found == truth).mean(), (5 - found == truth).mean()) > 0.98
    halves = {n: edited.change(source.state).prototypes[n][0] for n in (1, 4)}
    for number, point in halves.items():
        own = IMAGE[edited.labels == number].mean(axis=0) / 255
        np.testing.assert_allclose(point, own, atol=0.03)


def test_deleting_gives_pixels_to_the_likeliest_labels():
    """Half of a block had a label of its own: without it the block is one again."""
    start = QUADRANTS.copy()
    start[16:, 24:] = 5
    source = source_of(start)
    edited = edit(delete, source, 5)
    result = run(edited)
    np.testing.assert_array_equal(result.labels, QUADRANTS)
    assert sorted(edited.change(source.state).prototypes) == [1, 2, 3, 4]


def test_deleting_uses_all_prototypes_of_merged_labels():
    """A label of two colours takes what has either; the mean of both is like neither."""
    start = np.where(QUADRANTS == 4, 1, QUADRANTS)
    start[16:, 24:] = 5
    source = source_of(start)
    points = {
        1: np.concatenate([IMAGE[:16, :16].mean((0, 1))[None], IMAGE[16:, 16:].mean((0, 1))[None]])
        / 255
    }
    state = source.state.with_prototypes(points)
    result = run(edit(delete, source, 5, state=state))
    np.testing.assert_array_equal(result.labels, np.where(QUADRANTS == 4, 1, QUADRANTS))


def test_deleting_all_but_one_leaves_that_one():
    source = source_of(QUADRANTS)
    edited = edit(delete, source, 1, 2, 3)
    assert (edited.labels == 4).all()
    assert edited.run is None


def test_labels_painted_by_hand_get_prototypes_when_they_are_needed():
    source = source_of(QUADRANTS)
    state = source.state.without([2])
    edited = edit(delete, source, 3, state=state)
    found = edited.change(state).prototypes[2][0]
    np.testing.assert_allclose(found, IMAGE[QUADRANTS == 2].mean(axis=0) / 255, atol=0.03)


def test_refining_moves_wrong_pixels_leaves_locked_labels_as_they_are_and_the_rest():
    wrong = QUADRANTS.copy()
    wrong[4:10, 4:10] = 2  # in the block of label 1
    wrong[20:26, 20:26] = 3  # in the block of label 4
    wrong[26:30, 2:8] = 4  # in the block of label 3
    wrong[:2] = 0
    source = source_of(wrong)
    state = source.state.with_lock(3, True)
    result = run(edit(refine, source, state=state))
    assert (result.labels[4:10, 4:10] == 1).all()
    np.testing.assert_array_equal(result.labels == 3, wrong == 3)
    assert (result.labels[:2] == 0).all()
    free = (wrong != 3) & (QUADRANTS != 3)
    assert (result.labels == QUADRANTS)[2:][free[2:]].mean() > 0.95
    followed = state.after_run(np.arange(1, 5), result.prototypes)
    np.testing.assert_array_equal(followed.prototypes[3], state.prototypes[3])
    assert (followed.prototypes[2] != state.prototypes[2]).any()


@pytest.mark.parametrize(
    "method", [saf.SLK(n_clusters=3), saf.AssignmentFlow(prototypes=np.eye(3))]
)
@pytest.mark.parametrize("max_side", [None, 16])
def test_labels_of_any_method_and_size_are_refined(method, max_side):
    start = QUADRANTS + np.uint8(2)  # numbers that no run would give
    source = source_of(start, max_side=max_side)
    entry = source.layer.metadata["napari_saf"]
    problem = saf.Problem.from_image(
        IMAGE, window=3, max_side=max_side, features="intensity", weights="uniform"
    )
    entry["recipe"] = method.recipe(problem)
    result = run(edit(refine, source, state=LabelState()))
    assert (result.labels == start).mean() > 0.9
    assert set(np.unique(result.labels)) == {3, 4, 5, 6}


def test_a_slice_of_a_stack_is_edited_in_its_place():
    turned = QUADRANTS[::-1]
    viewer = ViewerModel()
    image = viewer.add_image(np.stack([IMAGE, IMAGE[::-1]]), rgb=True)
    metadata = result_of(IMAGE[::-1], turned)
    layer = viewer.add_labels(turned[None].copy(), metadata=metadata, translate=(1, 0, 0))
    result = run(edit(refine, LayerSource(layer), image=image.data))
    assert (result.labels == turned).mean() > 0.98
    live = EditedLayer(viewer, image, layer)
    live.write(np.full_like(turned, 9), turned == 2)
    np.testing.assert_array_equal(layer.data[0], np.where(turned == 2, 9, turned))
    live.finish(result)
    np.testing.assert_array_equal(layer.data[0], result.labels)
    viewer.layers.remove(layer)
    live.write(turned, turned > 0)
    np.testing.assert_array_equal(layer.data[0], result.labels)


def test_what_cannot_go_on_is_named():
    source = source_of(QUADRANTS)
    assert "choose the image" in EditTarget.of(source.layer, None).reason
    assert "recipe" in EditTarget.of(Labels(QUADRANTS), Image(IMAGE)).reason
    with pytest.raises(saf.InvalidInput, match="locked"):
        edit(refine, source, state=LabelState(locked=frozenset([1, 2, 3, 4])))
    with pytest.raises(saf.InvalidInput, match="two labels"):
        edit(refine, source_of(np.ones_like(QUADRANTS)))


@pytest.mark.parametrize(
    ("selected", "enabled"),
    [
        ((), {"refine", "save", "apply"}),
        ((1,), {"split", "delete", "refine", "save", "apply"}),
        ((1, 2), {"merge", "delete", "refine", "save", "apply"}),
        ((3,), {"refine", "save", "apply"}),
        ((1, 3), {"refine", "save", "apply"}),
    ],
)
def test_what_can_be_done_with_the_selected_labels(selected, enabled):
    source = source_of(QUADRANTS)
    source.state = source.state.with_lock(3, True)
    target = EditTarget.of(source.layer, Image(IMAGE, rgb=True))
    reasons = why_not(source, target, selected)
    assert {button for button, reason in reasons.items() if not reason} == enabled
    if 3 in selected:
        assert "locked" in reasons["delete"]


def test_what_can_be_done_without_an_image_without_pixels_and_without_labels():
    source = source_of(QUADRANTS)
    without_image = why_not(source, EditTarget.of(source.layer), (1,))
    assert [k for k, why in without_image.items() if not why] == ["delete", "save", "apply"]
    file = FileSource("file", prototype_set(source))
    of_file = why_not(file, None, (1, 2))
    assert [k for k, why in of_file.items() if not why] == ["merge", "delete", "save", "apply"]
    assert "no pixels" in of_file["refine"]
    assert all(why_not(None, None, ()).values())
    source.layer.data.flags.writeable = False
    assert "memory" in why_not(source, None, (1, 2))["merge"]


def test_undo_keeps_within_its_memory():
    history = UndoHistory(most_bytes=300)
    source = LayerSource(None)
    noise = np.random.default_rng(0)
    for k in range(5):
        pixels = PackedArray.of(noise.integers(0, 255, (10, 10)).astype(np.uint8))
        history.push(UndoStep(str(k), source, pixels=pixels))
    assert history.n_bytes <= 300
    assert [step.name for step in history.past] == ["3", "4"]


def test_new_labels_take_the_first_free_number():
    assert free_number({1, 2, 4}, np.dtype(np.uint8)) == 3
    with pytest.raises(saf.InvalidInput, match="255"):
        free_number(range(1, 256), np.dtype(np.uint8))


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_pixels_are_counted_without_those_that_have_no_label(kind):
    labels = np.array([[0, 3, 3], [1, 0, 3]], dtype=kind)
    assert count_pixels(labels) == {1: 1, 3: 3}
    if kind is np.int64:
        assert count_pixels(labels - 1) == {2: 3}
        assert count_pixels(labels * 2**40) == {2**40: 1, 3 * 2**40: 3}
