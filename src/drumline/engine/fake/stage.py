"""The stage of one run: lives begin on it, are taken up again, and play as far as time has come."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.fake.behavior import FakeBehavior, act_of
from drumline.engine.fake.life import End, Life, read_notes
from drumline.engine.protocol import Tell
from drumline.plan.codec import from_data, to_data
from drumline.plan.types import Launch, ReplicaId
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.keeper import boot_id

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Stage:
    """Where a run's traces go, whose time it is, and who is told; owns the lives."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        self.run_dir = run_dir
        self.loop = loop
        self.tell = tell
        self.lives: dict[tuple[ReplicaId, int, int], Life] = {}
        self._boot = boot_id()

    def living(self) -> list[Life]:
        """All lives of the line that go on."""
        going = (life for life in self.lives.values() if life.told_start and not life.told_end)
        return [life for life in going if not life.replica.is_helper]

    def begin(self, launch: Launch) -> Life:
        """Let a life begin, and write that down."""
        life = self._life(launch.replica.id, launch.attempt, launch.incarnation, act_of(launch))
        life.make_folder()
        life.note({"boot": self._boot, "began": life.began, "act": to_data(life.act)})
        return life

    def take_up(self, replica: ReplicaId, attempt: int, incarnation: int) -> Life | None:
        """A life that this engine or an earlier one began; None if nobody did."""
        if (replica, attempt, incarnation) in self.lives:
            return self.lives[replica, attempt, incarnation]
        known = read_notes(self.run_dir / trace_dir(replica, attempt, incarnation) / TRACE)
        if "began" not in known:
            return None
        life = self._life(replica, attempt, incarnation, from_data(FakeBehavior, known["act"]))
        life.began, life.termed, life.killed = known["began"], known.get("termed", inf), known.get("killed", inf)
        if "over" in known:
            life.ended = End(known["at"], from_data(Exit, known["exit"]))
        elif known["boot"] != self._boot:
            life.began = self.loop.time()  # another boot's times mean nothing
            life.ended = End(life.began, Exit(message="the machine was restarted"))
        return life

    def miss(self, replica: ReplicaId, attempt: int, incarnation: int) -> Life:
        """A life that nobody began, and nobody will."""
        return self._life(replica, attempt, incarnation, FakeBehavior(starts_after_seconds=inf))

    def _life(self, replica: ReplicaId, attempt: int, incarnation: int, act: FakeBehavior) -> Life:
        folder = self.run_dir / trace_dir(replica, attempt, incarnation)
        life = Life(replica, attempt, incarnation, folder, act, self.loop.time())
        self.lives[replica, attempt, incarnation] = life
        return life

    def term(self, life: Life) -> None:
        """Ask it to end, once."""
        if life.termed == inf:
            self._send(life, "termed")

    def kill(self, life: Life) -> None:
        """End it, once."""
        if life.killed == inf:
            self._send(life, "killed")

    def _send(self, life: Life, what: str) -> None:
        if not life.told_end:
            at = self.loop.time()
            setattr(life, what, at)
            life.note({what: at})
            self._play(life)

    def play_all(self, lives: Iterable[Life]) -> None:
        """Play these on; ends that came in between are told in the order in which they came."""
        for life in sorted(lives, key=lambda life: life.end().at_seconds):
            self._play(life)

    def _play(self, life: Life) -> None:
        """Do and tell what is due, and ask to be called when more is; once too often does no harm."""
        if life.told_end:
            return
        now, end = self.loop.time(), life.end()
        until = min(now, end.at_seconds)
        life.write_log(until)
        if life.started <= until and not life.told_start:
            life.told_start = True
            self.tell(ReplicaStarted(life.replica, life.attempt, life.incarnation))
        if end.at_seconds <= now:
            life.told_end = True
            if life.ended is None:
                life.note(_end_note(end))
            self.tell(ReplicaExited(life.replica, life.attempt, life.incarnation, end.exit, end.at_seconds))
            return
        moment = min(moment for moment in life.moments() if moment > now)
        if moment < inf:
            self.loop.call_later(moment - now, partial(self._play, life))


def _end_note(end: End) -> dict[str, object]:
    """An end as keepers write it, and beside that in full."""
    how = {"code": end.exit.code, "signal": end.exit.signal} if end.exit.seen else {}
    return {**how, "at": end.at_seconds, "over": True, "exit": to_data(end.exit)}
