"""The command as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from processes import Command, wait_instead_of

COMMAND = (sys.executable, "-c", "import sys; from napari_saf.cli import main; sys.exit(main())")


FORKED = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


def test_help_loads_no_heavy_library():
    script = "from napari_saf.cli import main; import sys; main(['--help']); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    heavy = {"torch", "numpy", "scipy", "skimage", "napari", "qtpy", "rich", "matplotlib"}
    assert "napari_saf.cli" in loaded and not loaded & heavy


@pytest.mark.parametrize(
    ("command", "code"),
    [((*COMMAND, "segmnt"), 2), ((sys.executable, "-m", "napari_saf", "--help"), 0)],
)
def test_codes_reach_the_shell(tmp_path, command, code):
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code and ("Usage: napari-saf" in done.stdout) == (code == 0)


@FORKED
def test_an_error_reaches_the_shell_as_code_1(tmp_path):
    code, _, errors = Command("segment", "none.png", "-o", "m.tif", folder=tmp_path).wait()
    assert code == 1 and errors == "napari-saf: error: none.png: no such file\n"


@FORKED
@pytest.mark.parametrize("place", ["compute", "write"])
def test_interrupt_leaves_nothing_half_written(tmp_path, place):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((8, 9)))
    (tmp_path / "old.npy").write_bytes(b"old")
    run = ("segment", "a.npy", "-o", "old.npy", "--overwrite", "--max-labels", "2")
    command = Command(*run, folder=tmp_path, prepare=wait_instead_of, values=(place,))
    assert command.out.readline() == "waiting\n"
    os.kill(command.process.pid, signal.SIGINT)
    code, _, errors = command.wait()
    assert code == 130
    assert "Traceback" not in errors
    assert "interrupted" in errors
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "old.npy"]
    assert (tmp_path / "old.npy").read_bytes() == b"old"


@FORKED
def test_a_terminal_sees_progress(tmp_path):
    import pty

    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((8, 9)))
    ours, theirs = pty.openpty()
    run = ("segment", "a.npy", "-o", "m.npy", "--max-labels", "2")
    command = Command(*run, folder=tmp_path, err=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 4096):
            seen += part
    os.close(ours)
    code, out, _ = command.wait()
    assert code == 0 and out.startswith("m.npy: ")
    assert b"a.npy" in seen and b"labels, t =" in seen


@FORKED
def test_signs_that_a_pipe_cannot_hold_are_replaced(tmp_path):
    code, out, errors = Command("methods", folder=tmp_path, encoding="ascii").wait()
    assert (code, errors) == (0, "")
    assert "bavardage" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_behind_the_output_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        code, _, errors = Command("methods", folder=tmp_path, out=full.fileno()).wait()
    assert code != 0
    assert "napari-saf: error:" in errors
    assert "No space left" in errors
    assert "Traceback" not in errors
