"""Images behind URLs give the labels of those on disk, and their faults are told."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pytest
import zarr
from test_label_large import picture, recipe, write_zarr

import napari_saf as saf
from napari_saf.io import ImageSource
from napari_saf.tiles import LargeJob


@pytest.fixture
def memory():
    """The file system of memory, empty."""
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/", recursive=True)


def put(memory, source):
    """Copy a store into memory, in place of what is there; return its URL."""
    if memory.exists(f"/{source.name}"):
        memory.rm(f"/{source.name}", recursive=True)
    memory.put(str(source), f"/{source.name}", recursive=True)
    return f"memory://{source.name}"


@pytest.mark.parametrize("kind", ["0.4", "sharded"])
def test_a_url_gives_the_same_labels(tmp_path, memory, kind):
    path, pixels = tmp_path / "a.zarr", picture()
    if kind == "sharded":
        write_zarr(path, pixels, chunks=(16, 16, 3), shards=(64, 64, 3))
    else:
        write_zarr(path, pixels, kind, levels=2)
    url = put(memory, path)
    found = saf.label_large(url, recipe(), tmp_path / "m.ome.zarr", tile=64)
    expected = saf.label_large(path, recipe(), tmp_path / "e.ome.zarr", tile=64)
    np.testing.assert_array_equal(found.labels[:], expected.labels[:])
    work = LargeJob.of(url, recipe()).work(LargeJob.of(url, recipe()).plan(), path, is_sent=True)
    assert work.image == (url, None, False, None, False)


class Handler(SimpleHTTPRequestHandler):
    """Answers chunks of the second row of an image with a fault, if there is one."""

    fault = ""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.fault or "/0/c/1/" not in self.path:
            super().do_GET()
        elif self.fault == "500":
            self.send_error(500)
        elif self.fault == "cut off":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
        else:
            self.close_connection = True


@pytest.mark.parametrize("fault", ["500", "cut off", "no answer"])
def test_a_server_that_fails_half_way_leaves_nothing_that_looks_whole(tmp_path, monkeypatch, fault):
    pytest.importorskip("aiohttp")
    write_zarr(tmp_path / "a.zarr", picture((64, 64)))
    out, own = tmp_path / "m.ome.zarr", {"tile": 32, "learn_pixels": 1}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.zarr"
        with pytest.raises(saf.FormatError, match=r"tile \[.*cannot be read at \[.*0/c/1/"):
            saf.label_large(
                url,
                recipe(),
                out,
                progress=lambda *_: monkeypatch.setattr(Handler, "fault", fault),
                **own,
            )
        with pytest.raises(saf.FormatError):
            saf.read_labels(out)
        monkeypatch.setattr(Handler, "fault", "")
        found = saf.label_large(url, recipe(), out, **own)
        server.shutdown()
    assert found.n_done_before >= 1
    expected = saf.label_large(tmp_path / "a.zarr", recipe(), tmp_path / "e.ome.zarr", **own)
    np.testing.assert_array_equal(found.labels[:], expected.labels[:])


def test_a_web_server_will_do(tmp_path):
    pytest.importorskip("aiohttp")
    write_zarr(tmp_path / "a.zarr", picture())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.zarr"
        there = (slice(20, 70), slice(30, 40))
        np.testing.assert_array_equal(ImageSource.open(url).read(there), picture()[there])
        secret = ImageSource.open(url.replace("//", "//someone:password@"))
        assert secret.state == ImageSource.open(url).state  # it is written beside the labels
        with pytest.raises(saf.FormatError, match=r"b\.zarr: .*no zarr store is there"):
            ImageSource.open(url.replace("a.zarr", "b.zarr"))
        server.shutdown()
    with pytest.raises(saf.FormatError, match="cannot be read as an image"):
        ImageSource.open(url)


def test_faults_of_what_is_behind_a_url_are_told(tmp_path, memory):
    source = write_zarr(tmp_path / "a.zarr", picture())
    url = put(memory, source)
    whole = memory.cat("/a.zarr/0/c/1/1/0")
    memory.pipe("/a.zarr/0/c/1/1/0", whole[: len(whole) // 2])
    image = ImageSource.open(url)
    with pytest.raises(saf.FormatError, match=r"read at \[32:40, 32:40\]: .*damaged.*0/c/1/1/0"):
        image.read((slice(32, 40), slice(32, 40)))
    memory.rm("/a.zarr/0/c/1/1/0")  # counts as the fill value, as zarr has it
    assert not image.read((slice(32, 40), slice(32, 40))).any()
    about = json.loads(memory.cat("/a.zarr/zarr.json"))
    about["attributes"]["ome"]["multiscales"][0]["datasets"][0]["path"] = "../b.zarr/0"
    memory.pipe("/a.zarr/zarr.json", json.dumps(about).encode())
    with pytest.raises(saf.FormatError, match="within the folder"):
        ImageSource.open(url)
    zarr.create_array(tmp_path / "h.zarr", shape=(10**6, 10**6), chunks=(1024, 1024), dtype="u1")
    with pytest.raises(saf.FormatError, match="the zarr array has no chunk files"):
        ImageSource.open(put(memory, tmp_path / "h.zarr"))
    with pytest.raises(saf.FormatError, match="nix"):
        ImageSource.open("nix://a.zarr")


def test_an_image_behind_a_url_that_is_another_one_is_refused(tmp_path, memory):
    url = put(memory, write_zarr(tmp_path / "a.zarr", picture()))
    saf.label_large(url, recipe(), tmp_path / "m.ome.zarr")
    put(memory, write_zarr(tmp_path / "a.zarr", picture((100, 120))))
    with pytest.raises(saf.InvalidInput, match="changed since"):
        saf.label_large(url, recipe(), tmp_path / "m.ome.zarr")


def test_a_coarse_level_that_is_one_large_piece_is_refused_by_its_metadata(tmp_path, memory):
    source = write_zarr(tmp_path / "a.zarr", picture(), levels=2)
    about = json.loads((source / "1" / "zarr.json").read_text())
    about["chunk_grid"]["configuration"]["chunk_shape"] = [20_000, 20_000, 3]
    (source / "1" / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(saf.FormatError, match="pieces of 1144 MiB"):
        ImageSource.open(put(memory, source))
