"""The claim registry, with real files and FIFOs: a claim lasts as long as a process has it open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.local.claim_queue import Claim
from drumline.engine.local.claim_registry import ClaimRegistry
from drumline.engine.protocol import Capacity
from drumline.errors import EngineError
from scaffold.loops import SteppedLoop

MACHINE = Capacity(4, 1 << 34, tuple("0123"))
ALL, HALF = Claim(cpus=4000), Claim(cpus=2000)


class Workspace:
    """Claim registries of one home directory, and a loop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.loop = SteppedLoop()
        self.woken: list[str] = []

    def registry(self, run: str, *, boot: str = "b1") -> ClaimRegistry:
        return ClaimRegistry(self.home, boot=boot, run=run)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.home / "ledger")) for path in (self.home / "ledger").rglob("*")} - {"lock"}

    def turn(self) -> list[str]:
        """Return the runs that were woken."""
        self.woken.clear()
        self.loop.turn_once()
        return self.woken


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path / "home")
    yield workspace
    workspace.loop.close()


def close_as_killed(registry: ClaimRegistry) -> None:
    """Close all descriptors, as the kernel does for a process that is killed."""
    registry._unwatch()
    for descriptor in registry.descriptors:
        os.close(descriptor)
    registry._own = None


def watch(workspace: Workspace, registry: ClaimRegistry, name: str) -> None:
    registry.watch(workspace.loop, lambda: workspace.woken.append(name))


def test_a_claim_that_fits_is_held_and_one_that_does_not_waits(workspace: Workspace) -> None:
    first, second = workspace.registry("1"), workspace.registry("2")
    assert first.claim(HALF, MACHINE) == ""
    assert second.claim(ALL, MACHINE) == "waits for 4 of 4 cpus, run 1 has 2"
    assert workspace.files() == {"b1", "b1/1.json", "b1/1.holds", "b1/2.json", "b1/2.waits"}
    first.release()
    assert second.claim(ALL, MACHINE) == ""
    second.release()
    assert workspace.files() == set()


def test_a_repeated_request_changes_nothing(workspace: Workspace) -> None:
    first, second = workspace.registry("1"), workspace.registry("2")
    for _ in range(2):
        assert first.claim(Claim(gpus=3), MACHINE) == ""
        assert second.claim(Claim(gpus=2), MACHINE) == "waits for 2 of 4 gpus, run 1 has 3"
    assert first.entry
    assert first.entry.gpus == ("0", "1", "2")
    first.release()
    second.release()


def test_a_waiting_run_is_woken_when_a_run_before_it_releases_dies_or_begins(workspace: Workspace) -> None:
    first, second, third = (workspace.registry(run) for run in "123")
    first.claim(ALL, MACHINE)
    second.claim(HALF, MACHINE)
    third.claim(ALL, MACHINE)
    watch(workspace, second, "2")
    watch(workspace, third, "3")
    assert workspace.turn() == []
    first.release()
    assert sorted(workspace.turn()) == ["2", "3"]
    assert third.claim(ALL, MACHINE) == "waits behind run 2, which waits for 2 cpus"
    watch(workspace, third, "3")
    assert second.claim(HALF, MACHINE) == ""
    assert workspace.turn() == ["3"]
    assert third.claim(ALL, MACHINE) == "waits for 4 of 4 cpus, run 2 has 2"
    watch(workspace, third, "3")
    close_as_killed(second)
    assert workspace.turn() == ["3"]
    assert third.claim(ALL, MACHINE) == ""
    third.release()


def test_a_claim_is_held_while_a_keeper_runs_even_without_a_supervisor(workspace: Workspace) -> None:
    first, second = workspace.registry("1"), workspace.registry("2")
    first.claim(Claim(gpus=2), MACHINE)
    keeper = os.dup(*first.descriptors)
    close_as_killed(first)
    assert second.claim(Claim(gpus=3), MACHINE) == "waits for 3 of 4 gpus, run 1 has 2"
    watch(workspace, second, "2")
    back = workspace.registry("1")
    assert back.is_held()
    assert back.claim(Claim(gpus=2), MACHINE) == ""
    assert back.entry
    assert back.entry.gpus == ("0", "1")
    os.close(keeper)
    assert workspace.turn() == []
    back.release()
    assert workspace.turn() == ["2"]
    second.release()


def test_a_stale_entry_is_no_claim_and_is_removed(workspace: Workspace) -> None:
    first, waiting, second = (workspace.registry(run) for run in "123")
    first.claim(ALL, MACHINE)
    waiting.claim(ALL, MACHINE)
    close_as_killed(waiting)
    close_as_killed(first)
    assert not workspace.registry("1").is_held()
    assert second.entries() == {}
    assert "b1/1.json" in workspace.files()
    assert second.claim(ALL, MACHINE) == ""
    assert workspace.files() == {"b1", "b1/3.json", "b1/3.holds"}
    second.release()


def test_a_supervisor_that_returns_too_late_keeps_its_place_in_the_queue(workspace: Workspace) -> None:
    first, second, third = (workspace.registry(run) for run in "123")
    first.claim(ALL, MACHINE)
    second.claim(ALL, MACHINE)
    third.claim(ALL, MACHINE)
    close_as_killed(second)
    again = workspace.registry("2")
    assert again.claim(ALL, MACHINE) == "waits for 4 of 4 cpus, run 1 has 4"
    first.release()
    assert third.claim(ALL, MACHINE) == "waits behind run 2, which waits for 4 cpus"
    assert again.claim(ALL, MACHINE) == ""
    third.release()
    again.release()


def test_an_oversubscribed_run_begins_at_once_and_its_claim_counts(workspace: Workspace) -> None:
    first, second, third = (workspace.registry(run) for run in "123")
    first.claim(Claim(cpus=3000, gpus=3), MACHINE)
    assert second.claim(Claim(cpus=9000, gpus=6), MACHINE, insist=True) == ""
    assert second.entry
    assert second.entry.gpus == ("3", "0", "1", "2", "3", "0")
    assert second.taken == {"0", "1", "2"}
    assert third.claim(Claim(cpus=10), MACHINE) == "waits for 0.01 of 4 cpus, runs 1 and 2 have 12"
    for registry in (first, second, third):
        registry.release()


def test_another_boot_or_machine_has_its_own_registry(workspace: Workspace) -> None:
    here, there = workspace.registry("1"), workspace.registry("2", boot="b2")
    assert here.claim(ALL, MACHINE) == there.claim(ALL, MACHINE) == ""
    close_as_killed(here)
    there.release()
    assert workspace.files() == {"b1", "b1/1.json", "b1/1.holds"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '{"run": "1"}',
        '{"v": 1, "run": "1", "holds": true, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_i',
        '{"v": 1, "run": "1", "holds": 1, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": []}',
        '{"v": 1, "run": "1", "holds": true, "cpus": -4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": []}',
        '{"v": 1, "run": "one", "holds": true, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": []}',
        '{"v": 1, "run": "2", "holds": true, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": []}',
        '{"v": 1, "run": "1", "holds": true, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": 7}',
        "[" * 100_000,
    ],
)
def test_an_incomplete_entry_is_stale_and_removed(workspace: Workspace, text: str) -> None:
    first, second = workspace.registry("1"), workspace.registry("2")
    first.claim(ALL, MACHINE)
    (workspace.home / "ledger" / "b1" / "1.json").write_text(text)
    assert second.entries() == {}
    assert second.claim(ALL, MACHINE) == ""
    assert workspace.files() == {"b1", "b1/2.json", "b1/2.holds"}
    first.release()
    second.release()


def test_files_that_are_not_entries_block_no_run(workspace: Workspace) -> None:
    folder = workspace.home / "ledger" / "b1"
    (folder / "directory.json").mkdir(parents=True)
    for name in ("1.holds", "1.waits", ".json", "x.json", "1.new", "\udc80.json", "noise"):
        (folder / name).write_bytes(b"\xff\x00")
    entry = {"v": 1, "run": "1", "holds": True, "cpus": 4000, "memory_bytes": 0, "gpus": 0, "gpu_ids": []}
    (folder / "1.json").write_text(json.dumps(entry))  # its FIFO is a file
    registry = workspace.registry("2")
    assert registry.claim(ALL, MACHINE) == ""
    assert workspace.files() == {"b1", "b1/2.json", "b1/2.holds", "b1/directory.json"}
    registry.release()


def test_data_written_into_a_fifo_is_ignored(workspace: Workspace) -> None:
    first, second = workspace.registry("1"), workspace.registry("2")
    first.claim(ALL, MACHINE)
    (fifo,) = first.descriptors
    os.write(fifo, b"hello")
    assert second.claim(ALL, MACHINE) == "waits for 4 of 4 cpus, run 1 has 4"
    first.release()
    second.release()


def test_a_registry_that_cannot_be_written_is_an_error_with_its_path(workspace: Workspace) -> None:
    workspace.home.write_text("a file")
    with pytest.raises(EngineError, match=r"claims cannot be kept in .*/home/ledger: Not a directory"):
        workspace.registry("1").claim(ALL, MACHINE)


def test_no_descriptor_is_left_open(workspace: Workspace) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    registries = [workspace.registry(str(run)) for run in range(1, 6)]
    for _ in range(3):
        for registry in registries:
            registry.claim(Claim(cpus=3000), MACHINE)
            registry.entries()
    for registry in registries:
        registry.release()
        registry.release()
    assert set(Path("/proc/self/fd").iterdir()) <= before  # objects of an earlier test may be collected meanwhile
    assert workspace.files() == set()
