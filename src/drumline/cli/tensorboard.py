"""``drumline tensorboard``: show the summaries of runs in TensorBoard."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import click

from drumline.cli.find import find_whole_run
from drumline.cli.terminal import print_line
from drumline.engine.ports import claim_port
from drumline.errors import EngineError, InputError
from drumline.run.tensorboard import pythons
from drumline.runtime import tensorboard
from drumline.runtime.keeper import end_with_parent
from drumline.store.clock import read_clock
from drumline.store.home import cache_of
from drumline.store.tfevents import has_summaries
from drumline.view.run import RunDetails, run_details
from drumline.words import listed

HOST = "127.0.0.1"
USUAL_PORT, MOST_PORTS = 6006, 100
_POLL_SECONDS = 0.1
_LAST_OUTPUT_SECONDS = 2.0
_LONGEST_LINE = 1 << 16


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help=f"The port on this machine. Default: the first free one from {USUAL_PORT}.",
)
def command(ids: tuple[str, ...], port: int | None) -> None:
    """Serve the summaries of runs, running or over, in TensorBoard until Ctrl-C.

    Several runs are shown side by side, each under its number.
    """
    found = _find(ids)
    folders = {details.run.summary.id: details.output_dir for details in found}
    own = dict.fromkeys(python for details in found for python in pythons(details.plan))
    with _claimed_port(port) as claimed, _links(folders) as folder:
        _serve(folder, claimed, list(folders), [*own, sys.executable])


def _find(ids: Sequence[str]) -> list[RunDetails]:
    """Return the runs; raise InputError for one without summaries."""
    found = []
    for text in dict.fromkeys(ids):
        folder = find_whole_run(text, "only whole runs can be shown", "`drumline tensorboard RUN` shows the whole run")
        details = run_details(folder, read_clock())
        if not has_summaries(details.output_dir, most=sys.maxsize):
            raise InputError(
                f"run {folder.id} has written no summaries below {details.output_dir}",
                hint="write summaries below OUTPUT_DIR, for instance with `tf.summary`",
            )
        found.append(details)
    return found


@contextmanager
def _links(folders: dict[str, str]) -> Iterator[str]:
    """Yield a temporary folder with a link to the output of each run; the number of the run is the name of the link."""
    scratch = tempfile.mkdtemp(prefix="drumline-tensorboard-")
    try:
        folder = Path(scratch, "runs")
        folder.mkdir()
        for run, output in folders.items():
            (folder / run).symlink_to(output)
        yield str(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _claimed_port(wanted: int | None) -> Iterator[int]:
    """Claim a port while TensorBoard starts; raise InputError if none is free."""
    for port in [wanted] if wanted else range(USUAL_PORT, USUAL_PORT + MOST_PORTS):
        if claim := claim_port(port):
            try:
                yield port
            finally:
                claim.close()
            return
    taken = f"port {wanted} is" if wanted else f"ports {USUAL_PORT} to {USUAL_PORT + MOST_PORTS - 1} are"
    raise InputError(f"{taken} taken", hint="choose a free port with `--port`")


def _serve(folder: str, port: int, runs: Sequence[str], own: Sequence[str]) -> None:
    """Run TensorBoard until an interrupt; raise EngineError if it exits."""
    scratch = str(Path(folder).parent)
    root = str(cache_of(os.environ) / "environments")
    argv = [sys.executable, "-IS", tensorboard.__file__, folder, HOST, str(port), scratch, root, *own]
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    # TensorBoard has its own process group, so that Ctrl-C does not reach it directly.
    server = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - no threads yet
    )
    # The output of TensorBoard goes through a pipe, to be escaped: it has names of files and tags that hosts wrote.
    printer = Thread(target=_print_output, args=(server,), daemon=True)
    printer.start()
    answered = False
    try:
        while server.poll() is None and not _answers(port):
            with suppress(subprocess.TimeoutExpired):
                server.wait(_POLL_SECONDS)
        answered = server.returncode is None
        if answered:
            print_line(f"TensorBoard: http://{HOST}:{port}/")
            print_line(f"drumline: run{'s' * (len(runs) > 1)} {listed(list(runs))}; Ctrl-C stops it", err=True)
        code = server.wait()
        printer.join(_LAST_OUTPUT_SECONDS)
    except KeyboardInterrupt:
        if not answered:
            raise
        return
    finally:
        _stop(server)
    if code == tensorboard.NOT_AVAILABLE:
        raise EngineError("TensorBoard was not found, see above", hint="`pip install tensorboard` installs it")
    raise EngineError(f"TensorBoard exited with code {code}")


def _print_output(server: subprocess.Popen[bytes]) -> None:
    """Copy the output of TensorBoard to stderr until it ends."""
    assert server.stdout is not None
    while line := server.stdout.readline(_LONGEST_LINE):
        print_line(line.decode(errors="replace").removesuffix("\n"), err=True)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop TensorBoard and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(5)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
