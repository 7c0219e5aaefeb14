"""The package that is sent to a host is complete, and needs only the standard library."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from drumline.engine.agent.bootstrap import STUB
from drumline.engine.agent.package import package_data, package_name

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path[:] = [each for each in sys.path if "site-packages" not in each]
sys.path.insert(0, sys.argv[1])
import drumline
assert drumline.__file__.startswith(sys.argv[1])
scripts = [f"drumline.runtime.{name}" for name in ("backup", "all_gather", "keras", "tensorflow")]
for module in pkgutil.walk_packages(drumline.__path__, "drumline."):
    if module.name not in scripts:
        importlib.import_module(module.name)
print(len([name for name in sys.modules if name.startswith("drumline")]))
"""


def _unpack(folder: Path) -> Path:
    zipfile.ZipFile(io.BytesIO(package_data())).extractall(folder)
    return folder


def test_the_agent_needs_only_the_standard_library(tmp_path: Path) -> None:
    lib = _unpack(tmp_path) / "lib"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _IMPORT_ALL, str(lib)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_the_package_has_a_folder_with_only_the_runtime_for_training_scripts(tmp_path: Path) -> None:
    runtime = _unpack(tmp_path) / "runtime"
    assert sorted(each.name for each in (runtime / "drumline").iterdir()) == ["__init__.py", "runtime"]
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(runtime)!r}); import drumline.runtime",
        ],
        check=False,
    )
    assert done.returncode == 0


def test_the_name_of_the_package_is_constant_and_has_16_characters() -> None:
    assert package_name() == package_name()
    assert len(package_name()) == 16


def _boot(folder: Path, mode: str = "keep") -> str:
    """Return what is said by a host's Python that finds, in this folder, a package that says `evil`."""
    evil = folder / "0123456789abcdef/lib/drumline/engine/agent"
    evil.mkdir(parents=True, exist_ok=True)
    for package in (evil.parent.parent, evil.parent, evil):
        (package / "__init__.py").touch()
    (evil / "main.py").write_text("def main(): print('evil')\n")
    argv = [sys.executable, "-I", "-c", STUB, str(folder), "0123456789abcdef", mode]
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout


def test_a_package_in_a_folder_of_the_same_user_is_run(tmp_path: Path) -> None:
    assert _boot(tmp_path / "folder/hosts") == "evil\n"


@pytest.mark.parametrize("name", ["", "hosts", "hosts/0123456789abcdef"])
def test_a_package_that_all_users_may_write_is_not_run(tmp_path: Path, name: str) -> None:
    _boot(tmp_path / "folder/hosts")
    (tmp_path / "folder" / name).chmod(0o777)
    assert _boot(tmp_path / "folder/hosts").startswith('drumline-agent {"refused": ')


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("name", ["", "hosts", "hosts/0123456789abcdef"])
def test_a_package_of_another_user_is_not_run(tmp_path: Path, name: str) -> None:
    _boot(tmp_path / "folder/hosts")
    os.chown(tmp_path / "folder" / name, 12345, 12345)
    assert "belongs to another user" in _boot(tmp_path / "folder/hosts")


@pytest.mark.parametrize("name", ["", "hosts", "hosts/0123456789abcdef"])
def test_the_package_is_requested_again_if_the_one_on_the_host_is_not_trusted(tmp_path: Path, name: str) -> None:
    _boot(tmp_path / "folder/hosts")
    (tmp_path / "folder" / name).chmod(0o777)
    assert _boot(tmp_path / "folder/hosts", "leave") == 'drumline-agent {"wants": true}\n'


def test_an_agent_without_keep_runs_from_memory_and_writes_no_file(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-c", STUB, str(tmp_path / "hosts"), package_name(), "leave"]
    data, question = package_data(), b'{"do": "facts", "id": 7, "folder": "~/runs"}\n'
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        out, _ = agent.communicate(f"{len(data)}\n".encode() + data + question)
    wants, ready, answer = out.splitlines()
    assert (wants, ready) == (b'drumline-agent {"wants": true}', b'drumline-agent {"ready": true}')
    assert b'"do": "answer", "id": 7' in answer
    assert not list(tmp_path.iterdir())
