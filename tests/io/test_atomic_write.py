import os

import pytest

from napari_saf.errors import SafError
from napari_saf.storage import atomic_write


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
        with atomic_write(target) as temporary:
            fill(temporary, is_folder, text)
            assert not target.exists() or content(target) == "old"
    assert content(target) == "new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_whatever_is_raised_the_old_stays(tmp_path, is_folder):
    target = tmp_path / "a"
    fill(target, is_folder, "old")
    with pytest.raises(KeyboardInterrupt), atomic_write(target) as temporary:
        fill(temporary, is_folder, "half")
        raise KeyboardInterrupt
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
    with pytest.raises(SafError, match="Input/output error"), atomic_write(target) as temporary:
        fill(temporary, True, "new")
    assert len(calls) == 3
    assert content(target) == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_longest_names_are_written(tmp_path):
    target = tmp_path / f"{'a' * 251}.tif"
    with atomic_write(target) as temporary:
        assert temporary.suffix == ".tif"
        temporary.write_text("new")
    assert os.listdir(tmp_path) == [target.name]


@pytest.mark.skipif(os.name == "nt", reason="modes and links of POSIX")
def test_a_file_keeps_its_mode_and_a_link_what_it_points_to(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "a", tmp_path / "a"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_write(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and link.resolve() == real
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_what_another_has_made_meanwhile_stays(tmp_path):
    target = tmp_path / "a"
    with (
        pytest.raises(SafError, match="exists"),
        atomic_write(target, overwrite=False) as temporary,
    ):
        temporary.write_text("mine")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a"]
