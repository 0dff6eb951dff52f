"""The lines of Python in README.md do what the comments beside them say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

import napari_saf as saf

README = Path(__file__).parent.parent / "README.md"


def test_the_blocks_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for token in MarkdownIt().parse(README.read_text(encoding="utf-8")):
        if token.type == "fence" and token.info == "python":
            exec(compile(token.content, "README.md", "exec"), names)
    result = names["result"]
    assert result.labels.shape == (512, 512) and result.labels.dtype == np.uint8
    assert result.status is saf.Status.CONVERGED
    assert result.prototypes.shape == (result.n_labels, 4)
    assert names["problem"].graph.positions(names["modes"].exemplars).shape[1] == 2
