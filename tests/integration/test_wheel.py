"""The published sdist and wheel, and drumline as installed under every Python of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline import __version__
from drumline.cli.init import TEMPLATES
from scaffold.shared import make_once

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "drumline"
FOUND = subprocess.run([ROOT / "scripts" / "pythons"], capture_output=True, text=True, check=True).stdout
PYTHONS = dict(line.split(" ", 1) for line in FOUND.splitlines())
SYSTEM = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))


def build(source: Path, target: str, folder: Path) -> Path:
    """Build a wheel or an sdist of a source tree, by the project's build backend."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder],
        cwd=source,
        capture_output=True,
        check=True,
    )
    (path,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the names of all files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    (path,) = make_once(tmp_path_factory, "dist", lambda folder: build(ROOT, "wheel", folder)).glob("*.whl")
    return path


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
    assert {"drumline/py.typed"} <= found.keys()
    assert {f"drumline/cli/templates/{name.replace('-', '_')}/train.py" for name in TEMPLATES} <= found.keys()

    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as sdist:
        sdist.extraction_filter = getattr(tarfile, "data_filter", None)  # exists from 3.11.4 on
        sdist.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert contents(build(unpacked, "wheel", tmp_path / "again")) == found


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_in_a_fresh_environment_trains(version: str, wheel: Path, tmp_path: Path) -> None:
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


SCRIPT = """
import os, sys
import marker
from drumline import runtime
print("prefix", sys.prefix, runtime.role(), flush=True)
sys.exit(0 if os.path.exists("pass") else 3)
"""


def install_tool(installer: str, folder: Path, wheel: Path) -> None:
    """Install drumline as `uv tool` or `pipx` does, and make a virtual environment with the packages of a script.

    They are of different versions of Python, where this machine has two.
    """
    version = list(PYTHONS)[-1]
    asked = [str(ROOT / "scripts" / "pythons"), "--wheels", version]
    needs = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    bin_dir = Path(sys.executable).parent
    offline = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_FIND_LINKS": needs, "UV_NO_CACHE": "1"}
    if installer == "uv":
        words = ["uv", "tool", "install"]
        folders = {"UV_TOOL_DIR": f"{folder}/tools", "UV_TOOL_BIN_DIR": f"{folder}/bin"}
    else:
        words = ["pipx", "install", "--backend", "uv"]  # its other backend needs the network to look for a newer pip
        folders = {"PIPX_HOME": f"{folder}/pipx", "PIPX_BIN_DIR": f"{folder}/bin"}
    subprocess.run(
        [str(bin_dir / words[0]), *words[1:], "--python", PYTHONS[version], str(wheel)],
        env={"HOME": str(folder), **offline, **folders, "PATH": f"{bin_dir}:{SYSTEM}"},
        capture_output=True,
        check=True,
    )
    make = [str(bin_dir / "uv"), "--quiet", "--no-config", "--no-cache", "--offline", "venv", "--python"]
    subprocess.run([*make, next(iter(PYTHONS.values())), str(folder / "active")], check=True)
    (packages,) = (folder / "active").glob("lib/python3*/site-packages")
    (packages / "marker.py").touch()


class Tool:
    """An installation by `install_tool`, with its own home and project."""

    def __init__(self, installed: Path, folder: Path) -> None:
        path = f"{installed / 'bin'}:{SYSTEM}"
        self.env = {"PATH": path, "HOME": str(folder), "DRUMLINE_HOME": str(folder / "home")}
        self.own = (installed / "bin" / "drumline").resolve().parent / "python"
        self.active = installed / "active"
        self.activated = {"VIRTUAL_ENV": str(self.active), "PATH": f"{self.active / 'bin'}:{path}"}
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "train.py").write_text(SCRIPT)

    def __call__(self, command: str, *, activated: bool = True) -> tuple[int, str]:
        """Run a command in a shell, in which the environment is active or not."""
        env = {**self.env, **(self.activated if activated else {})}
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.project,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture(scope="module", params=["uv", "pipx"])
def tool(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    name = str(request.param)
    installed = make_once(tmp_path_factory, f"tool-{name}", lambda folder: install_tool(name, folder, wheel))
    found = Tool(installed, tmp_path_factory.mktemp("tool"))
    yield found
    found("drumline warm stop")


@pytest.mark.parametrize("warm", ["true", "false"])
def test_drumline_installed_as_a_tool_runs_scripts_with_the_python_of_the_active_environment(
    tool: Tool, warm: str
) -> None:
    (tool.project / "pass").unlink(missing_ok=True)
    (tool.project / "drumline.yml").write_text(
        f"project: digits\nframework: plain\nwarm: {warm}\nrun: python train.py\n"
    )
    python = {"path": str(tool.active / "bin" / "python"), "reason": "the active virtual environment"}
    assert json.loads(tool("drumline check -o json")[1])["python"] == python
    assert f"python     {python['path']}: {python['reason']}\n" in tool("drumline check")[1]
    doctor = {row["subject"]: row["words"] for row in json.loads(tool("drumline doctor -o json")[1])}
    assert doctor["python"] == f"{python['path']}: {python['reason']}"
    assert f"with Python {list(PYTHONS)[-1]}" in doctor["drumline"]
    code, said = tool("drumline train")
    assert code == 1
    assert f"prefix {tool.active} worker" in said
    (run,) = re.findall(r"^.*Run (\d+) failed", said, re.MULTILINE)
    assert json.loads(tool(f"drumline status {run} -o json")[1])["python"] == python
    # The environment is not active at the resume: the run keeps the Python of its launch.
    (tool.project / "pass").touch()
    code, said = tool(f"drumline resume {run}", activated=False)
    assert code == 0, said
    assert tool(f"drumline logs {run} --attempt 1", activated=False)[1].count(f"prefix {tool.active} worker") == 1


def test_drumline_installed_as_a_tool_names_the_python_that_lacks_a_module(tool: Tool) -> None:
    (tool.project / "drumline.yml").write_text("project: digits\nframework: plain\nrun: python train.py\n")
    code, said = tool(f"{tool.own} -m drumline train", activated=False)
    assert code == 1
    joined = " ".join(said.replace("┃", "").split())
    own = f"{tool.own} (drumline's own, since no environment is active)"
    assert f"the Python that ran this, {own}, has no `marker`" in joined


def test_an_environment_of_the_run_is_made_from_the_python_of_the_active_environment(tool: Tool) -> None:
    (tool.project / "drumline.yml").write_text(
        "project: digits\nframework: plain\nenvironment: []\nrun: python train.py\n"
    )
    code, said = tool("drumline render")
    assert code == 0, said
    base = subprocess.run(
        [tool.active / "bin" / "python", "-c", "import os, sys; print(os.path.realpath(sys._base_executable))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert base in said
