"""The door to asyncssh: the only module that knows it.

Hosts are reached as `ssh NAME` reaches them: the user's own configuration with its jump hosts, agent, keys and
known_hosts. A host whose key is not known, or is another than the known one, is refused, whatever
`StrictHostKeyChecking` says. Nothing but a POSIX shell is asked of a host: files travel through `cat`, not SFTP.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import asyncssh

from drumline.engine.ssh.refusal import AwayError, RefusedError
from drumline.errors import EngineError, InputError

CONFIG_VARIABLE = "DRUMLINE_SSH_CONFIG"
_SYSTEM = Path("/etc/ssh")
_CONNECT_SECONDS = 15.0
_ALIVE_SECONDS = 5.0  # a host that is silent for three times so long is asked for no more
_PIECE_BYTES = 1 << 16
_CUT = (asyncssh.DisconnectError, asyncssh.ChannelOpenError, ConnectionError, BrokenPipeError)


class Answer(NamedTuple):
    """What a command said, and how it ended; by a signal as a shell counts them."""

    code: int
    out: bytes
    err: str


class Talk:
    """A command over there that we talk with, until one of both closes."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], host: str) -> None:
        self._process = process
        self._host = host

    async def write(self, data: bytes) -> None:
        """Say this; wait while the other side does not listen."""
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (*_CUT, OSError) as error:
            raise _cut(self._host, error) from None

    async def readline(self) -> bytes:
        """The next line with its end; nothing when there is no more."""
        try:
            return bytes(await self._process.stdout.readline())
        except (*_CUT, OSError) as error:
            raise _cut(self._host, error) from None

    async def readexactly(self, size: int) -> bytes:
        """So many bytes; raise AwayError if there are not that many."""
        try:
            return bytes(await self._process.stdout.readexactly(size))
        except (asyncio.IncompleteReadError, *_CUT, OSError) as error:
            raise _cut(self._host, error) from None

    async def said_last(self) -> str:
        """What it said on its stderr, once it has ended."""
        try:
            return bytes(await self._process.stderr.read()).decode(errors="replace").strip()
        except (*_CUT, OSError):
            return ""

    def close(self) -> None:
        """Say no more, and listen no more."""
        self._process.close()


class Shell:
    """A connection to one host, over which many commands run."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        self._connection = connection
        self.host = host

    @property
    def address(self) -> str:
        """Where ssh has found the host."""
        return str((self._connection.get_extra_info("peername") or (self.host,))[0])

    async def run(self, argv: Sequence[str], given: bytes = b"", *, seconds: float | None = None) -> Answer:
        """Run a command with this as its stdin, in the home folder of the user there."""
        try:
            process = await self._connection.create_process(shlex.join(argv), encoding=None)
            with suppress(BrokenPipeError):  # it has ended without having read all of it; how, is told
                process.stdin.write(given)
                process.stdin.write_eof()
            done = await process.wait(timeout=seconds)
        except asyncssh.TimeoutError:
            raise AwayError(f"{self.host} has not answered within {seconds:g} s") from None
        except (*_CUT, OSError) as error:
            raise _cut(self.host, error) from None
        if done.returncode is None:
            raise AwayError(f"the connection to {self.host} broke")
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Answer(code, _bytes(done.stdout), _text(done.stderr))

    async def talk(self, argv: Sequence[str]) -> Talk:
        """Begin a command that is talked with."""
        try:
            process = await self._connection.create_process(shlex.join(argv), encoding=None)
        except (*_CUT, OSError) as error:
            raise _cut(self.host, error) from None
        return Talk(process, self.host)

    async def send(self, data: bytes | Path, path: str, *, mode: int = 0o600) -> None:
        """Write a file there, whole or not at all; folders on the way to it are made."""
        given = await asyncio.to_thread(data.read_bytes) if isinstance(data, Path) else data
        script = (
            'case "$1" in */*) mkdir -p -- "${1%/*}" || exit;; esac; '
            'cat > "$1.partial" && chmod "$2" "$1.partial" && mv -f -- "$1.partial" "$1"'
        )
        answer = await self.run(["sh", "-c", script, "sh", path, f"{mode:o}"], given)
        if answer.code:
            raise EngineError(f"{path} cannot be written on {self.host}: {last_words(answer.err)}")

    async def fetch(self, path: str) -> AsyncIterator[bytes]:
        """Read a file there, piece by piece; raise EngineError if it cannot be read."""
        try:
            process = await self._connection.create_process(shlex.join(["cat", "--", path]), encoding=None)
            while piece := bytes(await process.stdout.read(_PIECE_BYTES)):
                yield piece
            done = await process.wait()
        except (*_CUT, OSError) as error:
            raise _cut(self.host, error) from None
        if done.returncode is None:
            raise AwayError(f"the connection to {self.host} broke")
        if done.returncode:
            raise EngineError(f"{path} cannot be read on {self.host}: {last_words(_text(done.stderr))}")

    async def wait_closed(self) -> None:
        """Return when the connection is no more."""
        await self._connection.wait_closed()

    async def close(self) -> None:
        """Hang up."""
        self._connection.close()
        try:
            await asyncio.wait_for(self._connection.wait_closed(), _ALIVE_SECONDS)
        except (TimeoutError, *_CUT, OSError):
            self._connection.abort()

    def abort(self) -> None:
        """Hang up without a word: nobody is there to hear it."""
        self._connection.abort()


async def connect(
    host: str,
    *,
    user: str | None = None,
    port: int | None = None,
    config: str | None = None,
    seconds: float = _CONNECT_SECONDS,
) -> Shell:
    """Reach a host as `ssh` would; raise AwayError if nobody answers, RefusedError if one of both says no.

    `config` is the configuration to use instead of the user's; so is what DRUMLINE_SSH_CONFIG names.
    """
    files = _config_files(config or os.environ.get(CONFIG_VARIABLE))
    given: dict[str, Any] = {"config": files}
    named, _, place = host.rpartition("@")
    user = user or named
    given |= {"username": user} if user else {}
    given |= {"port": port} if port else {}
    try:
        known = await asyncssh.SSHClientConnectionOptions.construct(None, host=place, **given)
    except (asyncssh.ConfigParseError, asyncssh.KeyImportError, ValueError, OSError) as error:
        raise InputError(
            f"the ssh configuration cannot be used: {error}", hint=f"`ssh -G {host}` reads it too"
        ) from None
    known_hosts = _known_hosts(known.known_hosts)
    try:
        async with asyncio.timeout(seconds):  # `wait_for` would leave it unbegun, and say so, if given up at once
            connection = await asyncssh.connect(
                place,
                **given,
                known_hosts=known_hosts,
                keepalive_interval=_ALIVE_SECONDS,
                keepalive_count_max=3,
                request_pty=False,
                password_auth=False,
                kbdint_auth=False,
                compression_algs=None,
            )
    except asyncssh.HostKeyNotVerifiable:
        raise _untrusted(host, known, known_hosts) from None
    except asyncssh.PermissionDenied:
        keys = "none of your keys is accepted there"
        raise RefusedError(
            f"{host} does not let {known.username} in: {keys}",
            hint=f"try `ssh {host} true`; `ssh-copy-id {host}` gives it your key, `ssh-add` gives it to your agent",
        ) from None
    except socket.gaierror:
        raise RefusedError(
            f"the host {host} is not known", hint="correct its name, or give it one in your ~/.ssh/config"
        ) from None
    except TimeoutError:
        raise AwayError(f"{host} does not answer", hint=f"try `ssh {host} true`") from None
    except (asyncssh.Error, OSError) as error:
        raise AwayError(f"{host} cannot be reached: {_words(error)}", hint=f"try `ssh {host} true`") from None
    except ValueError as error:
        raise InputError(f"{host} cannot be reached: {error}") from None
    return Shell(connection, host)


def last_words(text: str) -> str:
    """The last line of what a command complained about."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it says no more"


def _config_files(given: str | None) -> list[str]:
    """Which files to read: the one that was given and no other, else the user's own and the machine's."""
    if given:
        if not os.access(given, os.R_OK):
            raise InputError(f"the ssh configuration {given} cannot be read")
        return [given]
    usual = (Path("~/.ssh/config").expanduser(), _SYSTEM / "ssh_config")
    return [str(each) for each in usual if os.access(each, os.R_OK)]


def _known_hosts(given: Any) -> list[str]:
    """The files with the keys of hosts; ssh's own ones where the configuration names none."""
    usual = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2", *(str(_SYSTEM / f"ssh_known_hosts{n}") for n in ("", "2"))]
    files = [Path(each).expanduser() for each in (given or usual)]
    # A list that is empty would mean the usual ones, and none at all that nobody is asked for a key.
    return [str(each) for each in files if os.access(each, os.R_OK)] or [os.devnull]


def _untrusted(host: str, options: Any, files: list[str]) -> RefusedError:
    """Why a host's key is not trusted, with the command that changes that."""
    name = options.host_key_alias or options.host or host
    port = options.port or 22
    spelled = name if port == 22 else f"[{name}]:{port}"
    try:
        keys = asyncssh.match_known_hosts(files, name, options.host, port)[0]
    except (ValueError, OSError):
        keys = ()
    named = [str(each) for each in (options.known_hosts or ())]
    file = next(iter(named), "~/.ssh/known_hosts")
    if keys:
        return RefusedError(
            f"the key of {host} is another than the one in {file}: it is not that host, or was set up anew",
            hint=f"if it was: `ssh-keygen -f {shlex.quote(file)} -R {shlex.quote(spelled)}`, then add its new key",
        )
    where = f"-p {port} " if port != 22 else ""
    return RefusedError(
        f"the key of {host} is not known",
        hint=f"`ssh-keyscan {where}{options.host or host} >> {file}` adds it, once you know that it is the host's own",
    )


def _cut(host: str, error: BaseException) -> AwayError:
    return AwayError(f"the connection to {host} broke: {_words(error)}")


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(abs(error.errno)).lower()
    return str(error).lower() or type(error).__name__


def _bytes(data: Any) -> bytes:
    return bytes(data or b"")


def _text(data: Any) -> str:
    return _bytes(data).decode(errors="replace")
