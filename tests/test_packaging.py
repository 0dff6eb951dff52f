"""The wheel, installed in an environment that has the dependencies but not the checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from readme_renderer import markdown

from napari_saf.io import read_image
from napari_saf.samples import SAMPLES

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")]


def build(source, out, *what):
    """Build what is asked for, with the date of a release."""
    command = [sys.executable, "-m", "build", *what, "--no-isolation", "--outdir", str(out)]
    variables = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run([*command, str(source)], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "--sdist", "--wheel")
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("napari_saf-*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    """Unpack the source distribution."""
    (path,) = built.glob("napari_saf-*.tar.gz")
    there = tmp_path_factory.mktemp("source")
    with tarfile.open(path) as archive:
        archive.extractall(there, filter="data")
    (folder,) = there.iterdir()
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Make an environment: the wheel, and links to the installed dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    there = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    # A link to each distribution, since a .pth file would also bring the editable install.
    for name in {"purelib", "platlib"}:
        for path in Path(sysconfig.get_path(name)).iterdir():
            is_ours = "napari_saf" in path.name.replace("-", "_")
            if not is_ours and path.suffix != ".pth" and not (there / path.name).exists():
                (there / path.name).symlink_to(path)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    options = ["--no-deps", "--no-index", "--no-compile", "--no-warn-script-location", "--quiet"]
    done = subprocess.run([*pip, *options, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(environment, *command, folder):
    program = str(environment / "bin" / command[0])
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables["NAPARI_SAF_KERNELS"] = "0"  # nothing is compiled beside the command
    done = subprocess.run(
        [program, *command[1:]], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_manifest_samples_and_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "napari_saf/icon.svg",
        "napari_saf/napari.yaml",
        "napari_saf/py.typed",
        "napari_saf/_sample_images/README.md",
    }
    wanted |= {f"napari_saf/_sample_images/{sample.file}" for sample in SAMPLES.values()}
    assert wanted <= names
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))}


def test_builds_are_reproducible_and_the_source_distribution_lacks_nothing(
    built, unpacked, tmp_path
):
    build(unpacked, tmp_path, "--sdist", "--wheel")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir()
    }


def test_the_page_of_the_release_renders_and_its_links_lead_somewhere(unpacked):
    metadata = Metadata.from_email((unpacked / "PKG-INFO").read_bytes())
    page = markdown.render(metadata.description)
    assert page
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    ours = f"/napari-saf/napari-saf/blob/v{metadata.version}/"
    files = [link.partition(ours)[2] for link in links if ours in link]
    pictures = [link for link in links if link.endswith((".gif", ".png"))]
    assert files and pictures
    assert all(link.startswith(("https://", "#")) for link in links)
    assert all((unpacked / file.partition("#")[0]).exists() for file in files)


def test_the_installed_package_is_not_the_checkout_and_its_command_works(installed, tmp_path):
    script = """
        from napari_saf import cli, samples
        coins = str(samples.sample_path("coins"))
        print(samples.__file__, coins)
        assert not cli.main(["segment", coins, "-o", "coins.tif", "--max-labels", "3",
                             "--max-steps", "5", "--max-side", "96"])
    """
    said = run(installed, "python", "-c", textwrap.dedent(script), folder=tmp_path)
    *paths, line = said.split(maxsplit=2)
    assert all(Path(path).is_relative_to(installed) for path in paths)
    assert line.startswith("coins.tif: ")
    assert read_image(tmp_path / "coins.tif").array.shape == (303, 384)
    assert (tmp_path / "coins.recipe.json").exists()
    assert "segment" in run(installed, "napari-saf", "--help", folder=tmp_path)


def test_npe2_accepts_the_installed_manifest(installed, tmp_path):
    said = run(installed, "python", "-m", "npe2", "validate", "napari-saf", folder=tmp_path)
    assert "valid" in said.lower()
