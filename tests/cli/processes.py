"""Processes that die or are interrupted, where other processes can import what they do."""

from __future__ import annotations

import multiprocessing.reduction
import os
import signal
import sys
import time

import numpy as np

from napari_saf.methods import SelfAssignmentFlow

_OF_WINDOWS = {"napari", "qtpy", "magicgui"}


class Command:
    """The command line in a process of its own, forked from one that has imported the libraries.

    `prepare`, a function of this module, is called in it with `values` before the command runs.
    What it writes goes to pipes, or to the descriptors `out` and `err`.
    """

    def __init__(
        self, *arguments, folder, prepare=None, values=(), out=None, err=None, encoding="utf8"
    ):
        context = multiprocessing.get_context("forkserver")
        commands = ["napari_saf.cli._segment", "napari_saf.cli._dictionary"]
        context.set_forkserver_preload([*commands, "torch", "sklearn.cluster", "skimage.color"])
        self._pipes = [context.Pipe(duplex=False) for _ in range(2)]
        streams = [
            _Descriptor(ends[1].fileno() if given is None else given)
            for given, ends in zip((out, err), self._pipes, strict=True)
        ]
        called = (tuple(map(str, arguments)), str(folder), prepare, values, encoding)
        self.process = context.Process(target=_run, args=(*called, *streams))
        self.process.start()
        for _, theirs in self._pipes:
            theirs.close()
        self.out, self.err = (
            open(ours.fileno(), encoding="utf8", closefd=False) for ours, _ in self._pipes
        )

    def wait(self):
        """Return the exit code, and what else came on both streams."""
        out, err = self.out.read(), self.err.read()
        self.process.join()
        for ours, _ in self._pipes:
            ours.close()
        return self.process.exitcode, out, err


class _Descriptor:
    """A file descriptor that the child gets a duplicate of."""

    def __init__(self, number):
        self._number = number

    def __reduce__(self):
        return multiprocessing.reduction.DupFd(self._number).detach, ()


def _run(arguments, folder, prepare, values, encoding, out, err):
    for number, descriptor in ((1, out), (2, err)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout, sys.stderr = (open(k, "w", encoding=encoding, closefd=False) for k in (1, 2))
    # What runs in the background of a shell inherits an ignored SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    if prepare is not None:
        prepare(*values)
    from napari_saf.cli import main

    code = main(arguments)
    sys.exit("a library of windows is loaded" if _OF_WINDOWS & set(sys.modules) else code)


def die_at_rename(n_left):
    """End at once where a file would get its name for the n-th time."""
    rename = os.replace

    def replace_or_die(source, target):
        nonlocal n_left
        if n_left == 0:
            os._exit(9)
        n_left -= 1
        rename(source, target)

    os.replace = os.link = replace_or_die


def die_while_writing(name):
    """End at once while a file has another name."""
    from napari_saf.storage import atomic_write

    with atomic_write(name) as path:
        path.touch()
        os._exit(9)


def wait_instead_of(place):
    """Wait, having said so, where labels are computed or half a mask is written."""

    def wait(*arguments, **options):
        if place == "write":
            arguments[0].write_bytes(b"half")
        print("waiting", flush=True)
        time.sleep(600)

    if place == "write":
        np.save = wait
    else:
        SelfAssignmentFlow.iterate = wait
