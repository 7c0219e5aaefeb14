"""What a fake replica does, as data, and how that is written into its command."""

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


class Line(Record):
    """A line of a replica's log; `$NAME` in it is a variable of the replica's."""

    text: str
    after_seconds: float = 0.0


class FakeBehavior(Record):
    """What a replica does: what it writes, how it ends, and how it ends if it is asked to.

    Times count from its start, which may be late; without an exit it goes on until it is stopped.
    """

    lines: tuple[Line, ...] = ()
    exit: Exit | None = Exit(code=0)
    after_seconds: float = 0.0
    exit_on_term: Exit | None = Exit(signal=15)  # None: only KILL ends it
    after_term_seconds: float = 0.0
    starts_after_seconds: float = 0.0
    is_idle: bool = False  # it does nothing but write its lines
    listens: bool = True  # on its port
    stacks: str = ""


def command_of(*acts: FakeBehavior) -> tuple[str, ...]:
    """The command of a replica that plays these: one in each attempt or life, and the last in all that follow."""
    return (_COMMAND, *(json.dumps(to_data(act)) for act in acts))


def behaviors_of(argv: Sequence[str]) -> tuple[FakeBehavior, ...]:
    """Read a command; any other than an act is only said. Raise ValueError for one that cannot be read."""
    if argv[0] != _COMMAND:
        return (FakeBehavior((Line(shlex.join(argv).replace("$", "$$")),)),)
    try:
        acts = tuple(from_data(FakeBehavior, json.loads(word)) for word in argv[1:])
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not acts:
        raise ValueError("there is none")
    return acts


def behavior_of(launch: Launch) -> FakeBehavior:
    """What a replica plays in this attempt and life, its variables filled in."""
    acts = behaviors_of(launch.replica.argv)
    act = acts[min(launch.attempt + launch.incarnation, len(acts) - 1)]
    env = {name: str(value) for name, value in launch.env.items()}
    filled = (line.replace(text=Template(line.text).safe_substitute(env)) for line in act.lines)
    return act.replace(lines=tuple(filled))
