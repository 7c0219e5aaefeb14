"""The follower of a run with a remote supervisor: the process on this machine that stands in for the supervisor.

It holds the run's lock and listens on its socket, as a supervisor does, but makes no decisions: it copies the journal
and the logs into the run's folder, and forwards requests. It exits when the remote supervisor has exited.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from drumline.engine.abilities import EndedError, Remote, RemoteSupervisor
from drumline.engine.output import RunOutput
from drumline.engine.protocol import Engine
from drumline.engine.tasks import Tasks
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError
from drumline.plan.types import Plan, Secret
from drumline.run.event import ResumeRequested, StopRequested, SupervisorReturned
from drumline.runtime.private import read_regular
from drumline.store.folder import RunFolder
from drumline.store.launch import SENT_BY, read_facts
from drumline.store.reachability import ANSWERS, ENDED, MISUNDERSTOOD, UNREACHABLE, Reachability, write_reachability
from drumline.supervise.control import ControlServer, RefreshCopy
from drumline.supervise.message import Answer, Piece, VersionError, read_answer, write_head
from drumline.supervise.mirror import Mirror

_ACKNOWLEDGE_SECONDS = 5.0  # after this time a command continues with the present copy
_RETURN_SECONDS = 20.0  # a keeper starts the next supervisor within this time
_ANSWER_SECONDS = 30.0  # time limit of one answer
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
_LONGEST_UNREACHABLE_PAUSE = 5.0  # between two tries to reach the supervisor
_TRIES = 5  # to forward a request to a supervisor that is starting or exiting
_MOST_SPEC_BYTES = 1 << 24

Asked = StopRequested | ResumeRequested | SupervisorReturned | RefreshCopy | None


def find_remote(folder: RunFolder, plan: Plan, engine: Engine) -> RemoteSupervisor | None:
    """Return access to the remote supervisor of a run; None if the supervisor runs on this machine.

    It also runs on this machine if the run was sent here by drumline on another one.
    """
    if not isinstance(engine, Remote) or SENT_BY in read_facts(folder):
        return None
    return engine.remote_supervisor(RunOutput(plan, folder.output_dir, folder.path))


class Follower:
    """Follows one run to its end."""

    def __init__(self, folder: RunFolder, plan: Plan, remote: RemoteSupervisor) -> None:
        self._folder, self._plan, self._remote = folder, plan, remote
        self._mirror = Mirror(folder, plan, self._read)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._loop)
        self._woken = asyncio.Event()  # set to make the next copy now
        self._is_exiting = False
        self._alone_since: float | None = None  # since when no remote supervisor holds the run's lock
        self._reach = Reachability(UNREACHABLE, time.time(), "it has not answered yet")
        write_reachability(folder.path, self._reach)
        self._control = ControlServer(folder.socket_file, self._loop, self._pass_on)
        self._waiting: list[Callable[[], object]] = []  # called after the next copy
        self._control.refresh_copy = self._copy_soon
        self._control.dump_stacks = lambda then: self._tasks.begin(self._take_stacks(then))

    async def follow(self, acknowledge: Callable[[str], object], asked: Asked) -> None:
        """Start the remote supervisor, unless `asked` is RefreshCopy; then update the copy until it has exited.

        Call `acknowledge` with "ok" after the first copy, or with "refused" if `asked` is refused.
        """
        self._loop.add_signal_handler(signal.SIGTERM, self._exit)
        try:
            if not isinstance(asked, RefreshCopy) and not await self._open(asked):
                acknowledge("refused")
                return
            self._loop.call_later(_ACKNOWLEDGE_SECONDS, acknowledge, "ok")
            pause = _SHORTEST_PAUSE
            while not self._is_exiting:
                waiting, self._waiting = self._waiting, []
                pause = await self._copy(pause)
                acknowledge("ok")
                for then in waiting:
                    then()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                self._woken.clear()
        finally:
            await self._tasks.close()
            self._control.close()

    async def _copy(self, pause: float) -> float:
        """Update the copy; return the seconds to wait before the next update."""
        try:
            watched = self._control.is_watched
            if watched:  # the answer to this request follows the next sample
                await self._exchange(write_head(do="request", request={"do": "watch"}))
            size = _size(self._folder)
            answer = await self._mirror.update()
            if watched:
                await self._mirror.copy_whole()
                self._control.notify_watchers()
        except EndedError as error:
            self._note(ENDED, error)
            self._is_exiting = True
        except VersionError as error:
            self._note(MISUNDERSTOOD, error)
            return _LONGEST_UNREACHABLE_PAUSE
        except EngineError as error:
            self._note(UNREACHABLE, error)
            return min(_LONGEST_UNREACHABLE_PAUSE, 2 * pause)
        except OSError as error:
            self._note(UNREACHABLE, EngineError(f"the copy of run {self._folder.id} cannot be kept: {error.strerror}"))
            return _LONGEST_UNREACHABLE_PAUSE
        else:
            self._note(ANSWERS)
            self._judge(answer)
            if not self._mirror.is_current or _size(self._folder) != size:
                return _SHORTEST_PAUSE
        return min(_LONGEST_PAUSE, 1.5 * pause)

    def _judge(self, answer: Answer) -> None:
        """Exit when the remote supervisor has exited, none follows it, and everything is copied."""
        if answer.locked:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or self._loop.time()
        is_gone = not answer.returning or self._loop.time() - self._alone_since > _RETURN_SECONDS
        if is_gone and self._mirror.is_current:
            self._note(ENDED)
            self._is_exiting = True

    def _note(self, state: str, error: EngineError | None = None) -> None:
        """Write the state of the remote supervisor to the run's folder, if it has changed."""
        message, hint = (clean_text(error.message), clean_text(error.hint)) if error else ("", "")
        if (state, message) != (self._reach.state, self._reach.message):
            since = self._reach.since if state == self._reach.state else time.time()
            self._reach = Reachability(state, since, message, hint)
            with suppress(OSError):  # a full disk
                write_reachability(self._folder.path, self._reach)

    def _copy_soon(self, then: Callable[[], object]) -> None:
        self._waiting.append(then)
        self._woken.set()

    def _exit(self) -> None:
        self._is_exiting = True
        self._woken.set()

    async def _open(self, asked: Asked) -> bool:
        """Start the remote supervisor if needed, and send it the request; return False if the request is refused."""
        if isinstance(asked, StopRequested):
            if problem := await self._pass_on(asked):
                raise EngineError(problem)
            return True
        return await self._start(asked) or asked is None

    async def _start(self, asked: Asked) -> bool:
        """Start the remote supervisor; return False if there is one already, or if it refuses the request."""
        order = write_head(asked=_word(asked)) + json.dumps(self._launch()).encode()
        answer = read_answer(self._folder.id, await self._within(self._remote.start(order)))
        return answer.reply.get("ok") is True

    def _launch(self) -> dict[str, object]:
        """Return the files of the run, and the values of the secrets that its plan names; these are not stored."""
        folder, facts = self._folder, read_facts(self._folder)
        facts.pop("python", None)  # a path of this machine
        spec = read_regular(folder.spec_file, _MOST_SPEC_BYTES).decode("utf-8", "surrogateescape")
        files = {
            folder.spec_file.name: spec,
            folder.facts_file.name: json.dumps(facts),
            folder.plan_file.name: folder.plan_file.read_text("utf-8"),
        }
        environments = [*(each.env for each in self._plan.preparations), *(each.env for each in self._plan.replicas)]
        values = [value for env in environments for value in env.values()]
        names = {value.variable for value in values if isinstance(value, Secret)}
        return {"files": files, "secrets": {name: os.environ[name] for name in names if name in os.environ}}

    async def _read(self, pieces: Sequence[Piece]) -> Answer:
        wanted = [(piece.name, piece.offset, piece.limit) for piece in pieces]
        return await self._exchange(write_head(do="read", pieces=wanted), pieces)

    async def _exchange(self, message: bytes, pieces: Sequence[Piece] = ()) -> Answer:
        return read_answer(self._folder.id, await self._within(self._remote.exchange(message)), pieces)

    async def _within(self, answering: Coroutine[Any, Any, bytes]) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answering
        except TimeoutError:
            raise EngineError(f"{self._plan.where} has not answered for {_ANSWER_SECONDS:g} s") from None

    async def _pass_on(self, asked: StopRequested) -> str:
        """Forward a stop request, to a new supervisor if there is none; return the problem, or an empty text."""
        message = write_head(do="request", request={"do": "stop", "force": asked.force})
        problem = "its supervisor comes and goes"
        try:
            for _ in range(_TRIES):
                answer = await self._exchange(message)
                if answer.reply.get("ok") is True or (not answer.locked and await self._start(asked)):
                    self._woken.set()
                    return ""
                problem = clean_text(str(answer.reply.get("message", problem)))
        except EngineError as error:
            problem = error.message
        return f"run {self._folder.id} was not asked to stop: {problem}"

    async def _take_stacks(self, then: Callable[[], object]) -> None:
        """Have the remote supervisor save stacks, copy them, and call `then`."""
        with suppress(EngineError, OSError):
            await self._exchange(write_head(do="request", request={"do": "stacks"}))
            await self._mirror.copy_whole()
        then()


def _word(asked: Asked) -> str:
    match asked:
        case StopRequested():
            return "force" if asked.force else "stop"
        case ResumeRequested():
            return "resume"
    return ""


def _size(folder: RunFolder) -> int:
    try:
        return folder.journal_file.stat().st_size
    except OSError:
        return 0
