"""Feature vectors of objects on disk, computed tile by tile; see `measure_objects`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.device import memory_errors_translated
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.features import FeatureExtractor
from napari_saf.objects import MOST_PIXELS, ObjectMeasures, Part, PartMeasures, VectorWork
from napari_saf.tiles._cluster import is_in_process, run_tasks
from napari_saf.tiles._engine import Progress, Sent, as_sent, open_sent

if TYPE_CHECKING:
    from distributed import Client

Step = tuple[int | None, Part]
"""Frame index of a series, None for a single image, and a part."""


def measure_stored(
    labels: Any,
    image: Any,
    *,
    channel_axis: int | None,
    scale: Sequence[float] | None,
    axes: str | None,
    features: FeatureExtractor | str | Mapping[str, Any] | None,
    client: Client | None,
    progress: Progress | None,
    cancelled: Callable[[], bool],
) -> ObjectMeasures:
    """Measure the objects of a label image of any size, see `LargeObjects.measure`."""
    numbers, placed = io.open_labels(labels, axes, scale=scale)
    pixels = None if image is None else io.open_image_of(numbers, image, channel_axis)
    letters, shape = placed.of_frame.names, numbers.shape[-len(placed.of_frame.names) :]
    work = VectorWork.of(placed.of_frame, features, pixels is not None)
    if work.needs_whole:
        raise InvalidInput("features: those of a whole image are not available in tiles")
    table = io.measure_large(numbers, axes=placed.names, cancelled=cancelled)
    ends = [[table[f"first_{name}"], table[f"last_{name}"] + 1] for name in letters]
    boxes = np.transpose(ends, (2, 0, 1))
    frame_of = table.get("frame", np.full(len(boxes), -1))
    is_small = np.ptp(boxes, axis=2).prod(axis=1) <= MOST_PIXELS
    if not is_small.any():
        raise InvalidInput("objects: all are too large to be measured in tiles")
    steps: list[Step] = []
    for frame in np.unique(frame_of[is_small]).tolist():
        rows = is_small & (frame_of == frame)
        parts = work.parts(shape, table["label"][rows], boxes[rows])
        steps += [(None if frame < 0 else frame, part) for part in parts]
    if pixels is not None:
        work = work.fitted(_read(pixels, *steps[0]))
    is_sent = client is not None and not is_in_process(client)
    sources = [None if source is None else as_sent(source, is_sent) for source in (numbers, pixels)]
    states = json.dumps([None if source is None else source.state for source in (numbers, pixels)])
    measured: dict[int | None, list[PartMeasures]] = {}
    tasks = run_tasks(client, partial(_measure, work, sources, states), deque(steps))
    for k, ((frame, _), outcome) in enumerate(tasks, start=1):
        raise_if(cancelled)
        measured.setdefault(frame, []).append(outcome())
        if progress is not None:
            progress(k, len(steps))
    order = dict.fromkeys(frame for frame, _ in steps)  # tasks may finish in another order
    return work.vectors([work.join(measured[frame], shape) for frame in order])


def _measure(
    work: VectorWork, sources: Sequence[Sent | None], states: str, step: Step
) -> PartMeasures:
    with memory_errors_translated("use fewer --jobs"):
        labels, image = (
            None if source is None else _read(open_sent(source, states), *step)
            for source in sources
        )
        assert labels is not None
        return work.measure(step[1], labels[..., 0], image)


def _read(source: io.ImageSource, frame: int | None, part: Part) -> NDArray[Any]:
    """Return the pixels of a part, channels last."""
    if frame is None:
        return source.read(part.region)
    pixels: NDArray[Any] = source.read((slice(frame, frame + 1), *part.region))[0]
    return pixels
