"""`drumline check`, as its users see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.cli import run
from drumline.supervise.site import site_of

SPEC = """\
project: digits
run: python train.py --layers {{ layers }} --lr {{ lr }}
parameters: {layers: 2, lr: 1e-6, spare: "a\\nb"}
roles:
  chief: 1
  worker: 3
  ps: {replicas: 2, resources: {cpus: 0.5, memory: 16GiB}}
resources: {cpus: 2, memory: 500MB, gpus: 1}
timeouts: {run: 90m}
restart: {crash: 3}
"""
SPARE = "drumline.yml:3: parameters.spare: is not used in any command; it is still given as SPARE"

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    (tmp_path / "drumline.yml").write_text(SPEC)
    return tmp_path


def test_a_valid_spec_is_summarized(capsys: Captured) -> None:
    assert run(["check"]) == 0
    output, errors = capsys.readouterr()
    first, *others = errors.splitlines()
    assert first == f"warning: {SPARE}"
    assert all("this machine has" in line for line in others)  # less than that, here
    assert (
        output
        == f"""\
drumline.yml is fine: digits, 1 chief, 3 workers and 2 ps, tensorflow, on local

REPLICAS    COMMAND                               CPUS  MEMORY  GPUS
chief.0     python train.py --layers 2 --lr 1e-6  2     500MB   1
worker.0-2  python train.py --layers 2 --lr 1e-6  2     500MB   1
ps.0-1      python train.py --layers 2 --lr 1e-6  0.5   16GiB   -

python     {site_of(".").python}
ends       when the chief has finished
restarts   3 for crash
time limit 90m
parameters layers=2, lr=1e-6, spare=a\\nb
"""
    )


def test_a_valid_spec_is_summarized_as_json(capsys: Captured) -> None:
    assert run(["check", "-o", "json", "-p", "spare=x"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    data = json.loads(output)
    assert (data["ok"], data["name"], data["engine"]) == (True, "digits", "local")
    assert data["parameters"] == {"layers": "2", "lr": "1e-6", "spare": "x"}
    assert [(row["replicas"], row["size"]) for row in data["replicas"]] == [
        ("chief.0", 1),
        ("worker.0-2", 3),
        ("ps.0-1", 2),
    ]
    assert [warning["path"] for warning in data["warnings"]] == ["parameters.spare"]


def test_an_invalid_spec_is_reported_with_every_line(folder: Path, capsys: Captured) -> None:
    (folder / "drumline.yml").write_text(SPEC.replace("chief: 1", "chief: 2").replace("90m", "soon"))
    assert run(["check"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert (
        errors
        == """\
drumline.yml:5: roles.chief: there is exactly one chief, not 2; the others are workers
drumline.yml:9: timeouts.run: expected a time such as 30s, 5m or 1h, got "soon"
error: 2 problems; nothing was done
"""
    )


def test_an_invalid_spec_is_reported_as_json(folder: Path, capsys: Captured) -> None:
    (folder / "drumline.yml").write_text('project: "x\\e"\nrun: x\n')
    assert run(["check", "-o", "json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(problem["source"], problem["line"], problem["path"]) for problem in problems] == [
        ("drumline.yml", 1, "project")
    ]


def test_texts_of_a_spec_cannot_control_the_terminal(folder: Path, capsys: Captured) -> None:
    (folder / "drumline.yml").write_text(
        'project: x\nrun: {argv: ["\\e[31m", "\\u2028"]}\nparameters: {p: "\\e]0;x"}\n'
    )
    assert run(["check"]) == 0
    output, errors = capsys.readouterr()
    assert all(line.isprintable() for line in (output + errors).split("\n"))
