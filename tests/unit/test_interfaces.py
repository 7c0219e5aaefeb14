"""The interfaces of the code are those that docs/interfaces.txt has, and it has all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfaces.extract import interfaces
from interfaces.record import FILE, Sections, compare, read, write

STORES = Path(__file__).parents[1] / "stores"
PRINTED = re.compile(r"^\$ drumline (\w+) [^\n]*-o json\n(.*?)exit code 0$", re.MULTILINE | re.DOTALL)
BROKEN = (
    "Stable interfaces were removed or changed. Users rely on them: keep the old ones beside the new ones, as "
    "docs/stability.md says. If a release may do this, record it with `make interfaces` and in CHANGELOG.md:\n"
)
NEW = "New interfaces: describe them in docs/, then record them with `make interfaces`:\n"


@pytest.fixture(scope="module")
def found() -> Sections:
    return interfaces()


@pytest.fixture(scope="module")
def promised() -> Sections:
    return read(FILE.read_text())


def test_no_interface_was_removed_or_changed(promised: Sections, found: Sections) -> None:
    difference = compare(promised, found)
    broken = [
        *(f"removed: {line}" for line in difference.removed),
        *(f"changed: {line}" for line in difference.changed),
    ]
    assert not broken, BROKEN + "\n".join(broken)


def test_every_interface_is_recorded(promised: Sections, found: Sections) -> None:
    added = compare(promised, found).added
    assert not added, NEW + "\n".join(added)


def test_the_file_is_what_is_written_for_it(promised: Sections) -> None:
    assert write(promised) == FILE.read_text()


def test_an_addition_a_removal_and_a_change_are_told_apart() -> None:
    difference = compare({"spec": {"run": "text", "name": "text"}}, {"spec": {"run": "array", "roles": ""}})
    assert difference == (["spec: roles"], ["spec: name"], ["spec: run: was `text`, is `array`"])


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("commands", ["drumline train -p/--parameter", "drumline tfconfig make --task"]),
        ("spec", ["project", "roles.chief.replicas", "engine.ssh[].host", "engine.kubernetes.image.name"]),
        ("JSON keys of drumline status -o json", ["[].id", "replicas[].error.type", "cause.progress.step"]),
        ("JSON keys of drumline check -o json", ["ok", "problems[].line", "replicas[].command"]),
        ("JSON keys of drumline monitor -o json", ["[].replicas[].samples[].cpu_percent"]),
        ("JSON keys of drumline render -o json", ["replicas[].argv"]),
        ("exit codes", ["0", "130", "EngineError"]),
        ("reasons", ["Exited", "HostLost", "Unschedulable", "RunOver"]),
        ("variables that a replica gets", ["TF_CONFIG", "OUTPUT_DIR"]),
        ("journal: events", ["ReplicaExited.exit", "RunAccepted"]),
        ("journal: decisions", ["RunEnded.reason"]),
        ("engine protocol", ["Session.start", "Engine.render"]),
        ("engine abilities", ["Measurable.usage", "Remote.remote_supervisor"]),
    ],
)
def test_a_section_has_what_it_is_about(section: str, names: list[str], found: Sections) -> None:
    assert set(names) <= found[section].keys()


def test_keys_read_from_the_source_are_those_that_commands_print(found: Sections) -> None:
    """Compare them with what `status` and `events` print of every run of an older store."""
    printed: dict[str, set[str]] = {}
    for file in (STORES / "1" / "shown").glob("*.txt"):
        for command, text in PRINTED.findall(file.read_text()):
            if text.lstrip().startswith(("{", "[\n")):
                printed.setdefault(command, set()).update(keys_of(json.loads(text.replace("TIME ", "0"))))
    unknown = printed["status"].difference(found["JSON keys of drumline status -o json"])
    assert {key for key in unknown if not re.match(r"(\[\]\.)?(parameters|roles)\.", key)} == set()
    assert {"[].at", "[].id", "[].event"} <= printed["events"]
    assert len(printed["status"]) > 60


def keys_of(data: object, path: str = "") -> Iterator[str]:
    """The keys of JSON data, each with those around it."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield f"{path}.{key}".lstrip(".")
            yield from keys_of(value, f"{path}.{key}".lstrip("."))
    elif isinstance(data, list):
        for value in data:
            yield from keys_of(value, f"{path}[]")
