"""All interfaces that others may rely on, as lines of text by section."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from drumline import errors, run, runtime
from drumline.cli import EPILOG, group
from drumline.engine import abilities, doctor_checks, events, options, output, plugins, protocol, tracker, warm
from drumline.engine.kubernetes import wait_reason
from drumline.engine.registry import engine_names
from drumline.plan import bind, rendezvous
from drumline.plan import codec as plans
from drumline.plan.types import Plan
from drumline.record import Record, field_names
from drumline.run import codec, traces
from drumline.run.state import Phase
from drumline.store import home, journal, launch
from drumline.store.folder import RunFolder
from drumline.supervise import message
from interfaces.json_keys import json_keys
from interfaces.protocols import Lines, class_lines, inner_records, protocol_lines, record_lines, signature
from interfaces.spec import spec_lines

TOPICS = Path(inspect.getfile(group.callback or run)).parent / "topics"
_NO_REASONS = (
    "Any",
    "GangHung",
    "LineHung",
    "MainThread",
    "Python",
)  # other words of run/ that are written like a reason


def interfaces() -> dict[str, dict[str, str]]:
    """Return the interfaces by section and name."""
    found = {
        "commands": _commands(),
        "spec": spec_lines(),
        **{f"JSON keys of drumline {name} -o json": _keys(counted) for name, counted in json_keys().items()},
        "exit codes": _exit_codes(),
        "states": ((phase.value, "") for phase in Phase),
        "reasons": _reasons(),
        "variables that a replica gets": _given(),
        "variables that drumline reads": _read(),
        "runtime": ((name, signature(getattr(runtime, name))) for name in runtime.__all__),
        "store": _store(),
        "journal: events": _journal(codec._EVENTS),
        "journal: decisions": _journal(codec._DECISIONS),
        "journal: parts of both": _parts((*codec._EVENTS.values(), *codec._DECISIONS.values())),
        "plan.json": (*record_lines(Plan), *_parts((Plan,))),
        "engines": _engines(),
        "engine protocol": (*protocol_lines(protocol), *protocol_lines(options)),
        "engine abilities": (
            line for each in (abilities, output, doctor_checks, warm) for line in protocol_lines(each)
        ),
        "engine helpers": (*class_lines(tracker.ReplicaTracker), *class_lines(events.EventQueue)),
        "supervisor elsewhere": _messages(),
    }
    return {section: dict(lines) for section, lines in found.items()}


def _commands(command: click.Command = group, words: str = "drumline") -> Lines:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"{words} {'/'.join(parameter.opts)}", _taken(parameter)
        else:
            yield f"{words} {parameter.human_readable_name}", "" if parameter.required else "optional"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield f"{words} {name}", ""
            yield from _commands(inner, f"{words} {name}")


def _taken(option: click.Option) -> str:
    kind = (
        "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.metavar or option.type.name
    )
    words = ["flag" if option.is_flag else kind, "repeatable" if option.multiple else ""]
    default = option.default if isinstance(option.default, str | int | float) and not option.is_flag else None
    return ", ".join(word for word in (*words, "" if default is None else f"default {default}") if word)


def _keys(counted: dict[str, int]) -> Lines:
    for key, forms in sorted(counted.items()):
        yield key, "" if forms == 1 else f"in {forms} forms"


def _exit_codes() -> Lines:
    for line in EPILOG.splitlines():
        if found := re.fullmatch(r" *(\d+) +(.*)", line):
            yield found[1], ""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.DrumlineError):
            yield name, str(kind.exit_code)


def _reasons() -> Lines:
    """Yield the reasons of ends, which are the words in capitals of run/, and those of waiting pods."""
    assert run.__file__
    found = {
        word
        for file in Path(run.__file__).parent.glob("*.py")
        for each in ast.walk(ast.parse(file.read_text()))
        if (word := _word(each))
    }
    yield from ((reason, "") for reason in sorted(found.difference(_NO_REASONS)))
    yield from ((reason, "of a replica that waits") for reason in sorted(set(_waiting_reasons())))


def _waiting_reasons() -> Iterator[str]:
    records = [each for each in vars(wait_reason).values() if isinstance(each, type) and issubclass(each, Record)]
    names = {each.__name__ for each in records if field_names(each)[:1] == ("reason",)}
    for each in ast.walk(ast.parse(inspect.getsource(wait_reason))):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in names and each.args:
            yield from (word for part in ast.walk(each.args[0]) if (word := _word(part)))
        if isinstance(each, ast.IfExp):
            yield from (word for part in (each.body, each.orelse) if (word := _word(part)))


def _given() -> Lines:
    yield from ((name, "") for name in sorted(bind.CONTRACT | {bind.INCARNATION}))
    for framework, names in rendezvous.RESERVED.items():
        yield from ((name, framework) for name in sorted(names))


def _read() -> Lines:
    text = (TOPICS / "variables.txt").read_text().rpartition("reads:\n")[2]
    yield from ((name, "") for name in re.findall(r"^  ([A-Z_]+) ", text, re.MULTILINE))


def _store() -> Lines:
    yield "version of the store", str(home.STORE_VERSION)
    yield "version of a plan", str(plans.VERSION)
    yield "version of an entry of the journal", str(journal.VERSION)
    for name in (*home._FILES, home.RUNS):
        yield name, ""
    folder = RunFolder(Path(home.RUNS, "ID"))
    names = [name for name, value in vars(RunFolder).items() if isinstance(value, property) and name != "id"]
    yield from sorted((str(getattr(folder, name)), "") for name in names)
    for name, value in vars(traces).items():
        if name.isupper():
            yield (name.lower().replace("_", " "), value) if name.endswith("_FORMAT") else (f"file {value}", "")
    yield "launch.json", ", ".join(re.findall(r'"(\w+)": ', inspect.getsource(launch.write_launch)))
    keys = re.findall(r'^ +"(\w+)": |data\["(\w+)"\] =', inspect.getsource(journal.entry_line), re.MULTILINE)
    yield "a line of events.jsonl", ", ".join(["event", *(first or second for first, second in keys)])


def _journal(kinds: dict[str, Any]) -> Lines:
    for name, kind in kinds.items():
        yield from record_lines(kind, name)


def _parts(kinds: tuple[Any, ...]) -> Lines:
    for kind in inner_records(kinds):
        yield from record_lines(kind)


def _engines() -> Lines:
    yield from ((name, "") for name in sorted(engine_names()))
    yield "entry points of other packages", plugins._GROUP


def _messages() -> Lines:
    yield "version of the protocol", str(message.PROTOCOL)
    yield "oldest version that is understood", str(message.OLDEST)
    yield "module that runs there", "drumline.supervise.remote start FOLDER, answer FOLDER"


def _word(node: ast.AST) -> str | None:
    """Return the text of a constant that is written like a reason, such as `HostLost`."""
    text = node.value if isinstance(node, ast.Constant) else None
    return text if isinstance(text, str) and re.fullmatch(r"([A-Z][a-z]+)+", text) else None
