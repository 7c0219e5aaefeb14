"""Random starts, ends and kills, compared with a model of the registry: no overuse, no leak, no starvation."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drumline.engine.local.claim_queue import Claim
from drumline.engine.local.claim_registry import ClaimRegistry
from drumline.engine.local.gpu_assignment import GpuAssignment
from drumline.engine.local.resource_claim import ResourceClaim
from drumline.engine.protocol import Capacity, MustWait, Site
from drumline.plan.types import Plan, Resources
from drumline.record import field_names, to_dict
from drumline.run.event import AttemptDelayed, Event, RoomFound
from scaffold.effort import examples
from scaffold.gangs import gang
from scaffold.loops import SteppedLoop

MACHINE = Capacity(4, 100, tuple("012"))
MOST = Claim(4000, 100, 3)

claims = st.builds(Claim, st.integers(0, 8).map(lambda half: half * 500), st.integers(0, 100), st.integers(0, 3))


def plan_for(run: int, claim: Claim, *, insist: bool = False) -> Plan:
    """Return a plan with one replica that requests this."""
    plan = gang("worker")
    asked = Resources(claim.cpus / 1000 or None, claim.memory_bytes or None, claim.gpus)
    (replica,) = plan.replicas
    return plan.replace(run=str(run), replicas=(replica.replace(resources=asked),), oversubscribe=insist)


@dataclass
class Run:
    """A run in the model, with its real claim."""

    number: int
    claim: Claim
    insists: bool
    holds: bool = False
    room: ResourceClaim | None = None  # while its supervisor runs
    keepers: list[int] = field(default_factory=list)  # the descriptors that keepers hold
    events: list[Event] = field(default_factory=list)
    waits: str = ""
    division: GpuAssignment | None = None


class Machine(RuleBasedStateMachine):
    """The runs of one user on one machine."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(mkdtemp(prefix="ledger-"))
        self.loop = SteppedLoop()
        self.numbers = count(1)
        self.runs: dict[int, Run] = {}

    def teardown(self) -> None:
        try:
            self.let_all_end()
        finally:
            self.loop.close()
            shutil.rmtree(self.home)

    def let_all_end(self) -> None:
        """End all runs in order: every run gets its resources, and no file remains at the end."""
        for run in list(self.runs.values()):
            if run.room is None:
                self.start_supervisor(run)
        while self.runs:
            self.settle()
            self.check()
            holders = [run for run in self.runs.values() if run.holds]
            assert holders, "a run waits for nothing"
            self.end(holders[0])
        assert [path.name for path in self.home.rglob("*")] in ([], ["ledger", "lock"])

    # --- rules

    @rule(claim=claims, insists=st.sampled_from([False] * 5 + [True]))
    def arrive(self, claim: Claim, *, insists: bool) -> None:
        run = Run(next(self.numbers), claim, insists)
        self.runs[run.number] = run
        self.start_supervisor(run)

    @precondition(lambda self: any(run.holds and run.room for run in self.runs.values()))
    @rule(data=st.data())
    def a_run_ends(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([run for run in self.runs.values() if run.holds and run.room])))

    @precondition(lambda self: any(run.room for run in self.runs.values()))
    @rule(data=st.data())
    def a_supervisor_is_killed(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([run for run in self.runs.values() if run.room]))
        room, run.room = run.room, None
        assert room
        if room._registry:
            room._registry._unwatch()
            for descriptor in room._registry.descriptors:
                os.close(descriptor)
        run.holds = run.holds and bool(run.keepers)

    @precondition(lambda self: any(run.room is None for run in self.runs.values()))
    @rule(data=st.data())
    def a_supervisor_returns(self, data: st.DataObject) -> None:
        self.start_supervisor(data.draw(st.sampled_from([run for run in self.runs.values() if run.room is None])))

    @precondition(lambda self: any(run.keepers for run in self.runs.values()))
    @rule(data=st.data())
    def a_keeper_ends(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([run for run in self.runs.values() if run.keepers]))
        os.close(run.keepers.pop())
        run.holds = run.holds and bool(run.keepers or run.room)

    @precondition(lambda self: any(run.holds and run.room for run in self.runs.values()))
    @rule(data=st.data())
    def a_keeper_is_started(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from([run for run in self.runs.values() if run.holds and run.room]))
        assert run.room
        run.keepers += [os.dup(descriptor) for descriptor in run.room.descriptors]

    @precondition(lambda self: any(not run.holds and run.room for run in self.runs.values()))
    @rule(data=st.data())
    def a_waiting_run_is_killed(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from([run for run in self.runs.values() if not run.holds and run.room])))

    @rule(name=st.sampled_from(["9999.json", "9999.holds", "x"]), data=st.binary(max_size=20))
    def a_foreign_file_is_written(self, name: str, data: bytes) -> None:
        folder = self.home / "ledger" / "boot"
        if folder.is_dir():
            (folder / name).write_bytes(data)

    # --- invariants

    @invariant()
    def registry_matches_model(self) -> None:
        self.settle()
        self.check()

    def settle(self) -> None:
        """Deliver all pending events."""
        before = None
        while before != (now := [(len(run.events), run.holds) for run in self.runs.values()]):
            before = now
            self.loop.turn()
            for run in self.runs.values():
                self.follow_events(run)

    def follow_events(self, run: Run) -> None:
        """Handle the events of a run as its supervisor does."""
        for event in run.events:
            if isinstance(event, RoomFound):
                self.place(run)
            else:
                assert isinstance(event, AttemptDelayed)
                assert event.message != run.waits, "said once"
                run.waits = event.message
        run.events.clear()

    def check(self) -> None:
        """The registry matches the model, in any order of requests."""
        living = [run for run in self.runs.values() if run.room or run.keepers]
        waiting = [run for run in living if run.room and not run.holds]
        holders = [run for run in living if run.holds]
        for run in waiting:
            assert not self.may_begin(run, holders, waiting), f"{run} waits for nothing"
        for kind in field_names(Claim):
            asked = [getattr(run.claim, kind) for run in holders if not run.insists]
            assert sum(asked) <= getattr(MOST, kind), f"too many {kind}"
        calm = [gpu for run in holders if not run.insists for gpu in self.gpus(run)]
        assert len(calm) == len(set(calm)), "a GPU is shared only by oversubscription"
        entries = ClaimRegistry(self.home, boot="boot", run="0").entries()
        claiming = {str(run.number): run.holds for run in living if any(to_dict(run.claim).values())}
        assert {run: entry.holds for run, entry in entries.items()} == claiming
        for run in waiting:
            named = [
                int(number)
                for part in re.findall(r"runs? ([\d, and]+)", run.waits)
                for number in re.findall(r"\d+", part)
            ]
            assert named, "another run delays it"
            assert all(entries[str(number)].holds or number < run.number for number in named), run.waits

    def may_begin(self, run: Run, holders: list[Run], waiting: list[Run]) -> bool:
        """Return whether enough is left by holders and earlier waiting runs; of GPUs, only free ones count."""
        for kind in field_names(Claim):
            free = getattr(MOST, kind) - sum(getattr(each.claim, kind) for each in holders)
            if kind == "gpus":
                free = len(MACHINE.gpus) - len({gpu for each in holders for gpu in self.gpus(each)})
            before = sum(getattr(each.claim, kind) for each in waiting if each.number < run.number)
            if getattr(run.claim, kind) > max(0, free - before):
                return False
        return True

    def gpus(self, run: Run) -> tuple[str, ...]:
        assert run.division
        (gpus,) = run.division.gpus.values()
        assert len(gpus) == min(run.claim.gpus, len(MACHINE.gpus))
        return gpus

    def start_supervisor(self, run: Run) -> None:
        run.events.clear()
        run.waits = ""
        run.room = ResourceClaim(Site(self.home, self.home, 4, capacity=MACHINE), {}, boot=lambda: "boot")
        run.room.watch(self.loop, run.events.append)
        self.place(run)

    def place(self, run: Run) -> None:
        assert run.room
        held = run.division if run.holds else None
        try:
            run.division = run.room.claim(plan_for(run.number, run.claim, insist=run.insists), 0, all_begun=False)
        except MustWait as wait:
            assert not run.holds
            assert not run.insists
            run.waits = str(wait)
        else:
            others = [each for each in self.runs.values() if each is not run]
            holders = [each for each in others if each.holds]
            waiting = [each for each in others if each.room and not each.holds]
            assert run.holds or run.insists or self.may_begin(run, holders, waiting), "no run overtakes another"
            run.holds, run.waits = True, ""
            assert held is None or (run.division and held.gpus == run.division.gpus), "a claim stays as it is"

    def end(self, run: Run) -> None:
        while run.keepers:
            os.close(run.keepers.pop())
        assert run.room
        run.room.release()
        del self.runs[run.number]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
