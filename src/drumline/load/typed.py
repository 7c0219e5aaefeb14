"""What was typed behind `drumline train`, where that can be understood without the command line's own reader.

Who launches types a file's name, or nothing; to read that, nobody waits for click to be loaded. Whatever has more to
it, or is wrong, is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumline.plan.types import Plan
from drumline.record import Record

_FLAGS = ("-d", "--detach", "--kill-on-interrupt", "--no-warm", "--oversubscribe")
_VALUES = {"-f": "file", "--file": "file", "-p": "given", "--parameter": "given", "--name": "name"}


class Typed(Record):
    """What `drumline train` was given, as far as it has a part in the plan."""

    file: str | None = None
    given: tuple[str, ...] = ()
    name: str | None = None
    no_warm: bool = False
    oversubscribe: bool = False

    def applied(self, plan: Plan) -> Plan:
        """The plan of the spec, as it is asked for here."""
        return plan.replace(oversubscribe=self.oversubscribe, warm=None if self.no_warm else plan.warm)


def read_typed(words: Sequence[str]) -> Typed | None:
    """Read the words behind `train`; None if they are not plain."""
    flags = set()
    values: dict[str, list[str]] = {"file": [], "given": [], "name": []}
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            flags.add(word)
            continue
        value = next(rest, "") if word in _VALUES else word
        if not value or value.startswith("-"):  # standard input cannot be read twice
            return None
        values[_VALUES.get(word, "file")].append(value)
    files, given, names = values.values()
    if len(files) > 1 or len(names) > 1:
        return None
    return Typed(
        file=files[0] if files else None,
        given=tuple(given),
        name=names[0] if names else None,
        no_warm="--no-warm" in flags,
        oversubscribe="--oversubscribe" in flags,
    )
