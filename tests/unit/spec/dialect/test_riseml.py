"""riseml.yml files: the plans that they become, the warnings, and the problems with their lines."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.errors import SpecError
from drumline.load.engine import plan_spec
from drumline.load.load import check_spec
from drumline.plan.types import Environment, ReplicaId, Resources
from scaffold.dialects import GUIDE, assert_same_plan_when_converted, converted, plan_of, warnings_of
from scaffold.strategies import TRICKY, parameter_names

GIB = 1024**3


def a_file(train: str) -> str:
    return f"project: digits\ntrain:\n{dedent(train).strip()}".replace("\n", "\n  ").replace("\n  train:", "\ntrain:")


def test_the_example_of_the_guide_has_three_workers_including_the_master_and_two_ps() -> None:
    plan = plan_of(GUIDE)
    assert [str(replica.id) for replica in plan.replicas] == ["worker.0", "worker.1", "worker.2", "ps.0", "ps.1"]
    assert (plan.chief, plan.success, plan.framework) == (ReplicaId("worker", 0), "all-workers", "tensorflow")
    assert plan.replicas[0].resources == Resources(2, 16 * GIB, 4)
    assert plan.replicas[4].resources == Resources(2, 16 * GIB, 0)


def test_indented_lines_of_a_command_are_one_command() -> None:
    assert plan_of(GUIDE).replicas[0].argv == (
        *("python", "train_model.py", "--num-layers", "{{ num-layers }}"),
        *("--learning-rate", "{{ learning-rate }}", "--training-data", "/data/my-project"),
    )


def test_a_version_of_tensorflow_without_a_supported_python_is_reported_with_its_line() -> None:
    assert warnings_of(GUIDE)[0].startswith(
        "9: train.tensorflow.version: drumline supports no Python on which TensorFlow 1.2.1 runs"
    )


def test_warnings_about_the_spec_have_the_lines_of_the_file() -> None:
    assert warnings_of(GUIDE)[1].startswith("12: train.tensorflow.distributed.ps: parameter servers without a chief")


def test_a_list_of_commands_stays_a_list() -> None:
    text = a_file("""
        run:
          - export A=1
          - python a.py \\
          - python b.py
    """)
    assert plan_of(text).replicas[0].argv[-3:] == ("export A=1", "python a.py \\", "python b.py")


def test_a_here_document_keeps_its_lines() -> None:
    text = a_file("""
        run: |
          cat <<EOF
           - one
          EOF
    """)
    assert plan_of(text).replicas[0].argv == ("sh", "-c", "cat <<EOF\n - one\nEOF")


def test_the_resources_of_the_master_are_those_of_worker_0() -> None:
    text = a_file("""
        resources: {cpus: 1, mem: 512}
        framework: tensorflow
        tensorflow:
          distributed:
            worker: {count: 2, resources: {cpus: 2, mem: 1024, gpus: 1}}
            master: {resources: {cpus: 4, gpus: 2}}
            ps: 1
        run: python train.py
    """)
    plan = plan_of(text)
    assert [replica.resources for replica in plan.replicas] == [
        Resources(4, GIB, 2),
        Resources(2, GIB, 1),
        Resources(1, GIB // 2, 0),
    ]
    assert warnings_of(text)[0].startswith("8: train.tensorflow.distributed.master.resources: has no `mem`")


@pytest.mark.parametrize("alone", ["", "tensorflow: {distributed: null}", "tensorflow: {distributed: false}"])
def test_without_distributed_there_is_one_worker(alone: str) -> None:
    plan = plan_of(a_file(f"framework: tensorflow\nrun: python train.py\n{alone}"))
    assert [str(replica.id) for replica in plan.replicas] == ["worker.0"]


def test_without_a_framework_the_command_is_plain() -> None:
    plan = plan_of(a_file("image: python:3.11\nrun: ./train"), "kubernetes")
    assert plan.framework == "plain"
    assert cluster_of(plan).image.name == "python:3.11"


@pytest.mark.parametrize(
    ("version", "gpus", "wanted", "image"),
    [
        ("2.15.1", 0, "2.15.1", "2.15.1"),
        ("2.15.1", 1, "2.15.1", "2.15.1-gpu"),
        ("2.16.1-gpu-jupyter", 1, "2.16.1", "2.16.1-gpu-jupyter"),
        ("latest", 1, None, "latest-gpu"),
        ("2.3.0", 0, None, "2.3.0"),
    ],
)
def test_a_version_sets_the_local_environment_and_the_image_in_a_cluster(
    version: str, gpus: int, wanted: str | None, image: str
) -> None:
    text = a_file(
        f"framework: tensorflow\nresources: {{gpus: {gpus}}}\ntensorflow: {{version: {version}}}\nrun: python a.py"
    )
    plan = plan_of(text, "kubernetes")
    assert cluster_of(plan).image.name == f"tensorflow/tensorflow:{image}"
    assert (wanted in str(plan.environment)) if wanted else plan.environment is None


def test_packages_of_pip_are_in_the_local_environment_and_built_into_the_image() -> None:
    text = a_file("""
        framework: tensorflow
        install:
          - pip install --upgrade numpy==1.26.4 'h5py>=3'
          - apt-get install -y git
        run: python train.py
    """)
    plan = plan_of(text, "kubernetes")
    assert plan.environment == Environment(("tensorflow", "numpy==1.26.4", "h5py>=3"), ())
    assert (cluster_of(plan).image.base, cluster_of(plan).image.install) == (
        "tensorflow/tensorflow:latest",
        ("numpy==1.26.4", "h5py>=3"),
    )
    assert warnings_of(text) == [
        (
            "4: train.install: `apt-get install -y git` is not run: only `pip install` of packages is; do the rest in"
            " an image"
        )
    ]


def test_a_requirements_file_makes_an_environment_with_tensorflow_and_a_warning(
    tmp_path: Path,
) -> None:
    (tmp_path / "more.txt").write_text("h5py\n")
    text = a_file("""
        tensorflow: {version: 1.4.0}
        install: [pip install -r more.txt, pip install --requirement=more.txt numpy]
        run: python train.py
    """)
    spec, warnings = check_spec(text.encode(), "file.yml", str(tmp_path))
    assert plan_spec(spec).environment == Environment(("tensorflow", "h5py", "numpy"), ())
    assert [warning.message for warning in warnings] == [
        (
            "drumline supports no Python on which TensorFlow 1.4.0 runs: on this machine the newest TensorFlow,"
            " in the environment that `install` makes, is used instead; to choose its version, set 2.5 or newer"
        ),
        "`-r more.txt` is for this machine: in a cluster the image must contain the packages of this file",
    ]


@pytest.mark.parametrize("package", ["tensorflow==2.15.0", "tensorflow-cpu", "tf-nightly"])
def test_tensorflow_is_not_listed_twice(package: str) -> None:
    text = a_file(f"framework: tensorflow\ninstall: pip install {package} tensorflow-datasets\nrun: python train.py")
    assert plan_of(text).environment == Environment((package, "tensorflow-datasets"), ())


@pytest.mark.parametrize("key", ["deploy", "service"])
def test_a_file_that_only_serves_a_model_is_refused(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(f"project: digits\n{key}:\n  image: {{name: python}}\n  input: text\n".encode(), "riseml.yml")
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"riseml.yml:2: {key}: is a riseml.yml that serves a model and trains nothing")


@pytest.mark.parametrize("key", ["deploy", "service"])
def test_a_section_that_serves_a_model_is_not_carried_over(key: str) -> None:
    text = f"{a_file('run: python train.py')}\n{key}: {{run: python serve.py}}\n"
    assert warnings_of(text) == [f"4: {key}: is not carried over: drumline does not serve models"]


def test_an_image_in_the_old_form_is_supported() -> None:
    text = a_file("image: {name: python:3.11, install: [pip install numpy]}\nrun: ./train")
    plan = plan_of(text, "kubernetes")
    assert cluster_of(plan).image.base == "python:3.11"
    assert plan.environment == Environment(("numpy",), ())


def test_values_of_parameters_are_kept_as_they_are_written() -> None:
    text = a_file("parameters: {lr-decay: 1e-6, fast: true, n: 010}\nrun: train {{lr-decay}} {{ fast }} {{n}}")
    assert plan_of(text).parameters == {"lr-decay": "1e-6", "fast": "true", "n": "010"}


def test_the_tensorboard_key_is_carried_over() -> None:
    asked = [
        plan_of(a_file(f"framework: tensorflow\ntensorflow: {said}\nrun: python a.py")).tensorboard
        for said in ("{tensorboard: true}", "{tensorboard: false}", "{}")
    ]
    assert asked == [True, False, None]


def test_each_key_that_is_not_carried_over_is_reported_with_its_line() -> None:
    text = a_file("concurrency: 2\nrun: train") + "\ndeploy: {image: a, run: serve}\n"
    assert warnings_of(text) == [
        "3: train.concurrency: is not carried over: it is for sweeps, and this is one run",
        "5: deploy: is not carried over: drumline does not serve models",
    ]


@pytest.mark.parametrize(
    ("train", "report"),
    [
        ("framework: tensorflow", "file.yml:3: train.run: is missing"),
        (
            "run: a\nframework: caffe",
            'file.yml:4: train.framework: expected one of tensorflow, got "caffe"',
        ),
        (
            "run: a\nparameters: {lr: [1, 2]}",
            (
                "file.yml:4: train.parameters.lr: a list or range of values makes a sweep, which this version cannot"
                " run: give one value"
            ),
        ),
        (
            "run: a\nparameters: {lr: {range: {min: 1, max: 3, step: 1}}}",
            (
                "file.yml:4: train.parameters.lr: a list or range of values makes a sweep, which this version cannot"
                " run: give one value"
            ),
        ),
        (
            "run: a\ntensorflow:\n  horovod: {workers: 2}",
            (
                "file.yml:5: train.tensorflow.horovod: Horovod needs MPI, which drumline does not start; use"
                " `tensorflow.distributed` with MultiWorkerMirroredStrategy instead"
            ),
        ),
        (
            "run: a\ntensorflow:\n  distributed: {workers: 3}",
            "file.yml:5: train.tensorflow.distributed.workers: unknown key; did you mean `worker`?",
        ),
        (
            "run: a\ntensorflow: {distributed: {}}",
            "file.yml:4: train.tensorflow.distributed: names no role: write `{worker: 2}`, or remove it",
        ),
        (
            "run: a\ntensorflow: {distributed: {worker: 2, master: 2}}",
            "file.yml:4: train.tensorflow.distributed.master: there is exactly one master; the others are workers",
        ),
        (
            "run: a\ntensorflow: {distributed: {ps: 0}}",
            "file.yml:4: train.tensorflow.distributed.ps: expected a whole number of at least 1, got 0",
        ),
        (
            "run: a\ntensorflow: {version: zzz-latest}",
            (
                "file.yml:4: train.tensorflow.version: expected a version such as 2.15.1 or 2.15.1-gpu, or latest, got"
                " `zzz-latest`"
            ),
        ),
        (
            "run: a\nresources: {mem: 16GB}",
            'file.yml:4: train.resources.mem: expected a number of at least 0.01, got "16GB"',
        ),
        (
            "run: echo `train {{ lr }}`",
            (
                "file.yml:3: train.run: `{{ lr }}` cannot be filled in safely in back-quotes; use $(…);"
                ' "$LR" has the same value'
            ),
        ),
        ("run: a\ndata: /data", "file.yml:4: train.data: unknown key; known here: run, framework, resources,"),
    ],
)
def test_problems_are_reported_with_their_lines(train: str, report: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(a_file(train).encode(), "file.yml")
    assert str(caught.value).startswith(report)


def test_a_repeated_key_is_reported_with_both_lines() -> None:
    with pytest.raises(SpecError, match=r"file.yml:4: train.run: appears a second time; first in line 3"):
        check_spec(a_file("run: a\nrun: b").encode(), "file.yml")


def test_the_converted_example_has_comments_on_decisions_and_differences() -> None:
    text = converted(GUIDE)
    assert text.startswith("# Made by `drumline convert` from file.yml, which was written for RiseML.\n# Differences")
    assert "    # The workers include the master: it is worker.0, which acts as the chief.\n    replicas: 3" in text
    assert "  num-layers: null\n" in text


numbers = st.integers(1, 10**6) | st.sampled_from((0.5, 0.01, 1.25))
resources = st.fixed_dictionaries({}, optional={"cpus": st.integers(1, 64), "mem": numbers, "gpus": st.integers(0, 8)})
members = st.integers(1, 5) | st.fixed_dictionaries({}, optional={"count": st.integers(1, 5), "resources": resources})
tensorflows = st.fixed_dictionaries(
    {},
    optional={
        "version": st.sampled_from(("1.2.1-gpu", "2.15.1", "2.16.1-gpu", "latest", None)),
        "tensorboard": st.booleans(),
        "distributed": st.none()
        | st.fixed_dictionaries(
            {"worker": members}, optional={"ps": members, "master": st.fixed_dictionaries({"resources": resources})}
        ),
    },
)
commands = st.sampled_from(("python a.py", "python a.py --lr {{ lr }} \\", "a\n  --b {{x}}", "echo '{{ é }}'", "a | b"))
installs = st.sampled_from(("pip install numpy", "pip install -r more.txt", "apt-get update", "'"))
files = st.fixed_dictionaries(
    {
        "project": st.sampled_from(("digits", "ai-toaster", "10", "true")),
        "train": st.fixed_dictionaries(
            {"run": commands | st.lists(commands, min_size=1, max_size=3)},
            optional={
                "framework": st.just("tensorflow"),
                "resources": resources,
                "tensorflow": tensorflows,
                "image": st.sampled_from(("python:3.11", "a/b@sha256:0")),
                "install": installs | st.lists(installs, max_size=2),
                "parameters": st.dictionaries(parameter_names, st.sampled_from(TRICKY) | numbers | st.booleans()),
                "concurrency": st.integers(1, 3),
            },
        ),
    },
    optional={"deploy": st.just({"run": "serve"})},
)


@given(files)
def test_a_converted_file_has_the_same_plan(file: dict[str, Any]) -> None:
    text = yaml.safe_dump(file, sort_keys=False, allow_unicode=True)
    try:
        check_spec(text.encode(), "file.yml")
    except SpecError:
        return
    assert_same_plan_when_converted(text)


@pytest.mark.parametrize(
    "train",
    [
        f"framework: tensorflow\ntensorflow: {{version: 2.15{'a' * 5_000}!}}\nrun: python train.py",
        f"framework: tensorflow\nrun: 'python{' ' * 200_000}train.py'",
        f"framework: tensorflow\nrun: python {'a' * 500_000}",
        f"framework: tensorflow\ninstall: ['pip install {'a' * 500_000} b']\nrun: python train.py",
    ],
)
def test_a_very_long_text_is_read_in_linear_time(train: str) -> None:
    began = time.process_time()
    with suppress(SpecError):
        plan_of(a_file(train))
    assert time.process_time() - began < 20
