"""Patch dictionaries: atoms invariant under rotation, reflection and small shifts."""

from napari_saf.dictionary._apply import (
    RECONSTRUCTIONS,
    PatchSegmentation,
    Reconstruction,
    label_patches,
)
from napari_saf.dictionary._atoms import DICTIONARY_SUFFIX
from napari_saf.dictionary._dictionary import (
    LearnedDictionary,
    PatchDictionary,
    PatchDictionaryLearning,
)
from napari_saf.dictionary._distance import check_odd, patch_distance
from napari_saf.dictionary._sample import why_no_atoms
