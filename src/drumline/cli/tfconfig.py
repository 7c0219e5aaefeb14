"""``drumline tfconfig``: make TF_CONFIG for a list of hosts, or check one."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import click

from drumline.cli.terminal import print_json, print_line
from drumline.cli.text import FORM_OPTION, warn
from drumline.errors import InputError, Problem, SpecError
from drumline.load.load import read_file
from drumline.plan.address import Address, parse_addresses
from drumline.plan.assignment import Assignment, read_assignment
from drumline.plan.parse import MAX_CHARACTERS
from drumline.plan.rendezvous.tensorflow import tf_config
from drumline.plan.tfconfig import Diagnostic, Examination, examine
from drumline.plan.types import ROLES, ReplicaId
from drumline.spec.hosts import read_hosts
from drumline.words import listed

Cluster = Mapping[str, Sequence[str]]

# A character has at most four bytes; the end of a longer file is not read.
_MAX_BYTES = 4 * MAX_CHARACTERS

_MAX_SHOWN = 100
_PORT = 2222  # the usual port of examples

MAKE_EPILOG = """
\b
Examples:
  drumline tfconfig make --worker a:2222,b:2222 --task worker:0
  drumline tfconfig make --hosts a,b --all
  drumline tfconfig make --chief c:2222 --worker a:2222 --ps p:2222 --all --export
  export TF_CONFIG="$(drumline tfconfig make --worker a:2222,b:2222 --task worker:1)"
"""

CHECK_EPILOG = """
\b
Examples:
  drumline tfconfig check                  the environment variable
  drumline tfconfig check tf_config.json   a file
  ssh b printenv TF_CONFIG | drumline tfconfig check -
"""


@click.group()
def command() -> None:
    """Make TF_CONFIG for a list of hosts, or check one."""


@command.command(epilog=MAKE_EPILOG)
@click.option("--hosts", metavar="HOST,...", help="One worker on each host, at port 2222; short for --worker.")
@click.option("--worker", multiple=True, metavar="HOST:PORT,...", help="The workers, ordered by index.")
@click.option("--chief", multiple=True, metavar="HOST:PORT", help="The chief; without one, worker 0 acts as chief.")
@click.option("--master", multiple=True, metavar="HOST:PORT", help="The same as --chief.")
@click.option("--ps", multiple=True, metavar="HOST:PORT,...", help="The parameter servers.")
@click.option(
    "--evaluator", multiple=True, metavar="HOST:PORT", help="The evaluator; it is not listed for the other nodes."
)
@click.option("--task", metavar="ROLE:INDEX", help="The node, such as worker:0.")
@click.option("--all", "every_node", is_flag=True, help="Print the TF_CONFIG of every node.")
@click.option("--export", is_flag=True, help="Print a shell command; short for -o shell.")
@click.option("--python", is_flag=True, help="Print Python code; short for -o python.")
@click.option("-o", "--output", "form", type=click.Choice(["json", "shell", "python"]), help="The output format.")
def make(
    *,
    hosts: str | None,
    worker: tuple[str, ...],
    chief: tuple[str, ...],
    master: tuple[str, ...],
    ps: tuple[str, ...],
    evaluator: tuple[str, ...],
    task: str | None,
    every_node: bool,
    export: bool,
    python: bool,
    form: str | None,
) -> None:
    """Print the TF_CONFIG of one node, or of all.

    Separate addresses by commas, or repeat the option.
    """
    if hosts is not None:
        worker = (*worker, *_workers_on(hosts))
    given = {"worker": worker, "chief": chief, "master": master, "ps": ps, "evaluator": evaluator}
    cluster = _read_cluster(given)
    nodes = [ReplicaId(role, index) for role in ROLES for index in range(len(cluster.get(role, ())))]
    diagnostics = _examine_cluster(cluster, nodes)
    form = _choose_form(form, export=export, python=python)
    if every_node and task:
        raise InputError("--task and --all cannot be combined", hint="use one of them")
    chosen = nodes if every_node else [_choose_node(task, nodes)]
    show_all(diagnostics)
    for chunk in _write(chosen, cluster, form, every_node=every_node):
        print_line(chunk)


@command.command(epilog=CHECK_EPILOG)
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@FORM_OPTION
def check(file: str | None, form: str) -> None:
    """List every problem of a TF_CONFIG, or print which node it describes.

    It is read from the environment variable, or from FILE (`-` is standard input).
    """
    source, text = _read_text(file)
    if file is not None:
        text = read_value(text, source, "write only the JSON into it").value
    examination = examine(text)
    problems = examination.of("problem")
    if form == "json":
        print_json(_data(examination))
    else:
        # Notes are shown only if there is no problem.
        show_all(([] if problems else examination.of("note")), source)
        show_all(examination.of("warning"), source)
        show_all(problems, source)
    if problems:
        raise InputError(f"{source} has {'one problem' if len(problems) == 1 else f'{len(problems):,} problems'}")
    if form == "text":
        print_line(f"{source} is fine: {examination.description}")


def read_value(text: str, source: str, hint: str) -> Assignment:
    """Return the value and the command of a shell line such as `TF_CONFIG='…' python x.py`.

    Any other text is a value without a command. Raise InputError with the hint if a quote stays open.
    """
    try:
        return read_assignment(text) or Assignment(text, "")
    except ValueError as error:
        raise InputError(f"{source}: {error}", hint=hint) from None


def show_all(diagnostics: Sequence[Diagnostic], source: str = "") -> None:
    """Print diagnostics on stderr, each with its place, up to a limit."""
    for diagnostic in diagnostics[:_MAX_SHOWN]:
        path, message = diagnostic.path, diagnostic.message
        place = f"{source}: {path}" if source and path else source or path
        match diagnostic.level:
            case "problem":
                print_line(f"{place}: {message}", err=True)
            case "warning":
                warn(f"{place}: {message}")
            case "note":
                print_line(f"note: {place}: {message}", err=True)
    if len(diagnostics) > _MAX_SHOWN:
        print_line(f"... and {len(diagnostics) - _MAX_SHOWN:,} more; `-o json` shows all", err=True)


def _workers_on(hosts: str) -> list[str]:
    return [str(Address(name.rpartition("@")[2], _PORT)) for name in read_hosts(hosts)]


def _read_cluster(given: Mapping[str, Sequence[str]]) -> Cluster:
    """Return the addresses of each role, in order; raise SpecError for those that are not valid."""
    cluster: dict[str, list[str]] = {role: [] for role in ROLES}
    problems = []
    for option, texts in given.items():
        for text in texts:
            try:
                addresses = parse_addresses(text)
            except ValueError as error:
                problems += [Problem(f"--{option}", None, "", line) for line in str(error).splitlines()]
            else:
                cluster["chief" if option == "master" else option] += [str(address) for address in addresses]
    if problems:
        raise SpecError(problems)
    if not cluster["worker"] and not cluster["chief"]:
        raise InputError("no replica trains: give --worker or --chief", hint="such as `--worker a:2222,b:2222`")
    return {role: addresses for role, addresses in cluster.items() if addresses}


def _examine_cluster(cluster: Cluster, nodes: Sequence[ReplicaId]) -> list[Diagnostic]:
    """Return the diagnostics of the TF_CONFIG that lists the most nodes; raise SpecError for problems."""
    config = tf_config(cluster, next((node for node in nodes if node.role == "evaluator"), nodes[0]))
    found = examine(json.dumps(config)).diagnostics
    diagnostics = [each.replace(path=_option(each.path)) for each in found]
    problems = [Problem(each.path, None, "", each.message) for each in diagnostics if each.level == "problem"]
    if problems:
        raise SpecError(problems)
    return diagnostics


def _option(path: str) -> str:
    """Return the option that set this part of TF_CONFIG: `--worker` for `cluster.worker[0]`."""
    role = path.removeprefix("cluster.").partition("[")[0]
    return f"--{role}" if role in ROLES else "the cluster" if path else "TF_CONFIG"


def _choose_node(task: str | None, nodes: Sequence[ReplicaId]) -> ReplicaId:
    """Return the node that `--task` names; raise InputError if it is missing or not in the cluster."""
    names = _name_nodes(nodes)
    if task is None:
        raise InputError("the node is missing: choose it with --task, or add --all", hint=f"the cluster has {names}")
    role, _, index = task.replace(":", ".").partition(".")
    role = "chief" if role == "master" else role
    chosen = next((node for node in nodes if node.role == role and str(node.index) == index), None)
    if chosen:
        return chosen
    if role not in ROLES or not index.isdecimal():
        raise InputError(
            f"--task {task}: expected a role and its index, such as `worker:0`", hint=f"the cluster has {names}"
        )
    raise InputError(f"--task {task}: not in the cluster", hint=f"the cluster has {names}")


def _name_nodes(nodes: Sequence[ReplicaId]) -> str:
    """Return the nodes as text: `chief.0, worker.0 to worker.4 and ps.0`."""
    names: list[str] = []
    for role, number in Counter(node.role for node in nodes).items():
        few = [f"{role}.{index}" for index in range(min(number, 2))]
        names += few if number < 3 else [f"{role}.0 to {role}.{number - 1}"]
    return listed(names)


def _choose_form(form: str | None, *, export: bool, python: bool) -> str:
    wanted = {name for name, asked in ((form, form), ("shell", export), ("python", python)) if name and asked}
    if len(wanted) > 1:
        raise InputError("--export, --python and -o cannot be combined", hint="use one of them")
    return wanted.pop() if wanted else "json"


def _write(chosen: Sequence[ReplicaId], cluster: Cluster, form: str, *, every_node: bool) -> Iterator[str]:
    """Yield the lines of the result, node by node, to save memory for a large cluster."""
    if form == "json" and every_node:
        yield "{"
    for number, node in enumerate(chosen, start=1):
        last = number == len(chosen)
        text = json.dumps(tf_config(cluster, node))
        if every_node and form != "json":
            yield f"# {node} on {cluster[node.role][node.index]}"
        match form:
            case "shell":
                yield f"export TF_CONFIG={shlex.quote(text)}"
            case "python":
                yield "import os"
                yield ""
                yield "# TensorFlow reads this when the strategy is created, so it must be set before."
                yield f'os.environ["TF_CONFIG"] = {text!r}'
            case _:
                yield f"  {json.dumps(str(node))}: {text}{'' if last else ','}" if every_node else text
        if every_node and form != "json" and not last:
            yield ""
    if form == "json" and every_node:
        yield "}"


def _read_text(file: str | None) -> tuple[str, str]:
    """Return the name of the source, and the text."""
    if file is None:
        if "TF_CONFIG" not in os.environ:
            raise InputError(
                "TF_CONFIG is not set, so TensorFlow would train in a single process",
                hint="name a file, or `-` for standard input; `drumline tfconfig make --help` shows how to make one",
            )
        return "TF_CONFIG", os.environ["TF_CONFIG"]
    if file.lstrip().startswith("{"):
        raise InputError(
            "expected the name of a file, got JSON", hint="pipe it in: `echo '...' | drumline tfconfig check -`"
        )
    source, data, _ = read_file(file, most_bytes=_MAX_BYTES + 1, is_spec=False)
    try:
        return source, data.decode(errors="strict" if len(data) <= _MAX_BYTES else "replace")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: is not UTF-8 text (byte {error.start + 1:,})", hint="save it as UTF-8") from None


def _data(examination: Examination) -> dict[str, object]:
    def rows(diagnostics: Sequence[Diagnostic]) -> list[dict[str, str]]:
        return [{"path": each.path, "message": each.message} for each in diagnostics]

    return {
        "ok": examination.ok,
        "task": str(examination.task) if examination.task else None,
        "chief": str(examination.chief) if examination.chief else None,
        "who": examination.description or None,
        "problems": rows(examination.of("problem")),
        "warnings": rows(examination.of("warning")),
        "notes": rows(examination.of("note")),
    }
