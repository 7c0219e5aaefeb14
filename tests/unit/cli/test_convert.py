"""``drumline convert``, and commands with a file of another system instead of a spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drumline.cli import run
from scaffold.dialects import GUIDE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "riseml.yml").write_text(GUIDE)
    return tmp_path


def test_a_riseml_yml_is_read_if_there_is_no_drumline_yml(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check"]) == 0
    assert capfd.readouterr().out.startswith("riseml.yml is fine: ai-toaster, 3 workers and 2 ps, tensorflow, on local")
    (folder / "drumline.yml").write_text("project: digits\nrun: a\n")
    assert run(["check"]) == 0
    assert capfd.readouterr().out.startswith("drumline.yml is fine")


def test_a_placeholder_without_a_value_is_rendered_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "riseml.yml"]) == 0
    out, err = capfd.readouterr()
    assert "exec python train_model.py --num-layers '{{ num-layers }}' " in out
    assert "warning: riseml.yml: `num-layers` and `learning-rate` have no value" in err


def test_a_placeholder_that_is_not_declared_can_be_given_a_value(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "riseml.yml", "-p", "num-layers=2", "-p", "learning-rate=0.1"]) == 0
    out, err = capfd.readouterr()
    assert "exec python train_model.py --num-layers 2 --learning-rate 0.1 --training-data /data/my-project" in out
    assert "no value" not in err


def test_a_value_for_an_unknown_placeholder_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "riseml.yml", "-p", "layers=2"]) == 2
    assert "error: -p layers=2: the spec has no parameter `layers`" in capfd.readouterr().err


@pytest.mark.parametrize("engine", ["local", "kubernetes", "jobset", "tfjob"])
def test_a_riseml_yml_is_rendered_for_every_engine(engine: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "riseml.yml", "--on", engine]) == 0
    assert "train_model.py" in capfd.readouterr().out


def test_a_converted_file_passes_check(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "riseml.yml"]) == 0
    out, err = capfd.readouterr()
    assert err.startswith(
        "warning: riseml.yml:9: train.tensorflow.version: drumline supports no Python on which TensorFlow 1.2.1 runs"
    )
    (folder / "drumline.yml").write_text(out)
    assert run(["check"]) == 0
    assert capfd.readouterr().out.startswith("drumline.yml is fine: ai-toaster, 3 workers and 2 ps")


def test_given_values_are_written_to_the_converted_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "riseml.yml", "-p", "num-layers=2", "-p", "learning-rate=1e-6"]) == 0
    out, _ = capfd.readouterr()
    assert "no value" not in out
    (folder / "drumline.yml").write_text(out)
    assert run(["render"]) == 0
    assert "--num-layers 2 --learning-rate 1e-6 " in capfd.readouterr().out


def test_given_values_of_a_template_are_written_to_the_converted_file(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "my.template.jinja").write_text(TEMPLATE)
    assert run(["convert", "my.template.jinja", "-p", "worker_replicas=3"]) == 0
    assert "replicas: 3\n" in capfd.readouterr().out


def test_a_drumline_yml_is_not_converted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "drumline.yml").write_text("project: digits\nrun: a\n")
    assert run(["convert", "drumline.yml"]) == 2
    assert capfd.readouterr().err.startswith("error: drumline.yml: the format of this file is not known\n")


def test_a_file_with_problems_is_not_converted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "riseml.yml").write_text("project: digits\ntrain: {run: a, tensorflow: {horovod: {workers: 1}}}\n")
    assert run(["convert", "riseml.yml"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("riseml.yml:2: train.tensorflow.horovod: Horovod needs MPI")


TEMPLATE = """\
{%- set name = "digits" -%}
{%- set worker_replicas = 2 -%}
{%- set script = "train.py" -%}
kind: {{ name | upper }}
workers: {{ worker_replicas }}
"""


def test_a_template_is_rendered_by_jinja(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "my.template.jinja").write_text(TEMPLATE)
    assert run(["render", "my.template.jinja", "-p", "worker_replicas=3"]) == 0
    assert capfd.readouterr() == ("kind: DIGITS\nworkers: 3\n", "")


def test_with_an_engine_a_template_is_rendered_as_a_spec(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "my.template.jinja").write_text(TEMPLATE)
    assert run(["render", "my.template.jinja", "-p", "worker_replicas=3", "--on", "local"]) == 0
    assert "worker.2)" in capfd.readouterr().out


def test_a_variable_that_is_not_set_is_an_error_with_its_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "my.template.jinja").write_text("{% set a = 1 %}\nb: {{ c }}\n")
    assert run(["render", "my.template.jinja"]) == 2
    assert capfd.readouterr().err.startswith("my.template.jinja:2: 'c' is undefined; set it at the top")


def test_a_template_that_renders_to_invalid_yaml_gives_a_warning(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "my.template.jinja").write_text("{% set a = 1 %}\na: [{{ a }}\n")
    assert run(["render", "my.template.jinja"]) == 0
    assert "renders to text that is not valid YAML" in capfd.readouterr().err


def test_a_template_that_renders_to_nothing_gives_a_warning(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "my.template.jinja").write_text("{% set a = 1 %}\n")
    assert run(["render", "my.template.jinja"]) == 0
    assert "renders to nothing" in capfd.readouterr().err


TYPED = '{"cluster": {"worker": ["10.1.10.58:12345", "10.1.10.250:12345"]}, "task": {"index": 0, "type": "worker"}}'


def tf_configs(capfd: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """Return the TF_CONFIGs of the replicas of a spec that is converted from a TF_CONFIG."""
    assert run(["convert", *words]) == 0
    Path("drumline.yml").write_text(capfd.readouterr().out)
    assert run(["render", "drumline.yml"]) == 0
    return [json.loads(text) for text in re.findall(r"TF_CONFIG='(.*)'", capfd.readouterr().out)]


def test_a_tf_config_becomes_a_spec_for_ssh_with_every_host_and_port(capfd: pytest.CaptureFixture[str]) -> None:
    found = tf_configs(capfd, "--tf-config", TYPED, "--run", "python worker.py")
    assert [each["task"]["index"] for each in found] == [0, 1]
    assert {str(each["cluster"]) for each in found} == {str(json.loads(TYPED)["cluster"])}
    text = Path("drumline.yml").read_text()
    assert "run: python worker.py\n" in text
    assert "  default: ssh\n" in text


def test_replicas_that_share_a_host_still_share_it(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = {
        "chief": ["c:1"],
        "worker": ["b:2222", "a:2222", "a:2223"],
        "ps": ["b:3000", "c:2"],
        "evaluator": ["a:9"],
    }
    found = tf_configs(capfd, "--tf-config", json.dumps({"cluster": cluster}))
    train = {role: addresses for role, addresses in cluster.items() if role != "evaluator"}
    assert [each["cluster"] for each in found if each["task"]["type"] != "evaluator"] == [train] * 6


def test_a_tf_config_of_this_machine_becomes_a_local_spec(capfd: pytest.CaptureFixture[str]) -> None:
    line = """export TF_CONFIG='{"cluster": {"worker": ["localhost:12345", "localhost:23456"]}}'"""
    found = tf_configs(capfd, "--tf-config", line, "--project", "digits")
    assert found[1]["cluster"] == {"worker": ["127.0.0.1:12345", "127.0.0.1:23456"]}
    assert "project: digits\n" in Path("drumline.yml").read_text()


@pytest.mark.parametrize(
    ("words", "report"),
    [
        (["--tf-config", '{"cluster": {"worker": ["a"]}}'], "TF_CONFIG: cluster.worker[0]: `a` has no port"),
        (["--tf-config", "{'cluster': 1}"], "JSON has double quotes only"),
        (["--tf-config", "{}"], "TF_CONFIG: `cluster` is missing"),
        (["--tf-config", "TF_CONFIG='{"], "a quote in it is never closed"),
        (["--tf-config", '{"cluster": {"worker": ["a:1", "a:1"]}}'], "a:1"),
        ([], "expected a file or --tf-config"),
        (["--tf-config", "{}", "riseml.yml"], "expected a file or --tf-config"),
        (["riseml.yml", "--run", "a"], "--run and --project need --tf-config"),
        (["riseml.yml", "-p", "layers=2"], "-p layers=2: the spec has no parameter `layers`"),
        (["--tf-config", "{}", "-p", "a=1"], "-p needs a file"),
    ],
)
def test_an_invalid_tf_config_or_option_is_refused(
    words: list[str], report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert report in err


@pytest.mark.parametrize(
    "text",
    [
        "project: digits\nrun: |\n  cat <<EOF\n  {% if x %}\n  EOF\n",
        "project: digits\nrun: python train.py\nenv: {kind: a, apiVersion: v1}\n",
        "run: python train.py\nproject: digits\nx-train: &a 1\n",
        'project: digits\nrun: {argv: ["train", "{#"]}\n',
    ],
)
def test_a_drumline_yml_is_not_taken_for_another_format(
    text: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "drumline.yml").write_text(text)
    assert run(["check"]) == 0
    assert capfd.readouterr().out.startswith("drumline.yml is fine: digits")


def test_a_riseml_yml_can_be_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "riseml.yml").write_text('{"project": "digits", "train": {"run": "python train.py"}}')
    assert run(["check"]) == 0
    assert capfd.readouterr().out.startswith("riseml.yml is fine: digits")


def test_the_tf_config_of_an_evaluator_keeps_the_evaluator(capfd: pytest.CaptureFixture[str]) -> None:
    typed = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "evaluator", "index": 0}}
    found = tf_configs(capfd, "--tf-config", json.dumps(typed), "--run", "python x.py")
    assert [each["task"]["type"] for each in found] == ["chief", "worker", "evaluator"]
    assert run(["convert", "--tf-config", json.dumps(typed)]) == 0
    assert "has no host for the evaluator: it runs on a; change `hosts`" in capfd.readouterr().err


def test_the_evaluator_of_a_local_cluster_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    typed = {"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "evaluator", "index": 0}}
    found = tf_configs(capfd, "--tf-config", json.dumps(typed), "--run", "python x.py")
    assert [each["task"]["type"] for each in found] == ["worker", "worker", "evaluator"]


def test_a_tf_config_with_problems_that_conversion_fixes_is_converted(capfd: pytest.CaptureFixture[str]) -> None:
    typed = {
        "cluster": {"master": ["m:1"], "worker": ["a:1"], "evaluator": ["e:1"]},
        "task": {"type": "worker", "index": "0"},
    }
    found = tf_configs(capfd, "--tf-config", json.dumps(typed))
    assert [each["task"]["type"] for each in found] == ["chief", "worker", "evaluator"]
    assert found[0]["cluster"] == {"chief": ["m:1"], "worker": ["a:1"]}


def test_the_command_after_tf_config_becomes_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "--tf-config", f"TF_CONFIG='{TYPED}' python x.py --lr 1"]) == 0
    assert "run: python x.py --lr 1\n" in capfd.readouterr().out


def test_a_cluster_by_index_is_converted_if_no_index_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    whole = {"cluster": {"worker": {"1": "b:1", "0": "a:1"}}}
    assert tf_configs(capfd, "--tf-config", json.dumps(whole))[0]["cluster"] == {"worker": ["a:1", "b:1"]}
    assert run(["convert", "--tf-config", '{"cluster": {"worker": {"1": "b:1"}}}']) == 2
    assert "TF_CONFIG: cluster.worker: worker.0 is missing, and a spec needs" in capfd.readouterr().err


def test_the_folder_that_estimator_reads_from_tf_config_is_the_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "--tf-config", json.dumps({**json.loads(TYPED), "model_dir": "/models"})]) == 0
    out, err = capfd.readouterr()
    assert "output: /models\n" in out
    assert "model_dir: `/models` is not in the TF_CONFIG that drumline writes" in err
