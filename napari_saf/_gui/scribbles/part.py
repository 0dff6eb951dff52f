"""The part of an image that is on screen, with its strokes."""

from __future__ import annotations

import dataclasses
from typing import Any

from napari.layers import Labels
from numpy.typing import NDArray

from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.placement import pixels_of
from napari_saf._gui.layers.reading import ImageJob, fingerprint, read_pixels
from napari_saf._gui.scribbles.results import StrokeResult, StrokeResults
from napari_saf._gui.scribbles.strokes import Strokes, follow_strokes
from napari_saf.errors import SafError
from napari_saf.methods import AbstractMethod, not_cancelled

__all__ = ["PaintedPart"]


class PaintedPart:
    """What is painted on the part of the image that is on screen, and what came of it.

    Parameters
    ----------
    chosen : ImageInput
    base : LayerChoice
        Labels of an earlier run that become classes, if any.
    strokes : Strokes
    results : StrokeResults

    Attributes
    ----------
    finite_only : bool
        Whether pixels of the image that are NaN or infinite are left out.
    """

    def __init__(
        self, chosen: ImageInput, base: LayerChoice, strokes: Strokes, results: StrokeResults
    ) -> None:
        self._input, self._base = chosen, base
        self._strokes, self._results = strokes, results
        self.finite_only = False

    @property
    def index(self) -> Any:
        """What is read of the image; None without one."""
        return None if self._input.image is None else self._input.job().index

    @property
    def result(self) -> StrokeResult | None:
        """What is shown of the strokes on this part, if anything."""
        image, strokes = self._input.image, self._input.strokes
        if image is None or strokes is None:
            return None
        return self._results.at(image, strokes, self.index)

    def choose_strokes(self) -> None:
        """Go on with the strokes that labelled the image last; let go of those that do not fit."""
        image = self._input.image
        if image is None:
            return
        own, strokes = self._results.strokes_on(image), self._input.strokes
        if own is not None:
            self._input.choose_strokes(own)
        elif strokes is not None:
            sides, whole = pixels_of(strokes).shape, self._input.whole()[1]
            # Any axis may be that of the channels, which is still to be chosen.
            cut = [(whole[:axis], whole[axis + 1 :]) for axis in range(len(whole))]
            like = [(*before, *n, *after) for before, after in cut for n in ((), (1,))]
            if sides not in (whole, *like):
                self._input.choose_strokes(None)

    def read(self, layer: Labels) -> NDArray[Any]:
        """Return the part of a layer of labels that lies over the part of the image."""
        return read_pixels(pixels_of(layer), self._input.index_of(layer), not_cancelled)

    def checksum(self) -> int:
        """Return a number that tells these strokes from others."""
        return fingerprint(self.read(self._input.strokes), None)

    def given(self) -> NDArray[Any] | None:
        """Return the labels that hold where nothing is painted: locked ones, earlier ones.

        Raises
        ------
        InvalidInput
            If earlier labels have another shape than the strokes.
        """
        given = None
        if self._base.layer is not None:
            base = self.read(self._base.layer)
            given = follow_strokes(base, self.read(self._input.strokes))
        result = self.result
        return given if result is None else result.with_locked(given)

    def job(self) -> ImageJob:
        """Return what to label; see `given` for errors."""
        job = self._input.job(finite_only=self.finite_only)
        return dataclasses.replace(job, given=self.given())

    def missing(self, job: ImageJob, method: AbstractMethod) -> str:
        """Return what a person should do before anything can be labelled; empty if nothing."""
        seeds = job.read_seeds(not_cancelled)
        assert seeds is not None
        return self._strokes.missing(seeds, method.follows_seeds)

    def lacks(self) -> str:
        """Return what a person should do before there can be strokes; empty if there are."""
        if self._input.image is None:
            return "no image: open or choose an image layer first"
        return "press New, then paint two classes" if self._input.strokes is None else ""

    def why_no_labels(self, form: MethodForm) -> str:
        """Return what a person should do to have labels with the method of a form."""
        try:
            missing = self.lacks() or self.missing(self.job(), form.read())
        except SafError as error:
            return str(error)
        return missing or "no labels yet: press Update"
