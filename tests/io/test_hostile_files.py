"""Files made to harm: nothing is executed, and small files take little time and memory."""

import json
import os
import pickle
import zlib

import google_crc32c
import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
import zarr.codecs.numcodecs

import napari_saf as saf
from napari_saf.errors import FormatError
from napari_saf.io import _checked_store as reading
from napari_saf.io import _prototypes as prototypes
from napari_saf.io import read_image, read_labels

PIXELS = np.arange(64 * 64, dtype=np.int32).reshape(64, 64)
COMPRESSORS = [
    None,
    zarr.codecs.BloscCodec(),
    zarr.codecs.GzipCodec(),
    [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()],
    "LZ4",
]


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def ome_zarr(path, **arguments):
    """Make an OME-Zarr of one array; return the folder of the array."""
    zarr_format = arguments.pop("zarr_format", 3)
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    array = group.create_array("0", data=arguments.pop("data", PIXELS), **arguments)
    axes = [{"name": name, "type": "space"} for name in "yx"]
    multiscales = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
    group.attrs["multiscales"] = multiscales
    return path / array.path


def change(file, **entries):
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


@pytest.mark.parametrize("place", ["compressor", "filters"])
@pytest.mark.parametrize("codec", ["pickle", "base64"])
def test_codecs_that_are_not_for_numbers_are_refused_before_they_run(tmp_path, place, codec):
    path = tmp_path / "a.ome.zarr"
    folder = ome_zarr(path, zarr_format=2, chunks=(64, 64), compressors=None, filters=None)
    one = {"id": codec}
    change(folder / ".zarray", **{place: one if place == "compressor" else [one]})
    (folder / "0.0").write_bytes(pickle.dumps(Evil(tmp_path / "executed")))
    for read in (read_image, read_labels):
        with pytest.raises(FormatError, match=rf"a\.ome\.zarr: .*{codec}"):
            read(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("nested", [False, True])
def test_a_codec_of_a_shard_is_no_back_door(tmp_path, nested):
    folder = ome_zarr(tmp_path / "a.zarr", chunks=(16, 16), shards=(64, 64))
    described = json.loads((folder / "zarr.json").read_text())
    shard = described["codecs"][0]["configuration"]
    if nested:
        shard["codecs"] = [
            {"name": "sharding_indexed", "configuration": shard | {"chunk_shape": [8, 8]}}
        ]
    else:
        shard["index_codecs"] = [
            shard["index_codecs"][0],
            {"name": "gzip", "configuration": {"level": 1}},
        ]
    change(folder / "zarr.json", codecs=described["codecs"])
    with pytest.raises(FormatError, match=r"a\.zarr"):
        read_image(tmp_path / "a.zarr")


@pytest.mark.parametrize("shards", [None, (64, 64)])
@pytest.mark.parametrize("compressors", COMPRESSORS)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in")
def test_ordinary_codecs_are_read(tmp_path, compressors, shards):
    if isinstance(compressors, str):
        compressors = getattr(zarr.codecs.numcodecs, compressors)()
    ome_zarr(tmp_path / "a.zarr", chunks=(16, 32), shards=shards, compressors=compressors)
    np.testing.assert_array_equal(read_image(tmp_path / "a.zarr").array, PIXELS)


@pytest.mark.parametrize(
    ("compressor", "filters"),
    [
        *((name, None) for name in ("Blosc", "BZ2", "GZip", "LZ4", "LZMA", "Zlib")),
        ("Zstd", [numcodecs.Delta("<i4", "<i8"), numcodecs.Shuffle(4)]),
    ],
)
def test_ordinary_codecs_of_version_2_are_read(tmp_path, compressor, filters):
    codecs = {"compressors": getattr(numcodecs, compressor)(), "filters": filters}
    ome_zarr(tmp_path / "a.zarr", zarr_format=2, chunks=(16, 16), **codecs)
    np.testing.assert_array_equal(read_image(tmp_path / "a.zarr").array, PIXELS)


@pytest.mark.parametrize("n_bytes", [2**24, 16_380])
@pytest.mark.parametrize("kind", ["Blosc", "BZ2", "GZip", "LZ4", "LZMA", "Zlib", "Zstd"])
def test_a_chunk_that_unpacks_to_another_size_than_its_pixels_is_named(tmp_path, kind, n_bytes):
    codec = getattr(numcodecs, kind)()
    folder = ome_zarr(
        tmp_path / "a.zarr", zarr_format=2, chunks=(64, 64), compressors=codec, filters=None
    )
    (chunk,) = [file for file in folder.rglob("*") if file.is_file() and file.name[0] != "."]
    chunk.write_bytes(bytes(codec.encode(bytes(n_bytes))))
    with pytest.raises(FormatError, match=f"is not the 16384 bytes of its pixels.*{chunk.name}"):
        read_image(tmp_path / "a.zarr")


def test_a_chunk_within_a_shard_is_not_unpacked_either(tmp_path):
    folder = ome_zarr(
        tmp_path / "a.zarr", chunks=(32, 64), shards=(64, 64), compressors=zarr.codecs.GzipCodec()
    )
    packed = zlib.compressobj(wbits=31)
    content = packed.compress(bytes(2**24)) + packed.flush()
    table = np.array([[0, len(content)], [2**64 - 1, 2**64 - 1]], dtype="<u8").tobytes()
    checksum = google_crc32c.value(table).to_bytes(4, "little")
    (folder / "c" / "0" / "0").write_bytes(content + table + checksum)
    with pytest.raises(FormatError, match="is not the 8192 bytes"):
        read_image(tmp_path / "a.zarr")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no endless file")
def test_a_chunk_without_an_end_is_not_read(tmp_path):
    folder = ome_zarr(tmp_path / "a.zarr", zarr_format=2, chunks=(64, 64))
    (folder / "0.0").unlink()
    (folder / "0.0").symlink_to("/dev/zero")
    with pytest.raises(FormatError, match="expected a file"):
        read_image(tmp_path / "a.zarr")


def test_chunks_of_a_pixel_are_refused_where_there_are_very_many(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MAX_CHUNKS", 60)
    pixels = PIXELS[:16, :16]
    ome_zarr(tmp_path / "few.zarr", data=pixels, chunks=(2, 4))
    np.testing.assert_array_equal(read_image(tmp_path / "few.zarr").array, pixels)
    ome_zarr(tmp_path / "many.zarr", data=pixels, chunks=(2, 2))
    with pytest.raises(FormatError, match="64 chunks of 16 bytes"):
        read_image(tmp_path / "many.zarr")


def test_a_small_tiff_that_claims_a_huge_image_is_refused(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((64, 64), np.uint8), compression="zlib", rowsperstrip=64)
    with tifffile.TiffFile(path, mode="r+") as file:
        for tag in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            file.pages[0].tags[tag].overwrite(2**15)
    with pytest.raises(FormatError, match=r"a\.tif: .* it says that it has 1073741824 bytes"):
        read_image(path)


def test_pixels_of_an_ome_tiff_are_not_taken_from_outside_its_folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    for place in (tmp_path / "b.ome.tif", inside / "b.ome.tif"):
        tifffile.imwrite(place, PIXELS, ome=True, metadata={"axes": "YX"})
    with tifffile.TiffFile(inside / "b.ome.tif") as file:
        described = file.ome_metadata
    for place, is_fine in (("b.ome.tif", True), ("../b.ome.tif", False)):
        uuid = f'<UUID FileName="{place}">urn:uuid:1</UUID></TiffData>'
        other = described.replace("/></Pixels>", f">{uuid}</Pixels>")
        assert other != described
        tifffile.imwrite(inside / "a.ome.tif", PIXELS, description=other, metadata=None)
        if is_fine:
            assert read_image(inside / "a.ome.tif").array.shape == PIXELS.shape
        else:
            with pytest.raises(FormatError, match=r"outside its folder, in \.\./b\.ome\.tif"):
                read_image(inside / "a.ome.tif")


def test_whatever_a_library_raises_names_the_file_and_keeps_its_cause(tmp_path, monkeypatch):
    class Strange(Exception):
        pass

    def fail(*arguments, **options):
        raise Strange("odd")

    tifffile.imwrite(tmp_path / "a.tif", PIXELS)
    monkeypatch.setattr(tifffile, "TiffFile", fail)
    with pytest.raises(FormatError, match=r"a\.tif: cannot be read as an image: odd") as caught:
        read_image(tmp_path / "a.tif")
    assert isinstance(caught.value.__cause__, Strange)


@pytest.mark.parametrize("kind", ["large", "device"])
def test_a_table_of_prototypes_is_read_up_to_a_size(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(prototypes, "_MOST_TABLE_BYTES", 2**20)
    path = tmp_path / "a.csv"
    if kind == "device":
        if not os.path.exists("/dev/zero"):
            pytest.skip("this system has no endless file")
        path.symlink_to("/dev/zero")
    else:
        path.write_text("1.0,2.0\n" * 2**17 + "1")
    with pytest.raises(FormatError, match=r"a\.csv: expected at most 1 MiB"):
        saf.load_prototypes(path)
