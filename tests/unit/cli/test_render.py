"""``drumline render``: the result on stdout, everything else on stderr."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from drumline.cli import run

SPEC = "project: digits\nrun: python train.py --lr {{ lr }}\nparameters: {lr: 0.1}\nport: 2222\nroles: {worker: 2}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", "/home/me")
    (tmp_path / "drumline.yml").write_text(SPEC)
    return tmp_path


def test_the_default_form_is_a_script(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("#!/bin/sh\n")
    assert "exec python train.py --lr 0.1\n" in out
    assert err == ""
    assert run(["render", "-o", "shell"]) == 0
    assert capfd.readouterr().out == out


def test_json_and_yaml_are_the_same_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "-o", "json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert run(["render", "-o", "yaml"]) == 0
    assert yaml.safe_load(capfd.readouterr().out) == data
    assert [replica["id"] for replica in data["replicas"]] == ["worker.0", "worker.1"]


def test_parameters_and_the_runs_number_can_be_set_by_options(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "-p", "lr=it's 0.5", "--run-id", "7.2", "-o", "json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["run"] == "7.2"
    assert data["replicas"][0]["argv"] == ["python", "train.py", "--lr", "it's 0.5"]
    assert data["replicas"][0]["env"]["OUTPUT_DIR"] == "/home/me/runs/7.2/output"


@pytest.mark.parametrize("number", ["", "x", "-1", ".5", "5.", "1.2.3", "٣", "../4", "1" * 10])
def test_an_invalid_run_number_is_refused(number: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", f"--run-id={number}"]) == 2
    assert capfd.readouterr().err == f"error: --run-id {number}: expected a number such as 4, or 7.2 in a sweep\n"


def test_warnings_are_not_in_the_result(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(SPEC.replace("{lr: 0.1}", "{lr: 0.1, idle: 2}"))
    assert run(["render", "-o", "json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["name"] == "digits"
    assert err.startswith("warning: drumline.yml:3: parameters.idle: ")


def test_a_spec_with_problems_is_not_rendered(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text("project: digits\n")
    assert run(["render"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("drumline.yml:1: run: is missing")


def names_of(text: str) -> list[str]:
    return [each["metadata"]["name"] for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
def test_manifests_are_rendered_without_a_cluster(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(folder / "nowhere"))
    (folder / "drumline.yml").write_text(
        "project: digits\nrun: python train.py\nroles: {chief: 1, worker: 2}\n"
        "engine: {kubernetes: {image: a, output: {size: 1GiB, access: ReadWriteMany}}}\n"
    )
    assert run(["render", "--on", engine, "--run-id", "4"]) == 0
    numbered, said = capfd.readouterr()
    assert (names_of(numbered)[:2], said) == (["digits-4", "digits-4-output"], "")
    assert run(["render", "--on", engine, "--run-id", "4"]) == 0
    assert capfd.readouterr().out == numbered
    assert run(["render", "--on", engine, "--run-id", "4", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["items"] == list(yaml.safe_load_all(numbered))
    found = []
    for _ in range(2):
        assert run(["render", "--on", engine, "-n", "mine"]) == 0
        objects = list(yaml.safe_load_all(capfd.readouterr().out))
        assert {each["metadata"]["namespace"] for each in objects} == {"mine"}
        found.append({each["metadata"]["name"] for each in objects})
    assert not found[0] & found[1]


def test_a_missing_image_is_reported_with_its_key(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("render", "check"):
        assert run([command, "--on", "jobset"]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err == (
            "error: `engine.jobset.image` is missing: pods need an image\n"
            "hint: add it: `engine: {jobset: {image: …}}`\n"
        )


def test_a_spec_that_a_tfjob_cannot_express_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(
        "project: digits\nrun: x\nroles: {worker: {replicas: 2, first: {env: {A: 1}}}}\nengine: {tfjob: {image: a}}\n"
    )
    assert run(["render"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith("error: in a TFJob all replicas of a role share a template: remove `roles.worker.first`\n")


def test_a_spec_can_be_read_from_stdin(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "drumline.yml").unlink()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SPEC.encode())))
    assert run(["render", "-", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["replicas"][0]["workdir"] == str(folder)


def test_ports_that_clash_are_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text(SPEC.replace("port: 2222", "").replace("2}", "{replicas: 2, port: [7, 7]}}"))
    assert run(["render"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "port 7 is given to worker.0 and to worker.1" in err


def test_a_command_that_is_too_long_to_start_is_rendered_with_a_warning(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "drumline.yml").write_text(SPEC + f"env: {{LONG: {'x' * 140_000}}}\n")
    assert run(["render", "-o", "json"]) == 0
    out, err = capfd.readouterr()
    assert len(json.loads(out)["replicas"]) == 2
    assert err.startswith("warning: LONG of worker.0 has 140,005 bytes")


def test_any_folder_name_and_any_terminal_encoding_are_supported(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff \xc3\xa9"
    os.mkdir(folder)  # noqa: PTH102
    Path(os.fsdecode(folder), "drumline.yml").write_text(
        "project: digits\nrun: echo 'été →' | cat\nport: 2222\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "drumline", "render"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"cd '" + folder + b"'\n" in done.stdout
    assert "été →".encode() in done.stdout
    ran = subprocess.run(["sh", "-s", "worker.0"], input=done.stdout, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout.decode()) == (0, "été →\n")
