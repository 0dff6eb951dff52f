"""Label images without labels: assignment and self-assignment flows.

The public names below are loaded when they are first used; importing the package alone loads
neither torch nor napari.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import TYPE_CHECKING

if "OMP_WAIT_POLICY" not in os.environ:
    # Before torch is loaded: the threads of GNU OpenMP turn 300,000 times while they wait for one
    # another, which keeps a busy machine's cores from the thread that they wait for. After 2,000
    # turns they sleep: about as fast on an idle machine, and no slower than one thread on a busy
    # one (`benchmarks/busy.py`).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

if TYPE_CHECKING:
    from napari_saf import metrics as metrics
    from napari_saf.comparison import Comparison as Comparison
    from napari_saf.comparison import Variant as Variant
    from napari_saf.comparison import compare as compare
    from napari_saf.comparison import comparison_table as comparison_table
    from napari_saf.comparison import save_comparison as save_comparison
    from napari_saf.comparison import variants_of as variants_of
    from napari_saf.dictionary import LearnedDictionary as LearnedDictionary
    from napari_saf.dictionary import PatchDictionary as PatchDictionary
    from napari_saf.dictionary import PatchDictionaryLearning as PatchDictionaryLearning
    from napari_saf.dictionary import PatchSegmentation as PatchSegmentation
    from napari_saf.dictionary import patch_distance as patch_distance
    from napari_saf.errors import ComputeError as ComputeError
    from napari_saf.errors import FormatError as FormatError
    from napari_saf.errors import InvalidInput as InvalidInput
    from napari_saf.errors import SafError as SafError
    from napari_saf.flow import AdamsBashforthMoulton as AdamsBashforthMoulton
    from napari_saf.flow import BogackiShampine as BogackiShampine
    from napari_saf.flow import GaussianAffinity as GaussianAffinity
    from napari_saf.flow import GeometricEuler as GeometricEuler
    from napari_saf.flow import KernelAffinity as KernelAffinity
    from napari_saf.flow import StoppingRule as StoppingRule
    from napari_saf.graph import AffinityGraph as AffinityGraph
    from napari_saf.graph import GridGraph as GridGraph
    from napari_saf.io import PrototypeSet as PrototypeSet
    from napari_saf.io import load_prototypes as load_prototypes
    from napari_saf.io import load_recipe as load_recipe
    from napari_saf.io import number_regions as number_regions
    from napari_saf.io import read_image as read_image
    from napari_saf.io import read_labels as read_labels
    from napari_saf.io import region_table as region_table
    from napari_saf.io import save_binary_masks as save_binary_masks
    from napari_saf.io import save_figure as save_figure
    from napari_saf.io import save_masks as save_masks
    from napari_saf.io import save_prototypes as save_prototypes
    from napari_saf.io import save_recipe as save_recipe
    from napari_saf.io import save_regions as save_regions
    from napari_saf.methods import METHODS as METHODS
    from napari_saf.methods import SLK as SLK
    from napari_saf.methods import AssignmentFlow as AssignmentFlow
    from napari_saf.methods import Bavardage as Bavardage
    from napari_saf.methods import FairClustering as FairClustering
    from napari_saf.methods import LaplacianShot as LaplacianShot
    from napari_saf.methods import SelfAssignmentFlow as SelfAssignmentFlow
    from napari_saf.methods import TradeOff as TradeOff
    from napari_saf.problem import Problem as Problem
    from napari_saf.recording import Recording as Recording
    from napari_saf.result import History as History
    from napari_saf.result import Segmentation as Segmentation
    from napari_saf.result import Snapshot as Snapshot
    from napari_saf.result import Status as Status

_HOMES = {
    "comparison": "Comparison Variant compare comparison_table save_comparison variants_of",
    "dictionary": (
        "LearnedDictionary PatchDictionary PatchDictionaryLearning PatchSegmentation patch_distance"
    ),
    "errors": "ComputeError FormatError InvalidInput SafError",
    "flow": (
        "AdamsBashforthMoulton BogackiShampine GaussianAffinity GeometricEuler "
        "KernelAffinity StoppingRule"
    ),
    "graph": "AffinityGraph GridGraph",
    "io": (
        "PrototypeSet load_prototypes load_recipe number_regions read_image read_labels "
        "region_table save_binary_masks save_figure save_masks save_prototypes "
        "save_recipe save_regions"
    ),
    "methods": (
        "METHODS SLK AssignmentFlow Bavardage FairClustering LaplacianShot "
        "SelfAssignmentFlow TradeOff"
    ),
    "problem": "Problem",
    "recording": "Recording",
    "result": "History Segmentation Snapshot Status",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [*sorted(_HOME_OF), "__version__", "metrics"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.metadata.version("napari-saf")
    if name == "metrics":
        return importlib.import_module("napari_saf.metrics")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'napari_saf' has no attribute {name!r}")
    return getattr(importlib.import_module(f"napari_saf.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
