"""The follower passes on what a run is asked for, and copies what comes of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from drumline.errors import EngineError
from drumline.run.event import StopRequested
from drumline.runtime.lock import release_lock, take_lock
from drumline.store.folder import RunFolder
from drumline.store.launch import SENT_BY, add_facts
from drumline.store.reachability import ANSWERS, ENDED, UNREACHABLE, read_reachability
from drumline.supervise.control import DONE, SAMPLED, ControlServer, RefreshCopy
from drumline.supervise.follower import Follower, find_remote
from drumline.supervise.remote import answer
from scaffold.past_runs import moments, running, write_run

TRACES = "attempts/0/worker.0"
YES = b'{"ok": true}\n'


class Elsewhere:
    """A run that goes on elsewhere: its folder, the lock and the socket of its supervisor, and the way there."""

    def __init__(self, folder: Path) -> None:
        accepted, started, _, _ = moments()
        self.there = write_run(folder / "there", 4, running(accepted, started))
        self.here = write_run(folder / "here", 4)
        self.here.journal_file.unlink(missing_ok=True)
        self.is_away = False
        self.stops: list[StopRequested] = []
        self.control = ControlServer(self.there.socket_file, asyncio.get_running_loop(), self.stops.append)
        self._lock = take_lock(self.there.lock_file)
        (self.there.path / TRACES).mkdir(parents=True)

    async def start(self, order: bytes) -> bytes:
        raise AssertionError(order)

    async def exchange(self, request: bytes) -> bytes:
        if self.is_away:
            raise EngineError("nothing answers there")
        return await asyncio.to_thread(answer, self.there, request)

    def write(self, name: str, data: bytes) -> None:
        (self.there.path / TRACES / name).write_bytes(data)

    def leave(self) -> None:
        """Let the supervisor there be gone."""
        self.control.close()
        assert self._lock
        release_lock(self._lock)


class Client:
    """A command that is connected to the follower."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, what: str, **more: object) -> None:
        self._writer.write(json.dumps({"do": what, **more}).encode() + b"\n")

    async def hear(self) -> bytes:
        return await self._reader.readline()

    def close(self) -> None:
        self._writer.close()


def follow(folder: Path, use: Callable[[Elsewhere, Client], Coroutine[Any, Any, None]]) -> RunFolder:
    """Follow a run that goes on, until its supervisor has left; return its copy."""

    async def main() -> RunFolder:
        run = Elsewhere(folder)
        words: asyncio.Queue[str] = asyncio.Queue()
        follower = Follower(run.here, run.here.plan(), run)
        following = asyncio.create_task(follower.follow(words.put_nowait, RefreshCopy()))
        assert await words.get() == "ok"
        client = Client(*await asyncio.open_unix_connection(os.path.relpath(run.here.socket_file)))
        try:
            await use(run, client)
            run.leave()
            await following
            while told := await client.hear():  # until the follower has left with the supervisor
                assert told == SAMPLED
        finally:
            client.close()
        return run.here

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short


def test_a_look_copies_what_there_is_now(tmp_path: Path) -> None:
    async def use(run: Elsewhere, client: Client) -> None:
        for number in range(3):
            run.write("log", b"line\n" * (number + 1))
            await client.ask("look")
            assert (await client.hear(), await client.hear()) == (YES, DONE)
            assert (run.here.path / TRACES / "log").read_bytes() == b"line\n" * (number + 1)

    here = follow(tmp_path, use)
    reach = read_reachability(here.path)
    assert reach
    assert reach.state == ENDED


def test_a_stop_is_passed_on_and_answered_when_it_is(tmp_path: Path) -> None:
    async def use(run: Elsewhere, client: Client) -> None:
        await client.ask("stop", force=True)
        assert await client.hear() == YES
        assert [each.force for each in run.stops] == [True]
        run.is_away = True
        await client.ask("stop")
        told = json.loads(await client.hear())
        assert told == {"ok": False, "message": "run 4 was not asked to stop: nothing answers there"}
        await client.ask("look")
        assert (await client.hear(), await client.hear()) == (YES, DONE)
        reach = read_reachability(run.here.path)
        assert reach
        assert (reach.state, reach.message) == (UNREACHABLE, "nothing answers there")
        run.is_away = False
        await client.ask("look")
        assert (await client.hear(), await client.hear()) == (YES, DONE)
        reach = read_reachability(run.here.path)
        assert reach
        assert reach.state == ANSWERS

    follow(tmp_path, use)


def test_a_watching_command_gets_new_samples(tmp_path: Path) -> None:
    async def use(run: Elsewhere, client: Client) -> None:
        await client.ask("watch")
        assert await client.hear() == YES
        while not run.control.is_watched:
            await asyncio.sleep(0)
        run.write("metrics", b"a sample")
        run.control.notify_watchers()
        assert await client.hear() == SAMPLED
        assert (run.here.path / TRACES / "metrics").read_bytes() == b"a sample"

    follow(tmp_path, use)


def test_stacks_are_saved_there_and_copied(tmp_path: Path) -> None:
    async def use(run: Elsewhere, client: Client) -> None:
        def save(then: Callable[[], object]) -> None:
            run.write("stacks", b"in train.py")
            then()

        run.control.dump_stacks = save
        await client.ask("stacks")
        assert (await client.hear(), await client.hear()) == (YES, DONE)
        assert (run.here.path / TRACES / "stacks").read_bytes() == b"in train.py"

    follow(tmp_path, use)


def test_a_run_that_was_sent_here_is_supervised_here(tmp_path: Path) -> None:
    class Engine:
        def remote_supervisor(self, run_output: object) -> object:
            return run_output

    run = write_run(tmp_path, 4)
    engine: Any = Engine()
    assert find_remote(run, run.plan(), engine)
    add_facts(run, **{SENT_BY: "1.0"})
    assert find_remote(run, run.plan(), engine) is None
