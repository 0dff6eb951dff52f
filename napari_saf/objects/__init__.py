"""Objects of a label image: splitting, measurement, correction, classes, tracks and files."""

from napari_saf.objects._basins import find_saddles
from napari_saf.objects._bounds import object_bounds, with_bounds
from napari_saf.objects._classes import (
    ClassifiedObjects,
    ClassSpace,
    ObjectClasses,
    class_methods,
    learn_classes,
    load_classes,
    save_classes,
)
from napari_saf.objects._corrections import Corrections, learn, split_rest
from napari_saf.objects._edit import ObjectEditor, lower_numbers
from napari_saf.objects._exemplar import exemplar_strokes, segment_like
from napari_saf.objects._load import load_objects
from napari_saf.objects._measure import ObjectStep, object_table, spacing_of
from napari_saf.objects._split import (
    NECK,
    SMALLEST,
    Objects,
    Parts,
    count_axes,
    find_parts,
    ground_label,
    split_objects,
)
from napari_saf.objects._track import (
    GEFF,
    TRACK_BY,
    Tracks,
    TrackStep,
    save_tracks,
    track_objects,
    tracking,
)
from napari_saf.objects._vectors import (
    MOST_PIXELS,
    ObjectMeasures,
    Part,
    PartMeasures,
    VectorWork,
    measure_objects,
)
