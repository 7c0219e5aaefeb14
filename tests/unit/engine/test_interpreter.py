"""The Python that `python` means for a run: that of the shell that launches, else drumline's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.engine.interpreter import find_interpreter, has_drumline, require_interpreter
from drumline.engine.protocol import Interpreter
from drumline.errors import InputError


class Machine(NamedTuple):
    """Pythons in folders of a machine."""

    root: Path

    def python(self, folder: str, *, environment: bool = False, script: str = "") -> str:
        """Put a `python` into a folder; with a file that makes it a virtual environment."""
        path = self.root / folder / "bin" / "python"
        path.parent.mkdir(parents=True)
        path.write_text(script or folder)
        path.chmod(0o755)
        if environment:
            (self.root / folder / "pyvenv.cfg").touch()
        return str(path)

    def path(self, *folders: str) -> str:
        return ":".join(str(self.root / each / "bin") for each in folders)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def find(machine: Machine, path: str, *, own: str, program: str = "/nowhere/drumline", **env: str) -> Interpreter:
    base = str(machine.root / "base" / "bin" / "python")
    return find_interpreter({"PATH": path, **env}, own=own, base=base, program=program)


def test_an_active_virtual_environment_is_preferred_to_drumlines_own(machine: Machine) -> None:
    own, venv = machine.python("tool", environment=True), machine.python("venv", environment=True)
    found = find(machine, machine.path("venv", "tool"), own=own, VIRTUAL_ENV=str(machine.root / "venv"))
    assert found == Interpreter(venv, "the active virtual environment")
    # Not on PATH, it is active all the same.
    assert find(machine, "/usr/bin:/bin", own=own, VIRTUAL_ENV=str(machine.root / "venv")) == found


def test_an_active_conda_environment_is_preferred_to_drumlines_own(machine: Machine) -> None:
    own, conda = machine.python("tool", environment=True), machine.python("conda")
    found = find(machine, machine.path("conda"), own=own, CONDA_PREFIX=str(machine.root / "conda"))
    assert found == Interpreter(conda, "the active conda environment")


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_first_on_path_is_preferred_though_its_python_is_a_link(machine: Machine, sign: str) -> None:
    own, base = machine.python("tool", environment=True), machine.python("base")
    (machine.root / "named" / "bin").mkdir(parents=True)
    (machine.root / "named" / "bin" / "python").symlink_to(base)
    (machine.root / "named" / sign).parent.mkdir(exist_ok=True)
    (machine.root / "named" / sign).touch()
    found = find(machine, machine.path("named"), own=own)
    assert found.path == str(machine.root / "named" / "bin" / "python")


def test_a_python_first_on_path_that_is_not_the_systems_is_preferred(machine: Machine) -> None:
    own, other = machine.python("tool", environment=True), machine.python("other")
    assert find(machine, machine.path("other"), own=own) == Interpreter(other, "the first `python` on PATH")
    # Though another environment was activated before.
    machine.python("venv", environment=True)
    found = find(machine, machine.path("other", "venv"), own=own, VIRTUAL_ENV=str(machine.root / "venv"))
    assert found.path == other


def test_without_an_environment_a_drumline_called_by_its_path_uses_its_own_python(machine: Machine) -> None:
    own = machine.python("tool", environment=True)
    machine.python("base")
    machine.python("pyenv/shims")
    (machine.root / "pyenv" / "shims" / "bin").rename(machine.root / "shims")
    expected = Interpreter(own, "drumline's own, since no environment is active")
    for path in ("", "/usr/bin:/bin", machine.path("base"), str(machine.root / "shims")):
        assert find(machine, path, own=own) == expected
    assert find(machine, "/usr/bin", own=own, VIRTUAL_ENV="/gone", CONDA_PREFIX="") == expected


def test_without_an_environment_a_drumline_called_by_its_name_uses_the_python_of_the_shell(machine: Machine) -> None:
    own, base = machine.python("tool", environment=True), machine.python("base")
    program = machine.root / "tool" / "bin" / "drumline"
    program.write_text("")
    program.chmod(0o755)
    link = machine.root / "base" / "bin" / "drumline"  # as pipx and `uv tool` make it
    link.symlink_to(program)
    found = find(machine, machine.path("base"), own=own, program=str(link))
    assert found == Interpreter(base, "the first `python` on PATH")


def test_a_shim_is_followed_to_the_python_that_it_starts(machine: Machine) -> None:
    own, real = machine.python("tool", environment=True), machine.python("3.98")
    shims = machine.root / "shims"
    shims.mkdir()
    for name in ("python", "drumline"):
        (shims / name).write_text(f"#!/bin/sh\necho {real}\n")
        (shims / name).chmod(0o755)
    found = find(machine, f"{shims}:/usr/bin:/bin", own=own, program=str(shims / "drumline"))
    assert found == Interpreter(real, "the first `python` on PATH")


def test_a_shim_that_fails_is_not_followed(machine: Machine) -> None:
    own, real = machine.python("tool", environment=True), machine.python("3.98")
    shims = machine.root / "shims"
    shims.mkdir()
    for name in ("python", "drumline"):
        (shims / name).write_text(f"#!/bin/sh\necho {real}\nexit 1\n")
        (shims / name).chmod(0o755)
    found = find(machine, f"{shims}:/usr/bin:/bin", own=own, program=str(shims / "drumline"))
    assert found.path == str(shims / "python")


def test_a_script_that_starts_drumlines_own_python_is_drumlines_own(machine: Machine) -> None:
    own = machine.python("tool", environment=True)
    machine.python("wrapped", script=f"#!/bin/sh\necho {own}\n")
    assert find(machine, machine.path("wrapped"), own=own).path == own


def test_a_program_that_cannot_be_read_is_no_script_that_starts_drumlines_own_python(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: str) -> None:
        raise PermissionError(13, f"Permission denied: {mode}", path)

    own = machine.python("tool", environment=True)
    other = machine.python("other", script=f"#!/bin/sh\necho {own}\n")
    monkeypatch.setattr("drumline.engine.interpreter.open", refuse, raising=False)
    assert find(machine, machine.path("other"), own=own).path == other


def test_the_folder_that_uv_tool_run_adds_to_path_is_ignored(machine: Machine) -> None:
    own, venv = machine.python("tool", environment=True), machine.python("venv", environment=True)
    path = machine.path("tool", "venv")
    assert find(machine, path, own=own, UV="/usr/bin/uv").path == venv
    # `uv run` does so too, and means it.
    assert find(machine, path, own=own, UV="/usr/bin/uv", VIRTUAL_ENV=str(machine.root / "tool")).path == own
    assert find(machine, path, own=own).path == own


def test_a_python_has_drumline_if_one_of_its_folders_has_it(machine: Machine) -> None:
    python = Interpreter(machine.python("venv"), "")
    assert not has_drumline(python, {})
    sources = machine.root / "src"
    (sources / "drumline" / "runtime").mkdir(parents=True)
    (sources / "drumline" / "runtime" / "__init__.py").touch()
    assert has_drumline(python, {"PYTHONPATH": f"/nowhere:{sources}"})
    (machine.root / "venv" / "lib" / "python3.98" / "site-packages" / "drumline-1.0.dist-info").mkdir(parents=True)
    assert has_drumline(python, {})


def is_required(interpreter: Interpreter, *commands: tuple[str, ...]) -> bool:
    """Return whether a run with these commands is refused because this Python does not exist."""
    try:
        require_interpreter(interpreter, commands)
    except InputError as error:
        return "the Python of this run's launch is gone" in str(error)
    return False


def test_a_missing_python_is_an_error_for_a_command_without_an_absolute_path(tmp_path: Path) -> None:
    gone = Interpreter(str(tmp_path / "bin" / "python"), "it was active")
    assert is_required(gone, ("python", "/train.py"))
    assert is_required(gone, ("/bin/sh", "x"), ("python",))
    assert not is_required(gone, ("/bin/sh", "python"))
    assert not is_required(Interpreter(sys.executable, "it is here"), ("python", "train.py"))


def test_a_python_below_a_file_is_missing_and_one_with_too_long_a_name_is_not(tmp_path: Path) -> None:
    (tmp_path / "bin").touch()
    assert is_required(Interpreter(str(tmp_path / "bin" / "python"), ""), ("python",))
    assert not is_required(Interpreter(str(tmp_path / ("x" * 300)), ""), ("python",))
