"""Show the feed of a run: every line with its replica and its time."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from drumline.cli.footer import Footer
from drumline.cli.sanitize import chunks, last_state, last_states, plain, sanitize
from drumline.cli.terminal import print_line, stdout_descriptor, write_bytes
from drumline.cli.text import utc
from drumline.run.state import Phase
from drumline.runtime.lock import is_locked
from drumline.runtime.unix import connect
from drumline.store.folder import RunFolder
from drumline.store.reachability import read_reachability
from drumline.supervise.requests import RETURN_SECONDS, may_return_itself, supervisor_gone
from drumline.view.feed import Change, Feed, Item, Lines
from drumline.words import printable

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_WAITING = (Phase.CREATED, Phase.PENDING, Phase.STARTING)  # states that are shown with the reason of the wait
_QUICK, _SLOW = 0.01, 0.2  # seconds between two reads: after new items, and after a time without any
_WRITE_BYTES = 1 << 20
_BAR_BYTES = 1 << 12  # of a progress bar; no terminal is wider
_NARROW = 20  # columns; below that, the footer is left out
_ENDING_SECONDS = 0.2  # when the replicas take longer to end, the cause of the failure is shown before their ends
_SUPERVISOR_START_SECONDS = 5.0  # a new run has its number before its supervisor has started


class Screen:
    """Writes items to stdout; on a terminal, with a colour for each replica and with progress bars at the bottom."""

    def __init__(self, ids: Sequence[str], *, timestamps: bool = True, terminal: bool | None = None) -> None:
        self._width = max(len(name) for name in ids) + 1
        self._timestamps = timestamps
        self._out = stdout_descriptor()
        self._sanitizes = os.isatty(self._out) if terminal is None else terminal
        self.is_live = self._sanitizes and os.environ.get("TERM") != "dumb"  # the terminal can move the cursor
        self._colourful = self.is_live and not os.environ.get("NO_COLOR")
        self._colours = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(ids)}
        self._below: list[bytes] = []
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"

    def show(self, items: Iterable[Item], unfinished: Mapping[str, bytes], footer: str = "") -> None:
        """Write items; on a terminal, also the unfinished lines and the footer."""
        below = self._progress(unfinished, footer) if self.is_live else []
        written = bytearray(b"\x1b[%dA\x1b[J" % len(self._below) if self._below else b"")
        changed = below != self._below
        for item in items:
            for piece in self._lines(item) if isinstance(item, Lines) else self._change(item):
                changed = True
                written += piece
                if len(written) >= _WRITE_BYTES:
                    write_bytes(self._out, written)
                    written = bytearray()
        if changed:
            self._below = below
            write_bytes(self._out, written + b"".join(below))

    def _lines(self, item: Lines) -> Iterator[bytes]:
        """Yield the output of a replica, without overwritten text; on a terminal, also without control sequences."""
        prefix = self._prefix(item.id, item.at, exact=item.exact)
        for chunk in chunks(item.data):
            data = last_states(chunk).removesuffix(b"\n")
            data = self._encode(sanitize(data)) if self._sanitizes else data
            yield prefix + data.replace(b"\n", b"\n" + prefix) + b"\n"

    def _change(self, item: Change) -> Iterator[bytes]:
        """Yield the lines about a change of state: the state, and its reason, message and exit code, if any."""
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
        for line in lines:
            yield prefix + self._encode(printable(line)) + b"\n"

    def _encode(self, text: str) -> bytes:
        return text.encode(self._encoding, "backslashreplace")

    def _prefix(self, name: str, at: float, *, exact: bool = True) -> bytes:
        """Return the text before each line: the id, and the time with `~` before it if it is not exact."""
        stamp = f"[{'' if exact else '~'}{_utc(int(at))}] " if self._timestamps else ""
        text = f"{name:<{self._width}}| {stamp}"
        if self._colourful and name in self._colours:
            return self._encode(f"\x1b[{self._colours[name]}m{text}\x1b[0m")
        return self._encode(text)

    def _progress(self, unfinished: Mapping[str, bytes], footer: str) -> list[bytes]:
        """Return the lines that are redrawn, cut to the size of the terminal."""
        columns, lines = self._size()
        room = columns - self._width - 3
        shown = []
        for name, line in unfinished.items():
            if b"\r" in line and room > 0:
                text = plain(last_state(line)[:_BAR_BYTES])[:room]
                shown.append(self._encode(f"{name:<{self._width}}| {text}\n"))
        if footer and columns > _NARROW:
            text = printable(footer)
            shown.append(self._encode(text if len(text) < columns else f"{text[: columns - 2]}…") + b"\n")
        return shown[-max(0, lines - 2) :] if lines > 2 else []

    def _size(self) -> os.terminal_size:
        """Return the size of the terminal itself, not that of COLUMNS, since a line must not wrap."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            size = os.terminal_size((0, 0))
        return size if all(size) else shutil.get_terminal_size()


def follow(
    feed: Feed,
    screen: Screen,
    folder: RunFolder,
    when_failing: Callable[[], object] | None = None,
) -> None:
    """Show a run until it ends; raise EngineError if it has lost its supervisor.

    Logs are read at intervals; the end is noticed at once, since the supervisor then closes its connection.
    `when_failing` is called at most once: when the cause of the failure is known, but some replicas have not ended yet.
    """
    failing_since = None
    footer = Footer(feed, folder) if screen.is_live else None
    pause = _QUICK
    connection = None
    unsupervised_since = None  # when the supervisor was first seen to be missing
    notice = _Notice(folder, screen)
    try:
        while True:
            connection = connection or connect(folder.socket_file)
            supervised = connection or is_locked(folder.lock_file)
            unsupervised_since = None if supervised else unsupervised_since or time.monotonic()
            items = feed.poll(time.time())  # read after the check of the supervisor, which writes before it exits
            screen.show(items, feed.unfinished(), footer.text() if footer else "")
            failing_since = None if feed.final_cause is None else failing_since or time.monotonic()
            if (
                when_failing
                and failing_since
                and time.monotonic() >= failing_since + _ENDING_SECONDS
                and not feed.is_over
            ):
                screen.show((), {})
                when_failing()
                when_failing = None
            if items:
                pause = _QUICK
                continue
            if feed.is_over:
                screen.show((), {})
                return
            notice.update()
            if unsupervised_since and not _may_be_supervised(feed, folder, time.monotonic() - unsupervised_since):
                raise supervisor_gone(folder)
            if failing_since:
                pause = min(pause, _ENDING_SECONDS / 2)
            if select.select([connection] if connection else [], [], [], pause)[0] and connection:
                connection.close()
                connection = None
            pause = min(pause * 1.5, _SLOW)
    finally:
        if connection:
            connection.close()


class _Notice:
    """Report when a supervisor on another machine cannot be reached, and when it answers again."""

    def __init__(self, folder: RunFolder, screen: Screen) -> None:
        self._folder, self._screen = folder, screen
        reach = read_reachability(folder.path)
        self._is_elsewhere = reach is not None
        self._reported = reach.problem if reach else ""

    def update(self) -> None:
        """Print a message if the supervisor has become unreachable, or reachable again."""
        reach = read_reachability(self._folder.path) if self._is_elsewhere else None
        problem = reach.problem if reach else ""
        if bool(problem) != bool(self._reported):
            self._screen.show((), {})
            what = f"cannot be reached; the run itself may continue: {problem}" if problem else "answers again"
            print_line(f"drumline: the supervisor of run {self._folder.id} {what}", err=True)
        self._reported = problem


def _may_be_supervised(feed: Feed, folder: RunFolder, seconds: float) -> bool:
    """Return whether a run may still get a supervisor after so many seconds without one."""
    if feed.state.phase is Phase.CREATED:
        return seconds <= _SUPERVISOR_START_SECONDS
    return seconds <= RETURN_SECONDS and may_return_itself(folder)


@lru_cache(maxsize=64)
def _utc(second: int) -> str:
    return utc(second) or "-"
