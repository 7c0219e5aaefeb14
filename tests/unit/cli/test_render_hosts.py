"""`drumline render --on ssh` prints one script for all hosts, without connecting to any."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from drumline.cli import run

SPEC = """\
project: digits
framework: tensorflow
workdir: code
run: /usr/bin/env
roles: {worker: 3}
data: {path: images}
env: {TILDE: ~/literally}
engine: {ssh: {hosts: [{host: a, address: 10.0.0.1, port: 3000}, {host: b, address: 10.0.0.2, port: 4000}]}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "digits"
    (project / "code").mkdir(parents=True)
    (project / "drumline.yml").write_text(SPEC)
    monkeypatch.chdir(project)
    return project


def render(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["render", "--on", "ssh", "--run-id", "7", *words]) == 0
    return capfd.readouterr().out


def test_the_script_starts_a_replica_in_the_home_of_the_user_that_runs_it(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = render(capfd)
    assert "#   a: worker.0 worker.1\n#   b: worker.2\n" in script
    home = tmp_path / "home of mine"
    there = home / ".local/share/drumline/runs/7"
    (there / "project/code").mkdir(parents=True)
    done = subprocess.run(
        ["sh", "-s", "worker.2"],
        input=script,
        env={"HOME": str(home)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    env = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert env["PWD"] == str(there / "project/code")
    assert env["OUTPUT_DIR"] == str(there / "output")
    assert env["TILDE"] == "~/literally"
    assert (there / "output/checkpoint").is_dir()
    config = json.loads(env["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["10.0.0.1:3000", "10.0.0.1:3001", "10.0.0.2:4000"]}
    assert config["task"] == {"type": "worker", "index": 2}


def test_as_data_each_replica_has_its_host(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    replicas = json.loads(render(capfd, "-o", "json"))["replicas"]
    assert [each["host"] for each in replicas] == ["a", "a", "b"]
    assert {each["workdir"] for each in replicas} == {"~/.local/share/drumline/runs/7/project/code"}
    assert replicas[0]["env"]["CHECKPOINT_DIR"] == "${home}/.local/share/drumline/runs/7/output/checkpoint"
