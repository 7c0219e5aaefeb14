"""Start drumline's agent on a host, and ask it a question: for commands that only look, and for a run's link."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeVar

from drumline.engine.ssh.answers import FactsAnswer, read_answer
from drumline.engine.ssh.package import BOOT, package_data, package_name
from drumline.engine.ssh.refusal import AwayError, MalformedError, RefusedError, raised
from drumline.engine.ssh.shell import Shell, Talk, last_words
from drumline.engine.ssh.wire import LINE_BYTES, MAGIC, Frame
from drumline.engine.untrusted import clean_text, load_json
from drumline.errors import EngineError
from drumline.plan.hosts import Host, Hosts
from drumline.record import Record, to_dict

T = TypeVar("T")

FOLDER = "~/.local/share/drumline"
FIRST_WORD_SECONDS = 30.0
GREETING_BYTES = 1 << 16  # of one line that a shell says before an agent does
MOST_GREETINGS = 1000
ANSWER_SECONDS = 30.0
_PACKAGES = "~/.cache/drumline/hosts"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


class Facts(Record):
    """What a host is and has, and where it was found."""

    base: str  # the folder of all runs there
    boot: str
    python: str
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...]
    address: str
    skew_seconds: float = 0.0  # by which its clock is before ours


def read_facts(found: FactsAnswer, shell: Shell, skew_seconds: float = 0.0) -> Facts:
    """Return what an agent answered, with the address at which this machine found its host."""
    return Facts(**to_dict(found), address=shell.address, skew_seconds=skew_seconds)


def agent_folder(host: Host) -> str:
    """Return the name of a host's own folder in the folder of a run: hosts may share their home folders."""
    if _PLAIN_NAME.fullmatch(host.name):
        return host.name
    return f"host-{sha256(host.name.encode()).hexdigest()[:16]}"


def packages_folder(hosts: Hosts) -> str:
    """Return where agents are kept on a host."""
    return f"{hosts.folder}/hosts" if hosts.folder else _PACKAGES


async def open_agent(shell: Shell, hosts: Hosts) -> Talk:
    """Start an agent, carried there if it is not; raise EngineError if there is no Python for it, or no room."""
    talk = await shell.talk([hosts.python, "-I", "-c", BOOT, packages_folder(hosts), package_name()])
    try:
        async with asyncio.timeout(FIRST_WORD_SECONDS):
            word = await _first_word(talk, shell.host)
        if "wants" in word:
            data = await asyncio.to_thread(package_data)
            async with asyncio.timeout(FIRST_WORD_SECONDS):
                await talk.write(f"{len(data)}\n".encode() + data)
                word = await _first_word(talk, shell.host)
        if "ready" in word:
            return talk
        raise _no_agent(shell.host, hosts.python, word, last_words(await talk.said_last()) if not word else "")
    except TimeoutError:
        talk.close()
        raise AwayError(f"{shell.host} has not answered within {FIRST_WORD_SECONDS:g} s") from None
    except EngineError:
        talk.close()
        raise


async def ask_agent(talk: Talk, host: str, message: Mapping[str, object], kind: type[T]) -> T:
    """Ask an agent that is asked nothing else meanwhile; raise what it raises, EngineError if it does not answer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await talk.write(Frame({**message, "id": 0}).encode())
            line = await talk.readline(LINE_BYTES)
    except TimeoutError:
        raise AwayError(f"{host} does not answer any more") from None
    if not line.endswith(b"\n"):
        raise AwayError(f"the connection to {host} broke", hint=f"try `ssh {host} true`")
    try:
        answer = load_json(line)
        if not isinstance(answer, dict) or answer.get("do") != "answer":
            raise ValueError("no answer")
        if "error" not in answer:
            return read_answer(kind, answer)
    except ValueError as error:
        raise MalformedError(host, error) from None
    raise raised(host, answer)


async def _first_word(talk: Talk, host: str) -> dict[str, Any]:
    """Return what an agent says before anything else, nothing if there is none; a shell may greet first."""
    for _ in range(MOST_GREETINGS):
        line = await talk.readline(GREETING_BYTES)
        if not line:
            break
        _, found, word = line.rpartition(MAGIC)
        if found:
            try:
                return dict(load_json(word))
            except (ValueError, TypeError) as error:
                raise MalformedError(host, error) from None
    return {}


def _no_agent(host: str, python: str, word: Mapping[str, Any], said: str) -> EngineError:
    """Return why there is no agent, by what a host said instead."""
    if "old" in word:
        return RefusedError(
            f"{host} has Python {clean_text(str(word['old']), 20)} as `{python}`, and 3.11 or newer is needed there",
            hint="name another one that it has: `ssh: {python: PATH}`",
        )
    if "refused" in word:
        refused = clean_text(str(word["refused"]))
        full = os.strerror(28) in refused
        hint = "make room there, or name another folder: `ssh: {folder: PATH}`" if full else ""
        return RefusedError(f"drumline cannot be laid out on {host}: {refused}", hint=hint)
    return RefusedError(
        f"{host} has no Python that works as `{python}`: {said or 'it says no more'}",
        hint="install Python 3.11 or newer there, or name the one that it has: `ssh: {python: PATH}`",
    )
