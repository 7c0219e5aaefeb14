"""What is published: an sdist, a wheel, and drumline as it is installed under every Python that is here."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from drumline import __version__
from drumline.cli.init import TEMPLATES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "drumline"
FOUND = subprocess.run([ROOT / "scripts" / "pythons"], capture_output=True, text=True, check=True).stdout
PYTHONS = dict(line.split(" ", 1) for line in FOUND.splitlines())


def build(source: Path, target: str, folder: Path) -> Path:
    """Build a wheel or an sdist of a source tree, by what the project names as its builder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder],
        cwd=source,
        capture_output=True,
        check=True,
    )
    (path,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_the_package_and_nothing_else_and_the_sdist_builds_the_same(wheel: Path, tmp_path: Path) -> None:
    found = contents(wheel)
    sources = {
        f"drumline/{path.relative_to(PACKAGE)}": path.read_bytes()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    info = f"drumline-{__version__}.dist-info"
    about = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert found.keys() == sources.keys() | about
    assert sources.items() <= found.items()
    assert {"drumline/py.typed", "drumline/spec/schema.json"} <= found.keys()
    assert {f"drumline/cli/templates/{name.replace('-', '_')}/train.py" for name in TEMPLATES} <= found.keys()

    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as sdist:
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # there from 3.11.4 on
        sdist.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert contents(build(unpacked, "wheel", tmp_path / "again")) == found


@pytest.mark.parametrize("version", PYTHONS)
def test_who_installs_the_wheel_into_a_fresh_environment_trains(version: str, wheel: Path, tmp_path: Path) -> None:
    asked = subprocess.run(
        [ROOT / "scripts" / "pythons", "--wheels", version], capture_output=True, text=True, check=True
    )
    needs = asked.stdout.strip()
    assert Path(needs).is_dir(), "nothing was fetched for it: run `scripts/pythons --wheels`"

    fresh, project = tmp_path / "fresh", tmp_path / "digits"
    project.mkdir()
    uv = [str(Path(sys.executable).parent / "uv"), "--quiet", "--no-config", "--no-cache", "--offline"]
    subprocess.run([*uv, "venv", "--python", PYTHONS[version], fresh], check=True)
    subprocess.run(
        [*uv, "pip", "install", "--python", fresh, "--no-index", "--find-links", needs, wheel],
        env={"PATH": os.environ["PATH"]},
        check=True,
    )
    done = subprocess.run(
        "drumline --version && drumline init --template plain && drumline train && python -V",
        shell=True,
        cwd=project,
        env={"PATH": f"{fresh / 'bin'}:{os.environ['PATH']}", "DRUMLINE_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    first, *said, last = done.stdout.splitlines()
    assert first == f"drumline {__version__}"
    assert said[-1].startswith("1  ")
    assert said[-1].endswith("--> FINISHED")
    assert last.startswith(f"Python {version}.")
