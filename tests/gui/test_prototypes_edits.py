"""Edits of labels without a window: what they change, and what they leave."""

import numpy as np
import pytest
from gui_cases import blocks
from label_cases import QUADRANTS, result_of
from napari.components import ViewerModel
from napari.layers import Image, Labels

import napari_saf as saf
from napari_saf._gui.layers.live import EditedLayer
from napari_saf._gui.layers.reading import ProblemReader
from napari_saf._gui.prototypes.edits import Canvas, delete, merge, refine, split
from napari_saf._gui.prototypes.history import History, Moment, PackedLabels
from napari_saf._gui.prototypes.restart import count_pixels, free_number
from napari_saf._gui.prototypes.sheet import LayerBook, Sheet
from napari_saf.methods import not_cancelled

pytestmark = [pytest.mark.gui]

IMAGE = blocks()


def book_of(labels, image=IMAGE, **options):
    metadata = result_of(image, labels, **options)
    return LayerBook(Labels(labels.copy(), metadata=metadata))


def canvas_of(book, image=IMAGE):
    return Canvas.of(book.layer, Image(image, rgb=image.ndim == 3))


def run(edited):
    """Return the labels after the run that an edit asks for."""
    problem, numbers = edited.restart.begin(
        ProblemReader().read(edited.job, not_cancelled), edited.method
    )
    start = edited.restart.initial(problem, numbers, edited.method)
    return edited.restart.finish(edited.method.run(problem, start), numbers)


def test_merging_keeps_the_prototypes_of_both():
    book = book_of(QUADRANTS)
    points = book.sheet.points
    edited = merge(canvas_of(book), book.sheet.renamed(4, "grass"), [2, 4], not_cancelled)
    np.testing.assert_array_equal(edited.labels, np.where(QUADRANTS == 4, 2, QUADRANTS))
    np.testing.assert_array_equal(edited.where, QUADRANTS == 4)
    np.testing.assert_array_equal(edited.before.unpack(), QUADRANTS)
    book.sheet = edited.sheet
    again = book.sheet
    assert again.names == {2: "grass"}
    np.testing.assert_array_equal(again.points[2], np.concatenate([points[2], points[4]]))
    table = book.layer.metadata["napari_saf"]["prototypes"]
    np.testing.assert_allclose(table[1], (points[2][0] + points[4][0]) / 2, rtol=1e-6)
    assert len(table) == 3


def test_splitting_finds_what_a_label_is_made_of():
    start = np.where(QUADRANTS == 4, 1, QUADRANTS)
    book = book_of(start)
    edited = split(canvas_of(book), book.sheet, 1, ProblemReader(), not_cancelled)
    result = run(edited)
    np.testing.assert_array_equal(result.labels[start != 1], start[start != 1])
    found, truth = result.labels[start == 1], QUADRANTS[start == 1]
    assert max((found == truth).mean(), (5 - found == truth).mean()) > 0.98
    halves = {n: edited.sheet.points[n][0] for n in (1, 4)}
    for number, point in halves.items():
        own = IMAGE[edited.labels == number].mean(axis=0) / 255
        np.testing.assert_allclose(point, own, atol=0.03)


def test_deleting_gives_pixels_to_the_likeliest_labels():
    """Half of a block had a label of its own: without it the block is one again."""
    start = QUADRANTS.copy()
    start[16:, 24:] = 5
    book = book_of(start)
    edited = delete(canvas_of(book), book.sheet, [5], ProblemReader(), not_cancelled)
    result = run(edited)
    np.testing.assert_array_equal(result.labels, QUADRANTS)
    assert sorted(edited.sheet.points) == [1, 2, 3, 4]


def test_deleting_uses_all_prototypes_of_merged_labels():
    """A label of two colours takes what has either; the mean of both is like neither."""
    start = np.where(QUADRANTS == 4, 1, QUADRANTS)
    start[16:, 24:] = 5
    book = book_of(start)
    points = {
        1: np.concatenate([IMAGE[:16, :16].mean((0, 1))[None], IMAGE[16:, 16:].mean((0, 1))[None]])
        / 255
    }
    sheet = book.sheet.with_points({**book.sheet.points, **points})
    result = run(delete(canvas_of(book), sheet, [5], ProblemReader(), not_cancelled))
    np.testing.assert_array_equal(result.labels, np.where(QUADRANTS == 4, 1, QUADRANTS))


def test_deleting_all_but_one_leaves_that_one():
    book = book_of(QUADRANTS)
    edited = delete(canvas_of(book), book.sheet, [1, 2, 3], ProblemReader(), not_cancelled)
    assert (edited.labels == 4).all()
    assert edited.restart is None


def test_labels_painted_by_hand_get_prototypes_when_they_are_needed():
    book = book_of(QUADRANTS)
    sheet = book.sheet.without([2])
    edited = delete(canvas_of(book), sheet, [3], ProblemReader(), not_cancelled)
    np.testing.assert_allclose(
        edited.sheet.points[2][0], IMAGE[QUADRANTS == 2].mean(axis=0) / 255, atol=0.03
    )


def test_refining_moves_wrong_pixels_keeps_locked_ones_and_leaves_the_rest():
    wrong = QUADRANTS.copy()
    wrong[4:10, 4:10] = 2  # in the block of label 1
    wrong[20:26, 20:26] = 3  # in the block of label 4
    wrong[:2] = 0
    book = book_of(wrong)
    sheet = book.sheet.with_lock(3, True)
    result = run(refine(canvas_of(book), sheet, not_cancelled))
    assert (result.labels[4:10, 4:10] == 1).all()
    assert (result.labels[wrong == 3] == 3).all()
    assert (result.labels[:2] == 0).all()
    assert (result.labels == np.where(wrong == 3, 3, QUADRANTS))[2:].mean() > 0.95
    followed = sheet.followed(np.arange(1, 5), result.prototypes)
    np.testing.assert_array_equal(followed.points[3], sheet.points[3])
    assert (followed.points[2] != sheet.points[2]).any()


@pytest.mark.parametrize(
    "method", [saf.SLK(n_clusters=3), saf.AssignmentFlow(prototypes=np.eye(3))]
)
@pytest.mark.parametrize("max_side", [None, 16])
def test_labels_of_any_method_and_size_are_refined(method, max_side):
    start = QUADRANTS + np.uint8(2)  # numbers that no run would give
    book = book_of(start, max_side=max_side)
    entry = book.layer.metadata["napari_saf"]
    problem = saf.Problem.from_image(IMAGE, window=3, max_side=max_side)
    entry["recipe"] = method.recipe(problem)
    result = run(refine(canvas_of(book), Sheet(), not_cancelled))
    assert (result.labels == start).mean() > 0.9
    assert set(np.unique(result.labels)) == {3, 4, 5, 6}


def test_a_slice_of_a_stack_is_edited_in_its_place():
    turned = QUADRANTS[::-1]
    viewer = ViewerModel()
    image = viewer.add_image(np.stack([IMAGE, IMAGE[::-1]]), rgb=True)
    metadata = result_of(IMAGE[::-1], turned)
    layer = viewer.add_labels(turned[None].copy(), metadata=metadata, translate=(1, 0, 0))
    result = run(refine(Canvas.of(layer, image), LayerBook(layer).sheet, not_cancelled))
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
    book = book_of(QUADRANTS)
    assert "choose the image" in Canvas.of(book.layer, None).reason
    assert "recipe" in Canvas.of(Labels(QUADRANTS), Image(IMAGE)).reason
    with pytest.raises(saf.InvalidInput, match="locked"):
        refine(canvas_of(book), Sheet(locked=frozenset([1, 2, 3, 4])), not_cancelled)
    with pytest.raises(saf.InvalidInput, match="two labels"):
        refine(canvas_of(book_of(np.ones_like(QUADRANTS))), Sheet(), not_cancelled)


def test_undo_keeps_within_its_memory():
    history, book = History(most_bytes=300), LayerBook(None)
    noise = np.random.default_rng(0)
    for k in range(5):
        pixels = PackedLabels.of(noise.integers(0, 255, (10, 10)).astype(np.uint8))
        history.push(Moment(str(k), book, pixels=pixels))
    assert history.n_bytes <= 300
    assert [moment.words for moment in history.past] == ["3", "4"]


def test_packed_labels_come_back():
    labels = np.random.default_rng(0).integers(0, 9, (7, 5)).astype(np.int32)[::2]
    again = PackedLabels.of(labels).unpack()
    np.testing.assert_array_equal(again, labels)
    assert again.dtype == labels.dtype


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
