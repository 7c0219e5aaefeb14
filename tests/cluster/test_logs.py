"""Logs of real pods, collected through connections that are cut, slow or refused: complete, and no line twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.breaker import Breaker, Request
from cluster.conftest import Kubectl
from drumline.engine.kubernetes.answer_fields import seconds_of
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.logs import LogCollector
from drumline.store.logs import LogReader
from scaffold.waiting import wait_until

PYTHON = "python:local"
LONG_SECONDS = 900.0

STEADY = """
import sys, time
for number in range(1500):
    print(f"line {number:05d}", "x" * (40000 if number % 200 == 7 else number % 90), flush=True)
    if number % 3 == 0 and number % 200 != 7:  # a long line may be interrupted by one of the other stream
        print(f"error {number:05d}", file=sys.stderr, flush=True)
    time.sleep(0.004)
"""
ODD = """
import array, fcntl, os, termios
def write(data):
    os.write(1, data)
def is_read():
    fcntl.ioctl(1, termios.FIONREAD, left := array.array("i", [0]))
    return not left[0]
write(b"plain\\n\\n")
write(b"x" * 40000 + b"END\\n")
write(b"\\xff\\xfe no text\\n")
for number in range(5):
    write(b"\\rbar %d" % number)
write(b"\\n lead\\n" + b"a" * 16384 + b"\\n" + b"b" * 16383 + b"\\n" + b"y" * 20000)
while not is_read():  # so that the container runtime has half a line
    pass
write(b"z" * 20000 + b"\\n")
for number in range(3000):
    write(b"%d\\n" % number)
write(b"100%")
"""
ODD_SAYS = (
    b"plain\n\n" + b"x" * 40000 + b"END\n\xff\xfe no text\n\rbar 0\rbar 1\rbar 2\rbar 3\rbar 4\n lead\n"
    + b"a" * 16384 + b"\n" + b"b" * 16383 + b"\n" + b"y" * 20000 + b"z" * 20000 + b"\n"
    + b"".join(b"%d\n" % number for number in range(3000)) + b"100%"
)  # fmt: skip


@asynccontextmanager
async def api_through(breaker: Breaker, kubectl: Kubectl, folder: Path) -> AsyncIterator[Api]:
    """Yield the API server through the breaker; `kubectl` reaches it directly."""
    async with open_api(kubeconfig=str(breaker.kubeconfig(folder / "kubeconfig", kubectl.namespace))) as api:
        yield api


class CountingApi:
    """The API server, and how often a log was requested, with or without an answer."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.asked = 0

    def pod_log(
        self, pod: str, container: str, *, since: str = "", follow: bool = True
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.asked += 1
        return self._api.pod_log(pod, container, since=since, follow=follow)


def start(kubectl: Kubectl, name: str, script: str, **spec: Any) -> None:
    """Create a pod that runs a script."""
    container = {"name": "replica", "image": PYTHON, "command": ["python3", "-c", script], **spec}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    kubectl("create", "-f", "-", given=json.dumps(pod))


async def until_over(kubectl: Kubectl, name: str) -> None:
    """Wait until a pod has ended, without blocking the loop."""
    ended = ("--for=jsonpath={.status.phase}=Succeeded", f"--timeout={LONG_SECONDS:.0f}s")
    await asyncio.to_thread(lambda: kubectl("wait", f"pod/{name}", *ended))


async def until(comes: Callable[[], bool]) -> None:
    """Wait until a condition is true, without blocking the loop."""
    async with asyncio.timeout(LONG_SECONDS):
        while not comes():
            await asyncio.sleep(0.02)


def go_on(kubectl: Kubectl, name: str) -> None:
    """Let a waiting pod continue; if that ends it, the command that releases it may be killed with it."""
    for is_last in (False, False, True):
        try:
            kubectl("exec", name, "--", "python3", "-c", "import os, signal; os.kill(1, signal.SIGUSR1)")
        except AssertionError as error:
            if "exit code 137" in str(error):
                return
            if is_last:
                raise
        else:
            return


def begins_with(kubectl: Kubectl, name: str, begin: str) -> bool:
    """Return whether the last file of a log begins so, which is all that is returned without `--follow`."""
    return kubectl("logs", name, "--limit-bytes=8").startswith(begin)


def wait_for_new_file(kubectl: Kubectl, name: str, begin: str) -> None:
    """Wait until the last file of a log is another one, which begins differently."""
    wait_until(lambda: not begins_with(kubectl, name, begin), LONG_SECONDS)


def ends_with(log: Path, end: str) -> bool:
    """Return whether a log, which may be long, ends so."""
    if not log.exists() or log.stat().st_size < len(end):
        return False
    with log.open("rb") as file:
        file.seek(-len(end), os.SEEK_END)
        return file.read() == end.encode()


def is_log(request: Request) -> bool:
    return request.is_log


ERRORS = [f"error {n:05d}" for n in range(0, 1500, 3) if n % 200 != 7]
STEADY_SAYS = [f"line {n:05d} " + "x" * (40000 if n % 200 == 7 else n % 90) for n in range(1500)]


def test_a_log_has_every_line_once_despite_many_faults(kubectl: Kubectl, breaker: Breaker, tmp_path: Path) -> None:
    chance = random.Random(9)
    bad: list[dict[str, Any]]
    bad = [{"status": 429, "headers": ("Retry-After: 1",)}, {"status": 500}, {"status": 503}, {"delay_seconds": 1.0}]
    bad += [{"cut_bytes": chance.randrange(20_000)} for _ in range(10)]

    async def spoil(counting: CountingApi) -> None:
        await until((tmp_path / "log").exists)
        for fault in bad:
            breaker.fail(is_log, **fault)
            breaker.cut()
            await until(lambda: not breaker.faults)
        await asyncio.to_thread(breaker.stop_serving)
        before = counting.asked
        await until(lambda: counting.asked > before + 2)
        await asyncio.to_thread(breaker.serve_again)

    async def run() -> str:
        async with api_through(breaker, kubectl, tmp_path) as api:
            counting = CountingApi(api)
            collector = LogCollector(cast("Api", counting))
            collector.follow("steady", "replica", tmp_path / "log")
            await spoil(counting)
            await until_over(kubectl, "steady")
            return await collector.finish("steady", "replica", tmp_path / "log", LONG_SECONDS)

    start(kubectl, "steady", STEADY)
    assert asyncio.run(run()) == ""
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if line.startswith("line")] == STEADY_SAYS
    assert [line for line in lines if not line.startswith("line")] == ERRORS
    assert len([request for request in breaker.seen if request.is_log]) > len(bad)


@pytest.mark.parametrize("cut", [0, 100, 20_000, 45_000, 70_000])
def test_unusual_bytes_of_a_log_are_unchanged(kubectl: Kubectl, breaker: Breaker, tmp_path: Path, cut: int) -> None:
    async def run() -> str:
        async with api_through(breaker, kubectl, tmp_path) as api:
            breaker.fail(is_log, times=3, cut_bytes=cut)
            return await LogCollector(api).finish("odd", "replica", tmp_path / "log", LONG_SECONDS)

    start(kubectl, "odd", ODD)
    asyncio.run(until_over(kubectl, "odd"))
    assert asyncio.run(run()) == ""
    assert (tmp_path / "log").read_bytes() == ODD_SAYS
    assert not breaker.faults


def test_a_log_collector_continues_where_a_killed_one_stopped(
    kubectl: Kubectl, breaker: Breaker, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    async def some(number: int) -> None:
        before = len(log.read_bytes()) if log.exists() else 0
        async with api_through(breaker, kubectl, tmp_path) as api:
            LogCollector(api).follow("steady", "replica", log)
            await until(lambda: log.exists() and len(log.read_bytes()) > before + 1000 * number)
            # Then everything of it is cancelled, at any point.

    async def rest() -> str:
        async with api_through(breaker, kubectl, tmp_path) as api:
            return await LogCollector(api).finish("steady", "replica", log, LONG_SECONDS)

    start(kubectl, "steady", STEADY)
    for number in range(6):
        asyncio.run(some(number))
    asyncio.run(until_over(kubectl, "steady"))
    asked, before = time.time(), len(log.read_bytes())
    assert asyncio.run(rest()) == ""
    assert len(log.read_bytes()) > before
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("line")] == STEADY_SAYS
    blocks = LogReader(tmp_path).read(until=0.0, ended=True)
    (pod,) = kubectl.items("pods")
    began = seconds_of(pod["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"])
    assert began
    # Times of writing, not of fetching: the lines that were fetched last were written before they were requested.
    # A container's start and end are given in whole seconds.
    assert began - 2 < blocks[0].at < blocks[-1].at < asked


def test_a_pod_that_is_deleted_leaves_its_log(kubectl: Kubectl, breaker: Breaker, tmp_path: Path) -> None:
    script = """
import signal, sys
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("trains", flush=True)
signal.pause()
"""

    async def run() -> str:
        async with api_through(breaker, kubectl, tmp_path) as api:
            collector = LogCollector(api)
            collector.follow("deleted", "replica", tmp_path / "log")
            await until((tmp_path / "log").exists)
            await asyncio.to_thread(lambda: kubectl("delete", "pod", "deleted", "--grace-period=60"))
            return await collector.finish("deleted", "replica", tmp_path / "log", LONG_SECONDS)

    start(kubectl, "deleted", script)
    assert asyncio.run(run()) == ""
    assert (tmp_path / "log").read_bytes() == b"trains\nsaved\n"


def test_a_container_without_output_or_that_is_missing_is_no_error(
    kubectl: Kubectl, breaker: Breaker, tmp_path: Path
) -> None:
    async def run() -> tuple[str, str]:
        async with api_through(breaker, kubectl, tmp_path) as api:
            collector = LogCollector(api)
            silent = await collector.finish("silent", "replica", tmp_path / "silent" / "log", LONG_SECONDS)
            return silent, await collector.finish(
                "absent-pod", "replica", tmp_path / "absent-pod" / "log", LONG_SECONDS
            )

    start(kubectl, "silent", "pass")
    asyncio.run(until_over(kubectl, "silent"))
    silent, absent = asyncio.run(run())
    assert silent == ""
    assert "absent-pod" in absent
    assert not (tmp_path / "silent" / "log").exists()


def test_logs_of_many_pods_are_read_over_few_connections(kubectl: Kubectl, breaker: Breaker, tmp_path: Path) -> None:
    number = 12
    script = "import time\nfor n in range(40):\n print(n, flush=True)\n time.sleep(0.05)"

    async def run() -> list[str]:
        async with api_through(breaker, kubectl, tmp_path) as api:
            collector = LogCollector(api, most_followed=4)
            paths = [tmp_path / str(each) / "log" for each in range(number)]
            for each, path in enumerate(paths):
                collector.follow(f"many-{each}", "replica", path)
            for each in range(number):
                await until_over(kubectl, f"many-{each}")
            ends = (collector.finish(f"many-{each}", "replica", path, LONG_SECONDS) for each, path in enumerate(paths))
            return list(await asyncio.gather(*ends))

    for each in range(number):
        start(kubectl, f"many-{each}", script)
    assert asyncio.run(run()) == [""] * number
    says = "".join(f"{n}\n" for n in range(40))
    assert [(tmp_path / str(each) / "log").read_text() for each in range(number)] == [says] * number


def test_a_log_that_the_kubelet_rotates_is_complete(kubectl: Kubectl, breaker: Breaker, tmp_path: Path) -> None:
    """The kubelet checks every ten seconds for logs of more than 10 MiB, and rotates them."""
    parts, lines, log = 3, 120_000, tmp_path / "log"
    script = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("begun", flush=True)
for part in range({parts}):
    signal.sigwait([signal.SIGUSR1])
    print("\\n".join(f"{{part}} {{line:06d}} " + "x" * 90 for line in range({lines})), flush=True)
"""

    async def run() -> str:
        async with api_through(breaker, kubectl, tmp_path) as api:
            collector = LogCollector(api)
            collector.follow("large", "replica", log)
            await until(lambda: ends_with(log, "begun\n"))
            for part in range(parts):
                await asyncio.to_thread(go_on, kubectl, "large")
                if part < parts - 1:
                    await until(partial(ends_with, log, f"{part} {lines - 1:06d} {'x' * 90}\n"))
                    begin = f"{part} 000000" if part else "begun"
                    await asyncio.to_thread(wait_for_new_file, kubectl, "large", begin)
            await until_over(kubectl, "large")
            return await collector.finish("large", "replica", log, LONG_SECONDS)

    start(kubectl, "large", script)
    assert asyncio.run(run()) == ""
    written = [f"{part} {line:06d}" for part in range(parts) for line in range(lines)]
    assert [line[:8] for line in log.read_text().splitlines()] == ["begun", *written]


def test_a_log_that_is_rotated_while_it_is_read_is_complete(kubectl: Kubectl, breaker: Breaker, tmp_path: Path) -> None:
    """The kubelet would read the old file for as long as the new one grows."""
    lines = 400_000
    script = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("\\n".join(f"{{line:06d}} " + "x" * 90 for line in range({lines})), flush=True)
open("/tmp/written", "w").write("all")
for last in ("new\\n", ""):
    signal.sigwait([signal.SIGUSR1])
    print(last, end="", flush=True)
"""

    class Holding(CountingApi):
        """Read only the first lines until released, so that the kubelet cannot continue either."""

        def __init__(self, api: Api) -> None:
            super().__init__(api)
            self.may_read = asyncio.Event()

        @asynccontextmanager
        async def pod_log(self, *words: str, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            async with super().pod_log(*words, **options) as chunks:
                yield self._held(chunks)

        async def _held(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            received = 0
            async for chunk in chunks:
                yield chunk
                received += len(chunk)
                if received > 1024:  # a first chunk may be shorter than a line, which the collector does not write
                    await self.may_read.wait()

    async def follow(name: str) -> str | None:
        """Return the message at its end; empty if the kubelet rotated the log too early."""
        log = tmp_path / name
        async with api_through(breaker, kubectl, tmp_path) as api:
            server = Holding(api)
            collector = LogCollector(cast("Api", server))
            collector.follow(name, "replica", log)
            await until(lambda: log.exists() and log.stat().st_size > 0)
            if not await asyncio.to_thread(begins_with, kubectl, name, "000000"):
                return None
            await asyncio.to_thread(wait_for_new_file, kubectl, name, "000000")
            server.may_read.set()
            await asyncio.to_thread(go_on, kubectl, name)
            await until(lambda: ends_with(log, "\nnew\n"))
            await asyncio.to_thread(go_on, kubectl, name)
            await until_over(kubectl, name)
            return await collector.finish(name, "replica", log, LONG_SECONDS)

    def is_written(name: str) -> bool:
        return kubectl("exec", name, "--", "cat", "/tmp/written", check=False) == "all"

    for name in (f"behind-{attempt}" for attempt in range(20)):
        start(kubectl, name, script)
        kubectl("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={LONG_SECONDS:.0f}s")
        wait_until(partial(is_written, name), LONG_SECONDS)
        said = asyncio.run(follow(name))
        if said is not None:
            break
        kubectl("delete", "pod", name)
    assert said == ""
    assert [line[:6] for line in (tmp_path / name).read_text().splitlines()] == [
        *(f"{n:06d}" for n in range(lines)),
        "new",
    ]
