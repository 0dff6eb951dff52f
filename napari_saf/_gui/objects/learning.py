"""Training clicks on objects of several images, and classification from them, without Qt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.objects import (
    ClassifiedObjects,
    ClassSpace,
    ObjectClasses,
    ObjectMeasures,
    Tracks,
    class_methods,
    learn_classes,
)

Cancelled = Callable[[], bool]
Clicks = dict[int, int]
"""Class of each clicked object of an image."""
Learn = Callable[[Sequence[ObjectMeasures], Sequence[Clicks]], ObjectClasses | None]


@dataclasses.dataclass
class ClassClicks:
    """Names of classes, and the clicks on each image, with undo."""

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    clicks: dict[str, Clicks] = dataclasses.field(default_factory=dict)
    _earlier: list[dict[str, Clicks]] = dataclasses.field(default_factory=list)

    def add(self) -> int:
        """Add a class; return its number."""
        number = next(k for k in range(1, len(self.names) + 2) if k not in self.names)
        self.names[number] = f"class {number}"
        return number

    def click(
        self, image: str, objects: Collection[int], label: int, linked: Collection[int] = ()
    ) -> None:
        """Assign a class to objects, or remove it if all of them have it.

        Clicks on the objects `linked` to them by tracks are removed.
        """
        self._earlier.append({key: dict(clicks) for key, clicks in self.clicks.items()})
        clicks = self.clicks.setdefault(image, {})
        is_off = all(clicks.get(number) == label for number in objects)
        for number in (*objects, *linked):
            clicks.pop(number, None)
        if not is_off:
            clicks |= dict.fromkeys(objects, label)

    @property
    def can_undo(self) -> bool:
        return bool(self._earlier)

    def undo(self) -> None:
        self.clicks = self._earlier.pop()

    def forget(self, image: str) -> None:
        for clicks in (self.clicks, *self._earlier):
            clicks.pop(image, None)
        self._earlier = [clicks for clicks in self._earlier if clicks or self.clicks]

    def renumber(self, image: str, clicks: Clicks) -> None:
        """Set the clicks of an image whose objects have new numbers; they cannot be undone."""
        if any(image in states for states in (self.clicks, *self._earlier)):
            self._earlier.clear()
        self.clicks[image] = dict(clicks)

    def of_class(self, label: int) -> int:
        """Return the number of clicks of a class over all images."""
        return sum([*clicks.values()].count(label) for clicks in self.clicks.values())


def carried_clicks(clicks: Clicks, old: NDArray[Any], new: NDArray[Any]) -> Clicks:
    """Return the clicks on the objects of a new split that cover most of the clicked ones.

    `old` and `new` are object numbers; of other shapes there are none.
    """
    carried = Clicks()
    for number, label in clicks.items() if old.shape == new.shape else ():
        numbers, counts = np.unique(new[old == number], return_counts=True)
        if (counts * (numbers > 0)).any():
            carried[int(numbers[(counts * (numbers > 0)).argmax()])] = label
    return carried


@dataclasses.dataclass(frozen=True, eq=False)
class ClassImage:
    """Objects of an image: the function that measures them, tracks, measures and classes."""

    measure: Callable[[Cancelled], ObjectMeasures]
    tracks: Tracks | None = None
    measures: ObjectMeasures | None = None
    classified: ClassifiedObjects | None = None
    space: ClassSpace | None = None
    space_of: ObjectClasses | None = None

    def measured(self, cancelled: Cancelled) -> ClassImage:
        if self.measures is not None:
            return self
        return dataclasses.replace(self, measures=self.measure(cancelled))

    def classify(self, classes: ObjectClasses) -> ClassImage:
        """Return the image, which must be measured, with its objects classified."""
        space, previous = self.space, self.space_of
        if (
            space is None
            or previous is None
            or previous.groups != classes.groups
            or previous.centre is not classes.centre
        ):
            space = classes.space(_measures(self))
        classified = classes.classify(space, self.tracks)
        return dataclasses.replace(self, classified=classified, space=space, space_of=classes)

    def columns(self, numbers: NDArray[np.integer]) -> dict[str, NDArray[Any]]:
        """Return the columns of class and track of objects, where known; track 0 is none."""
        columns = {} if self.classified is None else self.classified.columns(numbers)
        if self.tracks is not None:
            rows = self.tracks.table
            track_of = dict(zip(rows["object"].tolist(), rows["track"].tolist(), strict=True))
            columns["track"] = np.array([track_of.get(n, 0) for n in numbers.tolist()], int)
        return columns

    def same_tracks(self, objects: Collection[int]) -> list[int]:
        """Return the other objects of the same tracks."""
        if self.tracks is None:
            return []
        numbers, tracks = self.tracks.table["object"], self.tracks.table["track"]
        is_chosen = np.isin(numbers, [*objects])
        others: list[int] = numbers[np.isin(tracks, tracks[is_chosen]) & ~is_chosen].tolist()
        return others


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """Classes learned from the clicks, and the images classified by them."""

    classes: ObjectClasses | None
    images: dict[str, ClassImage]


def learn_from(
    images: Mapping[str, ClassImage],
    clicks: Mapping[str, Clicks],
    current: str,
    learn: Learn,
    cancelled: Cancelled,
) -> Learned:
    """Learn classes from all images with the measures of the current one, and classify it."""
    clicked = [key for key, chosen in clicks.items() if chosen and key in images]
    measured = {key: images[key].measured(cancelled) for key in dict.fromkeys([current, *clicked])}
    training, training_clicks = [], []
    for key, image in measured.items():
        measures = _measures(image)
        present = {*measures.numbers.tolist()}
        chosen = {n: label for n, label in clicks.get(key, {}).items() if n in present}
        if chosen and _are_alike(image, measured[current]):
            training.append(measures)
            training_clicks.append(chosen)
    classes = learn(training, training_clicks)
    if classes is not None:
        measured[current] = measured[current].classify(classes)
    return Learned(classes, measured)


def classify_others(
    images: Mapping[str, ClassImage], classes: ObjectClasses, current: str, cancelled: Cancelled
) -> Learned:
    """Classify the objects of the other images that have the same measures."""
    others = {key: image.measured(cancelled) for key, image in images.items() if key != current}
    alike = {k: image for k, image in others.items() if _are_alike(image, images[current])}
    return Learned(classes, others | {k: image.classify(classes) for k, image in alike.items()})


def learner(
    names: Mapping[int, str], previous: ObjectClasses | None, loaded: ObjectClasses | None
) -> Learn:
    """Return a fast learner with the previous measures and method, or else the defaults."""

    def learn(measures: Sequence[ObjectMeasures], clicks: Sequence[Clicks]) -> ObjectClasses | None:
        if loaded is not None:
            classes = loaded.with_clicks(measures, clicks, added=True) if measures else loaded
        elif len({label for chosen in clicks for label in chosen.values()}) < 2:
            return None
        elif previous is not None and previous.fits(measures[0]):
            classes = previous.with_clicks(measures, clicks)
        else:
            available = measures[0].groups
            groups = [group for group in ("shape", "intensity", "texture") if group in available]
            classes = learn_classes(measures, clicks, groups=groups, method=class_methods()[0])
        return dataclasses.replace(classes, names=dict(names))

    return learn


def _measures(image: ClassImage) -> ObjectMeasures:
    assert image.measures is not None
    return image.measures


def _are_alike(image: ClassImage, other: ClassImage) -> bool:
    """Return whether the objects of two images have the same measures."""
    first, second = _measures(image), _measures(other)
    return (first.groups, first.names) == (second.groups, second.names)
