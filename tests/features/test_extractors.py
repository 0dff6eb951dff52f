"""The laws that every feature with a name keeps, and the way of one with parameters."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.features import FEATURES, FeatureExtractor, _image, extractor_of
from napari_saf.parameters import parameter
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions

FIXED = [name for name, cls in FEATURES.items() if cls.normalisation == "fixed" and name != "deep"]


@dataclasses.dataclass(frozen=True)
class Bands(FeatureExtractor):
    """Powers of brightness, less their mean over the images that were fitted."""

    name, title = "bands", "bands of brightness"
    n_bands: int = parameter(2, bounds=(1, 8), label="Bands", help="How many.")
    mean: float | None = parameter(None, label="Mean", in_form=False, help="Of the images.")

    def features(self, image, axes=None, mask=None):
        light = image.mean(axis=-1) - self.mean
        return np.stack([light**k for k in range(1, self.n_bands + 1)], axis=-1)

    def fitted(self, images):
        if self.mean is not None:
            return self
        means = [float(image.mean()) for image, _, _ in images]
        return dataclasses.replace(self, mean=sum(means) / len(means))


@pytest.fixture
def image():
    return np.random.default_rng(0).random((40, 44, 3)).astype(np.float32)


@pytest.mark.parametrize("name", FIXED)
def test_a_part_has_the_features_of_the_whole(name):
    extractor = FEATURES[name]()
    reach, stride = extractor.receptive_field, extractor.stride
    first = -(-8 // stride) * stride
    last = first + 2 * reach + 10
    image = np.random.default_rng(0).random((last + 6, last + 10, 3)).astype(np.float32)
    part = extractor.features(image[first:last, first:])
    whole = extractor.features(image)[first:last, first:]
    inner = slice(reach, len(part) - reach), slice(reach, None)
    assert part[inner].size
    np.testing.assert_allclose(part[inner], whole[inner], atol=1e-5)


@pytest.mark.parametrize("name", FEATURES)
def test_every_extractor_says_what_it_is_and_what_a_recipe_holds_of_it(name):
    extractor = FEATURES[name]()
    assert extractor.name == name and extractor.title
    assert extractor.receptive_field >= 0 and extractor.stride >= 1
    assert extractor.channels in (None, 3) and extractor.normalisation in ("fixed", "image")
    assert extractor_of(json.loads(json.dumps(extractor.to_plain()))) == extractor
    # an option that is not there is not lost on the way
    with pytest.raises(saf.InvalidInput, match="unknown entry 'more'"):
        extractor_of({"kind": name, "more": 1})


@pytest.mark.parametrize(
    "name", ["intensity", "texture", "local", "foreground", "patterns", "multiscale", "position"]
)
def test_named_features_take_any_number_of_channels_and_no_other_dtype_comes_out(name):
    for n_channels in (1, 2, 3, 5):
        image = np.random.default_rng(0).random((20, 24, n_channels)).astype(np.float32)
        found = FEATURES[name]().features(image)
        assert found.shape[:2] == (20, 24) and found.dtype == np.float32


def test_a_part_that_knows_its_place_has_the_positions_of_the_whole(image):
    extractor = FEATURES["position"]()
    part = extractor.placed((8, 5), image.shape[:-1]).features(image[8:, 5:])
    np.testing.assert_allclose(part, extractor.features(image)[8:, 5:], atol=1e-6)


@pytest.mark.parametrize("name", ["intensity", "lab", "texture", "local", "foreground", "patterns"])
def test_the_number_of_features_says_how_many_channels_there_were(name, image):
    extractor = FEATURES[name]()
    assert extractor.channels_of(extractor.features(image).shape[-1]) == 3


@pytest.mark.parametrize("name", ["intensity", "lab", "texture", "local", "patterns"])
def test_features_that_hold_a_colour_give_it_back(name):
    colour = np.array([[[0.9, 0.2, 0.1]]], np.float32)
    points = FEATURES[name]().features(colour)[0]
    np.testing.assert_allclose(FEATURES[name]().colours(points), colour[0], atol=1e-3)


def test_surroundings_see_no_slow_change_of_brightness_and_nothing_outside_a_mask():
    local = FEATURES["local"]()
    image = np.random.default_rng(0).random((300, 40, 1)).astype(np.float32)
    image[:, 20:] = image[:, 20:].mean()
    ramp = np.linspace(0, 1, 300, dtype=np.float32)[:, None, None]
    inner = slice(local.receptive_field, -local.receptive_field)
    found, beside_ramp = local.features(image), local.features(image + ramp)
    np.testing.assert_allclose(found[inner, :, 1:], beside_ramp[inner, :, 1:], atol=1e-4)
    mask = np.broadcast_to(np.arange(40) < 20, (300, 40))
    other = np.where(mask[..., None], image, 100)
    given = [local.features(one, mask=mask)[mask] for one in (image, other)]
    np.testing.assert_allclose(given[0], given[1], atol=1e-5)


@pytest.mark.parametrize("ground", ["dark", "bright", "paper"])
def test_the_ground_is_evened_out_and_has_its_colour(ground):
    foreground = FEATURES["foreground"](ground)
    side = 2 * foreground.receptive_field // 3
    light = np.linspace(0.0, 0.1, side, dtype=np.float32) + np.zeros((side, 1), np.float32)
    is_dark = ground == "dark"
    image = light if is_dark else 1 - light
    thing = slice(side // 2 - 5, side // 2 + 5)
    image[thing, thing] = 1 - image[thing, thing]
    for colours in (image[..., None], np.repeat(image[..., None], 3, axis=-1)):
        found = foreground.features(colours)
        away = np.abs(found[..., 0])
        assert away[thing, thing].min() > 0.5
        away[thing, thing] = 0
        assert away.max() < 0.1
        points = found.reshape(-1, found.shape[-1])[:9]
        np.testing.assert_allclose(foreground.colours(points), 0 if is_dark else 1, atol=0.1)


def test_colours_of_things_on_a_bright_ground_that_is_not_white():
    ground, thing = [0.8, 0.52, 0.1], [0.4, 0.22, 0.05]
    image = np.broadcast_to(np.float32(ground), (96, 96, 3)).copy()
    image[40:56, 40:56] = thing
    foreground = FEATURES["foreground"]("bright")
    points = foreground.features(image)[[4, 48], [4, 48]]
    np.testing.assert_allclose(foreground.colours(points), [ground, thing], atol=0.2)
    hues = [values / values.sum() for values in foreground.colours(points)]
    np.testing.assert_allclose(hues, [x / np.sum(x) for x in (ground, thing)], atol=0.05)


def patterns_of(image, **options):
    """Return the shares of local binary patterns, without colour and deviation."""
    return FEATURES["patterns"]().features(image, **options)[..., image.shape[-1] : -1] ** 2


def test_shares_of_patterns_sum_to_one_inside_a_mask(image):
    mask = np.zeros(image.shape[:2], bool)
    mask[5:30, 8:] = True
    for given in (None, mask):
        inside = slice(None) if given is None else mask
        shares = patterns_of(image, mask=given)[inside]
        np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-5)


def test_patterns_keep_their_shares_where_the_image_is_turned_or_of_other_contrast():
    levels = np.random.default_rng(0).integers(0, 16, (30, 24, 1)).astype(np.float32)
    found = patterns_of(levels / 15)
    turned = patterns_of(np.rot90(levels).copy() / 15)
    np.testing.assert_allclose(np.rot90(found), turned, atol=1e-4)
    np.testing.assert_allclose(found, patterns_of(levels / 30 + 0.25), atol=0.05)


def test_what_an_extractor_learned_goes_with_the_recipe(monkeypatch, image):
    monkeypatch.setitem(FEATURES, "bands", Bands)
    problem = saf.Problem.from_image(image, features=Bands(3), window=3, max_side=None)
    scaled = problem.options.scaling.apply(image)
    assert problem.options.features.mean == pytest.approx(scaled.mean())
    result = saf.SelfAssignmentFlow(max_labels=3).run(problem)
    plain = result.recipe["input"]["features"]
    assert plain == {"kind": "bands", "n_bands": 3, "mean": problem.options.features.mean}
    recipe = Pipeline.from_plain(result.recipe)
    np.testing.assert_array_equal(recipe.run(image).labels, result.labels)
    other = recipe.problem(image / 2, rescale=False)
    assert other.options.features == problem.options.features
    taught = saf.PrototypeSet.from_labels(problem, result.labels)
    assert saf.Pipeline.from_prototypes(taught).options.features == problem.options.features


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"kind": "bands", "n_bands": 0}, "input.n_bands: expected at least 1"),
        ({"kind": "bands", "n_bins": 3}, "input.features: unknown entry 'n_bins'"),
        ({"kind": "none such"}, "input.features: expected"),
        (["lab"], "input.features: expected"),
    ],
)
def test_a_recipe_with_other_features_is_refused_by_name(monkeypatch, features, words):
    monkeypatch.setitem(FEATURES, "bands", Bands)
    with pytest.raises(saf.InvalidInput, match=words):
        ImageOptions.from_plain({"features": features})


@pytest.mark.parametrize("width", [4.0, 32.0])
@pytest.mark.parametrize("lines", [1, 2**17])
def test_wide_means_are_about_gaussian_whatever_is_averaged_at_once(width, lines, monkeypatch):
    monkeypatch.setattr(_image, "_LINES", lines)
    image = np.random.default_rng(0).random((130, 97)).astype(np.float32)
    means = _image.average_around(image, width, None, None)(image)
    assert abs(means - gaussian_filter(image, width)).max() < 0.06 * np.ptp(means)
    rows = _image.average_around(image, width, [0], None)(image)
    assert np.allclose(
        rows[:, 5], _image.average_around(image[:, 5], width, None, None)(image[:, 5])
    )
