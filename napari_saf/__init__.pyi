"""The public names of the package: what type checkers see, and what is loaded at first use."""

from . import metrics as metrics
from .batch import (
    ApplyOptions as ApplyOptions,
    apply_to_images as apply_to_images,
)
from .comparison import (
    Comparison as Comparison,
    Variant as Variant,
    compare as compare,
    comparison_table as comparison_table,
    save_comparison as save_comparison,
    variants_of as variants_of,
)
from .dictionary import (
    LearnedDictionary as LearnedDictionary,
    PatchDictionary as PatchDictionary,
    PatchDictionaryLearning as PatchDictionaryLearning,
    PatchSegmentation as PatchSegmentation,
    patch_distance as patch_distance,
)
from .errors import (
    ComputeError as ComputeError,
    FormatError as FormatError,
    InvalidInput as InvalidInput,
    SafError as SafError,
)
from .features import (
    DeepFeatures as DeepFeatures,
    FeatureExtractor as FeatureExtractor,
)
from .flow import (
    AdamsBashforthMoulton as AdamsBashforthMoulton,
    BogackiShampine as BogackiShampine,
    GaussianAffinity as GaussianAffinity,
    GeometricEuler as GeometricEuler,
    KernelAffinity as KernelAffinity,
    StoppingRule as StoppingRule,
)
from .graph import (
    AffinityGraph as AffinityGraph,
    GridGraph as GridGraph,
)
from .io import (
    Labelling as Labelling,
    PrototypeSet as PrototypeSet,
    load_prototypes as load_prototypes,
    measure_large as measure_large,
    number_regions as number_regions,
    probability_maps as probability_maps,
    ImageSource as ImageSource,
    read_image as read_image,
    read_labels as read_labels,
    read_mask as read_mask,
    region_table as region_table,
    save_binary_masks as save_binary_masks,
    save_figure as save_figure,
    save_masks as save_masks,
    save_objects as save_objects,
    save_probabilities as save_probabilities,
    save_prototypes as save_prototypes,
    save_recipe as save_recipe,
    save_regions as save_regions,
)
from .methods import (
    METHODS as METHODS,
    SLK as SLK,
    AssignmentFlow as AssignmentFlow,
    Bavardage as Bavardage,
    FairClustering as FairClustering,
    LaplacianShot as LaplacianShot,
    SelfAssignmentFlow as SelfAssignmentFlow,
    StrokeChoice as StrokeChoice,
    TradeOff as TradeOff,
    choose_for_strokes as choose_for_strokes,
)
from .objects import (
    ClassifiedObjects as ClassifiedObjects,
    ObjectClasses as ObjectClasses,
    ObjectMeasures as ObjectMeasures,
    Objects as Objects,
    ObjectStep as ObjectStep,
    Tracks as Tracks,
    learn_classes as learn_classes,
    load_classes as load_classes,
    load_objects as load_objects,
    measure_objects as measure_objects,
    object_bounds as object_bounds,
    object_table as object_table,
    save_classes as save_classes,
    save_tracks as save_tracks,
    segment_like as segment_like,
    split_objects as split_objects,
    track_objects as track_objects,
)
from .pipeline import Pipeline as Pipeline, load_recipe as load_recipe
from .problem import Problem as Problem
from .project import (
    EncodedLabels as EncodedLabels,
    FileReference as FileReference,
    Project as Project,
    ProjectImage as ProjectImage,
    ProjectLayer as ProjectLayer,
    load_project as load_project,
    save_project as save_project,
)
from .recording import Recording as Recording
from .regions import RegionHierarchy as RegionHierarchy, merge_regions as merge_regions
from .result import (
    History as History,
    Segmentation as Segmentation,
    Snapshot as Snapshot,
    Status as Status,
)
from .scoring import (
    Score as Score,
    save_score_figure as save_score_figure,
    score as score,
)
from .sharpening import sharpen_labels as sharpen_labels
from .tiles import (
    LargeLabels as LargeLabels,
    LargeObjects as LargeObjects,
    label_large as label_large,
    split_large as split_large,
)

__version__: str
