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


def test_this_machine_is_checked_without_a_spec(home: Path, capsys: Captured) -> None:
    assert run(["doctor", "-o", "json"]) == 0
    rows = found(capsys)
    assert {"python", "machine", "home", "private network", "stacks"} <= set(rows)
    assert "room" not in rows
    assert rows["home"]["words"].startswith(str(home))


def test_a_spec_that_asks_for_too_much_does_not_fit(home: Path, capsys: Captured) -> None:
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


def test_a_framework_that_the_runs_python_lacks_is_missing(home: Path, capsys: Captured) -> None:
    Path("drumline.yml").write_text("project: p\nrun: python train.py\nframework: torch\n")
    assert run(["doctor", "-o", "json"]) == 1
    row = found(capsys)["torch"]
    assert row["verdict"] == "missing"
    assert row["words"].startswith("it is not installed for /")
    assert "`environment: [LINES]`" in row["hint"]
    assert "`framework: plain`" in row["hint"]


@pytest.mark.parametrize(
    ("framework", "package", "spelt"),
    [("torch", "torch", "torch"), ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")],
)
def test_an_installed_framework_is_shown_with_its_version_however_its_wheel_is_spelled(
    framework: str,
    package: str,
    spelt: str,
    home: Path,
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = tmp_path / f"{spelt}-9.8.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {spelt}\nVersion: 9.8\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Path("drumline.yml").write_text(f"project: p\nrun: python train.py\nframework: {framework}\n")
    assert run(["doctor", "-o", "json"]) == 0
    assert found(capsys)[framework]["words"].startswith(f"{package} 9.8, for /")


@pytest.mark.parametrize(
    "words",
    [
        "run: ./python train.py\nframework: torch\n",
        "run: ./train.sh\nframework: torch\n",
        "run: python a.py\nframework: plain\n",
    ],
)
def test_no_framework_is_missing_if_the_imports_of_the_command_are_unknown(
    words: str, home: Path, capsys: Captured
) -> None:
    Path("drumline.yml").write_text(f"project: p\n{words}")
    assert run(["doctor", "-o", "json"]) == 0
    assert not {"torch", "plain"} & set(found(capsys))


def test_a_framework_in_the_environment_of_the_run_is_not_missing(home: Path, capsys: Captured) -> None:
    Path("drumline.yml").write_text("project: p\nrun: python train.py\nframework: torch\nenvironment: [torch]\n")
    assert run(["doctor", "-o", "json"]) == 0
    assert found(capsys)["torch"]["words"].startswith("in an environment of the run: ")


def test_without_hosts_a_check_for_ssh_is_refused(home: Path, capsys: Captured) -> None:
    assert run(["doctor", "--on", "ssh"]) == 2
    assert capsys.readouterr().err.startswith("error: no hosts are named")


def test_the_query_for_versions_does_not_import_modules_of_the_project(home: Path, capsys: Captured) -> None:
    Path("drumline.yml").write_text("project: p\nrun: python train.py\nframework: torch\n")
    Path("json.py").write_text("import pathlib; pathlib.Path(__file__).with_name('executed').touch()")
    run(["doctor", "-o", "json"])
    assert found(capsys)["torch"]["verdict"] in ("ok", "missing")
    assert not Path("executed").exists()


@pytest.mark.parametrize("spec", [None, "project: p\nrun: 'true'\nframework: plain\n"])
@pytest.mark.usefixtures("home")
def test_flags_of_another_engine_are_refused_with_a_spec_and_without(spec: str | None, capsys: Captured) -> None:
    if spec:
        Path("drumline.yml").write_text(spec)
    assert run(["doctor", "--context", "prod"]) == 2
    assert "--context is for clusters, but this runs on local" in capsys.readouterr().err
    assert run(["doctor", "--on", "local", "--hosts", "a"]) == 2
    assert "--hosts is for ssh, but this runs on local" in capsys.readouterr().err
