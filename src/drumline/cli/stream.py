"""A feed on the screen: every line with its replica and its time."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from drumline.run.state import Phase
from drumline.runtime.lock import is_locked
from drumline.runtime.unix import connect
from drumline.store.folder import RunFolder
from drumline.supervise.reach import supervisor_gone
from drumline.view.feed import Change, Feed, Item, Lines

if TYPE_CHECKING:
    from drumline.cli.footer import Footer

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_CONTROL = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # a sequence
    rb"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # a title, a link
    rb"|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]"
)
_WAITING = (Phase.CREATED, Phase.PENDING, Phase.STARTING)  # what it waits for is a part of it
_QUICK, _SLOW = 0.01, 0.2
_NARROW = 20  # columns; below that a sum is no help
_BIRTH = 5.0  # the time that a run may take from its number to its supervisor


class Screen:
    """Writes items to stdout; on a terminal with a colour per replica, and below the last state of progress bars."""

    def __init__(self, ids: Sequence[str], *, timestamps: bool = True, terminal: bool | None = None) -> None:
        self._width = max(len(name) for name in ids) + 1
        self._timestamps = timestamps
        self._out = sys.stdout.fileno()
        self._tames = os.isatty(self._out) if terminal is None else terminal
        self.is_live = self._tames and os.environ.get("TERM") != "dumb"  # it can go up and clear
        self._colourful = self.is_live and not os.environ.get("NO_COLOR")
        self._colours = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(ids)}
        self._below: list[bytes] = []

    def show(self, items: Iterable[Item], unfinished: Mapping[str, bytes], footer: str = "") -> None:
        """Write items, then, on a terminal, the lines that have not ended yet, and a last line that sums up."""
        pieces = [self._lines(item) if isinstance(item, Lines) else self._change(item) for item in items]
        below = self._progress(unfinished, footer) if self.is_live else []
        if pieces or below != self._below:
            if self._below:
                pieces.insert(0, b"\x1b[%dA\x1b[J" % len(self._below))
            self._below = below
            self._write(b"".join((*pieces, *below)))

    def _lines(self, item: Lines) -> bytes:
        prefix = self._prefix(item.id, item.at, exact=item.exact)
        data = item.data
        if b"\r" in data:
            data = b"\n".join(_last_state(line) for line in data.split(b"\n"))
        if self._tames:
            data = _tame(data)
        body = data.removesuffix(b"\n").replace(b"\n", b"\n" + prefix)
        return prefix + body + b"\n"

    def _change(self, item: Change) -> bytes:
        prefix = self._prefix(item.id, item.at)
        waits = item.message if item.phase in _WAITING else ""
        lines = [f"--> {item.phase} ({waits})" if waits else f"--> {item.phase}"]
        if item.reason and not waits:
            lines.append(f"Reason: {item.reason}")
        if item.message and not waits:
            lines.append(f"Message: {item.message}")
        if item.exit and item.exit.code is not None:
            lines.append(f"Exit Code: {item.exit.code}")
        elif item.exit and item.exit.signal is not None:
            lines.append(f"Signal: {item.exit.signal}")
        return b"".join(prefix + line.encode(errors="surrogateescape") + b"\n" for line in lines)

    def _prefix(self, name: str, at: float, *, exact: bool = True) -> bytes:
        stamp = f"[{'' if exact else '~'}{_utc(int(at))}] " if self._timestamps else ""
        text = f"{name:<{self._width}}| {stamp}"
        if self._colourful and name in self._colours:
            return f"\x1b[{self._colours[name]}m{text}\x1b[0m".encode()
        return text.encode()

    def _progress(self, unfinished: Mapping[str, bytes], footer: str) -> list[bytes]:
        """Lines that are drawn again and again: none wider than the terminal, nor more than it has room for."""
        columns, lines = self._size()
        room = columns - self._width - 3
        shown = []
        for name, line in unfinished.items():
            if b"\r" in line and room > 0:
                text = _CONTROL.sub(b"", _last_state(line)).decode(errors="replace")[:room]
                shown.append(f"{name:<{self._width}}| {text}\n".encode())
        if footer and columns > _NARROW:
            shown.append(f"{footer}\n".encode() if len(footer) < columns else f"{footer[: columns - 2]}…\n".encode())
        return shown[-max(0, lines - 2) :] if lines > 2 else []

    def _size(self) -> os.terminal_size:
        """As the terminal is, whatever COLUMNS says, since a line must not wrap; as usual where it does not say."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            size = os.terminal_size((0, 0))
        return size if all(size) else shutil.get_terminal_size()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._out, view) :]
        except BrokenPipeError:
            raise SystemExit(141) from None  # whoever read has had enough; click would say 1, which is a failed run


def follow(feed: Feed, screen: Screen, folder: RunFolder, at_leisure: Callable[[], object] | None = None) -> None:
    """Show a run until it ends; raise EngineError if nobody looks after it any more.

    Logs are looked at now and then; the end is not waited for: the supervisor's connection closes with it. What may be
    done `at_leisure` is done once, when everybody runs and has said all for now.
    """
    footer = _footer(feed, folder) if screen.is_live else None
    pause = _QUICK
    connection = None
    alone_since = None  # when we first saw that no supervisor is there
    try:
        while True:
            connection = connection or connect(folder.socket_file)
            supervised = connection or is_locked(folder.lock_file)
            alone_since = None if supervised else alone_since or time.monotonic()
            items = feed.poll(time.time())  # after the look at the supervisor, which writes before it leaves
            screen.show(items, feed.unfinished(), footer.text() if footer else "")
            if items:
                pause = _QUICK
                continue
            if feed.is_over:
                screen.show((), {})
                return
            if alone_since and (feed.state.phase is not Phase.CREATED or time.monotonic() > alone_since + _BIRTH):
                raise supervisor_gone(folder)
            if at_leisure and feed.state.phase is Phase.RUNNING:
                at_leisure()
                at_leisure = None
                continue
            if select.select([connection] if connection else [], [], [], pause)[0] and connection:
                connection.close()
                connection = None
            pause = min(pause * 1.5, _SLOW)
    finally:
        if connection:
            connection.close()


def _footer(feed: Feed, folder: RunFolder) -> Footer:
    from drumline.cli.footer import Footer  # noqa: PLC0415 - only a terminal needs what reads progress

    return Footer(feed, folder)


def _last_state(line: bytes) -> bytes:
    """What a line with carriage returns has come to show."""
    while line:
        line, _, state = line.rpartition(b"\r")
        if state.strip():
            return state
    return b""


def _tame(data: bytes) -> bytes:
    """Lines that cannot harm a terminal: colours stay, and end with their line; nothing else moves, clears or rings."""
    if not _CONTROL.search(data):
        return data
    tamed = _CONTROL.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else b"", data)
    return tamed.replace(b"\n", b"\x1b[0m\n") if b"\x1b" in tamed else tamed


@lru_cache(maxsize=64)
def _utc(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
