"""Connections to hosts by asyncssh, which no other module imports.

Hosts are reached as `ssh NAME` reaches them: the user's own configuration with its jump hosts, agent, keys and
known_hosts. A host with an unknown key, or with another key than the known one, is refused, whatever the value of
`StrictHostKeyChecking`. A host needs only a POSIX shell, and its output is read within limits.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from drumline.engine.agent.errors import MalformedError, RefusedError, UnreachableError
from drumline.engine.untrusted import clean_text
from drumline.errors import InputError
from drumline.words import decimal_size

CONFIG_VARIABLE = "DRUMLINE_SSH_CONFIG"
_SYSTEM = Path("/etc/ssh")
_CONNECT_SECONDS = 15.0
_ALIVE_SECONDS = 5.0  # a connection is closed after a silence of three times as long
_ERR_BYTES = 1 << 14  # of a command's stderr that are kept
_STDERR_SECONDS = 5.0
_PIECE_BYTES = 1 << 16
_CUT = (asyncssh.DisconnectError, asyncssh.ChannelOpenError, ConnectionError, BrokenPipeError)


class SshChannel:
    """A command on a host with its streams; its output is read within limits, and each piece is counted."""

    def __init__(
        self, process: asyncssh.SSHClientProcess[bytes], host: str, count: Callable[[int], object] = lambda _: None
    ) -> None:
        self._process = process
        self._host = host
        self._count = count
        self._buffer = bytearray()  # received and not yet returned

    async def write(self, data: bytes) -> None:
        """Write to the command's stdin; wait while it does not read."""
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (*_CUT, OSError) as error:
            raise _cut(self._host, error) from None

    async def readline(self, most_bytes: int) -> bytes:
        """Return the next line with its end, empty at the end of the stream; raise MalformedError for a longer one."""
        looked = 0
        while (end := self._buffer.find(b"\n", looked)) < 0:
            looked = len(self._buffer)
            if looked > most_bytes:
                raise MalformedError(self._host, f"a line longer than {decimal_size(most_bytes)}")
            if not await self._read():
                return self._take(looked)
        if end > most_bytes:
            raise MalformedError(self._host, f"a line longer than {decimal_size(most_bytes)}")
        return self._take(end + 1)

    async def readexactly(self, size: int) -> bytes:
        """Return exactly this number of bytes; raise UnreachableError if the stream ends earlier."""
        while len(self._buffer) < size:
            if not await self._read():
                raise UnreachableError(f"the connection to {self._host} broke")
        return self._take(size)

    async def stderr_tail(self) -> str:
        """Return the end of the command's stderr; "" if stderr does not end within `_STDERR_SECONDS`."""
        with suppress(TimeoutError, *_CUT, OSError):
            async with asyncio.timeout(_STDERR_SECONDS):
                return (await _read_end(self._process.stderr)).decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Close its streams."""
        self._process.close()

    async def _read(self) -> bool:
        """Read more output into the buffer; return False at its end."""
        try:
            data = bytes(await self._process.stdout.read(_PIECE_BYTES))
        except (*_CUT, OSError) as error:
            raise _cut(self._host, error) from None
        self._buffer += data
        self._count(len(data))
        return bool(data)

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


class Shell:
    """A connection to one host, over which many commands run."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        self._connection = connection
        self.host = host
        self.received_bytes = 0  # so far, from commands that were opened with `counts`

    @property
    def address(self) -> str:
        """Return the address of the host."""
        return str((self._connection.get_extra_info("peername") or (self.host,))[0])

    async def open(self, argv: Sequence[str], *, counts: bool = False) -> SshChannel:
        """Start a command, and return its streams; with `counts`, its output is added to `received_bytes`."""
        try:
            process = await self._connection.create_process(shlex.join(argv), encoding=None)
        except (*_CUT, OSError) as error:
            raise _cut(self.host, error) from None
        return SshChannel(process, self.host, self._add_received if counts else lambda _: None)

    def _add_received(self, size: int) -> None:
        self.received_bytes += size

    async def wait_closed(self) -> None:
        """Return when the connection is closed."""
        await self._connection.wait_closed()

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        try:
            await asyncio.wait_for(self._connection.wait_closed(), _ALIVE_SECONDS)
        except (TimeoutError, *_CUT, OSError):
            self._connection.abort()

    def abort(self) -> None:
        """Drop the connection without notifying the host, which does not answer."""
        self._connection.abort()


async def connect(
    host: str,
    *,
    user: str | None = None,
    port: int | None = None,
    config: str | None = None,
    seconds: float = _CONNECT_SECONDS,
) -> Shell:
    """Connect to a host as `ssh` does; raise UnreachableError without an answer, RefusedError if either side refuses.

    The file `config`, else the one that DRUMLINE_SSH_CONFIG names, replaces the user's configuration.
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
        async with asyncio.timeout(seconds):  # if cancelled at once, `wait_for` would warn that it was never awaited
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
        raise UnreachableError(f"{host} does not answer", hint=f"try `ssh {host} true`") from None
    except (asyncssh.Error, OSError) as error:
        raise UnreachableError(f"{host} cannot be reached: {_words(error)}", hint=f"try `ssh {host} true`") from None
    except ValueError as error:
        raise InputError(f"{host} cannot be reached: {error}") from None
    return Shell(connection, host)


def _config_files(given: str | None) -> list[str]:
    """Return the configuration files to read: only `given` if it is set, else the user's own and the system's."""
    if given:
        if not os.access(given, os.R_OK):
            raise InputError(f"the ssh configuration {given} cannot be read")
        return [given]
    usual = (Path("~/.ssh/config").expanduser(), _SYSTEM / "ssh_config")
    return [str(each) for each in usual if os.access(each, os.R_OK)]


def _known_hosts(given: Any) -> list[str]:
    """Return the files with the keys of hosts; ssh's default files if the configuration names none."""
    usual = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2", *(str(_SYSTEM / f"ssh_known_hosts{n}") for n in ("", "2"))]
    files = [Path(each).expanduser() for each in (given or usual)]
    # asyncssh would read an empty list as the usual files, and would not check keys with None.
    return [str(each) for each in files if os.access(each, os.R_OK)] or [os.devnull]


def _untrusted(host: str, options: Any, files: list[str]) -> RefusedError:
    """Return the error for a host key that is not trusted, with the command that adds it."""
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
            f"the key of {host} is another than the one in {file}: it is another machine, or was installed again",
            hint=f"if it was: `ssh-keygen -f {shlex.quote(file)} -R {shlex.quote(spelled)}`, then add its new key",
        )
    where = f"-p {port} " if port != 22 else ""
    return RefusedError(
        f"the key of {host} is not known",
        hint=f"`ssh-keyscan {where}{options.host or host} >> {file}` adds it, once you know that it is the host's own",
    )


def _cut(host: str, error: BaseException) -> UnreachableError:
    return UnreachableError(f"the connection to {host} broke: {_words(error)}")


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(abs(error.errno)).lower()
    return clean_text(str(error).lower()) or type(error).__name__


async def _read_end(stream: asyncssh.SSHReader[bytes]) -> bytes:
    """Read a stream to its end; return the last `_ERR_BYTES` bytes."""
    end = b""
    while piece := bytes(await stream.read(_PIECE_BYTES)):
        end = (end + piece)[-_ERR_BYTES:]
    return end
