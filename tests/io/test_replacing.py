import os

import pytest

from napari_saf.errors import SafError
from napari_saf.io import replacing


def fill(path, is_folder, text):
    if is_folder:
        path.mkdir()
        path = path / "inside"
    path.write_text(text)


def content(path):
    return (path / "inside" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("is_folder", [False, True])
def test_the_new_takes_the_place_of_the_old(tmp_path, is_folder):
    target = tmp_path / "a"
    for text in ("old", "new"):
        with replacing(target) as temporary:
            fill(temporary, is_folder, text)
            assert not target.exists() or content(target) == "old"
    assert content(target) == "new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_whatever_is_raised_the_old_stays(tmp_path, is_folder, error):
    target = tmp_path / "a"
    fill(target, is_folder, "old")
    with pytest.raises(error), replacing(target) as temporary:
        fill(temporary, is_folder, "half")
        raise error
    assert content(target) == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_comes_back_when_the_swap_fails(tmp_path, monkeypatch):
    target = tmp_path / "a"
    fill(target, True, "old")
    rename = os.replace
    calls = []

    def fail_at_second(source, destination):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(os, "replace", fail_at_second)
    with pytest.raises(SafError, match="Input/output error"), replacing(target) as temporary:
        fill(temporary, True, "new")
    assert len(calls) == 3
    assert content(target) == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_nothing_written_is_an_error(tmp_path):
    with pytest.raises(SafError, match="cannot be written"), replacing(tmp_path / "a"):
        pass


def test_a_file_where_a_folder_should_be_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "a"
    with pytest.raises(SafError, match="cannot be written"), replacing(path) as temporary:
        temporary.write_text("new")
    assert os.listdir(tmp_path) == ["file"]


def test_a_system_that_removes_nothing_hides_no_error(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    words = "a: cannot be written: Read-only file system"
    with pytest.raises(SafError, match=words), replacing(tmp_path / "a"):
        refuse()
