"""Start an agent on another machine; drumline's Python code runs there in no other way.

`python3 -c STUB FOLDER NAME keep|leave` runs the package NAME in FOLDER. If there is no such package, the stub requests
its zip from this machine. With `keep` the zip is unpacked into FOLDER; with `leave` it is imported from memory, and no
file is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Protocol

from drumline.engine.agent.client import Agent, Channel
from drumline.engine.agent.errors import MalformedError, RefusedError, UnreachableError
from drumline.engine.agent.frames import MAGIC
from drumline.engine.agent.package import package_data, package_name
from drumline.engine.untrusted import clean_text, last_line, load_json
from drumline.errors import EngineError
from drumline.record import Record

FIRST_LINE_SECONDS = 30.0  # for the first line of a stub or an agent
_GREETING_BYTES = 1 << 16  # of a line that a shell prints before the agent starts
_MOST_GREETINGS = 1000

# Any Python of the last fifteen years can parse the stub. It locks the package and updates its time of use, since
# `cleanup.py` removes packages that are neither locked nor recently used.
STUB = r"""
import json, os, sys
folder, name, keep = os.path.expanduser(sys.argv[1]), sys.argv[2], sys.argv[3] == "keep"
def say(**words):
    os.write(1, b"drumline-agent " + json.dumps(words).encode() + b"\n")
if sys.version_info < (3, 11):
    say(old="%d.%d.%d" % sys.version_info[:3])
    sys.exit(0)
home = os.path.join(folder, name)
def hold():
    import fcntl
    try:
        held = os.open(home, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            os.utime(home)
        except OSError: # without locks, cleanup.py removes nothing
            pass
        return os.path.samestat(os.fstat(held), os.stat(home))
    except OSError:
        return False
def find_foreign(): # a folder in which another user could replace the code of agents and runs
    for path in (os.path.dirname(folder), folder, home):
        found = os.stat(path)
        if not {found.st_uid, os.lstat(path).st_uid} <= {0, os.geteuid()} or found.st_mode & 0o002:
            return path
def receive():
    say(wants=True)
    size = b""
    while not size.endswith(b"\n"):
        size += os.read(0, 1) or sys.exit(1)
    data = bytearray()
    while len(data) < int(size):
        data += os.read(0, min(1 << 20, int(size) - len(data))) or sys.exit(1)
    return data
def lay_out(data):
    import io, shutil, tempfile, zipfile
    mask = os.umask(0o077)
    os.makedirs(folder, 0o700, exist_ok=True)
    os.umask(mask)
    scratch = tempfile.mkdtemp(dir=folder)
    try:
        zipfile.ZipFile(io.BytesIO(data)).extractall(scratch)
        try:
            os.rename(scratch, home)
        except OSError:
            if not os.path.isdir(home):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
try:
    found = hold()
    if keep and not found:
        lay_out(receive())
        found = hold()
    foreign = find_foreign() if found else None
    if keep and foreign:
        say(refused="%s belongs to another user, or all users may write there" % foreign)
        sys.exit(0)
    if not found or foreign:
        memory = os.memfd_create("drumline")
        with open(memory, "wb", closefd=False) as file:
            file.write(receive())
        home = "/proc/self/fd/%d" % memory
except OSError as error:
    say(refused="%s: %s" % (error.filename or folder, error.strerror))
    sys.exit(0)
sys.path.insert(0, os.path.join(home, "lib"))
sys.argv[1:] = []
from drumline.engine.agent.main import main
main()
"""


class Setup(Record):
    """How agents are started on the machines of a run, and hints for users how to change that."""

    python: str
    folder: str  # the folder of agent packages
    python_hint: str
    folder_hint: str


class Machine(Protocol):
    """A machine on which commands can be started."""

    host: str

    async def open(self, argv: Sequence[str], *, counts: bool = False) -> Channel:
        """Start a command; with `counts`, its output is added to the bytes received from the machine."""
        ...


async def start_agent(machine: Machine, setup: Setup, *, keep: bool = False, counts: bool = False) -> Agent:
    """Start an agent on a machine; with `keep`, write its package to the machine's disk for later starts.

    Raise RefusedError if the machine has no suitable Python or its disk cannot be written, UnreachableError if it does
    not answer.
    """
    argv = [setup.python, "-X", "utf8", "-I", "-c", STUB, setup.folder, package_name(), "keep" if keep else "leave"]
    channel = await machine.open(argv, counts=counts)
    try:
        async with asyncio.timeout(FIRST_LINE_SECONDS):
            first = await _read_first_line(channel, machine.host)
        if "wants" in first:
            data = await asyncio.to_thread(package_data)
            async with asyncio.timeout(FIRST_LINE_SECONDS):
                await channel.write(f"{len(data)}\n".encode() + data)
                first = await _read_first_line(channel, machine.host)
        if "ready" not in first:
            raise _no_agent(machine.host, setup, first, "" if first else await channel.stderr_tail())
    except TimeoutError:
        channel.close()
        raise UnreachableError(f"{machine.host} has not answered within {FIRST_LINE_SECONDS:g} s") from None
    except BaseException:
        channel.close()
        raise
    return Agent(channel, machine.host, setup.folder_hint)


async def _read_first_line(channel: Channel, host: str) -> dict[str, Any]:
    """Return the first message of a stub or an agent, {} if there is none; a shell may print a greeting before it."""
    for _ in range(_MOST_GREETINGS):
        line = await channel.readline(_GREETING_BYTES)
        if not line:
            break
        _, is_ours, message = line.rpartition(MAGIC)
        if is_ours:
            try:
                return dict(load_json(message))
            except (ValueError, TypeError) as error:
                raise MalformedError(host, error) from None
    return {}


def _no_agent(host: str, setup: Setup, first: dict[str, Any], stderr: str) -> EngineError:
    """Return the error that tells why no agent was started, from the first message or the end of stderr."""
    if "old" in first:
        version = clean_text(str(first["old"]), 20)
        return RefusedError(
            f"{host} has Python {version} as `{setup.python}`, and 3.11 or newer is needed there",
            hint=setup.python_hint,
        )
    if "refused" in first:
        refused = clean_text(str(first["refused"]))
        hint = setup.folder_hint if os.strerror(28) in refused else ""
        return RefusedError(f"drumline's files cannot be written on {host}: {refused}", hint=hint)
    return RefusedError(
        f"{host} has no Python that works as `{setup.python}`: {last_line(stderr)}",
        hint=f"install Python 3.11 or newer there, or {setup.python_hint}",
    )
