"""Fuzz cases for input of users: specs, files of other systems, templates, TF_CONFIG, arguments of commands, values."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from random import Random

from drumline.cli import run
from drumline.errors import DrumlineError, Problem, SpecError
from drumline.load.engine import plan_spec
from drumline.load.load import check_spec
from drumline.plan.tfconfig import examine
from drumline.run.id import parse_target
from drumline.spec.dialect import draft_of
from drumline.spec.dialect.write import write
from drumline.spec.quantity import parse_bytes, parse_seconds, parse_seconds_or_never
from fuzz.cases import Trial, case
from fuzz.mutate import TEXTS, damage, damage_lines, twist
from scaffold import bad_specs

ROOT = Path(__file__).parents[2]
SHIPPED = files("drumline.cli").joinpath("templates", "kubernetes_jinja", "myjob.template.jinja").read_bytes()
SPECS = [
    *(path.read_bytes() for path in sorted(ROOT.glob("examples/*/drumline.yml"))),
    *(path.read_bytes() for path in sorted(ROOT.glob("tests/golden/**/drumline.yml"))),
    *(text.encode() for _, text, _ in bad_specs.TABLE),
]
DIALECT_FILES = [path.read_bytes() for path in sorted(ROOT.glob("tests/dialects/*"))]
# Statements that are inserted into templates: endless or huge results, attempts to leave the sandbox, broken syntax.
STATEMENTS = (
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{% for a in range(10**12) %}x{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{% include '/etc/passwd' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% set name = 9 ** (9 ** 9) %}",
    "{% set name = 'x' * 10 ** 11 %}",
    "{% set name = [0] * 10 ** 11 %}",
    "{{ 'x' * 3000000000 }}",
    "{{ '%99999999999d' % 1 }}",
    "{{ 'x'.ljust(99999999999) }}",
    "{{ 'x' | center(99999999999) }}",
    "{{ 1 / 0 }}",
    "{{ range(5) | batch(0) | list }}",
    "{{ [1, 2] | join(3) }}",
    "{{ nothing.at.all }}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% set worker_replicas = worker_replicas * 10 ** 5 %}",
    "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{{ lipsum(n=10 ** 7) }}",
    "{% set x = namespace() %}{% set x.y = x %}{{ x }}",
    "{% raw %}",
    "{#",
    "{% set a %}b{% endset %}",
    "{{ " + "(" * 400 + "1" + ")" * 400 + " }}",
    "{% if 1 %}" * 60 + "{% endif %}" * 60,
    "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "{{ dict | attr('mro') }}",
    "{{ 'a' | replace('', 'x' * 100000) | length }}",
)
TF_CONFIG = {
    "cluster": {"chief": ["h0:2222"], "worker": ["h1:2222", "h2:2222"], "ps": ["[::1]:1"]},
    "task": {"type": "worker", "index": 0},
    "rpc_layer": "grpc",
    "environment": "cloud",
}
HOSTS = (
    "h1,h2",
    "h1:4,h2",
    "@file",
    "user@h1",
    "[::1]:22",
    "h[1-3]",
    "h1,,h2",
    " h1 ",
    "h1:0,h1:99999999",
    "-oProxyCommand=x",
)


def check(data: bytes, given: tuple[str, ...] = ()) -> None:
    """Check a spec; its problems and warnings must be single printable lines."""
    problems: tuple[Problem, ...]
    try:
        spec, problems = check_spec(data, "drumline.yml", parameters=given)
        plan_spec(spec)
    except SpecError as error:
        assert error.problems
        problems = error.problems
    except DrumlineError as error:
        assert error.message
        return
    for problem in problems:
        assert str(problem).isprintable(), problem
        assert str(problem).startswith("drumline.yml:"), problem


def damaged(data: bytes, rng: Random) -> bytes:
    """Return a file with random damage."""
    for _ in range(rng.randint(1, 2)):
        data = damage_lines(data, rng) if rng.random() < 0.5 else damage(data, rng)
    return data


@case
def spec(trial: Trial) -> None:
    check(damaged(trial.rng.choice(SPECS), trial.rng))


@case
def dialect(trial: Trial) -> None:
    data = trial.rng.choice(DIALECT_FILES)
    if trial.rng.random() < 0.2:
        data += b"\n---\n" + trial.rng.choice(DIALECT_FILES)
    data = damaged(data, trial.rng)
    check(data)
    try:
        draft = draft_of((data, "drumline.yml"))
        if draft:
            write(draft)
    except DrumlineError:
        pass


@case
def template(trial: Trial) -> None:
    rng = trial.rng
    data = SHIPPED
    for _ in range(rng.randrange(3)):
        statement = rng.choice(STATEMENTS).encode()
        lines = data.splitlines(keepends=True)
        lines.insert(rng.choice((0, len(lines), rng.randint(0, len(lines)))), statement + b"\n")
        data = b"".join(lines)
    if rng.random() < 0.6:
        data = damaged(data, rng)
    check(data, ("port=1",) if rng.random() < 0.1 else ())
    _command(trial, data, ("render",), ("convert",))


@case
def tf_config(trial: Trial) -> None:
    rng = trial.rng
    value = TF_CONFIG
    for _ in range(rng.randint(1, 3)):
        value = twist(value, rng)
    text = json.dumps(value)
    if rng.random() < 0.5:
        text = damage(text.encode(), rng).decode(errors=rng.choice(("replace", "surrogateescape", "ignore")))
    for diagnostic in examine(text).diagnostics:
        assert diagnostic.message
    if "\0" not in text:
        check_exit_code(
            run(["tfconfig", "--check", "-"] if rng.random() < 0.1 else ["convert", f"--tf-config={text}", "--run=x"])
        )


@case
def arguments(trial: Trial) -> None:
    rng = trial.rng
    odd = rng.choice((*TEXTS, *HOSTS, "4", "4.worker.1", "4.chief", "7.2", "1e3", "30s", "x=1", "lr=", "=", "lr=1,2"))
    odd = (
        odd
        if rng.random() < 0.6
        else damage(odd.encode("utf-8", "surrogatepass"), rng, most=2).decode(errors="replace")
    )
    odd = os.fsdecode(odd.replace("\0", "").encode("utf-8", "surrogatepass"))  # as passed by a shell
    words = rng.choice(
        (
            ("check", f"-p{odd}"),
            ("check", f"-plr={odd}"),
            ("check", f"--hosts={odd}"),
            ("render", f"--hosts={odd}"),
            ("check", f"--name={odd}"),
            ("check", f"--on={odd}"),
            ("render", f"--run-id={odd}"),
            ("render", "--on=kubernetes", f"--namespace={odd}"),
            ("render", "--on=ssh", f"-plr={odd}"),
            ("status", odd),
            ("status", f"-n{odd}"),
            ("logs", odd),
            ("logs", "1", f"--since={odd}"),
            ("logs", "1", f"--tail={odd}"),
            ("events", odd),
            ("wait", odd),
            ("stacks", odd),
            ("monitor", "--once", odd),
            ("inspect", odd, "ls"),
            ("cp", odd, "x"),
            ("cp", f"1:{odd}", "x"),
            ("rm", odd),
            ("drill", "--after", odd),
            ("drill", "1", "--kill", odd),
            ("tfconfig", f"--hosts={odd}", "--all"),
            ("tfconfig", f"--worker={odd}", "--task=worker:0"),
            ("tfconfig", "--worker=h:1", f"--task={odd}"),
            ("convert", odd),
            ("check", odd),
            ("tensorboard", odd),
            (odd,),
        )
    )
    _command(trial, b"project: x\nframework: plain\nrun: echo {{ lr }}\nparameters: {lr: 1}\n", words)


@case
def words(trial: Trial) -> None:
    rng = trial.rng
    text = rng.choice(("16GiB", "1.5kB", "30s", "5 m", "never", "1e9d", "4.worker.1", "7.2.ps.0", "4.master", *TEXTS))
    if rng.random() < 0.8:
        text = damage(text.encode("utf-8", "surrogatepass"), rng, most=3).decode(errors="replace")
    for parse in (parse_bytes, parse_seconds, parse_seconds_or_never):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)
    try:
        parse_target(text)
    except DrumlineError as error:
        assert error.message


def check_exit_code(code: int) -> None:
    """Check the exit code of a command that starts no training."""
    assert code in (0, 2, 3, 4), f"exit code {code}"


def _command(trial: Trial, data: bytes, *commands: tuple[str, ...]) -> None:
    file = trial.folder / "drumline.yml"
    file.write_bytes(data)
    for name, *others in commands:
        takes_file = name in ("check", "render", "convert") and (name != "convert" or not others)
        check_exit_code(
            run(
                [name, *others, *([str(file)] if takes_file and not (others and not others[0].startswith("-")) else [])]
            )
        )
