"""Logs and stacks that were made to slow their readers down, or to make them fail."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.blocking import Activity, ActivityKind, read_activity
from drumline.run.evidence import Peers, closing_exception, read_evidence
from drumline.run.exception import text_lines, trim_traceback
from drumline.run.progress import newest_first, read_piece, read_progress
from drumline.run.steps import StepReader
from drumline.words import format_duration
from scaffold.growth import growth

TRACEBACK = b"Traceback (most recent call last):\n"
HEADS = [
    b"",
    TRACEBACK,
    TRACEBACK + b'  File "a", line 1, in b\n',
    TRACEBACK + b"ValueError: connection refused\n",
    b'Thread 0x1 (a): "MainThread"\n',
]
UNITS = [
    b"\r", b"\n", b"\b", b"\x1b", b"\x1b[0", b"\xff", b"\0", b" ", b"x\r", b"x\n", b"  x\n", b"1", b"1/", b"loss ",
    b"epoch 1/1\n", b"%|", b"1%|", b"a.", b"a:11 ", b"    a (b:1", b"    a (b:1)\n", b"Error:\n", b"/lib/python3/",
    b"/jax/_src/ a.", b'  File "a", line 1, in b\n', b"[Op:", b"\r\n", b"connection refused ", b"[[{{node ", TRACEBACK,
]  # fmt: skip


def show_card(tail: bytes) -> None:
    if chain := closing_exception(text_lines(tail)):
        trim_traceback(chain)


def count_progress(tail: bytes) -> None:
    read_progress(tail)
    for piece in newest_first(tail, is_cut=False):
        read_piece(piece)


def count_steps(log: bytes) -> None:
    reader = StepReader()
    for start in range(0, len(log), 1 << 12):
        list(reader.read(log[start : start + (1 << 12)]))


def hear(tail: bytes) -> None:
    read_evidence(tail, Peers(ReplicaId("worker", 0)))


def find_thread(stacks: bytes) -> None:
    read_activity(stacks.decode(errors="replace"))


@pytest.mark.parametrize(
    ("head", "reader"), [(b"", count_progress), (b"", count_steps), *product(HEADS, (show_card, hear, find_thread))]
)
def test_readers_take_linear_time(head: bytes, reader: Callable[[bytes], None]) -> None:
    slow = [
        unit
        for unit in UNITS
        if growth(reader, head + unit * ((1 << 14) // len(unit)), head + unit * ((1 << 16) // len(unit))) > 10
    ]
    assert slow == []


@pytest.mark.parametrize("unit", [b" ", b"1", b"a.", b"/jax/_src/ a.", b"    a (", b"/lib/python3/", b"["])
def test_a_long_line_that_does_not_match_takes_linear_time(unit: bytes) -> None:
    """Lines of the maximum length take time in proportion to their length, not to its square."""
    lines = [unit * (length // len(unit)) + b"!\n" for length in (500, 3990)]
    for head, reader in [(b"", count_progress), *product(HEADS, (show_card, hear, find_thread))]:
        small, large = (head + line * ((1 << 15) // len(line)) for line in lines)
        assert growth(reader, small, large) < 10, (head, reader)


def test_a_line_that_never_ends_is_not_kept_in_memory() -> None:
    reader = StepReader()
    for _ in range(100):
        assert list(reader.read(b"x" * (1 << 16))) == []
        assert len(reader._rest) <= 1 << 16
    before = 100 << 16
    (found,) = reader.read(b"\nstep 3 loss 0.5\n")
    assert (found.step, found.end) == (3, before + len(b"\nstep 3 loss 0.5"))


@pytest.mark.parametrize("piece", [1, 3, 4096, 9000, 20_000])
def test_steps_around_a_long_line_are_counted_however_the_log_is_cut(piece: int) -> None:
    log = b"step 1 loss 0.5\n" + b"x" * 30_000 + b" step 9 loss 0.5\nstep 2 loss 0.5\r\n"
    reader = StepReader()
    found = [each for start in range(0, len(log), piece) for each in reader.read(log[start : start + piece])]
    assert [(each.step, each.end) for each in found] == [(1, 15), (2, len(log) - 2)]


NINES = "9" * 400


@pytest.mark.parametrize(
    "line",
    [
        f"1/2 [==>...] - 1s {NINES}ms/step - loss: 0.5",
        f"1/2 [==>...] - ETA: {NINES}s - loss: 0.5",
        f"1/2 [==>...] - ETA: {NINES}:00 - loss: 0.5",
        f"1%|x| 1/{'9' * 15} [00:01<00:02, 0.{'0' * 310}1it/s, loss=0.5]",
        f"1%|x| 1/{'9' * 15} [00:01<00:02, 0.{'0' * 400}1it/s, loss=0.5]",
        f"1%|x| 1/{'9' * 15} [00:01<00:02, {NINES}it/s, loss=0.5]",
        f"1%|x| 1/{'9' * 15} [00:01<00:02, {NINES}s/it, loss=0.5]",
        f"1%|x| 1/{'9' * 15} [00:01<00:02, 0.{'0' * 310}1s/it, loss=0.5]",
        f"Epoch 1/{'9' * 15}\n1%|x| 1/{'9' * 15} [00:01<00:02, 1.0s/it, loss=0.5]",
    ],
)
def test_too_large_numbers_are_no_rate(line: str) -> None:
    progress = read_progress(f"{line}\n".encode())
    for seconds in (progress.eta_seconds, progress.steps_eta_seconds):
        assert seconds is None or format_duration(seconds)


@pytest.mark.parametrize("line", [f'  File "a", line {NINES * 20} in f', f"    f (a:{NINES * 20})"])
def test_a_frame_with_a_line_number_of_thousands_of_digits_is_none(line: str) -> None:
    assert read_activity(f'Thread 0x1 (a): "MainThread"\n{line}\n') == Activity(ActivityKind.ELSEWHERE, "nothing")
    chain = closing_exception(text_lines(TRACEBACK + line.encode() + b"\nValueError: x\n"))
    assert chain
    assert trim_traceback(chain) == ["ValueError: x"]


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300])
def test_an_infinite_time_can_be_described(seconds: float) -> None:
    assert format_duration(seconds) == format_duration(seconds, parts=1) == "ever"
