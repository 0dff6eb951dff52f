"""What is selected of an image gives a job, without a widget."""

import dataclasses

import numpy as np
import pytest
from gui_cases import blocks, stack
from napari.components import ViewerModel

import napari_saf as saf
from napari_saf._gui.forms.image_input import ImageSelection
from napari_saf.problem import ImageOptions

pytestmark = pytest.mark.gui


def select(image, options=None, **values):
    viewer = ViewerModel()
    layer = viewer.add_image(image)
    plain = options or ImageOptions(window=5, features="intensity", weights="uniform")
    return ImageSelection(viewer=viewer, image=layer, options=plain, **values)


def test_the_window_is_no_larger_than_the_image():
    for n_slices, extent, window in (
        (4, "volume", (3, 5, 5)),
        (2, "volume", (1, 5, 5)),
        (1, "volume", 5),
        (5, "volume", 5),
        (4, "each", (1, 5, 5)),
        (4, "slice", 5),
    ):
        selection = select(stack(n_slices), extent=extent)
        assert selection.job().options.window == window
        is_less = extent == "volume" and n_slices in (2, 4)
        assert ("scale along axis -3" in selection.scale_note()) == is_less


@pytest.mark.parametrize("extent", ["slice", "each", "volume"])
def test_a_job_reads_the_slices_that_are_selected_with_companions(extent):
    selection = select(stack(), extent=extent)
    viewer = selection.viewer
    viewer.dims.set_point(0, 3)
    strokes = viewer.add_labels(np.arange(5 * 256).reshape(5, 16, 16))
    mask = viewer.add_labels((stack() > 0.5).astype(int))
    job = dataclasses.replace(selection, strokes=strokes, mask=mask).job()
    at = 3 if extent == "slice" else slice(None)
    pairs = ((job.pixels, stack()), (job.seeds, strokes.data), (job.mask, mask.data))
    for pixels, array in pairs:
        np.testing.assert_array_equal(pixels.read(lambda: False), array[at])
    assert ("3 of 0 to 4" in selection.note(uses_window=False)) == (extent == "slice")


def test_channels_that_are_an_axis_of_a_stack():
    planes = np.moveaxis(blocks(), -1, 0)
    selection = select(planes, channel_axis=0, extent="slice")
    assert selection.axes == (1, 2) and selection.note(uses_window=False) == ""
    assert selection.job().options.channel_axis == 0
    assert "lab" in selection.feature_names
    assert "lab" not in select(planes).feature_names
    assert [source for _, source in selection.group_sources()] == [f"channel:{k}" for k in range(3)]


def test_whole_options_are_those_of_all_slices_and_what_is_automatic_is_said():
    selection = select(stack(), ImageOptions(), extent="slice")
    one, every = selection.job().options, selection.whole_options()
    assert isinstance(one.window, int) and every.window == (1, one.window, one.window)
    note = selection.automatic_note(uses_window=True)
    assert f"scale {one.window}" in note and "edges" in note
    assert "scale" not in selection.automatic_note(uses_window=False)


def test_no_image_is_refused():
    selection = ImageSelection(viewer=ViewerModel())
    assert selection.axes == () and selection.group_sources() == []
    with pytest.raises(saf.InvalidInput, match="no image"):
        selection.job()
