import numpy as np
import pytest

from napari_saf import Problem, SelfAssignmentFlow
from napari_saf._gui.demo import fill
from napari_saf._gui.layers.metadata import is_result
from napari_saf._gui.layers.view import visibility_of
from napari_saf.io import ImageFile

pytestmark = [pytest.mark.gui, pytest.mark.automatic]


def test_demo_shows_image_labels_and_dock(viewer):
    array = np.random.default_rng(0).integers(0, 255, (3, 9, 10), dtype=np.uint8)
    problem = Problem.from_image(array)
    result = SelfAssignmentFlow(max_labels=3).run(problem, max_iterations=3)
    image = ImageFile(array, None, "", (2.0, 1.0, 1.0), ("µm",) * 3)
    fill(viewer, image, result, "sample")
    assert [layer.name for layer in viewer.layers] == ["sample", "sample [SAF]"]
    np.testing.assert_array_equal(viewer.layers[1].data, result.labels)
    np.testing.assert_array_equal(viewer.layers[1].scale, (2, 1, 1))
    assert is_result(viewer.layers[1])
    dock = viewer.window.dock_widgets["Segment (napari-saf)"]
    assert dock.input.scale.value is None
    visibility_of(viewer).hide_results(viewer.layers[0])
    assert not viewer.layers[1].visible
