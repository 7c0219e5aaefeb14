"""The settings of pip, such as indexes, are read as pip reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.runtime.install import _settings_for_uv, install


def write(path: Path, find_links: str, *more: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["[global]", f"find-links = {find_links}", *more]))
    return str(path)


def pips_word(environ: dict[str, str]) -> str:
    """Return the find-links that pip itself reads."""
    code = "from pip._internal.cli.main_parser import *; from pip._internal.commands import create_command as c;"
    code += "print(' '.join(c('install').parser.get_default_values().find_links))"
    said = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    return said.stdout.strip()


@pytest.mark.parametrize("named", ["", "named", "devnull", "absent"])
@pytest.mark.parametrize("own", ["", ".config/pip/pip.conf", ".pip/pip.conf"])
def test_settings_override_each_other_for_uv_as_for_pip(named: str, own: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}
    write(tmp_path / "xdg/pip/pip.conf", "/everybodys")
    if own:
        write(tmp_path / own, "/own", "no-color = true", "[install]", "find-links =\n  /a\n  /b")
    if named:
        named_file = {"named": str(tmp_path / "named.conf"), "devnull": os.devnull, "absent": str(tmp_path / "none")}
        environ["PIP_CONFIG_FILE"] = named_file[named]
        if named == "named":
            write(tmp_path / "named.conf", "/named")
    if (named, own) == ("named", ""):
        environ["PIP_FIND_LINKS"] = "/variable"
    told = _settings_for_uv(sys.executable, environ).get("UV_FIND_LINKS", "")
    assert told.replace(",", " ") == pips_word(environ)


def test_a_file_that_is_no_pip_configuration_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_bytes(b"\xff find-links")
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_NO_INDEX": "1"}
    assert _settings_for_uv("/nowhere/bin/python", environ)["UV_NO_INDEX"] == "1"


def test_a_pip_in_the_project_folder_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "environment").mkdir()
    (tmp_path / "project" / "pip.py").write_text("import pathlib; pathlib.Path(__file__).with_name('executed').touch()")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", "/nowhere")  # and so without uv
    with (tmp_path / "lock").open("w") as lock:
        assert install(str(tmp_path / "environment"), sys.executable, [], lock.fileno()) >= 0
    assert not (tmp_path / "project" / "executed").exists()
