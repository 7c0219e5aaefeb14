"""The follower forwards requests to a remote supervisor, and copies its files."""

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


class RemoteRun:
    """A run with a remote supervisor: its folder `there`, its copy `here`, and the connection between them."""

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
        """Let the remote supervisor exit."""
        self.control.close()
        assert self._lock
        release_lock(self._lock)


class Client:
    """A command that is connected to the follower."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, what: str, **more: object) -> None:
        self._writer.write(json.dumps({"do": what, **more}).encode() + b"\n")

    async def receive(self) -> bytes:
        return await self._reader.readline()

    def close(self) -> None:
        self._writer.close()


def follow(folder: Path, use: Callable[[RemoteRun, Client], Coroutine[Any, Any, None]]) -> RunFolder:
    """Follow a run, call `use`, and let the remote supervisor exit; return the folder of the copy."""

    async def main() -> RunFolder:
        run = RemoteRun(folder)
        words: asyncio.Queue[str] = asyncio.Queue()
        follower = Follower(run.here, run.here.plan(), run)
        following = asyncio.create_task(follower.follow(words.put_nowait, RefreshCopy()))
        assert await words.get() == "ok"
        client = Client(*await asyncio.open_unix_connection(os.path.relpath(run.here.socket_file)))
        try:
            await use(run, client)
            run.leave()
            await following
            while received := await client.receive():  # the follower exits after the remote supervisor
                assert received == SAMPLED
        finally:
            client.close()
        return run.here

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short


def test_a_refresh_copies_the_present_content_of_the_remote_log(tmp_path: Path) -> None:
    async def use(run: RemoteRun, client: Client) -> None:
        for number in range(3):
            run.write("log", b"line\n" * (number + 1))
            await client.ask("look")
            assert (await client.receive(), await client.receive()) == (YES, DONE)
            assert (run.here.path / TRACES / "log").read_bytes() == b"line\n" * (number + 1)

    here = follow(tmp_path, use)
    reach = read_reachability(here.path)
    assert reach
    assert reach.state == ENDED


def test_a_stop_is_forwarded_and_a_failure_to_forward_it_is_reported(tmp_path: Path) -> None:
    async def use(run: RemoteRun, client: Client) -> None:
        await client.ask("stop", force=True)
        assert await client.receive() == YES
        assert [each.force for each in run.stops] == [True]
        run.is_away = True
        await client.ask("stop")
        received = json.loads(await client.receive())
        assert received == {"ok": False, "message": "run 4 was not asked to stop: nothing answers there"}
        await client.ask("look")
        assert (await client.receive(), await client.receive()) == (YES, DONE)
        reach = read_reachability(run.here.path)
        assert reach
        assert (reach.state, reach.message) == (UNREACHABLE, "nothing answers there")
        run.is_away = False
        await client.ask("look")
        assert (await client.receive(), await client.receive()) == (YES, DONE)
        reach = read_reachability(run.here.path)
        assert reach
        assert reach.state == ANSWERS

    follow(tmp_path, use)


def test_a_watching_client_gets_new_samples(tmp_path: Path) -> None:
    async def use(run: RemoteRun, client: Client) -> None:
        await client.ask("watch")
        assert await client.receive() == YES
        while not run.control.is_watched:
            await asyncio.sleep(0)
        run.write("metrics", b"a sample")
        run.control.notify_watchers()
        assert await client.receive() == SAMPLED
        assert (run.here.path / TRACES / "metrics").read_bytes() == b"a sample"

    follow(tmp_path, use)


def test_stacks_are_saved_by_the_remote_supervisor_and_copied(tmp_path: Path) -> None:
    async def use(run: RemoteRun, client: Client) -> None:
        def save(then: Callable[[], object]) -> None:
            run.write("stacks", b"in train.py")
            then()

        run.control.dump_stacks = save
        await client.ask("stacks")
        assert (await client.receive(), await client.receive()) == (YES, DONE)
        assert (run.here.path / TRACES / "stacks").read_bytes() == b"in train.py"

    follow(tmp_path, use)


def test_a_run_that_was_sent_to_this_machine_has_no_remote_supervisor(tmp_path: Path) -> None:
    class Engine:
        def remote_supervisor(self, run_output: object) -> object:
            return run_output

    run = write_run(tmp_path, 4)
    engine: Any = Engine()
    assert find_remote(run, run.plan(), engine)
    add_facts(run, **{SENT_BY: "1.0"})
    assert find_remote(run, run.plan(), engine) is None
