"""Sessions of the fake engine, without the supervisor that would open them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from drumline.engine.fake import FakeEngine, FakeSession
from drumline.engine.protocol import Session, Site
from drumline.run.event import Event
from scaffold.loops import SteppedLoop

S = TypeVar("S", bound=FakeSession)


def open_fake(folder: Path, loop: SteppedLoop, kind: type[S]) -> S:
    """Open a session of this kind over a run's folder."""

    async def make() -> S:
        return kind(FakeEngine(Site(folder, folder / "home", cores=2)), folder)

    return loop.wait(make())


def read_events(session: Session, loop: SteppedLoop) -> list[Event]:
    """Return the list to which everything that a session reports is added while the loop runs."""
    read: list[Event] = []

    async def add() -> None:
        async for event in session.events():
            read.append(event)  # noqa: PERF401

    reading.append(loop.create_task(add()))
    return read


reading: list[object] = []  # tasks that nothing else refers to
