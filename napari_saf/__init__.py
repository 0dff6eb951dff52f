"""Label images without labels: assignment and self-assignment flows.

The public names stand in ``__init__.pyi`` and are loaded when they are first used; importing the
package alone loads neither torch nor napari.
"""

from __future__ import annotations

import os

import lazy_loader

if "OMP_WAIT_POLICY" not in os.environ:
    # Before torch is loaded: the threads of GNU OpenMP turn 300,000 times while they wait for one
    # another, which keeps a busy machine's cores from the thread that they wait for. After 2,000
    # turns they sleep: about as fast on an idle machine, and no slower than one thread on a busy
    # one. It holds for the whole process: OpenMP reads it once, when it is
    # loaded, and no call changes it.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        import importlib.metadata  # takes as long as all the rest

        return importlib.metadata.version("napari-saf")
    return _load(name)


def __dir__() -> list[str]:
    return sorted(__all__)
