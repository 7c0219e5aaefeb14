"""The interpreter that a command starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drumline.engine.local.warm.command import NotWarm, read_command


def read(folder: Path, script: str) -> str:
    """Return the interpreter of `python train.py` where `python` is this script."""
    (folder / "python").write_text(script)
    (folder / "python").chmod(0o755)
    (folder / "train.py").touch()
    return read_command(["python", "train.py"], {"PATH": str(folder)}, str(folder)).interpreter


def test_a_script_that_only_starts_a_python_is_resolved_to_that_python(tmp_path: Path) -> None:
    assert read(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n') == sys.executable


@pytest.mark.parametrize(
    "script",
    [
        f'#!/bin/sh\nA=1 exec {sys.executable} "$@"\n',
        f'#!/bin/sh\nexport A=1\nexec {sys.executable} "$@"\n',
        f'#!/bin/sh\nexec {sys.executable} -u "$@"\n',
        f'#!/bin/bash\nexec {sys.executable} "$@"\n',
        '#!/bin/sh\nexec python3 "$@"\n',
        '#!/bin/sh\nexec $HOME/python "$@"\n',
        f"#!{sys.executable}\n",
    ],
)
def test_a_script_that_does_more_is_not_resolved(tmp_path: Path, script: str) -> None:
    with pytest.raises(NotWarm, match="python is a script around Python"):
        read(tmp_path, script)
