"""The reachability of a remote supervisor: whether it answers.

The folder of a run with a remote supervisor is a copy: a process on this machine, the follower, holds the run's lock
and copies journal and logs. It records the state of the remote supervisor in the file `reach`. A run with a supervisor
on this machine has no such file.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from drumline.record import Record, to_dict
from drumline.runtime.private import read_regular, write_file
from drumline.words import printable

if TYPE_CHECKING:
    from pathlib import Path

REACH_FILE = "reach"
ANSWERS, ENDED, UNREACHABLE, MISUNDERSTOOD = "answers", "ended", "unreachable", "misunderstood"
_STATES = (ANSWERS, ENDED, UNREACHABLE, MISUNDERSTOOD)
_MOST_BYTES = 1 << 16


class Reachability(Record):
    """The state of a remote supervisor, and the time (UTC, seconds) since which it has this state."""

    state: str
    since: float
    message: str = ""
    hint: str = ""

    @property
    def problem(self) -> str:
        """Return why the run cannot be followed now; empty if it can be followed, or if its supervisor has exited."""
        return self.message if self.state in (UNREACHABLE, MISUNDERSTOOD) else ""

    def has_ended_since(self, at: float) -> bool:
        """Return whether it was recorded at this time or later that the supervisor has exited."""
        return self.state == ENDED and self.since >= at


def read_reachability(run_dir: str | Path) -> Reachability | None:
    """Return the recorded state of the supervisor of a run; None if it runs on this machine."""
    try:
        data: Any = json.loads(read_regular(os.path.join(run_dir, REACH_FILE), _MOST_BYTES))  # noqa: PTH118
        found = Reachability(**{name: data[name] for name in ("state", "since", "message", "hint")})
        if found.state in _STATES and isinstance(found.since, float) and isinstance(found.message, str):
            return found.replace(message=printable(found.message))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return Reachability(UNREACHABLE, 0.0, "it has not been asked yet")  # the file is damaged, and will be replaced


def write_reachability(run_dir: Path, state: Reachability) -> None:
    """Record the state; raise OSError if the file cannot be written."""
    write_file(run_dir / REACH_FILE, json.dumps(to_dict(state)).encode("utf-8", "backslashreplace"))
