"""What is carried to a host: complete, and content with the standard library."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from drumline.engine.ssh.package import BOOT, package_data, package_name

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path[:] = [each for each in sys.path if "site-packages" not in each]
sys.path.insert(0, sys.argv[1])
import drumline
assert drumline.__file__.startswith(sys.argv[1])
scripts = [f"drumline.runtime.{name}" for name in ("backup", "gather", "keras", "tensorflow")]
for module in pkgutil.walk_packages(drumline.__path__, "drumline."):
    if module.name not in scripts:
        importlib.import_module(module.name)
print(len([name for name in sys.modules if name.startswith("drumline")]))
"""


def _unpack(folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(package_data())) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # there from 3.11.4 on
        archive.extractall(folder)
    return folder


def test_the_hand_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    lib = _unpack(tmp_path) / "lib"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _IMPORT_ALL, str(lib)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_the_runtime_alone_lies_beside_it_for_training_scripts(tmp_path: Path) -> None:
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


def test_its_name_is_that_of_its_content() -> None:
    assert package_name() == package_name()
    assert len(package_name()) == 16


def _boot(folder: Path) -> str:
    """Return what is said by a host's Python that finds, in this folder, a package that says `evil`."""
    evil = folder / "0123456789abcdef/lib/drumline/supervise"
    evil.mkdir(parents=True, exist_ok=True)
    (evil.parent / "__init__.py").touch()
    (evil / "__init__.py").touch()
    (evil / "host.py").write_text("def main(): print('evil')\n")
    argv = [sys.executable, "-I", "-c", BOOT, str(folder), "0123456789abcdef"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def test_a_package_in_a_folder_of_ones_own_is_run(tmp_path: Path) -> None:
    assert _boot(tmp_path / "folder/hosts") == "evil\n"


@pytest.mark.parametrize("name", ["", "hosts", "hosts/0123456789abcdef"])
def test_a_package_that_all_users_may_write_is_not_run(tmp_path: Path, name: str) -> None:
    _boot(tmp_path / "folder/hosts")
    (tmp_path / "folder" / name).chmod(0o777)
    assert _boot(tmp_path / "folder/hosts").startswith('drumline-host {"refused": ')


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("name", ["", "hosts", "hosts/0123456789abcdef"])
def test_a_package_that_another_user_has_laid_out_is_not_run(tmp_path: Path, name: str) -> None:
    _boot(tmp_path / "folder/hosts")
    os.chown(tmp_path / "folder" / name, 12345, 12345)
    assert "belongs to another user" in _boot(tmp_path / "folder/hosts")
