"""``drumline check``: every problem of a spec, or its replicas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drumline.cli import run
from drumline.supervise.site import site_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXAMPLE = """\
project: digits
run: python train.py --layers {{ layers }} --lr {{ lr }}
parameters: {layers: 2, lr: 0.001}
roles:
  chief: 1
  worker: 3
  ps: {replicas: 2, resources: {cpus: 1, memory: 16GiB}}
resources: {cpus: 2, memory: 4GiB, gpus: 1}
restart: 3
timeouts: {run: 2h}
"""


def test_the_replicas_are_shown_as_a_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(EXAMPLE)
    assert run(["check"]) == 0
    out, err = capfd.readouterr()
    assert all("this machine has" in line for line in err.splitlines())  # less than that, here
    python = site_of(folder).python
    assert out == (
        "drumline.yml is fine: digits, 1 chief, 3 workers and 2 ps, tensorflow, on local\n"
        "\n"
        "REPLICAS    COMMAND                                CPUS  MEMORY  GPUS\n"
        "chief.0     python train.py --layers 2 --lr 0.001  2     4GiB    1\n"
        "worker.0-2  python train.py --layers 2 --lr 0.001  2     4GiB    1\n"
        "ps.0-1      python train.py --layers 2 --lr 0.001  1     16GiB   -\n"
        "\n"
        f"python     {python}\n"
        "ends       when the chief has finished\n"
        "restarts   3 for crash, 3 for lost host, 3 for preemption, 3 for hang, 3 for rendezvous\n"
        "time limit 2h\n"
        "parameters layers=2, lr=0.001\n"
    )


def test_the_replicas_as_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(EXAMPLE)
    assert run(["check", "-o", "json", "-p", "lr=0.5"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["ok"], data["name"], data["engine"], data["warnings"]) == (True, "digits", "local", [])
    assert data["parameters"] == {"layers": "2", "lr": "0.5"}
    assert data["replicas"][1] == {
        "replicas": "worker.0-2",
        "size": 3,
        "command": "python train.py --layers 2 --lr 0.5",
        "cpus": 2.0,
        "memory_bytes": 4 * 1024**3,
        "gpus": 1,
    }


def test_every_problem_is_reported_with_its_line_on_stderr(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text("project: digits\nrun: python\nroles:\n  worker: three\n  chief: 2\n")
    assert run(["check"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("drumline.yml:4: roles.worker: expected a whole number of at least 1")
    assert lines[1] == "drumline.yml:5: roles.chief: there is exactly one chief, not 2; the others are workers"
    assert lines[2] == "error: 2 problems; nothing was done"


def test_problems_as_json_are_on_stdout(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text("project: digits\nruns: python\n")
    assert run(["check", "-o", "json"]) == 2
    data = json.loads(capfd.readouterr().out)
    assert data["ok"] is False
    assert data["problems"][0]["line"] == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "error: there is no drumline.yml here\n"),
        (["other.yml"], "error: other.yml: no such file\n"),
        (["."], "error: .: is a directory\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_in_one_sentence(
    argv: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *argv]) == 2
    assert capfd.readouterr().err.startswith(message)


def test_a_spec_with_a_warning_is_fine(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text("project: digits\nrun: python train.py\nroles: {worker: 2, ps: 1}\n")
    assert run(["check"]) == 0
    out, err = capfd.readouterr()
    assert err.startswith("warning: drumline.yml:3: roles.ps: parameter servers without a chief")
    assert out.startswith("drumline.yml is fine: digits, 2 workers and 1 ps")


def test_a_long_command_is_cut_and_its_lines_are_joined(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(f"project: digits\nrun: |\n  cd src\n  python {'x' * 100}\n")
    assert run(["check"]) == 0
    (row,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("worker.0"))
    assert row == f"worker.0  cd src python {'x' * 55}…  -     -       -"


def test_an_environment_is_shown_with_its_requirements(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "more.txt").write_text("six==1.16.0\n")
    (folder / "drumline.yml").write_text("project: digits\nrun: train\nenvironment: [numpy, -r more.txt]\n")
    assert run(["check"]) == 0
    words = "the one that launches, in an environment of its own, with numpy, six==1.16.0"
    assert f"python     {words}\n" in capfd.readouterr().out
    assert run(["check", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["environment"] == {
        "requirements": ["numpy", "six==1.16.0"],
        "pythons": [],
    }
