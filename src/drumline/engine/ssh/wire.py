"""What travels between a supervisor and its hands on the hosts: messages as lines of JSON, some with bytes behind them.

Both sides use it, so it knows nothing but the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from drumline.engine.local.life import Life
from drumline.plan.codec import from_data, to_data
from drumline.plan.types import Extended, Launch, LaunchValue, Place, Replica, ReplicaId, Secret
from drumline.record import Record

MAGIC = b"drumline-host "  # begins the first line of a hand's; whatever comes before is some shell's greeting
SIZE = "bytes"  # how many follow the line
LINE_BYTES = 8 << 20  # of the message of one frame that a host sends
DATA_BYTES = 1 << 20  # of the bytes behind it
_LIFE = re.compile(r"(\S{1,100}) ([0-9]{1,9}) ([0-9]{1,9})", re.ASCII)


class Frame(Record):
    """A message, and the bytes that came with it."""

    message: dict[str, Any]
    data: bytes = b""

    def encode(self) -> bytes:
        """As it travels."""
        message = {**self.message, SIZE: len(self.data)} if self.data else self.message
        return json.dumps(message).encode() + b"\n" + self.data


class Frames:
    """Puts frames together again, from whatever pieces of them arrive."""

    def __init__(self) -> None:
        self._heard = bytearray()
        self._head: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        self._heard += data
        while True:
            if self._head is None:
                end = self._heard.find(b"\n")
                if end < 0:
                    return
                self._head = json.loads(self._heard[:end])
                del self._heard[: end + 1]
            size = self._head.get(SIZE, 0)
            if len(self._heard) < size:
                return
            frame = Frame(self._head, bytes(self._heard[:size]))
            del self._heard[:size]
            self._head = None
            yield frame


def life_to_data(life: Life) -> str:
    """A life in a word: `worker.0 2 0`."""
    return f"{life.replica} {life.attempt} {life.incarnation}"


def life_from_data(text: str) -> Life:
    """Return the life again; raise ValueError for anything that is not one."""
    found = _LIFE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a replica: {text[:100]!r}")
    return Life(ReplicaId.parse(found[1]), int(found[2]), int(found[3]))


def launch_to_data(launch: Launch, secrets: Mapping[str, str]) -> dict[str, Any]:
    """A launch for a host: secrets are said, for they are this machine's; what extends the host's variables is not.

    One that this machine does not have is not missed by who runs already, so it is left to the host to complain.
    """
    return {
        "replica": to_data(launch.replica.replace(env={})),
        "attempt": launch.attempt,
        "place": to_data(launch.place),
        "env": {name: _value(value, secrets) for name, value in launch.env.items()},
        "incarnation": launch.incarnation,
    }


def launch_from_data(data: Mapping[str, Any]) -> Launch:
    """The launch again, as it is for the host."""
    env: dict[str, LaunchValue] = {name: _read(value) for name, value in data["env"].items()}
    return Launch(
        from_data(Replica, data["replica"]),
        data["attempt"],
        from_data(Place, data["place"]),
        env,
        data["incarnation"],
    )


def _value(value: LaunchValue, secrets: Mapping[str, str]) -> str | list[object]:
    if isinstance(value, Extended):
        return [value.text, value.separator, list(value.variables)]
    if isinstance(value, Secret):
        return secrets.get(value.variable) or [value.variable]
    return str(value)


def _read(value: Any) -> LaunchValue:
    if isinstance(value, str):
        return value
    return Secret(value[0]) if len(value) == 1 else Extended(value[0], value[1], tuple(value[2]))
