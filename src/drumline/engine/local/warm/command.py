"""Read a replica's command. A warm process can run it if it is Python with a script or a module."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from drumline.record import Record

_PYTHON = re.compile(r"python[0-9.]*")
# Options of Python with which a warm process can be started. Other options make Python do something else.
_PLAIN_OPTIONS = re.compile(r"-[uBObdqsv]+")
_OPTIONS_WITH_VALUE = ("-W", "-X")
_EXECUTES = re.compile(rb'#!/bin/sh\nexec ([^\n]+) "\$@"\n')  # a script that only executes another program


class NotWarm(Exception):  # noqa: N818
    """This replica has to start cold; the message says why."""


class Command(Record):
    """An interpreter with its options, and the script or module that it runs."""

    interpreter: str
    options: tuple[str, ...]
    path: str = ""
    module: str = ""


def read_command(argv: Sequence[str], env: Mapping[str, str], workdir: str) -> Command:
    """Read a replica's command; raise NotWarm if it is not Python with a script or module."""
    if not _PYTHON.fullmatch(os.path.basename(argv[0])):  # noqa: PTH119
        raise NotWarm(f"its command is {argv[0]}, not Python")
    options, rest = _split(argv[1:])
    interpreter = _find_interpreter(argv[0], env, workdir)
    if rest[:1] == ["-m"] and len(rest) > 1:
        return Command(interpreter, options, module=rest[1])
    if not rest or rest[0].startswith("-"):
        raise NotWarm(f"python {rest[0] if rest else 'without a script'}")
    if not os.path.isfile(os.path.join(workdir, rest[0])) or not rest[0].endswith(".py"):  # noqa: PTH113, PTH118
        raise NotWarm(f"{rest[0]} is not a script")
    return Command(interpreter, options, path=rest[0])


def _split(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Split the arguments of Python into its options, and the script or module with its arguments."""
    options: list[str] = []
    rest = list(words)
    while rest:
        if _PLAIN_OPTIONS.fullmatch(rest[0]):
            options.append(rest.pop(0))
        elif rest[0] in _OPTIONS_WITH_VALUE and len(rest) > 1:
            options += [rest.pop(0), rest.pop(0)]
        elif rest[0].startswith(_OPTIONS_WITH_VALUE):
            options.append(rest.pop(0))
        else:
            break
    return tuple(options), rest


def _find_interpreter(name: str, env: Mapping[str, str], workdir: str) -> str:
    path = find_program(name, env, workdir)
    with open(path, "rb") as file:  # noqa: PTH123
        head = file.read(4096)
    if head.startswith(b"#!"):
        executed = _EXECUTES.fullmatch(head)  # an agent writes one on a host that has `python3` and no `python`
        words = shlex.split(os.fsdecode(executed[1])) if executed else []
        if len(words) == 1 and os.path.isabs(words[0]):  # noqa: PTH117
            return _find_interpreter(words[0], env, workdir)
        raise NotWarm(f"{path} is a script around Python")
    return path


def find_program(name: str, env: Mapping[str, str], workdir: str) -> str:
    """Return the file of a program, found as the system finds it; raise NotWarm if there is none."""
    folders = [""] if "/" in name else os.get_exec_path(dict(env))
    for folder in folders:
        path = os.path.join(workdir, folder, name)  # noqa: PTH118
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    raise NotWarm(f"{name} was not found")
