"""All requests to an agent: verbs about its host, about files, and about the replicas of one run."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drumline.engine.agent import probe
from drumline.engine.agent.frames import MESSAGE_BYTES, Frame
from drumline.engine.agent.offer import offer
from drumline.engine.agent.put import put
from drumline.engine.agent.receive import receive
from drumline.engine.agent.remove import remove
from drumline.engine.agent.replicas import Replicas, inject_fault
from drumline.engine.protocol import MustWait
from drumline.errors import DrumlineError
from drumline.runtime import keeper

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Answer = dict[str, Any]
Write = Callable[[dict[str, Any], bytes], None]

# The limit until `open` sets that of a run. It is long: the other side may read a large project between two requests.
_SILENCE_SECONDS = 3600.0
HOST_VERBS: Mapping[str, Callable[[Mapping[str, Any]], Answer]] = {
    "facts": probe.facts,
    "packages": probe.packages,
    "clock": probe.clock,
    "ports": probe.ports,
    "listen": probe.listen,
    "call": probe.call,
    "write": probe.write,
    "read": probe.read,
    "remove": remove,
    "put": put,
    "inject_fault": inject_fault,
}
FILE_VERBS: Mapping[str, Callable[[Mapping[str, Any], bytes], tuple[Answer, bytes]]] = {
    "offer": offer,
    "receive": receive,
}
# Methods of `Replicas`; `open` has to be the first request. Methods that return None answer later, or not at all.
REPLICA_VERBS = frozenset(
    (
        "open",
        "place",
        "start",
        "stop",
        "prepare",
        "usage",
        "work_samples",
        "sockets",
        "stacks",
        "close",
        "clear",
        "release",
    )
)


class Verbs:
    """Carries out the requests in frames; a request with an `id` is answered."""

    def __init__(self, loop: AbstractEventLoop, write: Write, is_busy: Callable[[], bool]) -> None:
        self._write = write
        self.replicas = Replicas(loop, write, is_busy)
        self._received_at = keeper.now()

    def touch(self) -> None:
        """Record that something was received now."""
        self._received_at = keeper.now()

    async def handle(self, frame: Frame) -> None:
        """Carry out a request, renew the lease, and send the answer."""
        if self.replicas.lease:
            with suppress(OSError):
                os.utime(self.replicas.lease)
        answer, data = await self._answer(frame)
        self.touch()  # nothing is received while a verb runs
        if "id" in frame.message and answer is not None:
            answer = {"do": "answer", "id": frame.message["id"], **answer}
            self._write(answer, data)

    async def _answer(self, frame: Frame) -> tuple[Answer | None, bytes]:
        message = frame.message
        name = message["do"]
        try:
            if name in FILE_VERBS:
                return FILE_VERBS[name](message, frame.data)
            if name in REPLICA_VERBS:
                return _bounded(await getattr(self.replicas, name)(message)), b""
            return _bounded(HOST_VERBS[name](message)), b""
        except MustWait as wait:
            return {"error": "MustWait", "message": str(wait)}, b""
        except DrumlineError as error:
            return {"error": type(error).__name__, "message": error.message, "hint": error.hint}, b""
        except OSError as error:
            words = error.strerror or str(error)
            return {"error": "OSError", "message": words, "errno": error.errno, "path": error.filename or ""}, b""
        except Exception as error:  # noqa: BLE001 - it is reported to the other side, and does not end the agent
            traceback.print_exc()
            return {"error": "EngineError", "message": f"{type(error).__name__}: {error}"}, b""

    @property
    def is_abandoned(self) -> bool:
        """Return whether nothing was received for so long that the connection counts as lost."""
        limit = self.replicas.silence_seconds or _SILENCE_SECONDS
        return keeper.now() - self._received_at >= limit


def _bounded(answer: Answer | None) -> Answer | None:
    """Return an answer, or an error in its place if it is longer than the supervisor accepts."""
    if answer is not None and len(Frame(answer).encode()) > MESSAGE_BYTES - (1 << 10):
        return {"error": "EngineError", "message": "the answer is too long"}
    return answer
