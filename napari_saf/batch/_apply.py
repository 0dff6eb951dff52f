"""Apply what was learned on some images to others: the one way of app, command line and Python."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
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
    """How images of files are labelled by what was learned.

    Parameters
    ----------
    scaling : bool, Scaling or None
        Which values of an image become 0 and 1: its own 0.1 and 99.9 percentiles (True), those that
        did in the first image (False), or given ones; None: as the recipe says. Dictionaries have
        values of their own.
    suffix : str
        Format of the masks, see `save_masks`.
    mask : "finite" or None
        Whether pixels that are NaN or infinite are left out; else such images are refused.
    no_data : float or None
        The value of pixels without data, which get no label; None: as the file says.
    probabilities : ProbabilityStep or None
        Which maps of probabilities lie beside each mask; None: as the recipe says.
    overwrite : bool
        Whether what is there is made anew and replaced, whoever made it.
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
    dictionary: dict[str, Any] = dataclasses.field(default_factory=dict)

    def task(self, learned: Model, out: Path) -> AbstractTask[Any]:
        """Return what is done with every image."""
        if isinstance(learned, PatchDictionary):
            if (self.probabilities, self.scaling, self.mask) != (None, None, None):
                raise refusal(Strategy.FOLDER, "options of a dictionary")
            arguments: dict[str, Any] = {"mask_format": self.suffix, "overwrite": self.overwrite}
            arguments |= {"window": learned.window} | self.dictionary
            return DictionaryTask(dictionary=learned, folder=out, **arguments)
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
        """Return what is done with every image, and the jobs; InvalidInput if they cannot be."""
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
    """Label image files by what was learned on others; the same as `napari-saf run` and the docks.

    What an earlier call with the same arguments has done is not done again, so that one that was
    stopped, or killed, goes on. An image that cannot be labelled stops no other.

    Parameters
    ----------
    learned : Project, Pipeline, PrototypeSet, PatchDictionary or path
        Or the file of one of them.
    images : sequence of path
        Files, folders, or patterns such as ``slides/*.tif``.
    out : path
        A mask, for one image, or a folder: that of ``name.png`` is called ``name.labels`` in it.
    options : ApplyOptions, optional
        Scaling, formats, and what is saved beside the masks.
    n_processes : int
        Images at a time, each in a process of its own.
    client : dask.distributed.Client, optional
        Workers to use in their place; they must see the same files.
    on_outcome : callable, optional
        Called with what became of each image, once it is known.
    cancelled : callable, optional
        Asked now and then; the work ends once it returns True, and what is done stays.

    Returns
    -------
    list of Outcome
        Of each image its ``state``, "done", "skipped" (there already) or "failed", and its
        ``error``.

    Raises
    ------
    InvalidInput
        Before any work, if a file is in the way that came of something else.

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
