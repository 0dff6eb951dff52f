"""The labelling problem: features on the nodes of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import all_finite, as_labels, as_list, own_floats
from napari_saf.device import memory_errors_translated
from napari_saf.errors import InvalidInput
from napari_saf.features import (
    FeatureExtractor,
    Pixels,
    Scaling,
    channels_last,
    finite_mask,
    ground_of,
    image_groups,
)
from napari_saf.graph import AbstractGraph, CoarseGrid, GraphUnion, GridGraph, coarse_means
from napari_saf.input import AUTO, GIVEN_FEATURES, nodes_of, working_shape
from napari_saf.input import ImageOptions as ImageOptions

T = TypeVar("T")

_MOST_CLIPPED = 0.5
"""Share of values outside a given scaling from which a note is shown."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Features on the nodes of a graph, with optional seeds and groups.

    Parameters
    ----------
    features : array of shape (n_nodes, n_features)
        Finite numbers. Contiguous float32 or float64 arrays are not copied: do not modify them, as
        derived values are cached.
    graph : AbstractGraph
        A graph of n_nodes nodes.
    seeds : array of int of shape (n_nodes,), optional
        Labels given by the user, 1, 2, ...; 0 for none.
    groups : array of int of shape (n_nodes,), optional
        Group of each node, 1, 2, ...; 0 for no group.
    options : ImageOptions, optional
        Conversion of the image to the features.
    clipped : float
        Share of the image values, 0 to 1, outside a given scaling.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are masked, not finite or not real, or seeds or
        groups are negative or all 0.

    Examples
    --------
    >>> image = np.kron([[0.0, 0.5], [0.5, 1.0]], np.ones((8, 8)))
    >>> problem = saf.Problem.from_image(image, window=3)
    >>> problem.n_nodes, problem.graph.image_shape
    (256, (16, 16))
    >>> features = np.array([[0.0], [0.1], [0.9]])  # a table, one row per node
    >>> saf.Problem(features, saf.AffinityGraph.k_nearest(features, 1)).n_nodes
    3
    """

    features: NDArray[np.floating]
    graph: AbstractGraph
    _: dataclasses.KW_ONLY
    seeds: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    options: ImageOptions | None = None
    clipped: float = 0.0

    def __post_init__(self) -> None:
        features = own_floats(self.features, "features")
        if not isinstance(self.graph, AbstractGraph):
            raise InvalidInput(
                "graph: expected a GridGraph or an AffinityGraph, which takes a matrix of weights, "
                f"got {type(self.graph).__name__}"
            )
        n_nodes = self.graph.n_nodes
        if features.ndim != 2 or len(features) != n_nodes or not features.shape[1]:
            raise InvalidInput(
                f"features: expected shape ({n_nodes}, n_features), got {features.shape}"
            )
        n_bad = int(np.count_nonzero(~all_finite(features)))
        if n_bad:
            raise InvalidInput(f"features: {n_bad} of {n_nodes} nodes are NaN or infinite")
        object.__setattr__(self, "features", features)
        for name in ("seeds", "groups"):
            if getattr(self, name) is not None:
                array = as_labels(getattr(self, name), name)
                if array.shape != (n_nodes,):
                    raise InvalidInput(f"{name}: expected shape ({n_nodes},), got {array.shape}")
                if not array.any():
                    raise InvalidInput(f"{name}: expected one that is not 0, within the mask")
                object.__setattr__(self, name, array.astype(np.int64))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.n_nodes

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user on the conversion of the image."""
        if self.clipped < _MOST_CLIPPED or self.options is None or self.options.scaling is None:
            return ()
        low, high = self.options.scaling.low, self.options.scaling.high
        return (
            f"{100 * self.clipped:.0f} % of the values lie outside {low:g} to {high:g}, the "
            "scaling that was given, and became 0 or 1: scale each image by itself, unless "
            "brightness means the same in all",
        )

    def with_seeds(self, seeds: ArrayLike | Sequence[ArrayLike | None] | None) -> Problem:
        """Return the problem with other seeds; cached values that do not depend on them are kept.

        Parameters
        ----------
        seeds : array of int or sequence of array, optional
            Of shape (n_nodes,), or as in `from_image` or `from_images`. None: no seeds.

        Raises
        ------
        InvalidInput
            As the constructor.
        """
        nodes: Any = seeds
        if isinstance(self.graph, GraphUnion) and isinstance(nodes, Sequence):
            grids = list(self.graph.grids)
            nodes = _at_nodes(grids, _each(nodes, len(grids), "seeds"), "seeds")
        elif isinstance(self.graph, GridGraph) and np.shape(nodes) != (self.n_nodes,):
            nodes = _at_nodes([self.graph], [nodes], "seeds")
        return dataclasses.replace(self, seeds=nodes)

    def remember(self, key: str, make: Callable[[], T]) -> T:
        """Return the cached result of `make`, which must not depend on seeds or groups.

        The key contains everything it depends on besides features and graph.
        """
        features, result = self.graph.cached_results.get(key, (None, None))
        if features is not self.features:
            result = make()
            self.graph.cached_results[key] = self.features, result
        return result  # type: ignore[return-value]

    @classmethod
    @memory_errors_translated("use a mask or a smaller image")
    def from_image(
        cls,
        image: ArrayLike,
        *,
        features: str | FeatureExtractor | ArrayLike = "auto",
        window: int | Sequence[int] | Literal["auto"] = "auto",
        weights: str = "auto",
        channel_axis: int | None = None,
        mask: ArrayLike | Literal["finite"] | None = None,
        seeds: ArrayLike | None = None,
        groups: ArrayLike | str | None = None,
        scaling: Scaling | Sequence[float] | None = None,
        max_side: int | Literal["auto"] | None = "auto",
        full_resolution: bool = True,
    ) -> Problem:
        """Return the problem of labelling the pixels of an image.

        "auto" values depend on the image alone, and are stored in `options`: for planes,
        with windows along two axes, "texture", "contrast", a window of 13 and, from a longest side
        of 400 on, half of it, from 240 to 640; of those with things on a ground "foreground",
        "contrast", 7 and at most 640; otherwise "lab" or "intensity", "uniform", 3, None.

        Parameters
        ----------
        image : array
            2-D, 3-D or n-D, any real dtype, with or without an axis of channels. Of a masked
            array, pixels that are masked in any channel are left out.
        features : str, FeatureExtractor or array
            Pixel features: "auto"; "intensity", its scaled values; "lab", CIE L*a*b* /
            100; "texture", colour (intensity) and how much lightness varies around the pixel;
            "local", colour (intensity) and how much lighter the pixel is than those around it;
            "foreground", how much lighter (or darker) the pixel is than a ground;
            "patterns", colour (intensity) and local binary patterns around the pixel;
            "multiscale", intensities, edges and texture at several scales (scikit-image);
            "position", colour (intensity) and the place in the image, for strokes; an extractor;
            or an array (..., n_features), image-shaped.
        window : int or sequence of int, or "auto"
            Odd side, in pixels, of the window over which labels are averaged.
        weights : {"auto", "uniform", "nonlocal", "contrast"}
            Equal weights, or weights by the similarity of 3 x 3 patches, or of single pixels.
        channel_axis : int, optional
            Axis of the channels. None: a last axis of length 3 or 4 is RGB(A), whose alpha is
            dropped, and any other image has no channels.
        mask : array of bool or "finite", optional
            Pixels to label; "finite" selects those that are neither NaN nor infinite. Masked pixels
            of a masked array are always excluded.
        seeds : array of int, image-shaped, optional
            See `Problem`.
        groups : array of int, image-shaped, or str, optional
            See `Problem`; or their source: "axis:N" (every position along axis N,
            channels not counted, is a group), "channel:N" (channel N above or not above the
            threshold of Otsu's method), "channel:N:T" (above T or not).
        scaling : (low, high) or Scaling, optional
            The values that become 0 and 1; by default the 0.1 and 99.9 percentiles.
        max_side : int or "auto", optional
            Work on means over blocks of pixels, so that no side is longer than this; axes with
            a window of 1 stay as they are. Labels come out at the size of the image. The
            window then counts blocks. None: the size of the image.
        full_resolution : bool
            Whether labels of a reduced size are refined at the size of the image: borders are moved
            onto its edges, and structures too small for the reduced size are labelled by the
            appearance of each label. False: labels are enlarged.

        Raises
        ------
        InvalidInput
            If the image is constant or not finite within the mask, or an argument does not
            fit the image.
        ComputeError
            If memory does not suffice.
        """
        return cls._of_images(
            [image],
            [mask],
            features if isinstance(features, str | FeatureExtractor) else [features],
            [seeds],
            groups if isinstance(groups, str) else [groups],
            {"window": window, "weights": weights, "channel_axis": channel_axis}
            | {"scaling": scaling, "max_side": max_side, "full_resolution": full_resolution},
            is_union=False,
        )

    @classmethod
    @memory_errors_translated("use masks, or smaller or fewer images")
    def from_images(
        cls,
        images: Sequence[ArrayLike],
        *,
        features: str | FeatureExtractor | Sequence[ArrayLike] = "auto",
        window: int | Sequence[int] | Literal["auto"] = "auto",
        weights: str = "auto",
        channel_axis: int | None = None,
        masks: Sequence[ArrayLike | None] | Literal["finite"] | None = None,
        seeds: Sequence[ArrayLike | None] | None = None,
        groups: Sequence[ArrayLike] | str | None = None,
        scaling: Scaling | Sequence[float] | None = None,
        max_side: int | Literal["auto"] | None = "auto",
        full_resolution: bool = True,
    ) -> Problem:
        """Return the problem of labelling several images together.

        The images share one scaling and one set of labels; no window reaches from one image
        into another.

        Parameters
        ----------
        images : sequence of array
            As in `from_image`; shapes may differ, the number of channels may not.
        features, window, weights, channel_axis, scaling, max_side, full_resolution
            As in `from_image`; arrays of features come one per image.
        masks, seeds : sequence of array, optional
            One per image. ``masks="finite"`` applies to all.
        groups : sequence of array or str, optional
            One array per image, or "image" (every image is a group), or as in `from_image`.

        Raises
        ------
        InvalidInput
            As `from_image`, and if the lengths of the sequences differ.
        ComputeError
            If memory does not suffice.
        """
        every_image = as_list(images, "images")
        count = len(every_image)
        if not count:
            raise InvalidInput("images: expected at least one")
        is_word = isinstance(masks, str)
        return cls._of_images(
            every_image,
            [masks] * count if is_word else _each(masks, count, "masks"),
            features,
            _each(seeds, count, "seeds"),
            groups if isinstance(groups, str) else _each(groups, count, "groups"),
            {"window": window, "weights": weights, "channel_axis": channel_axis}
            | {"scaling": scaling, "max_side": max_side, "full_resolution": full_resolution},
            is_union=True,
        )

    @classmethod
    def _of_images(
        cls,
        images: list[ArrayLike],
        masks: list[Any],
        features: str | FeatureExtractor | Sequence[ArrayLike],
        seeds: list[Any],
        groups: str | list[Any],
        options: Mapping[str, Any],
        is_union: bool,
    ) -> Problem:
        feature_arrays = None
        if not isinstance(features, str | FeatureExtractor):
            feature_arrays = [own_floats(x, "features") for x in as_list(features, "features")]
            features = GIVEN_FEATURES
        source = groups if isinstance(groups, str) else None
        image_options = ImageOptions(features=features, groups=source, **options)
        arrays = [channels_last(image, image_options.channel_axis)[0] for image in images]
        counts = [array.shape[-1] for array in arrays]
        if len(set(counts)) > 1:
            listed = " and ".join(map(str, sorted(set(counts))))
            raise InvalidInput(
                f"images: expected the same number of channels in all, got {listed} channels"
            )
        inside = [
            finite_mask(image, array, mask, image_options.channel_axis)
            for image, array, mask in zip(images, arrays, masks, strict=True)
        ]
        ground = ground_of(arrays, inside) if image_options.features == AUTO else None
        sizes = [array.shape[:-1] for array in arrays]
        image_options = image_options.resolve(sizes, counts[0], ground=ground)
        scaling, clipped = image_options.scaling, 0.0
        if feature_arrays is None or image_options.weights != "uniform":
            clipped = 0.0 if scaling is None else scaling.share_outside(arrays, inside)
            scaling = scaling or Scaling.of(arrays, inside)
        image_options = dataclasses.replace(
            image_options,
            scaling=scaling or Scaling(0.0, 1.0),
            rescale=image_options.scaling is None,
        )
        shapes = [working_shape(shape, image_options) for shape in sizes]
        if source is not None:
            groups = image_groups(source, arrays, inside)
        if feature_arrays is not None:
            _check_features(feature_arrays, sizes)
            feature_arrays = [
                array if size == shape else coarse_means(array, shape, mask)
                for array, size, shape, mask in zip(
                    feature_arrays, sizes, shapes, inside, strict=False
                )
            ]
        pixels = list(map(Pixels.of, arrays, inside))
        grids, rows, image_options = nodes_of(pixels, shapes, image_options, feature_arrays)
        for k, (array, mask, shape) in enumerate(zip(arrays, inside, shapes, strict=True)):
            if shape != sizes[k]:
                grids[k] = CoarseGrid(grids[k], sizes[k], mask, array)
        nodes: Any = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return cls(
            nodes,
            GraphUnion(grids) if is_union else grids[0],
            seeds=_at_nodes(grids, seeds, "seeds"),
            groups=_at_nodes(grids, list(groups), "groups"),
            options=image_options,
            clipped=clipped,
        )


def _check_features(
    features: Sequence[NDArray[np.floating]], sizes: Sequence[tuple[int, ...]]
) -> None:
    """Raise InvalidInput unless features are image-shaped, equally many for each image."""
    shapes = [array.shape for array in features]
    for k, shape in enumerate(sizes):
        if k >= len(shapes) or shapes[k][:-1] != shape:
            got, sides = (*shapes, "none")[k], ", ".join(map(str, shape))
            raise InvalidInput(f"features: expected an array of shape ({sides}, n), got {got}")
    counts = [shape[-1] for shape in shapes[: len(sizes)]]
    if len({*counts}) > 1:
        raise InvalidInput(f"features: expected as many for each image, got {counts}")


def _each(values: Any, count: int, name: str) -> list[Any]:
    if values is None:
        return [None] * count
    items = as_list(values, name)
    if len(items) != count:
        raise InvalidInput(f"{name}: expected one for each of {count} images, got {len(items)}")
    return items


def _at_nodes(grids: list[GridGraph], values: list[Any], name: str) -> NDArray[np.int64] | None:
    """Return image-shaped seeds or groups at the nodes of grids; a missing one counts as zeros."""
    if all(value is None for value in values):
        return None
    nodes = []
    for grid, value in zip(grids, values, strict=True):
        if value is None:
            nodes.append(np.zeros(grid.n_nodes, np.int64))
            continue
        if np.shape(value) != grid.image_shape:
            shapes = f"{grid.image_shape}, got {np.shape(value)}"
            raise InvalidInput(f"{name}: expected the image's shape {shapes}")
        nodes.append(grid.from_image(as_labels(value, name)).astype(np.int64))
    return np.concatenate(nodes)
