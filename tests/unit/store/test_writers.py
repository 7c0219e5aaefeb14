"""Numbers of processes that a file or its name claims."""

from __future__ import annotations

from pathlib import Path

from drumline.run.traces import TRACE
from drumline.store.writers import pid_of, session_of


def test_a_number_that_no_process_can_have_is_no_process(tmp_path: Path) -> None:
    """The names of TensorBoard's files end in one, and whatever writes into the output folder chooses it."""
    assert session_of(10**30) is None
    (tmp_path / TRACE).write_text('{"pid": ' + "9" * 5000 + "}\n")
    assert pid_of(tmp_path) is None
    (tmp_path / TRACE).write_text('{"pid": 4321, "ticks": 5}\n')
    assert pid_of(tmp_path) == 4321
