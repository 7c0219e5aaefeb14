"""Read a Spec from YAML."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from drumline.engine.kubernetes.options import Image, KubernetesOptions, Toleration
from drumline.engine.local.options import LocalOptions
from drumline.engine.ssh.options import SshHost, SshOptions
from drumline.errors import SpecError
from drumline.load.engine import known_spec_type
from drumline.spec.read import ReadResult, read_spec
from drumline.spec.types import (
    Backoff,
    Data,
    First,
    Resources,
    Restart,
    Role,
    Roles,
    Run,
    Spec,
    TensorFlow,
    Timeouts,
    Torch,
    Value,
    Volume,
)
from scaffold.strategies import spec_files

GIB = 1024**3
SPEC: Any = known_spec_type()
ENGINE: Any = type(SPEC(project="x").engine)


def read(text: str) -> Spec:
    reading = read_spec(text.encode(), "drumline.yml", known_spec_type())
    assert not reading.problems
    return reading.spec


def test_the_small_example_is_read() -> None:
    assert read("""\
project: digits
run: python train.py --layers {{ layers }} --lr {{ lr }}
parameters: {layers: 2, lr: 0.001}
roles:
  chief: 1                                    # coordinates; `master` is accepted and means the same
  worker: 3                                   # a count is enough
  ps: {replicas: 2, resources: {cpus: 1, memory: 16GiB}}
resources: {cpus: 2, memory: 4GiB, gpus: 1}   # for every role that has none of its own; none at all claims nothing
""") == SPEC(
        project="digits",
        run=Run(shell="python train.py --layers {{ layers }} --lr {{ lr }}"),
        parameters={"layers": "2", "lr": "0.001"},
        roles=Roles(
            chief=Role(replicas=1),
            worker=Role(replicas=3),
            ps=Role(replicas=2, resources=Resources(cpus=1.0, memory=16 * GIB)),
        ),
        resources=Resources(cpus=2.0, memory=4 * GIB, gpus=1),
    )


def test_every_key_is_read() -> None:
    assert read("""\
project: digits
name: evening
framework: torch
tensorflow: {tf_config: always, evaluator_in_cluster: true}
torch: {rendezvous: always}
run: {shell: [python -m build, python train.py]}
parameters: {lr: 1e-6, on: yes, zip: 01234, empty: '', text: "a b"}
workdir: src
output: out/{{ run }}
checkpoint: /scratch/ckpt
port: 2222
env:
  MODE: fast
  TOKEN: {from: MY_TOKEN}
  RANK: {value: 0, override: true}
resources: {cpus: 0.5, memory: 500MB, gpus: 0}
roles:
  chief: {run: {argv: [python, chief.py, '{{ lr }}']}, port: 4000}
  worker:
    replicas: 2
    run: python worker.py
    env: {A: 1}
    resources: {gpus: 1}
    port: [5000, 5001]
    first: {run: python first.py, env: {B: 2}, resources: {memory: 1GiB}}
  evaluator: {replicas: 1}
data:
  - {name: train, path: /data/train, volume: claim, prepare: [wget x, tar xf x]}
  - {name: test, path: /data/test}
restart:
  {budget: 5, crash: 1, early: 8, lost: 2, preempted: 3, hang: 4, rendezvous: 6, out_of_memory: 7,
   backoff: {initial: 500ms, factor: 1.5, maximum: 1h}}
timeouts: {start: 5m, rendezvous: 90, grace: 30s, run: 2d, progress: 1h}
success: worker-0
engine:
  default: ssh
  local: {}
  ssh: {hosts: [node1, {host: node2, address: 10.0.0.2, port: 2200, cpus: 8, memory: 64GiB, gpus: 2}]}
  kubernetes:
    {context: prod, namespace: ml, image: "repo/train:1", jobs: indexed, output: models, code: false,
     shm: 1GiB, user: 7, node_selector: {a: b}, tolerations: [gpu, {key: x, value: y, tolerationSeconds: 3}],
     priority_class: high, service_account: me, pull_secrets: [one], queue: slow, labels: {team: a},
     annotations: {note: "a b"},
     network_policy: false, pod: {hostNetwork: true, dnsConfig: {options: [{name: ndots, value: "2"}]}, hostname: null}}
  jobset:
    image: {base: "python:3.11", install: [numpy], registry: registry.example}
    output: {size: 10GiB, class: fast, access: ReadWriteMany}
  tfjob: {image: x}
x-anything: [not, read]
""") == SPEC(
        project="digits",
        name="evening",
        framework="torch",
        tensorflow=TensorFlow(tf_config="always", evaluator_in_cluster=True),
        torch=Torch(rendezvous="always"),
        run=Run(shell=("python -m build", "python train.py")),
        parameters={"lr": "1e-6", "on": "yes", "zip": "01234", "empty": "", "text": "a b"},
        workdir="src",
        output="out/{{ run }}",
        checkpoint="/scratch/ckpt",
        port=2222,
        env={"MODE": Value(value="fast"), "TOKEN": Value(from_="MY_TOKEN"), "RANK": Value(value="0", override=True)},
        resources=Resources(cpus=0.5, memory=500_000_000, gpus=0),
        roles=Roles(
            chief=Role(run=Run(argv=("python", "chief.py", "{{ lr }}")), port=4000),
            worker=Role(
                replicas=2,
                run=Run(shell="python worker.py"),
                env={"A": Value(value="1")},
                resources=Resources(gpus=1),
                port=(5000, 5001),
                first=First(
                    run=Run(shell="python first.py"), env={"B": Value(value="2")}, resources=Resources(memory=GIB)
                ),
            ),
            evaluator=Role(replicas=1),
        ),
        data=(
            Data(
                name="train",
                path="/data/train",
                volume=Volume(claim="claim"),
                prepare=Run(shell=("wget x", "tar xf x")),
            ),
            Data(name="test", path="/data/test"),
        ),
        restart=Restart(
            budget=5,
            crash=1,
            lost=2,
            preempted=3,
            hang=4,
            rendezvous=6,
            out_of_memory=7,
            early=8,
            backoff=Backoff(initial=0.5, factor=1.5, maximum=3600.0),
        ),
        timeouts=Timeouts(start=300.0, rendezvous=90.0, grace=30.0, run=172_800.0, progress=3600.0),
        success="worker-0",
        engine=ENGINE(
            default="ssh",
            local_options=LocalOptions(),
            ssh_options=SshOptions(
                hosts=(
                    SshHost(host="node1"),
                    SshHost(host="node2", address="10.0.0.2", port=2200, cpus=8.0, memory=64 * GIB, gpus=2),
                )
            ),
            kubernetes_options=KubernetesOptions(
                context="prod",
                namespace="ml",
                image=Image(name="repo/train:1"),
                jobs="indexed",
                output=Volume(claim="models"),
                code=False,
                shm=GIB,
                user=7,
                node_selector={"a": "b"},
                tolerations=(Toleration(key="gpu"), Toleration(key="x", value="y", seconds=3)),
                priority_class="high",
                service_account="me",
                pull_secrets=("one",),
                queue="slow",
                labels={"team": "a"},
                annotations={"note": "a b"},
                network_policy=False,
                pod={
                    "hostNetwork": True,
                    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
                    "hostname": None,
                },
            ),
            jobset_options=KubernetesOptions(
                image=Image(base="python:3.11", install=("numpy",), registry="registry.example"),
                output=Volume(size=10 * GIB, class_="fast", access="ReadWriteMany"),
            ),
            tfjob_options=KubernetesOptions(image=Image(name="x")),
        ),
    )


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("run: python train.py", "run: {shell: python train.py}"),
        ("run: [a, b]", "run: {shell: [a, b]}"),
        ("roles: {worker: 3}", "roles: {worker: {replicas: 3}}"),
        ("roles: {worker: {run: a}}", "roles: {worker: {run: {shell: a}}}"),
        ("env: {A: 1}", "env: {A: {value: '1'}}"),
        ("env: {A: no}", "env: {A: {value: 'no', override: false}}"),
        ("data: /data", "data: {path: /data}"),
        ("data: [a]", "data: [{path: a}]"),
        ("data: {path: a, prepare: x}", "data: {path: a, prepare: {shell: x}}"),
        ("restart: 3", "restart: {budget: 3}"),
        ("engine: kubernetes", "engine: {default: kubernetes}"),
        ("engine: {ssh: {hosts: [a]}}", "engine: {ssh: {hosts: [{host: a}]}}"),
        ("engine: {ssh: [a, {host: b, gpus: 1}]}", "engine: {ssh: {hosts: [{host: a}, {host: b, gpus: 1}]}}"),
        ("timeouts: {grace: 90}", "timeouts: {grace: 1.5m}"),
        ("resources: {memory: 1GiB}", "resources: {memory: 1024 MiB}"),
        ("x-a: &a {cpus: 1}\nresources: *a", "resources: {cpus: 1}"),
        ("x-a: &a {cpus: 1, gpus: 1}\nresources: {<<: *a, gpus: 2}", "resources: {cpus: 1, gpus: 2}"),
    ],
)
def test_a_short_form_means_the_long_one(short: str, long: str) -> None:
    assert read(f"project: x\n{short}") == read(f"project: x\n{long}")


@pytest.mark.parametrize(
    "key",
    ["run", "env", "roles", "parameters", "resources", "output", "data", "restart", "name", "framework", "engine"],
)
def test_a_key_without_a_value_is_ignored(key: str) -> None:
    assert read(f"project: x\n{key}:\n") == read("project: x")


@pytest.mark.parametrize(
    "text",
    [
        "1e-6",
        "1E-6",
        "0.10",
        "010",
        "0o10",
        "0x1f",
        "1_000",
        "12:30",
        ".inf",
        "no",
        "True",
        "+5",
        "2001-01-01",
        "1.",
        "-0",
    ],
)
def test_a_parameter_and_a_variable_keep_the_text_in_the_file(text: str) -> None:
    spec = read(f"project: x\nparameters: {{p: {text}}}\nenv: {{E: {text}}}")
    assert (spec.parameters["p"], spec.env["E"].value) == (text, text)


@pytest.mark.parametrize("text", ["no", "010", "1e6", "true", "007"])
def test_a_name_that_looks_like_another_type_stays_a_name(text: str) -> None:
    assert read(f"project: {text}").project == text


@given(spec_files())
def test_a_written_spec_reads_back_the_same(written: tuple[Spec, str]) -> None:
    spec, text = written
    assert read(text) == spec


def reading_of(text: str) -> ReadResult:
    return read_spec(text.encode(), "f", known_spec_type())


def test_a_problem_that_is_found_later_has_the_line_of_its_value() -> None:
    reading = reading_of("project: x\nroles:\n  worker:\n    replicas: 2\n    port: [1,\n      2]\n")
    lines = {
        ("roles", "worker", "port", 1): "f:6: roles.worker.port[1]: m",
        ("roles", "worker", "port"): "f:5: roles.worker.port: m",
        ("roles", "worker", "run"): "f:3: roles.worker.run: m",
        ("roles", "chief"): "f:2: roles.chief: m",
        ("run",): "f:1: run: m",
        (): "f:1: m",
    }
    assert {path: str(reading.problem(path, "m")) for path in lines} == lines


def test_an_invalid_value_makes_its_parents_invalid() -> None:
    reading = reading_of("project: x\nroles: {worker: {port: [1, x]}, chief: 1}\nenv: {A: [1]}\nrnu: x\n")
    bad = [
        ("roles", "worker", "port", 1),
        ("roles", "worker", "port"),
        ("roles",),
        (),
        ("env", "A", "value"),
        ("rnu",),
        ("run",),
    ]
    fine = [("roles", "worker", "port", 0), ("roles", "worker", "run"), ("roles", "chief"), ("env", "B"), ("project",)]
    assert [path for path in bad if not reading.is_invalid(path)] == []
    assert [path for path in fine if reading.is_invalid(path)] == []


def test_a_message_is_one_line_without_control_characters() -> None:
    reading = reading_of('project: "a\\n\\e[31m\\u2028\\x9b"\n"k\\ey": 1\n')
    assert [str(problem).isprintable() for problem in reading.problems] == [True, True]


def test_a_spec_is_exactly_one_document() -> None:
    for text in ("", "---", "a: 1\n---\nb: 2"):
        with pytest.raises(SpecError):
            reading_of(text)
