"""The output of a run in a cluster: a volume that an inspection pod mounts.

Files are copied as tar streams through a command in that pod, which needs `tar` or Python.
"""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import mapping, text
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.inspection import CONTAINER, inspection_pod
from drumline.engine.kubernetes.paths import Object, name_of
from drumline.engine.kubernetes.place import place_helper
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.engine.kubernetes.pod_exec import execute, raw_terminal, read_stdin
from drumline.engine.kubernetes.untar import unpack
from drumline.engine.output import RunOutput, Volume
from drumline.engine.project.copy import copy, refuse_link
from drumline.engine.project.tree import left_out_warning
from drumline.errors import EngineError, InputError, NotFoundError

T = TypeVar("T")

_ABSENT = 44  # the exit code of the script below for a missing file
_GONE_SECONDS = 120.0
_MOST_OUTPUT_BYTES = 16 << 10
_TAR = """
pack() { if tar --hard-dereference --version >/dev/null 2>&1; then tar --hard-dereference -cf - "$1"
elif command -v tar >/dev/null; then tar -cf - "$1"; else python3 -c 'import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as t: t.add(sys.argv[1])' "$1"; fi; }
unpack() { if command -v tar >/dev/null; then tar -xof -; else python3 -c 'import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as t: t.extractall()'; fi; }
"""
_FETCH = f"""{_TAR}
[ -e "$1" ] || [ -L "$1" ] || exit {_ABSENT}
cd "$(dirname "$1")" && pack "./$(basename "$1")"
"""
# Atomic: first beside the target, then renamed.
_PUT = f"""{_TAR}
set -e
target=$1
[ ! -d "$target" ] || target=$target/$2
mkdir -p "$(dirname "$target")"
cd "$(dirname "$target")"
scratch=$(mktemp -d ./.drumline-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
(cd "$scratch" && head -c "$3" | unpack)
if [ -d "$scratch/content" ] && [ -d "$target" ]; then cp -R "$scratch/content/." "$target/"
else mv -f "$scratch/content" "$target"; fi
"""


class ClusterOutput:
    """The volumes of a run."""

    def __init__(self, run_output: RunOutput) -> None:
        self._plan = run_output.plan

    def run_command(self, argv: Sequence[str]) -> int:
        """Run a command, or a shell if `argv` is empty, in a pod with the volumes; return its exit code."""
        terminal = not argv and sys.stdin.isatty() and sys.stdout.isatty()

        words = list(argv) or ["sh", "-c", "exec $(command -v bash || command -v sh)"]

        async def execute_in_pod(api: Api) -> int:
            async with inspection_pod(api, self._plan) as pod:
                run = partial(execute, api, pod, CONTAINER, words, stdout=_to(1), stderr=_to(2))
                if not terminal:
                    return await run(given=None if argv else _script())
                at = place_helper(self._plan).output_dir
                with raw_terminal():  # before the message: the user may type when it is shown
                    sys.stderr.write(f"drumline: the volume is at {at} in the pod {pod}; `exit` leaves it\r\n")
                    sys.stderr.flush()
                    return await run(given=read_stdin(), terminal=True)

        return self._request(execute_in_pod)

    def fetch(self, path: str, into: Path) -> Sequence[str]:
        """Unpack a tar from the pod into a temporary folder, then copy it to `into`; return warnings."""
        where = self._path(path)
        name = posixpath.basename(where)

        async def receive(api: Api) -> Sequence[str]:
            with tempfile.TemporaryDirectory(prefix="drumline-cp-") as scratch:
                async with inspection_pod(api, self._plan) as pod:
                    left_out = await self._receive(api, pod, where, Path(scratch))
                if name in left_out:
                    raise refuse_link(path)
                copy(Path(scratch, name), into, trusted=False)
                return [left_out_warning(left_out)] if left_out else []

        return self._request(receive)

    def put(self, source: Path, path: str) -> None:
        """Copy a file or folder to a path on the volume: as a tar of a length that is sent before.

        The length is needed since the protocol cannot close stdin.
        """
        if not os.path.lexists(source):
            raise InputError(f"there is no {source}")
        where = self._path(path)

        async def send(api: Api) -> None:
            with tempfile.TemporaryFile() as packed:
                with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
                    archive.add(source, arcname="content")
                size = packed.tell()
                packed.seek(0)
                async with inspection_pod(api, self._plan) as pod:
                    printed = bytearray()
                    name = Path(os.path.abspath(source)).name  # noqa: PTH100
                    words = ["sh", "-c", _PUT, "sh", where, name, str(size)]
                    code = await execute(
                        api,
                        pod,
                        CONTAINER,
                        words,
                        stdout=_into(printed),
                        stderr=_into(printed),
                        given=_chunks(packed),
                    )
                    if code:
                        raise EngineError(f"cannot write {where}: {_last(printed) or f'exit code {code}'}")

        self._request(send)

    def volumes(self) -> Sequence[Volume]:
        """Return the claims that were made for the run, not those that the spec names."""

        async def list_claims(api: Api) -> list[Volume]:
            found = []
            for name in names.created_claims(self._plan):
                if claim := await self._own_claim(api, name):
                    size = text(mapping(mapping(claim.get("status")).get("capacity")).get("storage"))
                    bound = size or "not bound to a volume"
                    words = f"the claim {name} in {api.namespace}, {bound}, with all that is on it"
                    found.append(Volume(name, "claim", words))
            return found

        return self._request(list_claims)

    def remove(self, names_of: Sequence[str]) -> None:
        """Delete these claims, and wait until they are gone; one that a pod uses stays until the pod ends."""

        async def delete(api: Api) -> None:
            claims = [claim for name in names_of if (claim := await self._own_claim(api, name))]
            left = {str(claim["metadata"]["uid"]): name_of(claim) for claim in claims}
            for uid, name in left.items():
                await api.delete("PersistentVolumeClaim", name, uid=uid)
            deadline = time.monotonic() + _GONE_SECONDS
            while left:
                existing = {each["metadata"]["uid"] for each in await api.list("PersistentVolumeClaim")}
                left = {uid: name for uid, name in left.items() if uid in existing}
                if left and time.monotonic() > deadline:
                    name = next(iter(left.values()))
                    raise EngineError(
                        f"the claim {name} is not deleted",
                        hint=f"a pod uses it: `{api.where.kubectl} describe pvc {name} -n {api.namespace}`",
                    )
                await asyncio.sleep(0.2 if left else 0)

        self._request(delete)

    async def _own_claim(self, api: Api, name: str) -> Object | None:
        """Return a claim that was made for the run; None if there is none, or if a foreign claim has its name."""
        claim = await api.find("PersistentVolumeClaim", name)
        is_own = claim and mapping(claim["metadata"].get("labels")).get(names.RUN) == names.base(self._plan)
        return claim if is_own else None

    async def _receive(self, api: Api, pod: str, where: str, scratch: Path) -> tuple[str, ...]:
        """Unpack what the pod sends, in a thread; return the names that are left out."""
        reading, writing = os.pipe()
        printed = bytearray()
        loop = asyncio.get_running_loop()

        def extract() -> tuple[str, ...]:
            with os.fdopen(reading, "rb") as stream:
                return unpack(stream, scratch)

        async def write(data: bytes) -> None:
            await loop.run_in_executor(None, _write_all, writing, data)

        extracting = loop.run_in_executor(None, extract)
        try:
            words = ["sh", "-c", _FETCH, "sh", where]
            code = await execute(api, pod, CONTAINER, words, stdout=write, stderr=_into(printed))
        finally:
            os.close(writing)
            unpacked = (await asyncio.gather(extracting, return_exceptions=True))[0]
        if code == _ABSENT:
            raise NotFoundError(
                f"run {self._plan.run} has no {where}", hint=f"`drumline inspect {self._plan.run} ls` lists what it has"
            )
        if code:
            raise EngineError(f"cannot read {where}: {_last(printed) or f'exit code {code}'}")
        if isinstance(unpacked, BaseException):
            raise EngineError(f"cannot unpack {where}: {unpacked}")
        return unpacked

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(place_helper(self._plan).output_dir, path))

    def _request(self, call: Callable[[Api], Coroutine[None, None, T]]) -> T:
        """Run a coroutine with a connection to the cluster; a signal cancels it, and the pod is deleted first."""
        cluster = cluster_of(self._plan)

        async def request() -> T:
            task = asyncio.current_task()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, lambda: task and task.cancel())
            async with open_api(cluster.context, cluster.namespace, kubeconfig=cluster.kubeconfig) as api:
                return await call(api)

        try:
            return asyncio.run(request())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _to(descriptor: int) -> Callable[[bytes], Awaitable[None]]:
    async def write(data: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(None, _write_all, descriptor, data)

    return write


def _into(buffer: bytearray) -> Callable[[bytes], Awaitable[None]]:
    """Return a writer that keeps the last bytes of an output."""

    async def write(data: bytes) -> None:
        buffer.extend(data)
        del buffer[:-_MOST_OUTPUT_BYTES]

    return write


def _write_all(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        return  # the reader has closed the pipe, and reports its own error


async def _chunks(file: io.BufferedIOBase | io.BufferedRandom) -> AsyncIterator[bytes]:
    while data := file.read(1 << 18):
        yield data


async def _script() -> AsyncIterator[bytes]:
    """Yield stdin, then `exit`, since the protocol cannot close the shell's stdin."""
    async for data in read_stdin():
        yield data
    yield b"\nexit\n"


def _last(printed: bytearray) -> str:
    lines = printed.decode(errors="replace").strip().splitlines()
    return text(lines[-1]) if lines else ""
