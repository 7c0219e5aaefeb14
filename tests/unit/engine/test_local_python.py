"""The Python of a run, and the copy of drumline's runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.engine.local.python import RunPython, copy_runtime, find_environment, find_python
from drumline.engine.protocol import Site
from drumline.errors import EngineError, InputError
from drumline.plan.types import Environment, Place

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def interpreter(folder: Path, name: str, version: str, real: str = "/opt/real/python") -> Path:
    """Write a program that answers as an interpreter of this version."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {version} {real}\n" if version else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


def test_the_python_of_drumline_is_used_if_it_matches(tmp_path: Path) -> None:
    base = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    for pythons in ((), (HERE,), ("3.99", HERE), ("{}.{}.{}".format(*sys.version_info[:3]),)):
        assert find_python(pythons, tmp_path, {"PATH": ""}) == base


def test_another_python_is_searched_on_the_path_and_has_to_work(tmp_path: Path) -> None:
    interpreter(tmp_path / "shims", "python3.98", "")
    interpreter(tmp_path / "old", "python3.98", "3.98.1", "/opt/3.98.1/python")
    interpreter(tmp_path / "new", "python3.98", "3.98.4", "/opt/3.98.4/python")
    environ = {"PATH": ":".join(str(tmp_path / name) for name in ("none", "shims", "old", "new"))}
    assert find_python(["3.98"], tmp_path, environ) == "/opt/3.98.1/python"
    assert find_python(["3.98.4"], tmp_path, environ) == "/opt/3.98.4/python"
    assert find_python(["3.99", "3.98"], tmp_path, environ) == "/opt/3.98.1/python"
    with pytest.raises(InputError, match=r"needs Python 3\.9[,8]"):
        find_python(["3.98.9"], tmp_path, environ)


def test_a_python_of_uv_is_found(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "kept", "python", "3.98.0", "/opt/uv/python")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(f'#!/bin/sh\n[ "$5" = 3.98 ] && echo {python}\n')
    (tmp_path / "bin" / "uv").chmod(0o755)
    assert find_python(["3.98"], tmp_path, {"PATH": f"{tmp_path}/bin"}) == "/opt/uv/python"


def test_a_path_is_relative_to_the_spec_and_not_executed(tmp_path: Path) -> None:
    mine = interpreter(tmp_path, "mine", "3.98.0")
    mine.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "venv").symlink_to(mine)
    assert find_python(["./venv"], tmp_path, {}) == str(mine)
    assert not (tmp_path / "started").exists()
    (tmp_path / "text").touch()
    for path in ("./none", "./text", "/"):
        with pytest.raises(InputError, match="is not a program"):
            find_python([path], tmp_path, {})


def test_without_a_matching_python_the_error_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_python(["3.99", "3.98", "3.97"], tmp_path, {"PATH": str(tmp_path)})
    assert "needs Python 3.97 to 3.99, which is not on this machine" in caught.value.message
    assert "`python3.99`" in caught.value.hint


def test_the_runtime_is_copied_under_its_hash_and_needs_no_other_package(tmp_path: Path) -> None:
    wanted = find_environment(Environment(("six",)), Site(tmp_path, tmp_path / "home", 1, cache=tmp_path / "cache"), {})
    for _ in range(2):
        copy_runtime(wanted.runtime)
    assert [path.name for path in Path(wanted.runtime).iterdir()] == ["drumline"]
    code = (
        "import drumline.runtime as r, sys; assert 'msgspec' not in sys.modules; print(r.__file__, r.role(), r.index())"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": wanted.runtime},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{wanted.runtime}/drumline/runtime/__init__.py worker 0\n"


def test_a_cache_that_cannot_be_written_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    wanted = find_environment(Environment(), Site(tmp_path, tmp_path / "home", 1, cache=tmp_path / "cache"), {})
    with pytest.raises(EngineError, match="cannot write"):
        copy_runtime(wanted.runtime)


def test_the_environment_of_a_run_comes_first_on_the_path(tmp_path: Path) -> None:
    python = RunPython(Environment(), Site(tmp_path, tmp_path / "home", 1), {})
    wanted, place = python.wanted, python.applied(Place("127.0.0.1", 1, "/", "/o", "/c"))
    assert (place.python_dir, place.environment) == (f"{wanted.folder}/bin", wanted.folder)
    assert wanted.folder.startswith(f"{tmp_path}/home/cache/environments/python-")
    assert wanted.argv[-2:] == (wanted.root, wanted.python)


def test_a_missing_environment_is_an_error(tmp_path: Path) -> None:
    python = RunPython(Environment(), Site(tmp_path, tmp_path / "home", 1), {})
    assert not python.lock_if_built()
    assert python.descriptors == ()
    with pytest.raises(EngineError, match="is gone"):
        python.require()
