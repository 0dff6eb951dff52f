"""What regions measure is what scikit-image measures one by one."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import regionprops_table

from napari_saf.io._measures import euler_counts, measures_of, outline_lengths, region_sums

CASES = [
    ((60, 70), (1, 1)),
    ((50, 40), (0.5, 0.5)),
    ((60, 70), (2, 0.7)),
    ((12, 30, 30), (3, 1, 1)),
]


def whole_sums(regions, image):
    """The sums over one part, which is the whole."""
    sums, framed = region_sums(regions, image, [0] * regions.ndim), np.pad(regions, 1)
    if regions.ndim == 2:
        lengths = outline_lengths(regions).ravel()
        sums["perimeter"] = np.bincount(regions.ravel(), lengths)[sums["id"]]
    return sums | {"euler_number": euler_counts(framed, framed)[sums["id"]]}


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_measures_are_those_of_scikit_image(shape, spacing):
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.normal(size=shape), 1.5)
    regions = ndimage.label(smooth > 0.05)[0].astype(np.int64)
    regions[regions == 3] = 0  # numbers may have gaps
    regions[(0,) * len(shape)] = regions.max() + 5  # one pixel, at the corner
    image = (200 * rng.random((*shape, 2))).astype(np.float32)
    measured = measures_of(whole_sums(regions, image), spacing)
    names = {name.partition("-")[0] for name in measured}
    if len(set(spacing)) > 1 and len(shape) == 2:
        names.remove("perimeter")  # defined for square pixels
    expected = regionprops_table(regions, image, properties=names, spacing=spacing)
    for name in sorted({*expected} & {*measured}):
        if name == "orientation":  # of an ellipse, not of a circle; up to half a turn
            turn = np.sin(measured[name] - expected[name])
            assert np.abs(turn[measured["eccentricity"] > 1e-3]).max() < 1e-6
        else:
            np.testing.assert_allclose(
                measured[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name
            )
    assert len({*expected} & {*measured}) >= len(names) - 1


def test_a_region_with_nan_has_no_intensity_and_others_theirs():
    regions = np.repeat([1, 2, 3], 4)[:, None] * np.ones((1, 5), int)
    image = np.arange(60, dtype=np.float32).reshape(12, 5, 1)
    image[5, 2], image[9, 1] = np.nan, np.inf
    measured = measures_of(whole_sums(regions, image), (1, 1))
    for name, expected in (("min", [0, np.nan, 40]), ("max", [19, np.nan, np.inf])):
        np.testing.assert_array_equal(measured[f"intensity_{name}-0"], expected)
    np.testing.assert_array_equal(measured["intensity_mean-0"], [9.5, np.nan, np.inf])
