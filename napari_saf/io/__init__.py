"""Input of images; output of masks, tables, figures, recipes and dictionaries.

File content is never executed, and an existing file is replaced only by a complete new one.
"""

from __future__ import annotations

from napari_saf.io._figure import displayed_plane, save_figure, thinned
from napari_saf.io._frame import part_regions
from napari_saf.io._labelling import (
    Export,
    ExportSelection,
    Labelling,
    is_own_mask,
    read_mask,
    save_regions,
)
from napari_saf.io._labels import (
    Axes,
    Scale,
    Steps,
    check_vectors,
    color_labels,
    color_table,
    count_labels,
    image_channels,
    label_axes,
    map_labels,
    origin_of,
    scale_of,
    short_numbers,
    spelled_colors,
    split_affine,
)
from napari_saf.io._masks import describe_zarr, save_binary_masks, save_masks
from napari_saf.io._note import check_affine, write_note, zarr_attributes
from napari_saf.io._outlines import OUTLINE_SUFFIXES, check_outlines, save_objects
from napari_saf.io._paths import (
    FIGURE_SUFFIXES,
    LABELS_MARK,
    MASK_SUFFIXES,
    NIFTI_SUFFIXES,
    OME_ZARR_SUFFIX,
    PARTS_SUFFIXES,
    PROBABILITY_MARK,
    PROBABILITY_SUFFIXES,
    TABLE_SUFFIXES,
    check_suffix,
    file_state,
    file_stem,
    image_stem,
    is_plain_folder,
    is_zarr,
    mask_stem,
    mask_suffix,
    path_beside,
    place_in_store,
    places_lost,
    printable,
    recipe_path,
    split_series,
    table_cell,
    url_of,
)
from napari_saf.io._probabilities import (
    ProbabilityStep,
    ProbabilityStore,
    labels_of,
    probability_maps,
    save_probabilities,
    soft_images,
)
from napari_saf.io._prototypes import PaintedClass, load_prototypes, read_array, save_prototypes
from napari_saf.io._readers import differs_in_napari, find_images, library
from napari_saf.io._recipe import (
    DigestEntry,
    PrototypeSet,
    check_recipe,
    check_repeatable,
    save_recipe,
    with_level,
    with_prototypes,
)
from napari_saf.io._regions import check_table, number_regions, save_table, table_text, write_csv
from napari_saf.io._source import (
    ImageFile,
    ImageSource,
    Region,
    format_region,
    read_image,
    read_labels,
)
from napari_saf.io._tables import (
    LargeRegions,
    measure_large,
    open_image_of,
    open_labels,
    region_table,
)
