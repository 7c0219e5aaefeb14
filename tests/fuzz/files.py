"""Files: the folder of a run with damaged files, and each kind of file by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from drumline.cli import run
from drumline.engine.kubernetes.log_lines import Cursor, LogStream
from drumline.engine.kubernetes.logfile import read_cursor, write_cursor
from drumline.engine.local.trace import read_trace
from drumline.engine.notes import read_end, read_notes
from drumline.errors import DrumlineError
from drumline.plan.codec import plan_from_json, plan_to_json
from drumline.run.progress import read_progress
from drumline.run.scalars import progress_in, read_scalars
from drumline.run.traces import ERROR, LOG, MARK_FORMAT, MARKS, METRICS, REPORT, STACKS, TRACE
from drumline.runtime.errors import read_error
from drumline.runtime.progress import SIZE_BYTES, read_report
from drumline.store.folder import RunFolder
from drumline.store.journal import Journal, read_journal
from drumline.store.launch import write_launch
from drumline.store.logs import LogReader, read_tail, times_of, written_by
from drumline.store.metrics import Sample, append_sample, last_sample, read_samples, thin
from drumline.store.scalars import find_event_files, last_scalars
from drumline.supervise.requests import read_state
from fuzz.cases import Trial, case
from fuzz.mutate import damage, damage_lines, strange, twist
from scaffold.decisions import decided
from scaffold.scenarios import Scenario, ScenarioReplay, read_scenarios

TESTS = Path(__file__).parents[1]
SCALARS = [path.read_bytes() for path in sorted((TESTS / "unit" / "run" / "scalars").iterdir())]
BARS = [path.read_bytes() for path in sorted((TESTS / "unit" / "run" / "bars").iterdir())]
LOGS = (
    *(
        b"",
        b"epoch 1 loss: 0.5\n" * 50,
        b"x" * 3_000_000,
        b"\r".join([b"1%|# | 1/9 loss=3"] * 5000),
        b"\x1b[2J\x1b]0;x\x07\n",
    ),
    *(b"\xff\xfe\0\n" * 99, b"\n" * 9999, b"Traceback (most recent call last):\n" * 99, "é\u2028\x85😀\n".encode() * 9),
    *(b"9" * 5000 + b"/" + b"9" * 5000 + b" loss: nan\n", b"step 1e999 loss inf\n", b"loss " * 20_000, *BARS),
)
NOON = 1_704_110_400.0
COMMANDS = (
    *(
        ("status",),
        ("status", "-a", "-o", "json"),
        ("status", "1"),
        ("status", "1", "-o", "json"),
        ("status", "1.worker.0"),
    ),
    *(("logs", "1"), ("logs", "1", "--tail", "3"), ("logs", "1", "--since", "1h"), ("events", "1"), ("wait", "1")),
    *(("events", "1", "-o", "json"), ("monitor", "1", "--history"), ("monitor", "1", "--history", "-o", "json")),
    *(("stacks", "1"), ("stacks", "1", "-o", "json"), ("cp", "1:output", "copy"), ("rm", "1")),
)


@cache
def scenarios() -> list[Scenario]:
    return read_scenarios(TESTS / "unit" / "run" / "scenarios.txt")


def write_folder(home: Path, rng: Random) -> RunFolder:
    """Write a run of a scenario, with all other files that such runs write."""
    shutil.rmtree(home, ignore_errors=True)
    scenario = rng.choice(scenarios())
    folder = RunFolder(home / "runs" / "1")
    folder.path.mkdir(parents=True)
    write_launch(folder, scenario.plan, spec=b"project: x\n", directory=home, at=NOON)
    replay = ScenarioReplay(scenario.plan)
    for _, text in scenario.lines:
        words = text.partition("->")[0].partition("::")[0].strip()
        if words and not words.startswith("="):
            replay.apply(words)
    journal = Journal(folder.journal_file, boot="b", wall=lambda: NOON, since_boot=lambda: 500.0)
    journal.append(decided(scenario.plan, replay.events))
    journal.close()
    for name in [replica.id for replica in scenario.plan.replicas][:3]:
        write_replica_dir(folder.path / "attempts" / "0" / str(name), rng)
    (folder.path / "output" / "train").mkdir(parents=True)
    written = f"events.out.tfevents.{int(NOON) + 10}.host.{os.getpid()}.0.v2"
    (folder.path / "output" / "train" / written).write_bytes(rng.choice(SCALARS))
    return folder


def write_replica_dir(folder: Path, rng: Random) -> None:
    """Write the files of one incarnation of a replica."""
    folder.mkdir(parents=True)
    log = rng.choice(LOGS)
    (folder / LOG).write_bytes(log)
    marks = sorted(rng.randint(0, len(log) + 9) for _ in range(5))
    (folder / MARKS).write_bytes(b"".join(struct.pack(MARK_FORMAT, NOON + at, at) for at in marks))
    (folder / TRACE).write_bytes(trace_bytes(rng))
    (folder / REPORT).write_bytes(report_bytes(rng, wrong=False))
    (folder / ERROR).write_bytes(json.dumps(ERROR_DATA).encode())
    (folder / STACKS).write_bytes(b'{"v": 1}\n')
    for number in range(5):
        append_sample(folder / METRICS, Sample(NOON + number, 1.0, 0.5, 1 << 20))


ERROR_DATA = {"v": 1, "type": "ValueError", "message": "bad row", "traceback": "Traceback…", "at": NOON}
TRACE_LINES: tuple[dict[str, Any], ...] = (
    {"keeper": 11, "boot": "b"},
    {"pid": 12, "ticks": 13, "unlimited": "x", "note": "cold"},
    {"code": None, "signal": 9, "at": 5.5, "cpu": 1.0, "out_of_memory": ["1", "max"], "lease": 30},
    {"over": True},
)


def trace_bytes(rng: Random, *, wrong: bool = False) -> bytes:
    lines = [json.dumps(twist(line, rng) if wrong and rng.random() < 0.5 else line) for line in TRACE_LINES]
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


def report_bytes(rng: Random, *, wrong: bool = True) -> bytes:
    """Return a report with a valid checksum and any content."""
    value: Any = {"v": 1, "step": 7, "at": NOON, "since": [1, NOON - 9], "values": {"loss": 0.5, "lr": "nan"}}
    value = twist(value, rng) if wrong else value
    body = json.dumps(value).encode("utf-8", "surrogatepass").ljust(SIZE_BYTES - 10)[: SIZE_BYTES - 10]
    return b"%08x " % crc32(body) + body + b"\n"


def spoil(path: Path, rng: Random) -> None:
    """Damage a file as a disk, a user or another program may do."""
    data = path.read_bytes()
    match rng.randrange(12):
        case 0:
            path.unlink()
        case 1:
            path.unlink()
            path.mkdir()
        case 2:
            path.write_bytes(data[: rng.randint(0, len(data))])
        case 3:
            path.write_bytes(damage_lines(data, rng))
        case 4:
            path.write_bytes(rng.randbytes(rng.choice((1, 100, 5000))))
        case 5 if path.name == REPORT:
            path.write_bytes(report_bytes(rng))
        case 6 | 7 | 8 | 9 if path.suffix in (".json", ".jsonl") or path.name in (TRACE, ERROR, STACKS):
            lines = data.split(b"\n")
            at = rng.randrange(len(lines))
            try:
                lines[at] = json.dumps(twist(json.loads(lines[at]), rng)).encode("utf-8", "surrogatepass")
            except ValueError:
                lines.insert(at, json.dumps(strange(rng)).encode("utf-8", "surrogatepass"))
            path.write_bytes(b"\n".join(lines))
        case 10:
            path.chmod(0)
        case _:
            path.write_bytes(damage(data, rng))


@case
def folder(trial: Trial) -> None:
    rng = trial.rng
    home = trial.folder / "home"
    found = write_folder(home, rng)
    os.environ["DRUMLINE_HOME"] = str(home)
    if rng.random() < 0.5:
        run(["status", "-a"])  # writes the index
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.name != ".plan.json")
    known = [path for path in files if path.name in ("events.jsonl", "plan.json", "launch.json", "index.sqlite")]
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice(rng.choice((known, files)))
        if path.is_file():
            spoil(path, rng)
    os.chdir(trial.folder)
    for words in rng.sample(COMMANDS[:-1], 5) + ([COMMANDS[-1]] if rng.random() < 0.1 else []):
        try:
            code = run([*words])
        except SystemExit as left:
            code = int(str(left.code))
        assert code in (0, 2, 3, 4) or (code == 1 and words[0] == "wait"), f"{words}: exit code {code}"
    with contextlib.suppress(DrumlineError):
        read_state(found)


@case
def journal(trial: Trial) -> None:
    """Read a journal that was cut anywhere, and append to it."""
    rng = trial.rng
    found = write_folder(trial.folder / "home", rng)
    data = found.journal_file.read_bytes()
    whole = read_journal(found.journal_file, found.plan())
    cut = data[: rng.randint(0, len(data))]
    lines = cut.count(b"\n")
    junk = rng.choice(
        (b"", b"{", b"\0" * 4096, b'{"v": 2}\n', b"garbage\n\n\n", b'{"v":1,"event":"FromAnotherVersion"}\n')
    )
    found.journal_file.write_bytes(cut[: cut.rfind(b"\n") + 1] + junk)
    assert read_journal(found.journal_file, found.plan()) == whole[:lines]
    again = Journal(found.journal_file, boot="b", wall=lambda: NOON, since_boot=lambda: 500.0)
    again.append([(record.event, record.decisions) for record in whole[lines:]])
    again.close()
    assert [record.event for record in read_journal(found.journal_file, found.plan())] == [
        record.event for record in whole
    ]


@case
def plan(trial: Trial) -> None:
    text = plan_to_json(trial.rng.choice(scenarios()).plan)
    data = json.loads(text)
    for _ in range(trial.rng.randint(1, 3)):
        data = twist(data, trial.rng)
    for each in (json.dumps(data), damage(text.encode(), trial.rng).decode(errors="replace")):
        try:
            plan_from_json(each)
        except ValueError as error:
            assert str(error)


@case
def small_files(trial: Trial) -> None:
    """Read the small files of a replica."""
    rng, path = trial.rng, trial.folder / TRACE
    path.write_bytes(trace_bytes(rng, wrong=True))
    if rng.random() < 0.3:
        path.write_bytes(damage(path.read_bytes(), rng))
    trace = read_trace(path)
    assert trace.exit is None or isinstance(trace.exit.message, str)
    assert isinstance(trace.at_seconds, float | int)
    assert all(value is None or type(value) is int for value in (trace.keeper, trace.pid, trace.ticks))
    path.write_bytes(report_bytes(rng))
    if report := read_report(path):
        assert type(report.step) is int
        assert report.at_seconds < 1e11
    path.write_bytes(json.dumps(twist(ERROR_DATA, rng)).encode("utf-8", "surrogatepass"))
    if error := read_error(path):
        assert error.at_seconds < 1e11
    end = {"at": 5.0, "boot": "b", "utc": NOON, "over": True, "exit": {"code": 1}, "started": True, "ordered": True}
    path.write_bytes(json.dumps(twist(end, rng)).encode("utf-8", "surrogatepass") + b"\n")
    read_notes(trial.folder)
    read_end(trial.folder)


@case
def numbers(trial: Trial) -> None:
    """Read samples, marks and cursors, which are binary."""
    rng = trial.rng
    shutil.rmtree(trial.folder, ignore_errors=True)
    trial.folder.mkdir()
    folder = trial.folder / "0"
    write_replica_dir(folder, rng)
    for name in (METRICS, MARKS):
        (folder / name).write_bytes(damage((folder / name).read_bytes(), rng))
    samples = read_samples(folder / METRICS)
    thin(samples, 3)
    last_sample(folder / METRICS)
    append_sample(folder / METRICS, Sample(NOON, 1.0, 0.5))
    times_of(folder, (0, 5, 10**9))
    written_by(folder, rng.choice((0, 5, 10**12)))
    reader = LogReader(folder)
    read, size = b"", rng.choice((7, 4096, 1 << 22)) if len((folder / LOG).read_bytes()) < 5000 else 1 << 18
    while blocks := reader.read(until=NOON, ended=True, size=size):
        read += b"".join(block.data for block in blocks)
    assert read == (folder / LOG).read_bytes()
    read_tail(folder / LOG, 4096)
    write_cursor(folder / "cursor", Cursor(1, 2, 3, 4, is_open=True))
    (folder / "cursor").write_bytes(damage((folder / "cursor").read_bytes(), rng))
    assert read_cursor(folder / "cursor").since in ("", "1970-01-01T00:00:00Z")


@case
def output(trial: Trial) -> None:
    """Read what replicas print, and what they write for TensorBoard."""
    rng = trial.rng
    read_progress(damage(rng.choice(LOGS)[:200_000], rng), is_cut=rng.random() < 0.5)
    data = rng.choice(SCALARS)
    data = _event(rng) + data if rng.random() < 0.5 else damage(data, rng)
    for scalar in read_scalars(data, is_cut=rng.random() < 0.5):
        assert isinstance(scalar.value, float)
    progress_in(read_scalars(data, is_cut=False), by_keras=True)
    shutil.rmtree(trial.folder)
    trial.folder.mkdir()
    at, pid = rng.choice(("1704110400", "٠١٢٣٤٥٦٧٨٩", "1" * 10)), rng.choice(("1", "9" * 100, "٣"))
    name = f"events.out.tfevents.{at}.h.{pid}.0"
    path = trial.folder / name
    making: tuple[Callable[[], object], ...] = (
        lambda: path.write_bytes(data),
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(name),
    )
    rng.choice(making)()
    for file in find_event_files(trial.folder):
        last_scalars(file)


@case
def lines(trial: Trial) -> None:
    """Read a pod's log in any pieces, with damage."""
    rng = trial.rng
    sent = b"".join(b"2026-11-15T21:07:%02d.%09dZ line %d\n" % (at, at, at) for at in range(20))
    sent = damage(sent, rng)
    stream = LogStream(Cursor(9, rng.choice((0, 1_794_776_826_000_000_001)), 1, 6, is_open=rng.random() < 0.5))
    while sent:
        size = rng.choice((1, 9, 100))
        stream.feed(sent[:size])
        sent = sent[size:]
    stream.end()


def _event(rng: Random) -> bytes:
    """Return a record of TensorBoard's with valid checksums and any content."""
    from drumline.run.scalars import _masked_checksum  # noqa: PLC0415 - private, needed for valid checksums

    at = struct.pack("<d", rng.choice((NOON, float("nan"), float("inf"), -1.0, 1e300)))
    value = b"\x0a\x04loss" + b"\x15" + struct.pack("<f", rng.choice((0.5, float("nan"), float("inf"))))
    value = damage(value, rng) if rng.random() < 0.5 else value
    summary = b"\x0a" + bytes([len(value) & 127]) + value
    data = b"\x09" + at + b"\x10" + bytes([rng.randrange(256), 1]) + b"\x2a" + bytes([len(summary) & 127]) + summary
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", _masked_checksum(head)) + data + struct.pack("<I", _masked_checksum(data))
