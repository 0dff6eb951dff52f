"""A plug-in of bioio, whose files are arrays."""

import sys

import numpy as np
import pytest

PLUGIN = """
import bioio_base, dask.array, datetime, numpy, xarray
from bioio_base.types import DimensionProperties, DimensionProperty, PhysicalPixelSizes, ureg

class Reader(bioio_base.reader.Reader):
    _xarray_dask_data = _xarray_data = _mosaic_xarray_dask_data = _mosaic_xarray_data = None
    _dims = _metadata = _scenes = None
    _current_scene_index = _current_resolution_level = 0

    @staticmethod
    def _is_supported_image(fs, path, **options):
        with fs.open(path) as file:
            return file.read(2) == b"PK"

    def __init__(self, image, chunk_dims=("Z", "Y", "X"), fs_kwargs={}):
        self.chunk_dims, self._path, self._fs = chunk_dims, str(image), None

    @property
    def scenes(self):
        with numpy.load(self._path) as file:
            return tuple(file.files)

    def _read_delayed(self):
        with numpy.load(self._path) as file:
            array = file[self.current_scene]
        dims = self.current_scene.split("_")[1]
        chunks = [n if name in self.chunk_dims else 1 for n, name in zip(array.shape, dims)]
        return xarray.DataArray(dask.array.from_array(array, chunks), dims=[*dims])

    def _read_immediate(self):
        return self._read_delayed().compute()

    physical_pixel_sizes = PhysicalPixelSizes(2.0, 0.5, 0.25)
    time_interval = datetime.timedelta(seconds=3)
    dimension_properties = DimensionProperties(
        *[DimensionProperty(None, None)] * 2,
        DimensionProperty("space", ureg.millimeter),
        *[DimensionProperty("space", None)] * 2,
    )

class ReaderMetadata(bioio_base.reader_metadata.ReaderMetadata):
    @staticmethod
    def get_supported_extensions():
        return [".czi"]

    @staticmethod
    def get_reader():
        return Reader
"""


@pytest.fixture
def microscope_file(tmp_path, monkeypatch):
    """Install the plug-in; return what writes a file of scenes ``NAME_AXES``."""
    pytest.importorskip("bioio")
    about = tmp_path / "packages" / "bioio_arrays-1.dist-info"
    about.mkdir(parents=True)
    (about.parent / "bioio_arrays.py").write_text(PLUGIN)
    (about / "entry_points.txt").write_text("[bioio.readers]\nbioio-arrays = bioio_arrays\n")
    needs = "Requires-Dist: bioio-base>=1\n"
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: bioio-arrays\nVersion: 1\n{needs}"
    )
    monkeypatch.syspath_prepend(about.parent)
    (tmp_path / "images").mkdir()

    def write(name, **scenes):
        path = tmp_path / "images" / name
        with path.open("wb") as file:
            np.savez(file, **scenes)
        return path

    yield write
    sys.modules.pop("bioio_arrays", None)
