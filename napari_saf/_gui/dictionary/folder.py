"""A dictionary applied to a folder, as work for a thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from napari_saf._gui.dictionary.applied import How
from napari_saf.batch import DictionaryTask, ImageMeasures, Outcome, run_batch
from napari_saf.dictionary import PatchDictionary
from napari_saf.io import find_images

__all__ = ["FolderSummary", "apply_to_folder"]

_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FolderSummary:
    """What came of the images of a folder.

    Attributes
    ----------
    outcomes : tuple of Outcome
    n_images : int
        Those that were not reached included.
    """

    outcomes: tuple[Outcome[ImageMeasures], ...]
    n_images: int

    def of(self, state: str) -> list[Outcome[ImageMeasures]]:
        """Return the outcomes of one state."""
        return [outcome for outcome in self.outcomes if outcome.state == state]

    @property
    def words(self) -> str:
        """The summary in words; images that failed are named."""
        done, skipped, failed = (self.of(state) for state in ("done", "skipped", "failed"))
        lines = [f"{len(done)} of {self.n_images} images done"]
        psnrs = [outcome.result.psnr for outcome in done if outcome.result is not None]
        if psnrs:
            lines[0] += f", {sum(psnrs) / len(psnrs):.1f} dB on average"
        if skipped:
            lines.append(f"{len(skipped)} skipped: results were there")
        if len(self.outcomes) < self.n_images:
            lines.append(f"stopped, {self.n_images - len(self.outcomes)} left")
        if failed:
            named = ", ".join(outcome.job.title for outcome in failed[:_MOST_NAMED])
            more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
            lines.append(f"failed: {named}{more} ({failed[0].error})")
        return "\n".join(lines)


def apply_to_folder(
    dictionary: PatchDictionary,
    source: Path,
    results: Path,
    how: How,
    overwrite: bool,
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> FolderSummary:
    """Apply a dictionary to the images of a folder; what is reported is a fraction and words.

    Raises
    ------
    InvalidInput
        If the folder holds no image.
    SafError
        If the results cannot be written.
    """
    paths = find_images([source])
    report((0.0, f"0 of {len(paths)}"))
    task = DictionaryTask(
        dictionary=dictionary,
        folder=results,
        window=how.window,
        reconstruction=how.reconstruction,
        device=how.device,
        overwrite=overwrite,
    )
    outcomes: list[Outcome[ImageMeasures]] = []
    for outcome in run_batch(task, task.plan(paths), cancelled=cancelled):
        outcomes.append(outcome)
        words = f"{len(outcomes)} of {len(paths)}: {outcome.job.title} {outcome.state}"
        report((len(outcomes) / len(paths), words))
    return FolderSummary(tuple(outcomes), len(paths))
