"""Where nodes are in their images."""

import numpy as np
import pytest

import napari_saf as saf


def test_nodes_of_several_images_are_found_in_them():
    rng = np.random.default_rng(0)
    images, masks = [rng.random((6, 7)), rng.random((5, 4))], [rng.random((6, 7)) < 0.6, None]
    graph = saf.Problem.from_images(images, masks=masks).graph
    nodes = rng.permutation(graph.n_nodes)
    numbers, places = graph.positions(nodes)
    for number, grid in enumerate(graph.grids):
        own = numbers == number
        start = graph.slices[number].start
        np.testing.assert_array_equal(places[own], grid.positions(nodes[own] - start))
        assert own.sum() == grid.n_nodes
    values = graph.to_image(np.arange(graph.n_nodes))
    found = [values[k][tuple(place)] for k, place in zip(numbers, places, strict=True)]
    np.testing.assert_array_equal(found, nodes)


def test_images_of_differing_axes_have_no_common_positions():
    problem = saf.Problem.from_images([np.random.rand(5, 6), np.random.rand(5, 6, 7)])
    with pytest.raises(saf.InvalidInput, match="axes"):
        problem.graph.positions([0])


@pytest.mark.parametrize("nodes", [[-1], [20], [0.5], ["a"], [2**64 - 1]])
def test_there_are_no_other_nodes(nodes):
    union = saf.Problem.from_images([np.random.rand(2, 5), np.random.rand(2, 5)], window=1).graph
    for graph in (saf.GridGraph((4, 5)), union):
        with pytest.raises(saf.InvalidInput, match="nodes"):
            graph.positions(nodes)
        graph.positions([])
