"""Mistakes in a spec, each with the exact report. Most are in `tests/scaffold/bad_specs.txt`."""

from __future__ import annotations

import re

import pytest

from drumline.errors import SpecError
from drumline.load.load import check_spec
from drumline.spec.block import NAME_DESCRIPTION
from scaffold.bad_specs import TABLE, TEXT

HEAD = "project: digits\nrun: python train.py\n"

WITHOUT_A_CHIEF = (
    "parameter servers without a chief: today's strategies need one to coordinate, and a mirrored strategy with ps in"
    " its cluster hangs without a message; add `chief: 1`, or drop ps"
)

# Specs that a text file cannot contain.
UNSHOWN = [
    ("an empty file", b"", "drumline.yml: is empty; `drumline init` writes a spec to start from"),
    ("UTF-16", "project: digits\n".encode("utf-16"), "drumline.yml: is UTF-16; save it as UTF-8"),
    (
        "a byte of another encoding",
        b"project: digits\nrun: python caf\xe9.py\n",
        "drumline.yml:2: is not UTF-8: byte 0xe9 does not belong there; save it as UTF-8",
    ),
    ("a NUL byte", b"project: digits\nrun: x\0\n", "drumline.yml:2: NUL byte in the text; is this a YAML file?"),
    (
        "a control character",
        b"project: digits\nrun: \x1b[31m\n",
        "drumline.yml:2: control character 0x1b in the text; is this a YAML file?",
    ),
    (
        "a control character of two bytes",
        "project: digits\nrun: \x9b31m\n".encode(),
        "drumline.yml:2: control character 0x9b in the text; is this a YAML file?",
    ),
    (
        "lists in lists in lists",
        f"project: digits\nrun: {'[' * 50}{']' * 50}\n".encode(),
        "drumline.yml:2: nested more than 40 levels deep",
    ),
    (
        "aliases of aliases",
        "\n".join(["x-0: &a0 [a]", *(f"x-{n}: &a{n} [{f'*a{n - 1},' * 9}]" for n in range(1, 9))]).encode(),
        "drumline.yml:7: more than 200000 values, aliases counted as often as they are used",
    ),
    ("too much", b"#" * 1_000_001, "drumline.yml: is larger than 1 MB, the limit for a spec"),
    (
        "a name that is too long",
        f"project: {'x' * 64}\nrun: python train.py\n".encode(),
        f'drumline.yml:1: project: expected {NAME_DESCRIPTION}, got "{"x" * 57}..."',
    ),
]


@pytest.mark.parametrize(
    ("spec", "report"),
    [pytest.param(spec.encode(), report.rstrip(), id=name) for name, spec, report in TABLE]
    + [pytest.param(spec, report, id=name) for name, spec, report in UNSHOWN],
)
def test_a_bad_spec_has_the_exact_report(spec: bytes, report: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(spec, "drumline.yml")
    assert str(caught.value) == report


def test_all_cases_of_the_table_are_read() -> None:
    assert len(TABLE) == len(re.findall("^=== ", TEXT, re.MULTILINE)) == len(re.findall("^>>>", TEXT, re.MULTILINE))
    assert len({name for name, _, _ in TABLE}) == len(TABLE) > 100


def test_a_report_has_at_most_a_hundred_problems() -> None:
    unknown = "".join(f"key{number}: 1\n" for number in range(5_000))
    with pytest.raises(SpecError) as caught:
        check_spec((HEAD + unknown).encode(), "drumline.yml")
    *problems, last = caught.value.problems
    assert len(problems) == 100
    assert str(last) == "drumline.yml:102: too many problems; checking stopped"


def test_rules_report_at_most_a_hundred_problems() -> None:
    undeclared = " ".join(f"{{{{ p{number} }}}}" for number in range(5_000))
    with pytest.raises(SpecError) as caught:
        check_spec(f"project: digits\nrun: train {undeclared}\n".encode(), "drumline.yml")
    assert len(caught.value.problems) == 100


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        (
            "roles: {worker: 2, ps: 1}",
            [f"drumline.yml:3: roles.ps: {WITHOUT_A_CHIEF}"],
        ),
        ("roles: {chief: 1, worker: 2, ps: 1}", []),
        ("roles: {master: 1, ps: 1}", []),
        ("{roles: {worker: 2, ps: 1}, framework: plain}", []),
        (
            "parameters: {lr-decay: 1}",
            ["drumline.yml:3: parameters.lr-decay: is not used in any command; it is still given as LR_DECAY"],
        ),
        ("{parameters: {lr: 1}, env: {RATE: '{{ lr }}'}}", []),
        (
            "roles: {worker: {run: 'train {{ lr * 2 }} {{}} {{ _x }}'}}",
            [
                "drumline.yml:3: roles.worker.run: `{{ lr * 2 }}` is not a placeholder and is passed on unchanged",
                "drumline.yml:3: roles.worker.run: `{{}}` is not a placeholder and is passed on unchanged",
                "drumline.yml:3: roles.worker.run: `{{ _x }}` is not a placeholder and is passed on unchanged",
            ],
        ),
    ],
)
def test_an_unusual_spec_has_warnings(spec: str, warnings: list[str]) -> None:
    whole = f"{HEAD}{spec}" if not spec.startswith("{") else "{project: digits,\nrun: python train.py,\n" + spec[1:]
    _, found = check_spec(whole.encode(), "drumline.yml")
    assert [str(warning) for warning in found] == warnings


@pytest.mark.parametrize(
    "spec",
    [
        "env: {TF_CONFIG: {value: '{}', override: true}}",
        "env: {TF_CONFIG: {from: MY_CONFIG, override: true}}",
        "framework: torch\nenv: {TF_CONFIG: a, JAX_PROCESS_ID: b}",
        "framework: plain\nenv: {RANK: 0}\nroles: {ps: 1, worker: 1, evaluator: 3}",
        "parameters: {lr: 1}\nenv: {LR: {value: 2, override: true}}",
        "parameters: {rank: 1, tf: 2}",
        "framework: torch\nparameters: {tf-config: 1}",
        "roles: {worker: {port: [1]}, chief: {replicas: 1, port: 2}}",
        "timeouts: {grace: 0}",
        "restart: {backoff: {initial: 5m, maximum: 5m}}",
        "x-anything: {that: is, not: read, by: [1, 2]}",
        "output: out/{{ run }}\ncheckpoint: '{{ run }}'",
        "roles: {worker: {run: [python -m build, python train.py]}}",
    ],
)
def test_a_spec_that_looks_like_a_mistake_but_is_valid_passes(spec: str) -> None:
    _, warnings = check_spec(f"{HEAD}{spec}\n".encode(), "drumline.yml")
    assert [each for each in warnings if not each.message.startswith("is not used in any command")] == []
