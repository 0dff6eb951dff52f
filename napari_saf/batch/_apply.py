"""Apply a trained model to image files; shared by app, command line and Python."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari_saf import io
from napari_saf.arrays import as_list, as_path
from napari_saf.batch._dictionary import DictionaryTask
from napari_saf.batch._engine import AbstractTask, Job, Outcome, Tiles, plan_jobs, run_batch
from napari_saf.batch._labelling import Companions, LabelTask
from napari_saf.dictionary import PatchDictionary
from napari_saf.features import Scaling
from napari_saf.methods import not_cancelled
from napari_saf.project import Model, ModelSource, as_model
from napari_saf.strategies import Strategy, refusal

if TYPE_CHECKING:
    from distributed import Client


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """Options for labelling image files with a trained model.

    Parameters
    ----------
    scaling : bool, Scaling or None
        Values of an image mapped to 0 and 1: its own 0.1 and 99.9 percentiles (True), those of
        the training image (False), or the given ones; None: as in the recipe. Dictionaries use
        their own values.
    suffix : str
        Format of the masks, see `save_masks`.
    mask : "finite" or None
        Whether pixels that are NaN or infinite are left out; else such images are refused.
    no_data : float or None
        Value of pixels without data, which get no label; None: as specified by the file.
    probabilities : ProbabilityStep or None
        Probability maps saved beside each mask; None: as in the recipe.
    overwrite : bool
        Whether existing files are recomputed and replaced, whatever their origin.
    tiles : "auto", "all" or "none"
        Which images are labelled in tiles, see `label_large`: those of 16 million pixels and more
        whose mask goes to a folder, or to a name that ends in ``.ome.zarr``.
    tile : int or None
        Side of a tile in pixels; None: 512 in planes, 96 in volumes.
    dictionary : mapping
        Arguments of `PatchDictionary.apply`, where a dictionary is applied.

    Examples
    --------
    >>> np.save("image.npy", np.kron([[0.1, 0.9]], np.ones((8, 8))))
    >>> problem = saf.Problem.from_image(np.load("image.npy"), features="intensity")
    >>> recipe = saf.load_recipe(saf.save_recipe("a.recipe.json", saf.SLK().run(problem).recipe))
    >>> options = saf.ApplyOptions(suffix=".png")
    >>> [outcome] = saf.apply_to_images(recipe, ["image.npy"], "masks/", options=options)
    >>> outcome.state, outcome.job.masks[0].suffix
    ('done', '.png')
    """

    scaling: bool | Scaling | None = None
    suffix: str = ".tif"
    mask: str | None = None
    no_data: float | None = None
    probabilities: io.ProbabilityStep | None = None
    overwrite: bool = False
    tiles: Tiles = "auto"
    tile: int | None = None
    dictionary: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def task(self, learned: Model, out: Path) -> AbstractTask[Any]:
        """Return the task that labels each image."""
        if isinstance(learned, PatchDictionary):
            if (self.probabilities, self.scaling, self.mask) != (None, None, None):
                raise refusal(Strategy.FOLDER, "options of a dictionary")
            return DictionaryTask(
                dictionary=learned,
                folder=out,
                mask_format=self.suffix,
                overwrite=self.overwrite,
                **{"window": learned.window, **self.dictionary},
            )
        pipeline = learned.for_others()
        if pipeline.options is None:
            raise refusal(Strategy.FOLDER, "graph")
        options = pipeline.options.for_others(self.scaling)
        step = self.probabilities or pipeline.probabilities
        pipeline = dataclasses.replace(pipeline, options=options, probabilities=step, about={})
        companions = Companions(mask=self.mask, no_data=self.no_data)
        digests = io.DigestEntry.of_recipe(learned.about)
        return LabelTask(pipeline, companions, self.overwrite, self.tile, digests)

    def plan(
        self, learned: Model, images: Sequence[Path], out: Path
    ) -> tuple[AbstractTask[Any], list[Job]]:
        """Return the task and its jobs; raise InvalidInput if the options do not allow them."""
        task = self.task(learned, out)
        if isinstance(task, DictionaryTask):
            return task, task.plan(images)
        return task, plan_jobs(images, out, self.suffix, together=False, tiles=self.tiles)


def apply_to_images(
    learned: ModelSource,
    images: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    options: ApplyOptions | None = None,
    n_processes: int = 1,
    client: Client | None = None,
    on_outcome: Callable[[Outcome[Any]], object] = lambda outcome: None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> list[Outcome[Any]]:
    """Label image files with a trained model, as `napari-saf run` and the docks do.

    Results of an earlier call with the same arguments are kept, so an interrupted call can be
    resumed. An image that fails does not stop the others.

    Parameters
    ----------
    learned : Project, Pipeline, PrototypeSet, PatchDictionary or path
        The model, or the path of its file.
    images : sequence of path
        Files, folders, or patterns such as ``slides/*.tif``.
    out : path
        A mask file for one image, or a folder, where the mask of ``name.png`` is ``name.labels``.
    options : ApplyOptions, optional
        Scaling, formats and additional outputs.
    n_processes : int
        Number of worker processes, one image each.
    client : dask.distributed.Client, optional
        Workers to use instead; they need access to the same files.
    on_outcome : callable, optional
        Called with the outcome of each image.
    cancelled : callable, optional
        Polled during the run; once it returns True the run stops, and completed results are kept.

    Returns
    -------
    list of Outcome
        One per image, with ``state`` "done", "skipped" (already complete) or "failed", and
        ``error``.

    Raises
    ------
    InvalidInput
        Before any computation, if an existing output file has another origin.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import napari_saf as saf
    >>> folder = tempfile.mkdtemp()
    >>> image = np.repeat([[0.1, 0.9]], 4, axis=0).repeat(4, axis=1)
    >>> np.save(f"{folder}/a.npy", image)
    >>> problem = saf.Problem.from_image(image, features="intensity", max_side=None)
    >>> taught = saf.PrototypeSet.from_labels(problem, (image > 0.5) + 1)
    >>> (outcome,) = saf.apply_to_images(taught, [folder], f"{folder}/labels")
    >>> outcome.state, outcome.job.masks[0].name
    ('done', 'a.labels.tif')
    """
    paths = io.find_images([as_path(image, "images") for image in as_list(images, "images")])
    task, jobs = (options or ApplyOptions()).plan(as_model(learned), paths, as_path(out, "out"))
    outcomes = []
    for outcome in run_batch(
        task, jobs, n_processes=n_processes, client=client, cancelled=cancelled
    ):
        outcomes.append(outcome)
        on_outcome(outcome)
    return outcomes
