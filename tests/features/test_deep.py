"""Features of networks: tiny ones with random weights, from a file."""

import dataclasses
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.features import FEATURES, DeepFeatures, _deep, _network
from napari_saf.methods import AssignmentFlow
from napari_saf.pipeline import Pipeline

VIT, CONV = "test_vit", "test_resnet"
PLAIN = {"window": 3, "weights": "uniform", "max_side": None}


@pytest.fixture
def image():
    rng = np.random.default_rng(0)
    return rng.random((12, 12, 3)).repeat(16, 0).repeat(16, 1).astype(np.float32)


@pytest.fixture(params=[VIT, CONV])
def deep(request, weights):
    return DeepFeatures(request.param, str(weights(request.param)), n_components=8)


def deep_of(extractor, image):
    return extractor.features(image)[..., 3:]


def test_a_pixel_has_colour_and_components(deep, image, no_socket):
    found = deep.features(image[:90, :101])
    assert found.shape == (90, 101, 3 + 8)
    np.testing.assert_array_equal(found[..., :3], FEATURES["lab"]().features(image[:90, :101]))
    assert np.isfinite(found).all()
    # as much variance as a uniform variable in [0, 1]
    fitted = deep.fitted([(image, None, None)])
    assert 0.2 < 12 * deep_of(fitted, image).var(axis=(0, 1)).sum() < 1.1


@pytest.mark.parametrize("shape", [(40, 50), (40, 50, 2), (3, 40, 50)])
def test_grey_channels_and_stacks_have_features(deep, shape):
    values = np.random.default_rng(0).random(shape).astype(np.float32)
    is_stack = len(shape) == 3 and shape[0] == 3
    problem = saf.Problem.from_image(
        values,
        features=deep,
        channel_axis=2 if len(shape) == 3 and not is_stack else None,
        window=(1, 3, 3) if is_stack else 3,
        weights="uniform",
        max_side=None,
    )
    assert problem.features.shape == (6000 if is_stack else 2000, 10 if shape[-1] == 2 else 9)


SMALL = {
    "vit_small_patch14_dinov2": {"depth": 2, "embed_dim": 48, "num_heads": 3},
    "vit_small_patch16_dinov3": {"depth": 2, "embed_dim": 48, "num_heads": 3},
    "convnext_tiny": {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)},
    "vgg16": {"mlp_ratio": 1 / 512},
    "resnet50": {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16), "stem_width": 8},
}


@pytest.mark.parametrize("name", SMALL)
def test_every_family_that_is_offered_gives_features(
    name, timm, image, tmp_path, monkeypatch, no_socket
):
    """Of the architecture with fewer and thinner layers, weights of its head beside them."""
    from timm.models.vgg import cfgs

    make = timm.create_model
    thin = [one if one == "M" else one // 16 for one in cfgs["vgg16"]]
    monkeypatch.setitem(cfgs, "vgg16", thin)
    monkeypatch.setattr(
        timm, "create_model", lambda *a, **options: make(*a, **options, **SMALL[name])
    )
    _network._load.cache_clear()
    model = timm.create_model(name, pretrained=False)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "weights.safetensors")
    family = DeepFeatures(name, str(tmp_path / "weights.safetensors"), n_components=4)
    reductions = [info["reduction"] for info in model.feature_info]
    usual = family.network()
    assert usual.reductions == ((reductions[-1],) if "vit" in name else (8, 16))
    found = deep_of(family, image)
    assert found.shape == (192, 192, 4) and found.std(axis=(0, 1)).min() > 1e-4
    every = dataclasses.replace(family, layers=(0, -1)).network()
    assert every.layers == (0, len(reductions) - 1)
    _network._load.cache_clear()


def test_layers_that_are_chosen_are_those_of_the_network(deep, image):
    """Every layer by itself gives what it gives beside another one."""
    both = dataclasses.replace(deep, layers=(1, 2), window=96, step=64)
    raw = {}
    for layers in ((1,), (2,), (1, 2)):
        own = dataclasses.replace(both, layers=layers)
        raw[layers] = own._raw(image[None], own.network())
    sizes = [raw[layers].shape[-1] for layers in ((1,), (2,))]
    assert raw[1, 2].shape[-1] == sum(sizes)
    np.testing.assert_allclose(raw[1, 2][..., : sizes[0]], raw[1,], atol=1e-4)
    assert np.abs(raw[1, 2][..., : sizes[0]] - raw[1, 2][..., -sizes[0] :]).mean() > 1e-3


def test_features_shift_with_the_image_by_one_patch(weights):
    """A window for each patch, so that each sees the same whatever lies farther away."""
    scene = np.random.default_rng(1).random((176, 176, 3)).astype(np.float32)
    deep = DeepFeatures(VIT, str(weights(VIT)), n_components=4, window=80, step=16)
    fitted = deep.fitted([(scene, None, None)])
    before, after = deep_of(fitted, scene[:160]), deep_of(fitted, scene[16:])
    np.testing.assert_allclose(before[64:96, 48:128], after[48:80, 48:128], atol=1e-4)


def test_a_part_at_a_multiple_of_the_stride_has_the_features_of_the_whole(weights):
    scene = np.random.default_rng(1).random((336, 200, 3)).astype(np.float32)
    for name in (VIT, CONV):
        deep = DeepFeatures(name, str(weights(name)), n_components=4, window=96, step=32)
        fitted = deep.fitted([(scene, None, None)])
        reach, first = fitted.receptive_field, 2 * fitted.stride
        part = deep_of(fitted, scene[first : first + 2 * reach + 40])
        whole = deep_of(fitted, scene)[first : first + 2 * reach + 40]
        np.testing.assert_allclose(part[reach:-reach], whole[reach:-reach], atol=1e-4)


def test_tiles_have_the_labels_of_the_whole(deep, tmp_path):
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, (4, 5)).repeat(32, 0).repeat(32, 1)
    image = np.where(kinds, 200, 60)[..., None] + rng.normal(0, 10, (*kinds.shape, 3))
    deep = dataclasses.replace(deep, window=96, step=32)
    problem = saf.Problem.from_image(image, features=deep, seeds=kinds + 1, **PLAIN)
    taught = saf.PrototypeSet.fit(problem, kinds + 1)
    found = saf.label_large(image, taught, tmp_path / "m.ome.zarr", tile=96)
    whole = saf.Pipeline.from_prototypes(taught).run(image).labels
    assert (found.labels[:] == whole).mean() > 0.999


def test_a_recipe_holds_what_was_learned_and_no_path(deep, image, tmp_path, no_socket):
    result = AssignmentFlow().run(
        saf.Problem.from_image(image, features=deep, seeds=_strokes(image), **PLAIN)
    )
    saf.save_recipe(tmp_path / "recipe.json", result.recipe)
    text = (tmp_path / "recipe.json").read_text()
    assert str(tmp_path.parent) not in text and deep.weights_file not in text
    recipe = saf.load_recipe(tmp_path / "recipe.json")
    found = recipe.options.features
    assert found.architecture == deep.architecture and found.layers and found.basis
    assert len(found.sha256) == 64 and found.weights_file == f"{deep.architecture}.safetensors"
    # the file is found by its hash, where it was last
    again = recipe.run(image, seeds=_strokes(image), rescale=False)
    np.testing.assert_array_equal(again.labels, result.labels)


def test_a_recipe_leads_to_no_file_elsewhere(deep, image):
    raw = saf.SLK(n_clusters=2).run(saf.Problem.from_image(image, features=deep, **PLAIN)).recipe
    for place in ("/etc/", "../../", "C:\\\\evil\\\\", ""):
        raw["input"]["features"]["weights_file"] = f"{place}passwd.safetensors"
        assert Pipeline.from_plain(raw).options.features.weights_file == "passwd.safetensors"


def _strokes(image):
    strokes = np.zeros(image.shape[:2], int)
    strokes[4:20, 4:20], strokes[100:120, 100:140] = 1, 2
    return strokes


def test_weights_that_nobody_named_here_are_asked_for(deep, image, tmp_path):
    fitted = deep.fitted([(image, None, None)])
    lost = dataclasses.replace(fitted, weights_file="lost.safetensors", sha256="0" * 64)
    with pytest.raises(saf.InvalidInput, match=r"lost\.safetensors; expected weights.*000000"):
        lost.features(image)
    with pytest.raises(saf.InvalidInput, match="weights_file: choose a file"):
        saf.Problem.from_image(image, features="deep")


def test_the_cache_gives_the_same_and_spares_the_network(deep, image, monkeypatch):
    first = deep.features(image)
    monkeypatch.setattr(DeepFeatures, "_raw", None)
    np.testing.assert_array_equal(deep.features(image), first)
    fitted = deep.fitted([(image, None, None)])
    np.testing.assert_array_equal(fitted.features(image), first)
    with pytest.raises(TypeError):
        fitted.features(image[::-1].copy())


def test_what_is_kept_and_damaged_is_computed_again(deep, image):
    first = deep.features(image)
    for path in _deep.cache_folder().rglob("c/*"):
        if path.is_file():
            path.write_bytes(b"none such")
    np.testing.assert_array_equal(deep.features(image), first)


def test_the_cache_lets_go_of_what_was_longest_unused(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(_deep, "MOST_BYTES", 100_000)
    arrays = {f"{k}": rng.random(8000).astype(np.float32) for k in range(4)}
    for number, (key, array) in enumerate(arrays.items()):
        _deep.keep_array(key, array)
        _touch(key, number)
        if key == "1":
            _touch("0", 10)
    there = [key for key in arrays if _deep.find_array(key) is not None]
    assert "0" in there and "1" not in there and "3" in there


def _touch(key, time):
    import os

    os.utime(_deep.cache_folder() / f"{key}.zarr", (time, time))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf-hub:timm/vit_small_patch14_dinov2", "architecture: expected a name in timm"),
        ("../test_vit", "architecture: expected a name in timm"),
    ],
)
def test_other_architectures_are_refused(name, words, weights, image, no_socket):
    with pytest.raises(saf.InvalidInput, match=words):
        DeepFeatures(name, str(weights(VIT))).features(image)


def test_layers_that_are_not_there_are_refused(weights, image):
    with pytest.raises(saf.InvalidInput, match="layers: expected numbers from 0 to 5, got 9"):
        DeepFeatures(VIT, str(weights(VIT)), layers=(9,)).features(image)


def _refused(path, image, words, architecture=VIT, layers=None):
    with pytest.raises(saf.FormatError, match=words) as caught:
        DeepFeatures(architecture, str(path), layers=layers).features(image)
    assert str(path) in str(caught.value)


def test_weights_of_another_architecture_are_refused(weights, image):
    _refused(weights(CONV), image, "expected weights of test_vit")
    _refused(weights(VIT), image, "expected weights of test_resnet", CONV)


def _without(file, part, path):
    """Save the weights of a file but for those whose names have a part."""
    state = safetensors.torch.load_file(file)
    safetensors.torch.save_file({k: v for k, v in state.items() if part not in k}, path)
    return path


@pytest.mark.parametrize("architecture", [VIT, CONV])
def test_weights_of_layers_that_are_not_used_may_be_missing(architecture, weights, image, tmp_path):
    file = weights(architecture)
    last = {VIT: "blocks.5.", CONV: "layer4."}[architecture]
    less = _without(file, last, tmp_path / "less.safetensors")
    whole, part = (DeepFeatures(architecture, str(path), layers=(1, 2)) for path in (file, less))
    np.testing.assert_array_equal(part.features(image), whole.features(image))
    _refused(less, image, f"lacks '{last}", architecture, (2, -1))
    first = {VIT: "blocks.0.", CONV: "layer1."}[architecture]
    none = _without(less, first, tmp_path / "none.safetensors")
    _refused(none, image, f"lacks '{first}", architecture, (1, 2))


def test_vgg16_does_without_its_fully_connected_layers(weights):
    network = DeepFeatures("vgg16", str(weights("vgg16"))).network()
    assert network.reductions == (8, 16)
    assert not any("pre_logits" in name for name in network.model.state_dict())


def test_weights_of_another_shape_are_refused_by_name(weights, image, tmp_path):
    state = safetensors.torch.load_file(weights(VIT))
    name, path = "blocks.1.mlp.fc1.weight", tmp_path / "other.safetensors"
    safetensors.torch.save_file(state | {name: state[name][:5].clone()}, path)
    _refused(path, image, f"size mismatch for {name}")


class _Executed:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_pickle_is_refused_and_not_executed(timm, tmp_path, image, suffix):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(pickle.dumps(_Executed()))
    _refused(path, image, "pickle")
    torch.save({"a": torch.zeros(2)}, path)
    _refused(path, image, "pickle")


@pytest.mark.parametrize("n_bytes", [0, 3000])
def test_a_damaged_file_is_refused(weights, tmp_path, image, n_bytes):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(weights(VIT).read_bytes()[:n_bytes])
    _refused(path, image, "safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"basis": "no base64!"}, "basis"),
        ({"basis": _deep._encoded(np.zeros((3, 5), np.float32))}, "basis: expected components of"),
        ({"window": 64, "step": 20}, "step"),
        ({"layers": [0.5]}, "layers"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_a_recipe_that_was_changed_is_refused(weights, image, changes, words):
    fitted = DeepFeatures(VIT, str(weights(VIT))).fitted([(image, None, None)])
    plain = {"features": fitted.to_plain() | changes}
    with pytest.raises(saf.InvalidInput, match=words):
        recipe = {"schema": 1, "method": "saf", "input": plain}
        Pipeline.from_plain(recipe).problem(image)


def test_averages_are_those_of_the_features_and_need_no_network_again(deep, image, monkeypatch):
    fitted = deep.fitted([(image, None, None)])
    averaged = dataclasses.replace(fitted, around=4.0)
    assert averaged.receptive_field > fitted.receptive_field
    plain = fitted.features(image)[..., -8:]
    monkeypatch.setattr(DeepFeatures, "_raw", None)  # what is kept serves both
    found = averaged.features(image)
    n_patterns = FEATURES["patterns"]().features(image).shape[-1]
    assert found.shape[-1] == n_patterns + 8
    np.testing.assert_allclose(found[..., :n_patterns], FEATURES["patterns"]().features(image))
    means = gaussian_filter(plain, (4, 4, 0))
    inner = np.s_[16:-16, 16:-16]
    assert np.abs(found[..., -8:] - means)[inner].max() < 0.1 * np.abs(means).max()
