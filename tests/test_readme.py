"""README.md and docs/python.md do what their comments say; the tutorials run to their end."""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from markdown_it import MarkdownIt

import napari_saf as saf

ROOT = Path(__file__).parent.parent


def run_blocks(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
        if token.type == "fence" and token.info == "python":
            exec(compile(token.content, path.name, "exec"), names)
    return names


def test_the_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labelling = run_blocks(ROOT / "README.md")["labelling"]
    assert labelling.labels.shape == (303, 384) and labelling.measures["object"].size
    names = run_blocks(ROOT / "docs/python.md")
    result = names["result"]
    assert result.labels.shape == (256, 256) and result.labels.dtype == np.uint8
    assert result.status is saf.Status.CONVERGED
    assert result.prototypes.shape == (result.n_labels, 4)
    assert names["problem"].graph.positions(names["modes"].exemplars).shape[1] == 2


TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_socket: None
) -> None:
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    names: dict[str, Any] = {}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "expected a notebook without outputs"
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
    assert plt.get_fignums()
    plt.close("all")


def test_tutorials_are_listed() -> None:
    page = (ROOT / "docs/tutorials.md").read_text(encoding="utf-8")
    assert len(TUTORIALS) == 5 and all(f"(tutorials/{path.name})" in page for path in TUTORIALS)
