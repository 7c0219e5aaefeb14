"""The behavior of a fake replica as data, and its form as a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from string import Template

from drumline.plan.codec import from_data, to_data
from drumline.plan.types import Launch
from drumline.record import Record
from drumline.run.event import Exit

_COMMAND = "act"


class LogLine(Record):
    """A line of a replica's log; `$NAME` in it is replaced by the replica's variable."""

    text: str
    after_seconds: float = 0.0


class FakeBehavior(Record):
    """The log lines of a replica, its end, and its end on TERM.

    Times count from its start, or from TERM. Without an `exit` it runs until it is stopped.
    """

    lines: tuple[LogLine, ...] = ()
    exit: Exit | None = Exit(code=0)
    after_seconds: float = 0.0
    exit_on_term: Exit | None = Exit(signal=15)  # None: only KILL ends it
    after_term_seconds: float = 0.0
    starts_after_seconds: float = 0.0
    is_idle: bool = False  # it uses no CPU time
    listens: bool = True  # on its port
    stacks: str = ""


def command_of(*behaviors: FakeBehavior) -> tuple[str, ...]:
    """Return the command with these behaviors: one for each attempt or incarnation, the last for all that follow."""
    return (_COMMAND, *(json.dumps(to_data(each)) for each in behaviors))


def behaviors_of(argv: Sequence[str]) -> tuple[FakeBehavior, ...]:
    """Return the behaviors in a command; raise ValueError if they cannot be read.

    Any other command gets a behavior that writes the command to the log and exits with 0.
    """
    if argv[0] != _COMMAND:
        return (FakeBehavior((LogLine(shlex.join(argv).replace("$", "$$")),)),)
    try:
        behaviors = tuple(from_data(FakeBehavior, json.loads(word)) for word in argv[1:])
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not behaviors:
        raise ValueError("there is none")
    return behaviors


def behavior_of(launch: Launch) -> FakeBehavior:
    """Return the behavior in this attempt and incarnation, with its variables replaced."""
    behaviors = behaviors_of(launch.replica.argv)
    behavior = behaviors[min(launch.attempt + launch.incarnation, len(behaviors) - 1)]
    env = {name: str(value) for name, value in launch.env.items()}
    filled = (line.replace(text=Template(line.text).safe_substitute(env)) for line in behavior.lines)
    return behavior.replace(lines=tuple(filled))
