"""A result lies directly above its image, under its strokes, and no other image hides it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from gui_cases import blocks, stack

from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.dictionary.dock import DictionaryWidget
from napari_saf._gui.layers.metadata import METADATA_KEY, STROKES_KEY, is_strokes
from napari_saf._gui.layers.view import insert_above, visibility_of
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = pytest.mark.gui


def segment(open_on, model, settle, image):
    dock = open_on(model, SegmentWidget)
    dock.input.choose(image=image)
    dock.start()
    settle(dock)
    return dock


def compare(open_on, model, settle, image):
    dock = open_on(model, CompareWidget)
    dock.input.choose(image=image)
    for name, box in dock.choice.boxes.items():
        box.setChecked(name == "slk")
    dock.choice.rows[0].choose(None)
    dock.choice.rows[1].choose(None)
    dock.start()
    settle(dock)
    return dock


def scribble(open_on, model, settle, image):
    dock = open_on(model, ScribblesWidget)
    dock.input.choose(image=image, features="intensity")
    dock.automatic.setChecked(False)
    dock.follow.setChecked(False)
    dock.new_strokes()
    for rows, number in ((slice(2, 6), 1), (slice(22, 26), 2)):
        dock.strokes.layer.data[rows, 4:28] = number
    model.layers["above"].visible = True
    dock.start()
    settle(dock)
    return dock


def apply_dictionary(open_on, model, settle, image):
    dock = open_on(model, DictionaryWidget)
    options = {"n_atoms": 4, "patch_size": 3, "landmarks": 8, "refinements": 1, "n_samples": 200}
    dock.form.set_values(options)
    dock.images.choose([image])
    dock.start()
    settle(dock)
    model.layers["above"].visible = True
    dock.applying.image.choose(image)
    dock.applying.apply()
    settle(dock)
    return dock


WAYS = [segment, compare, scribble, apply_dictionary]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_results_of_all_docks_are_seen_on_their_image(open_on, model, settle, way):
    """Of an image that was hidden, between two others."""
    layers = [model.add_image(blocks(), name=name) for name in ("first", "target", "above")]
    target, above = layers[1:]
    target.visible = False
    dock = way(open_on, model, settle, target)
    order = list(model.layers)
    own = [one for one in order if of(one) == str(target.unique_id)]
    begin = order.index(target) + 1
    assert own and order[begin : begin + len(own)] == own
    assert target.visible and [one for one in own if one.visible]
    assert not above.visible
    assert "above is hidden: it covered target" in dock.status.text
    strokes = [is_strokes(one) for one in own]
    assert strokes == sorted(strokes)


def of(layer):
    """Return the id of the image of a layer, as it is stored."""
    entry = layer.metadata.get(METADATA_KEY, {})
    return entry.get("image", layer.metadata.get(STROKES_KEY))


@pytest.fixture
def add_result(model):
    """Add labels over an image as a dock does; return layer and note."""

    def add(image, shape=None):
        metadata = {METADATA_KEY: {"image": str(image.unique_id)}}
        shape = image.data.shape[:2] if shape is None else shape
        layer = model.add_labels(np.ones(shape, dtype=int), metadata=metadata)
        layer.translate = image.translate[-layer.ndim :]
        insert_above(model, layer, image)
        return layer, visibility_of(model).show_result(image, layer)

    return add


def test_with_an_image_come_the_results_that_were_hidden_with_it(model, add_result):
    lower, upper = (model.add_image(blocks(), name=name) for name in ("lower", "upper"))
    of_upper, _ = add_result(upper)
    of_lower, note = add_result(lower)
    assert list(model.layers) == [lower, of_lower, upper, of_upper]
    assert note == "upper is hidden: it covered lower"
    assert [layer.visible for layer in model.layers] == [True, True, False, False]
    upper.visible = True
    assert of_upper.visible
    of_upper.visible = upper.visible = False
    upper.visible = True
    assert not of_upper.visible  # a person hid it
    visibility_of(model).show_result(lower, of_lower)
    assert not upper.visible and of_lower.visible
    visibility_of(model).show_result(upper, of_upper)  # of its next run
    assert of_upper.visible and upper.visible
    visibility_of(model).show_result(lower, of_lower)
    pixels = weakref.ref(of_upper.data)
    model.layers.remove(of_upper)
    del of_upper
    gc.collect()
    assert pixels() is None  # not held once it is removed


def test_what_blends_or_lies_elsewhere_stays(model, add_result):
    """Colours of one picture are blended, tiles of a mosaic touch or overlap a little."""
    image = model.add_image(blocks(), name="tile")
    red = model.add_image(blocks()[..., 0], blending="additive")
    pale = model.add_image(blocks(), opacity=0.5)
    beside = model.add_image(blocks(), translate=(0, 32))
    overlapping = model.add_image(blocks(), name="next", translate=(28, 0))
    layer, note = add_result(image)
    assert list(model.layers)[:4] == [image, red, pale, layer]
    assert all(one.visible for one in (red, pale, beside, overlapping))
    assert note == f"next covers a part of {layer.name}"


def test_in_the_grid_and_in_three_dimensions_nothing_is_hidden(model, add_result):
    image, above = model.add_image(stack()), model.add_image(stack())
    model.canvas.grid.enabled = True
    assert not add_result(image, stack().shape)[1]
    model.canvas.grid.enabled = False
    model.dims.ndisplay = 3
    assert not add_result(image, stack().shape)[1]
    assert above.visible
    model.dims.ndisplay = 2
    assert add_result(image, stack().shape)[1] and not above.visible


def test_layers_of_an_image_stay_together_in_any_sequence(model):
    """From below: image, labels, computed images, points, strokes; the newest of a kind on top."""
    rng = np.random.default_rng(0)
    images = [model.add_image(blocks()) for _ in range(2)]
    added: dict[int, list] = {0: [], 1: []}
    for _ in range(12):
        which, kind = int(rng.integers(2)), int(rng.integers(4))
        image = images[which]
        key = {"image": str(image.unique_id)}
        metadata = {STROKES_KEY: key["image"]} if kind == 3 else {METADATA_KEY: key}
        if kind == 1:
            layer = model.add_image(blocks()[..., 0], metadata=metadata)
        elif kind == 2:
            layer = model.add_points(np.zeros((1, 2)), metadata=metadata)
        else:
            layer = model.add_labels(np.ones((32, 32), int), metadata=metadata)
        insert_above(model, layer, image)
        added[which].append((kind, layer))
    expected = []
    for which, image in enumerate(images):
        expected += [image, *(one for _, one in sorted(added[which], key=lambda pair: pair[0]))]
    assert list(model.layers) == expected
