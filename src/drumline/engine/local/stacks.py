"""The stacks of replicas on this machine, saved beside their logs by a child process.

py-spy is used if it is installed and permitted: it does not disturb the replica. Otherwise, unless `gently` is set, the
Python process is aborted by a signal: it prints the stacks of all threads and ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from drumline.engine.local.activity import find_trees, is_stopped
from drumline.engine.local.proc import PROC, read_state, read_stats
from drumline.engine.local.readable import wait_ended
from drumline.record import Record
from drumline.run.incarnation import Incarnation
from drumline.run.stacks import main_thread
from drumline.run.traces import LOG, STACKS
from drumline.runtime.child import start_python
from drumline.runtime.private import open_regular, write_file

_STACKS_SECONDS = 20.0
_SHELLS = (b"sh", b"dash", b"bash")
_MOST_PROCESSES = 8  # of a replica
_SPY_SECONDS = 10.0
_ABORT_SECONDS = 5.0
_LONGER_SECONDS = 5.0  # after its time limit the child is killed
_LONGEST_SLICE = 1 << 20
_MOMENT_SECONDS = 0.02


class Target(Record):
    """A replica to dump: the folder of its traces, and the pids of its processes, the main process first."""

    folder: Path
    pids: tuple[int, ...]


def find_targets(run_dir: Path, keepers: Mapping[Incarnation, int], wanted: Iterable[Incarnation]) -> list[Target]:
    """Return a target for each wanted incarnation that runs, with all its processes except shells."""
    found = find_trees({which: keepers[which] for which in wanted if which in keepers}, read_stats())
    return [
        Target(run_dir / which.folder, tuple(stat.pid for stat in tree if not _is_shell(stat.pid)))
        for which, tree in found.items()
    ]


def _is_shell(pid: int) -> bool:
    """Return whether a process is a shell, or takes the place of one below a warm process; neither runs Python code."""
    with suppress(OSError), open(f"{PROC}/{pid}/comm", "rb") as file:  # noqa: PTH123
        return file.read().strip() in _SHELLS
    return False


async def save_in_child(targets: Sequence[Target], *, gently: bool) -> None:
    """Save the stacks of these targets by a child; return when it has ended or was killed after its time limit.

    Return at once if no child can be started.
    """
    words = [word for each in targets for word in (str(each.folder), ",".join(map(str, each.pids)))]
    try:
        child = start_python(__name__, "gently" if gently else "", *words)
    except OSError:  # the limit of processes is reached
        return
    try:
        async with asyncio.timeout(_STACKS_SECONDS + _LONGER_SECONDS):
            await wait_ended(child.pid)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    finally:
        child.poll()


def main(gently: str, *words: str) -> None:
    """Save the stacks of these targets, each given by two arguments: its folder and its pids."""
    named = zip(words[::2], words[1::2], strict=True)
    targets = [Target(Path(folder), tuple(map(int, filter(None, pids.split(","))))) for folder, pids in named]
    save_stacks(targets, find_spy(), gently=bool(gently), seconds=_STACKS_SECONDS)


def save_stacks(targets: Sequence[Target], spy: str | None, *, gently: bool, seconds: float) -> None:
    """Save the stacks of these targets in their trace folders; leave out targets that cannot be dumped."""
    deadline = time.monotonic() + seconds
    seen = {target: text for target in targets if spy and (text := _spy(spy, target, deadline))}
    for target, text in seen.items():
        _write(target.folder, text)
    if gently:
        return
    _abort([target for target in targets if target not in seen])
    for target, text in seen.items():  # reading native frames takes seconds the first time
        if spy and not any(map(is_stopped, target.pids)):
            closer = _spy(spy, target, deadline, "--native")
            if _shows_python(closer) or not _shows_python(text):
                _write(target.folder, closer)


def _shows_python(text: bytes) -> bool:
    """Return whether the main thread has Python frames: they are missing if native frames cannot be unwound."""
    thread = main_thread(text.decode("utf-8", "replace"))
    return thread is not None and not all(frame.is_native for frame in thread.frames)


def find_spy() -> str | None:
    """Return the path of py-spy, beside drumline's own Python or on PATH; None if there is none."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))  # noqa: PTH120
    return shutil.which("py-spy", path=path)


def _spy(spy: str, target: Target, deadline: float, *options: str) -> bytes:
    """Return py-spy's dump; empty if it fails or takes too long."""
    texts = []
    for pid in target.pids[:_MOST_PROCESSES]:
        # py-spy cannot pause a process that is stopped.
        how = (*options, "--nonblocking") if is_stopped(pid) else options
        left = min(_SPY_SECONDS, deadline - time.monotonic())
        if left <= 0:
            return b""
        with suppress(subprocess.TimeoutExpired, OSError):
            done = subprocess.run(
                [spy, "dump", "--full-filenames", *how, "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=left,
                check=False,
            )
            if done.returncode == 0:
                texts.append(done.stdout)
    return b"\n".join(texts)


def _abort(targets: Sequence[Target]) -> None:
    """Abort the Python processes of these targets, and save the stacks that they print into their logs."""
    sizes = {target: _size(target.folder / LOG) for target in targets}
    asked = [pid for target in targets for pid in _pythons(target)]
    for pid in asked:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGABRT)
    deadline = time.monotonic() + _ABORT_SECONDS
    while time.monotonic() < deadline and any(map(_is_alive, asked)):
        time.sleep(_MOMENT_SECONDS)
    for target, size in sizes.items():
        with suppress(OSError), open(target.folder / LOG, "rb", opener=open_regular) as log:
            log.seek(size)
            _, found, text = log.read(_LONGEST_SLICE).partition(b"Fatal Python error")
            if found:
                _write(target.folder, found + text)


def _pythons(target: Target) -> Iterator[int]:
    for pid in target.pids[:_MOST_PROCESSES]:
        with suppress(OSError):
            if not is_stopped(pid) and os.path.basename(os.readlink(f"{PROC}/{pid}/exe")).startswith("python"):  # noqa: PTH115, PTH119
                yield pid


def _is_alive(pid: int) -> bool:
    return read_state(pid) not in (b"", b"Z", b"X")


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _write(folder: Path, text: bytes) -> None:
    """Write the stacks atomically, if there are any; ignore errors of the disk."""
    if not text:
        return
    with suppress(OSError):
        write_file(folder / STACKS, text)
