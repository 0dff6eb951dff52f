"""Memory does not grow with the number of atoms times the size of the image."""

import math

from napari_saf.dictionary._apply import _TILE_VALUES, _tiles


def test_tiles_cover_every_pixel_once_and_stay_small():
    for shape in [(10, 12), (700, 900), (4090, 4090)]:
        for n_atoms in (4, 20, 100):
            covered = 0
            for outer, core in _tiles(shape, 3, n_atoms, 7):
                rows, columns = (one.stop - one.start for one in outer)
                assert rows * columns * n_atoms <= max(_TILE_VALUES, (64 + 2 * 40) ** 2 * n_atoms)
                for side, inner in zip(outer, core, strict=True):
                    assert side.start <= inner.start < inner.stop <= side.stop
                covered += math.prod(one.stop - one.start for one in core)
            assert covered == shape[0] * shape[1]
