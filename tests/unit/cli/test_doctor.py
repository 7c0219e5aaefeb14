"""`drumline doctor` of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumline.cli import run

Captured = pytest.CaptureFixture[str]


def found(capsys: Captured) -> dict[str, dict[str, Any]]:
    return {each["subject"]: each for each in json.loads(capsys.readouterr().out)}


def test_this_machine_is_looked_at_without_a_spec(home: Path, capsys: Captured) -> None:
    assert run(["doctor", "-o", "json"]) == 0
    rows = found(capsys)
    assert {"python", "machine", "home", "private network", "stacks"} <= set(rows)
    assert "room" not in rows
    assert rows["home"]["words"].startswith(str(home))


def test_a_spec_that_asks_for_too_much_finds_no_room(home: Path, capsys: Captured) -> None:
    Path("drumline.yml").write_text("project: p\nrun: 'true'\nframework: plain\nresources: {cpus: 9000}\n")
    assert run(["doctor", "-o", "json"]) == 1
    row = found(capsys)["room"]
    assert row["verdict"] == "missing"
    assert "--oversubscribe" in row["hint"]
    Path("drumline.yml").write_text("project: p\nrun: 'true'\nframework: plain\n")
    assert run(["doctor"]) == 0
    assert any(
        line.split() == ["room", "ok", "enough", "for", "1", "replica"] for line in capsys.readouterr().out.splitlines()
    )


def test_without_hosts_nobody_can_be_asked(home: Path, capsys: Captured) -> None:
    assert run(["doctor", "--on", "ssh"]) == 2
    assert capsys.readouterr().err.startswith("error: no hosts are named")
