"""Strokes as prototypes of the assignment flow."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.device import interruptible
from napari_saf.input import PLAIN


def problem_of(image, strokes):
    return saf.Problem.from_image(image, seeds=strokes, **PLAIN)


def labels_of(image, strokes, **parameters):
    return saf.AssignmentFlow(**parameters).run(problem_of(image, strokes)).labels


def scene():
    """Return an image and strokes: class 1 is black and white, class 2 is grey."""
    image = np.full((12, 36), 0.5)
    image[:, :12], image[:, 24:] = 0.0, 1.0
    image += np.random.default_rng(0).normal(0, 0.02, image.shape)
    strokes = np.zeros(image.shape, dtype=int)
    strokes[3:6, 3], strokes[3:6, 32], strokes[3:6, 18] = 1, 1, 2
    truth = np.ones(image.shape, dtype=int)
    truth[:, 12:24] = 2
    return image, strokes, truth


def test_a_class_of_two_colours_needs_more_than_their_mean():
    image, strokes, truth = scene()
    by_strokes, by_means = (labels_of(image, strokes, n_nearest=k) for k in (3, None))
    assert (by_strokes == truth).mean() > 0.97
    assert (by_means == truth).mean() < 0.9


def test_noise_makes_no_isolated_pixels_where_contrast_counts():
    """A step of 0.3 in noise of 0.12, strokes on both sides."""
    image = np.full((120, 160), 0.35)
    image[:, 80:] += 0.3
    image += np.random.default_rng(0).normal(0, 0.12, image.shape)
    strokes = np.zeros(image.shape, dtype=int)
    strokes[30:90, 30:33], strokes[30:90, 120:123] = 1, 2
    problem = saf.Problem.from_image(
        image, window=5, weights="contrast", seeds=strokes, features="intensity", max_side=None
    )
    labels = saf.AssignmentFlow().run(problem).labels
    regions = saf.number_regions(labels)
    assert np.bincount(regions.ravel())[1:].min() > 1
    assert (labels == np.where(np.arange(160) < 80, 1, 2)).mean() >= 0.995


def test_a_stroke_more_or_less_gives_the_labels_of_a_problem_that_is_new():
    image, strokes, _ = scene()
    rng = np.random.default_rng(0)
    image = image + rng.normal(0, 0.2, image.shape)
    grown = np.where(rng.random(strokes.shape) < 0.05, 1 + (image > image.mean()), strokes)
    problem = problem_of(image, strokes)
    for seeds in (strokes, grown, strokes):
        labels = saf.AssignmentFlow().run(problem.with_seeds(seeds)).labels
        anew = saf.AssignmentFlow().run(saf.Problem.from_image(image, seeds=seeds, **PLAIN)).labels
        np.testing.assert_array_equal(labels, anew)
    np.testing.assert_array_equal(problem.with_seeds(grown.ravel()).seeds, grown.ravel())
    with pytest.raises(saf.InvalidInput, match="seeds"):
        problem.with_seeds(grown[:5])


def test_only_regions_that_a_stroke_touches_stay_if_that_is_asked():
    image = np.zeros((20, 30))
    image[4:10, 4:10] = image[4:10, 20:26] = 1
    strokes = np.zeros(image.shape, dtype=int)
    strokes[6, 5:8], strokes[15, 3:12] = 1, 2
    every, one = (labels_of(image, strokes, connected=joined) for joined in (False, True))
    assert every[6, 22] == 1
    assert one[6, 22] == 2
    assert one[6, 6] == 1
    np.testing.assert_array_equal(one[:, :14], every[:, :14])


def test_regions_are_looked_for_in_each_image_and_within_the_mask():
    image = np.zeros((10, 12))
    image[2:5, 2:5] = 1
    strokes, none = np.zeros(image.shape, dtype=int), np.zeros(image.shape, dtype=int)
    strokes[3, 2:5], strokes[8, 2:5] = 1, 2
    none[8, 2:5] = 2
    mask = np.ones(image.shape, dtype=bool)
    mask[:, 9:] = False
    problem = saf.Problem.from_images(
        [image, image], seeds=[strokes, none], masks=[mask, mask], **PLAIN
    )
    first, second = saf.AssignmentFlow(connected=True).run(problem).labels
    assert first[3, 3] == 1
    assert (second[mask] == 2).all()
    assert not first[~mask].any()


def two_blobs():
    """Return an image of two bright squares on a dark ground and strokes on one of them."""
    image = np.random.default_rng(0).normal(0, 0.02, (30, 60))
    image[8:20, 5:20] += 1
    image[8:20, 40:55] += 1
    strokes = np.zeros(image.shape, dtype=int)
    strokes[14, 8:16], strokes[25, 5:55] = 1, 2
    return image, strokes


def test_classes_learn_from_what_they_were_given():
    rng = np.random.default_rng(0)
    image = rng.normal(0, 0.03, (30, 60))
    image[:, 20:] += 0.5  # an object of two colours, the second near to none of the strokes
    image[:, 40:] += 0.5
    strokes = np.zeros(image.shape, dtype=int)
    strokes[10:20, 5], strokes[10:20, 30] = 2, 1
    problem = problem_of(image, strokes)
    first = saf.AssignmentFlow(rounds=0).run(problem)
    last = saf.AssignmentFlow(rounds=5).run(problem)
    assert (last.labels[:, 20:] == 1).mean() >= (first.labels[:, 20:] == 1).mean() > 0.9
    assert len(last.history) > len(first.history)
    assert (np.diff(last.history.time) >= 0).all()
    assert last.history.n_evaluations[-1] == last.n_evaluations


def test_classes_that_learn_nearby_follow_a_slow_change_of_brightness():
    rows, columns = np.indices((96, 96))
    truth = ((rows - 4) % 16 < 7) & ((columns - 4) % 16 < 7)
    noise = np.random.default_rng(0).normal(0, 0.02, truth.shape)
    image = 0.4 * truth + np.linspace(0, 0.3, 96) + noise
    strokes = np.zeros(truth.shape, dtype=int)
    strokes[7, 5:10], strokes[1, 2:30] = 1, 2  # at the dark end
    problem = saf.Problem.from_image(
        image, seeds=strokes, features="intensity", window=5, weights="contrast", max_side=None
    )

    def share_right(**parameters):
        labels = saf.AssignmentFlow(paths=0, **parameters).run(problem).labels
        return ((labels == 1) == truth).mean()

    assert share_right(nearby=8) > 0.97
    assert share_right(nearby=0) < 0.9
    assert share_right(nearby=0, rounds=0) < 0.9


def test_labels_stay_where_a_run_is_stopped_while_classes_learn_nearby():
    image, strokes, _ = scene()
    problem, stops = problem_of(image, strokes), []
    steps = saf.AssignmentFlow(rounds=1, nearby=8).iterate(problem)
    with interruptible(lambda: bool(stops)):
        try:
            while True:
                stops += [1] * (next(steps).fraction >= 0.5)  # the first of two flows has ended
        except StopIteration as end:
            result = end.value
    assert result.status is saf.Status.CANCELLED
    first = saf.AssignmentFlow(rounds=0).run(problem)
    np.testing.assert_array_equal(result.labels, first.labels)


def test_paths_tell_two_like_regions_apart():
    image, strokes = two_blobs()
    alike, near = (labels_of(image, strokes, paths=paths, rounds=0) for paths in (0, 10))
    assert alike[14, 47] == 1
    assert near[14, 47] == 2
    assert alike[14, 12] == near[14, 12] == 1


def test_the_unit_of_the_features_does_not_matter():
    image, strokes = two_blobs()
    features = np.stack([image, image**2], axis=-1)
    left = saf.Problem.from_image(
        image, features=features, seeds=strokes, weights="uniform", max_side=None
    )
    right = saf.Problem.from_image(
        image, features=100 * features, seeds=strokes, weights="uniform", max_side=None
    )
    labels = [saf.AssignmentFlow().run(problem).labels for problem in (left, right)]
    assert (labels[0] == labels[1]).mean() > 0.99


def test_an_assignment_to_start_from_is_learned_from():
    image, strokes = two_blobs()
    problem = problem_of(image, strokes)
    whole = saf.AssignmentFlow(rounds=8).run(problem)
    warm = saf.AssignmentFlow(rounds=8).run(problem, whole.assignment)
    assert (warm.labels == whole.labels).mean() > 0.99
    assert warm.n_evaluations < whole.n_evaluations
    with pytest.raises(saf.InvalidInput, match="initial"):
        saf.AssignmentFlow().run(problem, whole.assignment[:, :1])


def test_images_without_strokes_are_taught_by_the_others():
    image, strokes = two_blobs()
    none = np.zeros_like(strokes)
    problem = saf.Problem.from_images([image, image], seeds=[strokes, none], **PLAIN)
    first, second = saf.AssignmentFlow(paths=0.5).run(problem).labels
    assert first[14, 12] == second[14, 12] == second[14, 47] == 1
    assert second[25, 30] == 2


def test_volumes_networks_and_many_classes():
    rng = np.random.default_rng(0)
    volume = rng.normal(0, 0.02, (6, 10, 12))
    volume[:, :, 6:] += 1
    strokes = np.zeros(volume.shape, dtype=int)
    strokes[2, 5, 2], strokes[3, 5, 9] = 1, 2
    labels = saf.AssignmentFlow().run(saf.Problem.from_image(volume, seeds=strokes, **PLAIN)).labels
    assert (labels[:, :, :6] == 1).all()
    assert (labels[:, :, 6:] == 2).all()
    points = np.repeat(np.arange(5.0), 20)[:, None] + rng.normal(0, 0.05, (100, 1))
    seeds = np.zeros(100, dtype=int)
    seeds[::20] = np.arange(1, 6)
    graph = saf.AffinityGraph.k_nearest(points, 3, symmetrise=True)
    nearby = saf.AssignmentFlow(nearby=8)  # on a graph that is no image: learns from all of it
    found = nearby.run(saf.Problem(points, graph, seeds=seeds)).labels
    np.testing.assert_array_equal(found, np.repeat(np.arange(1, 6), 20))


def rooms():
    """Return three rooms of one noisy colour between bright walls, and strokes in the outer two."""
    image = np.random.default_rng(0).normal(0.4, 0.02, (30, 90))
    image[:, 29:31] = image[:, 59:61] = 1.0
    strokes = np.zeros(image.shape, dtype=int)
    strokes[14:17, 10:13], strokes[14:17, 78:81] = 1, 2
    return image, strokes


def test_a_correction_holds_up_to_the_edges_around_it():
    label, (image, strokes) = 2, rooms()
    problem = problem_of(image, strokes)
    flow = saf.AssignmentFlow(connected=True)
    before = flow.run(problem).labels
    strokes[14:17, 43:46] = label
    after = flow.run(problem.with_seeds(strokes)).labels
    assert (after[2:-2, 33:57] == label).all()
    for far in (np.s_[:, :27], np.s_[:, 63:]):
        np.testing.assert_array_equal(after[far], before[far])


def test_a_correction_of_labels_changes_what_is_near_and_alike_and_no_more():
    image = np.random.default_rng(0).normal(0.4, 0.02, (40, 120))
    strokes = np.zeros(image.shape, int)
    strokes[18:21, 5:8], strokes[18:21, 112:115] = 1, 2
    problem, flow = problem_of(image, strokes), saf.AssignmentFlow()
    labels = np.ones(image.shape, int)
    labels[:, 50:] = 2  # of the same colour
    before = np.eye(2)[labels.ravel() - 1] * 0.8 + 0.1
    same = flow.run(problem, before).labels
    strokes[18:21, 55:58] = 1
    painted = problem.with_seeds(strokes)
    after = flow.run(painted, before).labels
    assert (after[18:21, 52:60] == 1).all()
    far = np.s_[:, 90:]
    np.testing.assert_array_equal(same[far], labels[far])
    np.testing.assert_array_equal(after[far], labels[far])
    np.testing.assert_array_equal(after[:, :40], labels[:, :40])
    assert (flow.run(painted).labels[far] == labels[far]).mean() < 1  # without them it goes farther


def test_the_order_of_strokes_does_not_matter():
    image, strokes = rooms()
    spots = [((5, 20), 1), ((14, 44), 1), ((24, 70), 2), ((6, 86), 2)]
    found = []
    for order in (spots, spots[::-1]):
        painted = strokes.copy()
        problem = saf.Problem.from_image(image, **PLAIN)
        for (row, column), label in order:
            painted[row : row + 3, column : column + 3] = label
            result = saf.AssignmentFlow(connected=True).run(problem.with_seeds(painted))
        found.append(result.labels)
    np.testing.assert_array_equal(*found)


def test_a_stroke_on_another_part_of_a_class_adds_it():
    rows, columns = np.indices((96, 96))
    inside = np.hypot(rows - 48, columns - 48) < 32
    image = np.full((96, 96, 3), (0.25, 0.35, 0.8))
    image[inside & (columns < 48)] = (0.2, 0.7, 0.3)
    image[inside & (columns >= 48)] = (0.5, 0.35, 0.75)
    image = (image + np.random.default_rng(0).normal(0, 0.04, image.shape)).clip(0, 1)
    strokes = np.zeros(inside.shape, int)
    strokes[30:66, 24:27], strokes[8, 12:84], strokes[36:60, 63:66] = 1, 2, 1
    choice = saf.choose_for_strokes(image, strokes)
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    assert ((choice.method.run(problem).labels == 1) == inside).mean() > 0.99


def test_the_share_of_uncertain_nodes_counts_each_label_alike():
    image = np.kron([[0.1, 0.9]], np.ones((16, 16)))
    image[:, 20:22] = 0.5  # between both, in the part of the second label
    taught = saf.PrototypeSet.from_points({1: np.array([[0.1]]), 2: np.array([[0.9]])})
    problem = saf.Problem.from_image(image, features="intensity", window=1, scaling=(0, 1))
    result = saf.AssignmentFlow(**taught.arguments()).run(problem)
    uncertain = result.uncertainty >= 0.25
    labels = problem.graph.gather(np.asarray(result.labels))
    shares = [uncertain[labels == number].mean() for number in (1, 2)]
    assert result.uncertain_share() == pytest.approx(np.mean(shares)) and 0 < np.mean(shares) < 1
    assert result.uncertain_share(slice(0, 16)) == 0
