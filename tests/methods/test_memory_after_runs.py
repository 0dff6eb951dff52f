"""What a run worked with is gone as soon as its result is: nothing waits for a collection."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf.features import Scaling
from napari_saf.input import PLAIN

N_NODES = 12 * 13
FEW = {"max_iterations": 5}


def tensors():
    """Return all that are there."""
    with np.errstate(all="ignore"):
        return [o for o in gc.get_objects() if type(o) is torch.Tensor]


def large_fields():
    """Return the tensors with a row for each node."""
    return [tensor for tensor in tensors() if tensor.ndim and len(tensor) == N_NODES]


@pytest.fixture
def no_collection():
    """Nor are the objects of other tests looked through, which may be millions."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def problem():
    image = np.random.default_rng(0).random((12, 13, 3))
    seeds = np.zeros((12, 13), int)
    seeds[2, 2:5], seeds[9, 3:6] = 1, 2
    groups = np.tile([1, 2], N_NODES // 2).reshape(12, 13)
    return saf.Problem.from_image(image, seeds=seeds, groups=groups, **PLAIN)


def learning():
    return saf.PatchDictionaryLearning(n_atoms=3, patch_size=3)


@pytest.mark.parametrize("name", [*saf.METHODS, "dictionary"])
def test_a_run_frees_its_fields_at_its_end_and_where_it_is_left(name, problem, no_collection):
    method = learning() if name == "dictionary" else saf.METHODS[name]()
    if name == "dictionary":
        problem = saf.Problem.from_image(np.random.default_rng(0).random((12, 13)), **PLAIN)
    before = len(large_fields())
    result = method.run(problem, **FEW)
    steps = method.iterate(problem, **FEW)
    snapshot = next(steps)
    next(steps, None)
    del steps
    assert result.n_labels and snapshot.n_labels
    del result, snapshot
    assert len(large_fields()) == before


def test_a_dictionary_that_was_applied_leaves_nothing(no_collection):
    """Large images are worked off tile by tile, each with fields of its own."""
    atoms = np.random.default_rng(0).random((3, 5, 5, 1))
    dictionary = saf.PatchDictionary(
        atoms=atoms, usage=[1, 1, 1], scaling=Scaling(0, 1), distance=0.5
    )
    before = len(tensors())
    assert dictionary.apply(np.random.default_rng(1).random((30, 40))).labels.all()
    assert len(tensors()) == before
