"""Strokes choose settings: for objects in one piece, or for many things that look alike."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.methods import stroke_choices


def dots(n_rows, side=96):
    """Return a grey image with rows of six dots, and strokes on one dot and on the ground."""
    image, strokes = np.zeros((side, side)), np.zeros((side, side), dtype=int)
    for row in range(4, 16 * n_rows, 16):
        for column in range(4, side, 16):
            image[row : row + 7, column : column + 7] = 1
    strokes[7, 5:10], strokes[1, 2:60] = 1, 2
    return image + np.random.default_rng(0).normal(0, 0.02, image.shape), strokes


def is_of_many(image, strokes, **options):
    return not saf.choose_for_strokes(image, strokes, **options).parameters["connected"]


def test_one_object_is_an_object_and_dots_are_many():
    image, strokes = dots(6)
    assert is_of_many(image, strokes)
    alone = image.copy()
    alone[:, 14:] = alone[14:, :] = image[:1, :1]
    assert not is_of_many(alone, strokes)


def test_strokes_on_all_things_leave_none_to_find():
    image, strokes = dots(1)
    for column in range(4, 96, 16):
        strokes[7, column + 1 : column + 6] = 1
    assert not is_of_many(image, strokes)


def test_a_second_stroke_on_a_thing_of_its_own_needs_fewer_others():
    image, strokes = dots(1)
    image[:, 62:] = image[:1, :1]  # four dots: three without a stroke
    assert not is_of_many(image, strokes)
    strokes[7, 21:26] = 1
    assert is_of_many(image, strokes)
    strokes[7, 9:22] = 1  # the two strokes are one
    assert not is_of_many(image, strokes)


def test_dots_that_stood_for_an_object_still_do():
    image = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((8, 8)))  # no ground
    strokes = np.zeros(image.shape, int)
    strokes[10:13, 2:5], strokes[2:5, 2:5] = 1, 2
    assert is_of_many(image, strokes)
    clicks = stroke_choices(1)["clicks"]
    assert clicks.corrects and not is_of_many(image, strokes, previous=clicks)
    assert is_of_many(image, strokes, previous=stroke_choices(1)["many"])


def test_strokes_that_correct_an_object_are_no_evidence_for_many_things():
    image, strokes = dots(4)
    strokes[15, 50:90], strokes[31, 50:90] = 2, 2
    strokes[7, 5:10], strokes[7, 53:58], strokes[80, 60:72] = 0, 1, 1  # the second like the ground
    assert is_of_many(image, strokes, previous=stroke_choices(1)["object"])
    image[:, :48] += 0.02 * np.arange(96)[:, None]  # without a uniform ground
    assert is_of_many(image, strokes)
    for name in ("object", "clicks", "many"):
        previous = stroke_choices(1)[name]
        assert is_of_many(image, strokes, previous=previous) is (name == "many")
    strokes[80], strokes[23, 53:58] = 0, 1
    assert is_of_many(image, strokes, previous=stroke_choices(1)["object"])


def test_where_things_merge_the_length_of_a_stroke_says_how_large_one_is():
    image, strokes = dots(1)
    image[20:60] = 1  # more than ten times as large as a dot
    strokes[:] = 0
    strokes[40, 5:16], strokes[70, 2:60] = 1, 2
    assert is_of_many(image, strokes)
    strokes[40, 5:60] = 1
    assert not is_of_many(image, strokes)
    strokes[40, 11:] = 0  # no longer than the window
    assert not is_of_many(image, strokes)


def test_the_choice_is_of_the_strokes_not_of_numbers_axes_or_brightness():
    image, strokes = dots(6)
    assert is_of_many(image, np.where(strokes > 0, 10 - strokes, 0))
    assert is_of_many(image.T, strokes.T)
    assert is_of_many(5 - 3 * image, strokes)


def test_what_is_outside_the_mask_does_not_count():
    image, strokes = dots(6)
    mask = np.zeros(image.shape, dtype=bool)
    mask[:14] = True
    strokes[7, :] = 0
    strokes[7, 5:10] = 1
    mask[:, 62:] = False  # four dots are left
    assert not is_of_many(image, strokes, mask=mask)


def test_things_on_a_ground_are_told_from_it_where_light_falls():
    image, strokes = dots(6)
    light = np.linspace(1, 0.3, image.shape[1])
    image = (0.1 + 0.6 * image) * light  # a dot in the dark is as the ground in the light
    colour = np.stack([image] * 3)
    choice = saf.choose_for_strokes(colour, strokes, channel_axis=0, scaling=(0, 1))
    assert choice.options.channel_axis == 0 and choice.options.features_name == "foreground"
    problem = saf.Problem.from_image(colour, seeds=strokes, **choice.options.arguments())
    result = choice.method.run(problem)
    assert ((result.labels == 1) == (image / light > 0.4)).mean() > 0.98
    recipe = result.recipe["parameters"]
    assert {name: recipe[name] for name in choice.parameters} == choice.parameters


def test_a_volume_is_not_worked_on_at_twice_the_side():
    flat, volume = stroke_choices(1, 2), stroke_choices(1, 3)
    for name in ("many", "object"):
        assert flat[name].options.max_side > volume[name].options.max_side
    image = np.random.default_rng(0).normal(0, 0.02, (6, 16, 16))
    image[2:4, 5:9, 5:9] += 1
    strokes = np.zeros(image.shape, dtype=int)
    strokes[3, 6:8, 6], strokes[0, 1, :8] = 1, 2
    assert not is_of_many(image, strokes)


def test_fine_texture_takes_the_place_of_edges_where_it_tells_more():
    rng = np.random.default_rng(0)
    rows, columns = np.indices((96, 96))
    is_fine = (rows // 24 + columns // 24) % 2 == 0
    fine, coarse = (gaussian_filter(rng.normal(size=is_fine.shape), s) for s in (0.5, 1.2))
    image = np.where(is_fine, fine / fine.std(), coarse / coarse.std())
    strokes = np.zeros(image.shape, dtype=int)
    for top, left in ((0, 0), (48, 0)):
        strokes[top + 12, left + 4 : left + 20] = 1
        strokes[top + 12, left + 28 : left + 44] = 2
    choice = saf.choose_for_strokes(image, strokes)
    assert choice.options.features == "patterns"


def test_texture_takes_the_place_of_colour_only_where_colour_does_not_tell():
    rng = np.random.default_rng(0)
    rough = dots(6)[0] > 0.5
    strokes = np.zeros(rough.shape, dtype=int)
    for row in (4, 52):
        strokes[row : row + 7, 5:10] = 1
        strokes[row - 4 : row - 1, 2:60] = 2
    smooth = gaussian_filter(rng.normal(size=rough.shape), 5)
    image = np.where(rough, rng.normal(size=rough.shape), smooth / smooth.std())
    for step, features in ((1, "multiscale"), (8, "local")):
        choice = saf.choose_for_strokes(image + step * rough, strokes)
        assert not choice.parameters["connected"]
        assert choice.options.features == features
        # With one stroke of a class none can be left out.
        single = np.where(np.indices(rough.shape)[0] < 40, strokes, 0)
        assert saf.choose_for_strokes(image + step * rough, single).options.features != "multiscale"


@pytest.fixture
def network(monkeypatch):
    """Return deep features that know the truth which a test gives them; no weights are read."""
    deep = saf.DeepFeatures("vgg16", "none.safetensors")

    def knows(truth):
        monkeypatch.setattr(saf.DeepFeatures, "fitted", lambda self, images: self)
        features = lambda self, image, axes=None, mask=None: truth[..., None].astype(np.float32)  # noqa: E731
        monkeypatch.setattr(saf.DeepFeatures, "features", features)
        monkeypatch.setattr(saf.DeepFeatures, "refined", lambda self, features, average: features)
        return deep

    return knows


def test_deep_features_are_chosen_only_where_they_tell_more_strokes(network):
    rng = np.random.default_rng(0)
    is_first = np.kron(np.indices((4, 4)).sum(axis=0) % 2 == 0, np.ones((24, 24))) > 0
    image = rng.normal(size=is_first.shape)  # nothing but a network tells the classes
    strokes = np.zeros(image.shape, dtype=int)
    for top, left in ((0, 0), (48, 0)):
        strokes[top + 12, left + 4 : left + 20] = 1
        strokes[top + 12, left + 28 : left + 44] = 2
    plain = saf.choose_for_strokes(image, strokes)
    choice = saf.choose_for_strokes(image, strokes, deep=network(is_first))
    assert choice.options.features_name == "deep" and choice.options.features.around > 0
    problem = saf.Problem.from_image(image, seeds=strokes, **choice.options.arguments())
    assert ((choice.method.run(problem).labels == 1) == is_first).mean() > 0.95
    useless = rng.normal(size=is_first.shape)
    assert saf.choose_for_strokes(image, strokes, deep=network(useless)) == plain
    # Where other features tell all strokes a network is not asked.
    told = saf.choose_for_strokes(image + 9 * is_first, strokes, deep=network(is_first))
    assert told.options.features_name != "deep"
