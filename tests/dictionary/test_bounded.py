"""Memory does not grow with the number of atoms times the size of the image."""

from napari_saf.dictionary._apply import _TILE_VALUES, _tiles


def test_tiles_cover_every_pixel_once_and_stay_small():
    for shape in [(10, 12), (700, 900), (4090, 4090)]:
        for n_atoms in (4, 20, 100):
            covered = 0
            for tile in _tiles(shape, 3, n_atoms, 7):
                rows, columns = (one.stop - one.start for one in tile.outer)
                assert rows * columns * n_atoms <= max(_TILE_VALUES, (64 + 2 * 40) ** 2 * n_atoms)
                sides = [one.stop - one.start for one in tile.inside]
                assert sides == [one.stop - one.start for one in tile.core]
                covered += sides[0] * sides[1]
            assert covered == shape[0] * shape[1]
