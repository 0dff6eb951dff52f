import numpy as np
import pytest

from napari_saf import Problem, SelfAssignmentFlow
from napari_saf._gui.demo import fill
from napari_saf._gui.layers.metadata import is_result
from napari_saf._gui.layers.view import visibility_of
from napari_saf.io import ImageFile

pytestmark = [pytest.mark.gui, pytest.mark.automatic]


@pytest.mark.parametrize(
    ("shape", "scale"),
    [pytest.param((9, 10, 3), None, marks=pytest.mark.exhaustive), ((3, 9, 10), (2.0, 1.0, 1.0))],
)
def test_demo_shows_image_labels_and_dock(make_napari_viewer, shape, scale):
    array = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    problem = Problem.from_image(array)
    result = SelfAssignmentFlow(max_labels=3).run(problem, max_iterations=3)
    units = None if scale is None else ("µm",) * 3
    image = ImageFile(array, 2 if shape[-1] == 3 else None, "", scale, units)
    viewer = make_napari_viewer()
    fill(viewer, image, result, "sample")
    assert [layer.name for layer in viewer.layers] == ["sample", "sample [SAF]"]
    assert viewer.layers[0].rgb == (shape[-1] == 3)
    np.testing.assert_array_equal(viewer.layers[1].data, result.labels)
    np.testing.assert_array_equal(viewer.layers[1].scale, scale or (1.0, 1.0))
    assert is_result(viewer.layers[1])
    dock = viewer.window.dock_widgets["Segment (napari-saf)"]
    assert dock.input.scale.value is None
    visibility_of(viewer).hide_results(viewer.layers[0])
    assert not viewer.layers[1].visible
