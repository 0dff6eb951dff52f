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
    delete,
    free_number,
    merge,
    refine,
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


def test_merged_labels_keep_the_prototypes_of_both_which_deleting_uses():
    """A label of two colours takes what has either; the mean of both is like neither."""
    source = source_of(QUADRANTS)
    points = source.state.prototypes
    edited = edit(merge, source, 1, 4)
    np.testing.assert_array_equal(edited.labels, np.where(QUADRANTS == 4, 1, QUADRANTS))
    state = edited.change(source.state.renamed(4, "grass"))
    assert state.names == {1: "grass"}
    np.testing.assert_array_equal(state.prototypes[1], np.concatenate([points[1], points[4]]))

    start = edited.labels.copy()
    start[16:, 24:] = 5
    source = source_of(start)
    result = run(edit(delete, source, 5, state=source.state.with_prototypes(state.prototypes)))
    np.testing.assert_array_equal(result.labels, edited.labels)


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
    ("method", "max_side"),
    [(saf.SLK(n_clusters=3), 16), (saf.AssignmentFlow(prototypes=np.eye(3)), None)],
)
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


def test_what_can_be_done_without_an_image_without_pixels_and_without_labels():
    def possible(target, selected, source=None):
        return {key for key, why in why_not(source, target, selected).items() if not why}

    source = source_of(QUADRANTS)
    source.state = source.state.with_lock(3, True)
    target, always = EditTarget.of(source.layer, Image(IMAGE, rgb=True)), {"save", "apply"}
    assert possible(target, (1,), source) == {"split", "delete", "refine"} | always
    assert possible(target, (1, 2), source) == {"merge", "delete", "refine"} | always
    assert possible(target, (1, 3), source) == {"refine"} | always
    assert possible(EditTarget.of(source.layer), (1,), source) == {"delete"} | always
    file = FileSource("file", prototype_set(source))
    assert possible(None, (1, 2), file) == {"merge", "delete"} | always
    assert not possible(None, ())
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
