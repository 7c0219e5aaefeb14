"""`make demo` trains a model, prints its path, and leaves no other files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from docs.pages import ROOT, read_blocks
from docs.terminal import differences, read_commands

DEMO_SECONDS = 1500


def test_the_demo_trains_a_model_and_prints_the_output_in_readme(tmp_path: Path) -> None:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "DRUMLINE_CACHE", "PYTHON") if name in os.environ}
    done = subprocess.run(
        [ROOT / "scripts" / "demo"],
        env={**env, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    model = re.search(r"^The model: +(.*)$", done.stdout, re.MULTILINE)
    assert model
    assert Path(model[1]).stat().st_size > 1000
    assert [folder.name.partition(".")[0] for folder in tmp_path.iterdir()] == ["drumline-demo"]

    (shown,) = (block for block in read_blocks(ROOT / "README.md") if "demo" in block.marks)
    (command,) = read_commands(shown.text)
    assert not differences(hide_figures(command.output), hide_figures(done.stdout))


def hide_figures(text: str) -> str:
    """Replace the losses, which differ a little between machines."""
    return re.sub(r"\d+\.\d{4,}", "FIGURE", text)
