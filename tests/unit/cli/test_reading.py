"""Reading a spec executes nothing of it or of its project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drumline.cli import run

Captured = pytest.CaptureFixture[str]

SPEC = """\
project: digits
framework: plain
run: touch {marker}; $(touch {marker}) `touch {marker}`
data: {{path: sets, prepare: touch {marker}}}
parameters: {{a: $(touch {marker})}}
env: {{A: "$(touch {marker})"}}
"""


@pytest.mark.parametrize("words", [["check"], ["render"], ["render", "-o", "json"], ["convert"]], ids=" ".join)
def test_reading_a_spec_executes_nothing_that_it_or_the_project_holds(
    home: Path, tmp_path: Path, words: list[str]
) -> None:
    marker = tmp_path / "executed"
    Path("drumline.yml").write_text(SPEC.format(marker=marker))
    for name in ("json", "yaml", "click", "msgspec", "sitecustomize", "usercustomize", "conftest"):
        Path(f"{name}.py").write_text(f"open({str(marker)!r}, 'w')")
    drumline = Path(sys.executable).with_name("drumline")
    done = subprocess.run([drumline, *words], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert not marker.exists()
    assert not home.exists()


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!x"])
@pytest.mark.usefixtures("home")
def test_a_tag_is_refused(tmp_path: Path, tag: str, capsys: Captured) -> None:
    marker = tmp_path / "executed"
    Path("drumline.yml").write_text(f"project: digits\nrun: {tag} ['touch {marker}']\n")
    assert run(["check"]) == 2
    assert "drumline.yml:2: tags are not supported" in capsys.readouterr().err
    assert not marker.exists()
