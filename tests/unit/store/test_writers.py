"""Process ids that are read from a trace or from the name of a file."""

from __future__ import annotations

from pathlib import Path

from drumline.run.traces import TRACE
from drumline.store.writers import pid_of, session_of


def test_a_number_that_cannot_be_a_pid_is_ignored(tmp_path: Path) -> None:
    """The names of TensorBoard's files have a pid, which any process that writes into the output folder can choose."""
    assert session_of(10**30) is None
    (tmp_path / TRACE).write_text('{"pid": ' + "9" * 5000 + "}\n")
    assert pid_of(tmp_path) is None
    (tmp_path / TRACE).write_text('{"pid": 4321, "ticks": 5}\n')
    assert pid_of(tmp_path) == 4321
