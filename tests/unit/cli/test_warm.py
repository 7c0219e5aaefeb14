"""``drumline warm`` shows warm processes of this machine only, and names this machine in its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.cli import run as run_command


def test_the_message_that_there_is_no_warm_process_names_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path))
    assert run_command(["warm"]) == 0
    assert capsys.readouterr().out.startswith("there is no warm process on this machine; ")
    assert run_command(["warm", "stop", "63e1"]) == 4
    assert "there is no warm process 63e1 on this machine" in capsys.readouterr().err
    assert run_command(["warm", "--help"]) == 0
    assert "Warm processes on hosts are not shown" in " ".join(capsys.readouterr().out.split())
