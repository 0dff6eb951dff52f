"""Strokes on several images teach together."""

import numpy as np

import napari_saf as saf
from napari_saf.problem import ImageOptions
from napari_saf.project import fit_jointly

OPTIONS = ImageOptions(features="intensity", window=3, weights="uniform", max_side=None)


def image(*values):
    """Return columns of these grey values."""
    columns = np.repeat(np.array(values), 6)[None]
    noise = np.random.default_rng(0).normal(0, 0.01, (12, columns.shape[1]))
    return (np.repeat(columns, 12, axis=0) + noise).astype(np.float32)


def strokes(shape, **at):
    seeds = np.zeros(shape, np.uint8)
    for number, column in at.items():
        seeds[4:8, column] = int(number[1:])
    return seeds


def label(taught, other):
    return saf.Pipeline.from_prototypes(taught).run(other, rescale=False).labels


def test_classes_of_all_images_are_taught():
    """What no single image shows is labelled in another one, by its number."""
    first, second = image(0.1, 0.5), image(0.5, 0.9)
    seeds = [strokes(first.shape, n1=2, n4=8), strokes(second.shape, n4=2, n7=8)]
    taught = fit_jointly([first, second], seeds, saf.AssignmentFlow(), OPTIONS)
    found = label(taught, image(0.1, 0.5, 0.9))
    assert [*found[6, [2, 8, 14]]] == [1, 4, 7]


def test_images_with_the_same_classes_are_labelled_to_teach_with_all_pixels():
    """A brighter part of class 2, which the strokes did not touch, is taught all the same."""
    first, second = image(0.1, 0.6, 0.8), image(0.15, 0.7)
    seeds = [strokes(first.shape, n1=2, n2=8), strokes(second.shape, n1=2, n2=8)]
    taught = fit_jointly([first, second], seeds, saf.AssignmentFlow(), OPTIONS)
    own = taught.by_label()[2]
    scaling = taught.options.scaling
    values = own[:, 0] * (scaling.high - scaling.low) + scaling.low
    assert values.max() > 0.75
    assert [*label(taught, first)[6, [2, 8, 14]]] == [1, 2, 2]
