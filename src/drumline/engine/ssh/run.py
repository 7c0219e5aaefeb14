"""One run on its hosts, as its supervisor sees it: orders go out, and what becomes of everybody comes back.

An order is a wish that is remembered, not a message that may be lost: whenever a host answers again, it is told all of
them once more, which changes nothing where they were carried out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from drumline.engine.courier import Courier
from drumline.engine.local.life import Life
from drumline.engine.protocol import Loop, MustWait, Site, Tell
from drumline.engine.ssh.helpers import Helpers, filled
from drumline.engine.ssh.link import Facts, Link
from drumline.engine.ssh.lives import HOST_LOST, NEVER_STARTED, Kept, Lives, usage_from_data
from drumline.engine.ssh.luggage import Luggage, Way
from drumline.engine.ssh.place import Placed, hosts_of, merge, part, places_from_data, read_placed, write_placed
from drumline.engine.ssh.refusal import AwayError
from drumline.engine.ssh.wire import Frame, launch_to_data, life_to_data
from drumline.errors import DrumlineError, EngineError, InputError
from drumline.plan.assign import Room, assign, part_of, room_of
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Launch, Placement, Plan, Secret
from drumline.run.codec import event_from_data
from drumline.run.event import (
    AttemptDelayed,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RoomFound,
)
from drumline.run.traces import UNREACHED
from drumline.run.usage import Usage
from drumline.words import listed, span

_LOOK_SECONDS = 0.5
_CONNECT_SECONDS = 20.0
_PLACE_SECONDS = 60.0
_ANSWER_SECONDS = 1.0  # that a supervisor may be kept waiting for a measure
_WORRY_SECONDS = 5.0
_RELEASE_SECONDS = 30.0
_COLLECT_SECONDS = 600.0  # that what was written may take on its way here
_PAUSE_SECONDS = 0.1


class SshRun:
    """Starts, stops and watches the replicas of one run; owns the thread that talks to its hosts."""

    def __init__(self, plan: Plan, run_dir: Path, site: Site, loop: Loop, tell: Tell) -> None:
        self._plan = plan
        self._hosts = hosts_of(plan)
        self._run_dir = run_dir
        self._loop = loop
        self._tell = tell
        self._lives = Lives(run_dir, loop, tell)
        self._courier = Courier(loop, self._hang_up, name="hosts")
        self._links = {host.name: self._link(host.name) for host in self._hosts.all}
        self._keeping = [self._courier.send(link.keep()) for link in self._links.values()]
        self._lost: set[str] = set()
        self._worried: set[str] = set()
        self._waits_at: tuple[str, int] | None = None  # for room, and in which attempt
        self._attempt = 0
        self._secrets: dict[str, str] = {}
        self._placed: dict[int, Placed] = {}
        self._last: Placed | None = None
        self._luggage = Luggage(plan, site, run_dir, self._way)
        self._helpers = Helpers(run_dir, self._order, loop, tell)
        self._supplied: set[tuple[str, int]] = set()  # hosts that have all that an attempt needs
        self._fetching: Future[None] | None = None
        self._awaited: dict[str, float] = {}  # hosts that have not done yet what they were told
        self._ends: list[tuple[ReplicaExited, Usage | None]] = []  # that are not told before
        self._is_looking = False

    def _link(self, name: str) -> Link:
        host = next(each for each in self._hosts.all if each.name == name)
        bring = self._courier.bring
        return Link(
            host,
            self._hosts,
            hear=lambda frame: bring(self._hear, name, frame),
            rises=lambda facts: bring(self._rise, name, facts),
        )

    # ---------------------------------------------------------------- where

    def place(self, plan: Plan, attempt: int) -> tuple[Placement, Sequence[str]]:
        """Ask the hosts that answer for a place for everybody; raise MustWait if one has no room yet."""
        self._attempt = attempt
        placed, remarks = self._courier.ask(self._place(plan, attempt), _CONNECT_SECONDS + _PLACE_SECONDS)
        self._keep(attempt, placed)
        return placed.places, remarks

    def _keep(self, attempt: int, placed: Placed) -> None:
        write_placed(self._run_dir, attempt, placed)
        self._placed[attempt] = self._last = placed

    def placed(self, attempt: int) -> Placed | None:
        """Where an attempt was placed, by us or by an earlier supervisor."""
        if attempt not in self._placed and (found := read_placed(self._run_dir, attempt)):
            self._placed[attempt] = found
        return self._placed.get(attempt)

    async def _place(self, plan: Plan, attempt: int) -> tuple[Placed, list[str]]:
        seconds = min(_CONNECT_SECONDS, self._hosts.lost_seconds)
        rising = [link.rise(0 if name in self._lost else seconds) for name, link in self._links.items()]
        is_up = dict(zip(self._links, await asyncio.gather(*rising), strict=True))
        away = [name for name, up in is_up.items() if not up]
        facts = {name: link.facts for name, link in self._links.items() if is_up[name] and link.facts}
        if not facts:
            raise self._links[away[0]].trouble or EngineError(f"{away[0]} does not answer")
        rooms = {
            name: room_of(self._links[name].host, Room(each.cpus, each.memory_bytes, len(each.gpus)))
            for name, each in facts.items()
        }
        try:
            whose = assign(plan, rooms)
        except InputError as error:
            without = f", without {listed(away)}, which cannot be reached" if away else ""
            raise InputError(f"{error.message}{without}", hint=error.hint) from None
        remarks = [f"{listed(away)} cannot be reached: the line goes without"] if away else []
        parts = {}
        for host in sorted(set(whose.values())):  # in one order, so that no two runs wait for each other
            own = part(part_of(plan, self._links[host].host, whose), facts[host].base)
            ask = {"do": "place", "plan": plan_to_json(own), "attempt": attempt}
            try:
                answer = await self._links[host].ask(ask)
            except MustWait:
                self._waits_at = host, attempt
                raise
            parts[host] = places_from_data(answer["places"])
            remarks += [f"{host}: {remark}" for remark in answer["remarks"]]
        addresses = {name: self._links[name].host.address or facts[name].address for name in parts}
        return merge(parts, addresses), remarks

    # ---------------------------------------------------------------- orders

    def start(self, launches: Sequence[Launch]) -> None:
        """Have everybody started who has not been; the project is carried first to hosts that have not got it."""
        if not launches:
            return
        self._attempt = launches[0].attempt
        placed = self.placed(self._attempt) or self._last
        if placed is None:
            raise AssertionError("a line is placed before it is started")
        if self._attempt not in self._placed:
            self._keep(self._attempt, placed)
        self._secrets = _secrets(launches)
        lives = [Life(each.replica.id, each.attempt, each.incarnation) for each in launches]
        kept = self._lives.ask_for([(life, placed.hosts[life.replica]) for life in lives])
        new = []
        for each, launch in zip(kept, launches, strict=True):
            if each.end is None and each.launch is None:
                each.launch = launch
                new.append(each)
        for host, theirs in _grouped(new).items():
            if (host, self._attempt) in self._supplied or all(each.is_ordered for each in theirs):
                self._begin(host, theirs)
            else:
                self._courier.send(self._supply(host, placed, theirs))
        if self._fetching is None:
            warn = partial(self._courier.bring, self._warn)
            self._fetching = self._courier.send(self._luggage.follow(warn))
        self._look()

    def prepare(self, plan: Plan, life: Life) -> None:
        """Have a helper on every host that answers; told of as one."""
        plan = filled(plan, os.environ)
        up = self._courier.ask(self._answering(), 2 * _CONNECT_SECONDS)
        for host in self._helpers.begin(life, up):
            self._courier.send(self._make_ready(host, plan, life))
        self._look()

    async def _answering(self) -> list[str]:
        seconds = min(_CONNECT_SECONDS, self._hosts.lost_seconds)
        up = await asyncio.gather(*(link.rise(seconds) for link in self._links.values()))
        found = [name for name, is_up in zip(self._links, up, strict=True) if is_up]
        if not found:
            link = next(iter(self._links.values()))
            raise link.trouble or EngineError(f"{link.host.name} does not answer")
        return found

    async def _make_ready(self, host: str, plan: Plan, life: Life) -> None:
        """Over there: bring the project as soon as the host answers, then let a helper begin."""
        while self._helpers.waits(life, host):
            if not await self._links[host].rise(_PLACE_SECONDS):
                continue
            try:
                await self._luggage.deliver(host)
            except DrumlineError as error:
                if isinstance(error, AwayError) or not self._links[host].is_up:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._courier.bring(self._helpers.refuse, life, host, error.message)
            else:
                facts = self._links[host].facts
                self._courier.bring(self._help, life, host, plan_to_json(part(plan, facts.base if facts else "")))
            return

    def _help(self, life: Life, host: str, plan: str) -> None:
        if self._helpers.go(life, host, plan) and (carried := self._luggage.carried()):
            self._tell(carried)

    async def _supply(self, host: str, placed: Placed, lives: Sequence[Kept]) -> None:
        """Over there: bring the host all that it needs as soon as it answers, then begin."""
        link, attempt = self._links[host], lives[0].life.attempt
        places = {name: placed.places[replica] for replica, name in placed.hosts.items()}
        chief = placed.hosts.get(self._plan.chief or lives[0].life.replica, host)
        while any(each.end is None for each in lives):
            if not await link.rise(_PLACE_SECONDS):
                continue
            try:
                await self._luggage.supply(host, attempt, chief, places)
            except DrumlineError as error:
                if isinstance(error, AwayError) or not link.is_up:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._courier.bring(self._failed, lives, error.message)
            else:
                self._courier.bring(self._is_supplied, host, lives)
            return

    def _is_supplied(self, host: str, lives: Sequence[Kept]) -> None:
        attempt = lives[0].life.attempt
        self._supplied.add((host, attempt))
        placed = self._placed[attempt]
        if all((name, attempt) in self._supplied for name in placed.hosts.values()) and (
            carried := self._luggage.carried()
        ):
            self._tell(carried)
        self._begin(host, [each for each in lives if each.end is None])

    def _way(self, host: str) -> Way | None:
        """How a host is reached that answers."""
        link = self._links[host]
        return Way(link.shell, link.facts.base) if link.is_up and link.shell and link.facts else None

    def _warn(self, message: str) -> None:
        self._tell(EngineWarned(self._attempt, message))

    def _begin(self, host: str, lives: Iterable[Kept]) -> None:
        for each in lives:
            self._lives.order(each)
        self._order(host)

    def _failed(self, lives: Sequence[Kept], message: str) -> None:
        attempts = {each.life.attempt for each in lives if each.end is None}
        for each in lives:
            if each.end is None:
                self._lives.end(each, NEVER_STARTED, self._loop.now())
        for attempt in attempts:
            self._tell(EngineFailed(attempt, message))

    def stop(self, lives: Sequence[Life], grace_seconds: float) -> None:
        """Have these stopped; whoever is on no host ends unseen."""
        wanted = []
        for life in (each for each in lives if each.replica.is_helper):
            self._helpers.stop(life, grace_seconds)
        for life in (each for each in lives if not each.replica.is_helper):
            placed = self.placed(life.attempt)
            known = self._lives.get(life)
            host = known.host if known else placed.hosts.get(life.replica, "") if placed else ""
            wanted.append((life, host))
        hosts, kill_at = set(), self._loop.now() + max(0.0, grace_seconds)
        for kept in self._lives.ask_for(wanted):
            if kept.end is not None:
                continue
            if not kept.host or not kept.is_ordered:
                self._lives.end(kept, NEVER_STARTED, self._loop.now())
                continue
            kept.kill_at = kill_at if kept.kill_at is None or grace_seconds <= 0 else kept.kill_at
            hosts.add(kept.host)
        for host in hosts:
            self._order(host)
        self._look()

    def _order(self, host: str) -> None:
        """Tell a host everything that is wanted of it; if it does not answer, it is told when it does."""
        link = self._links[host]
        self._await(host)
        if not link.is_up:
            return
        messages = list(self._helpers.orders(host))
        starts = [each for each in self._lives.of(host) if each.launch and each.is_ordered and each.kill_at is None]
        for attempt, theirs in _by_attempt(starts).items():
            launches = [launch_to_data(each.launch, self._secrets) for each in theirs if each.launch]
            messages.append({"do": "start", "attempt": attempt, "launches": launches, "offsets": _offsets(theirs)})
        for (attempt, kill_at), stops in _stops(self._lives.of(host)).items():
            messages.append(_stop(stops, attempt, max(0.0, kill_at - self._loop.now())))
        for attempt, lost in _by_attempt(self._lives.lost_on(host)).items():
            messages.append(_stop(lost, attempt, 0.0))
        self._courier.send(self._tell_host(link, messages))

    async def _tell_host(self, link: Link, messages: Sequence[dict[str, Any]]) -> None:
        """Over there: tell a host something, and bring word when it has done it."""
        for message in messages:
            try:
                await link.ask(message)
            except AwayError:
                return  # it is told again when it answers
            except DrumlineError as error:
                self._courier.bring(self._tell, EngineFailed(message["attempt"], error.message))
        self._courier.bring(self._done, link.host.name)

    def _await(self, host: str) -> None:
        """Tell no end before this host has done what it is told: it may know of one that came before."""
        if host not in self._awaited:
            self._awaited[host] = self._loop.now()
            self._loop.call_later(_WORRY_SECONDS, partial(self._done, host))

    def _done(self, host: str) -> None:
        self._awaited.pop(host, None)
        if not self._awaited:
            ends, self._ends = sorted(self._ends, key=lambda each: each[0].at_seconds), []
            for event, usage in ends:
                self._end(event, usage)

    def _end(self, event: ReplicaExited, usage: Usage | None) -> None:
        """Tell an end; that the chief is done only when all that it wrote is here. What failed is told at once."""
        life = Life(event.replica, event.attempt, event.incarnation)
        known = self._lives.get(life)
        if event.replica == self._plan.chief and event.exit.ok and known and known.end is None:
            self._courier.send(self._collect(partial(self._lives.ended, event, usage)))
        else:
            self._lives.ended(event, usage)

    async def _collect(self, then: Callable[[], None]) -> None:
        """Over there: fetch what the chief has written, then go on; that it cannot be fetched changes no end."""
        try:
            await self._luggage.collect()
        except DrumlineError as error:
            self._courier.bring(self._warn, f"the output is not here: {error.message}")
        self._courier.bring(then)

    # ---------------------------------------------------------------- news

    def _rise(self, host: str, facts: Facts) -> None:
        del facts
        if host in self._worried:
            self._tell(EngineWarned(self._attempt, f"{host} answers again"))
        self._worried.discard(host)
        self._lost.discard(host)
        self._order(host)
        if self._waits_at and self._waits_at[0] == host:
            attempt, self._waits_at = self._waits_at[1], None
            self._tell(RoomFound(attempt))

    def _hear(self, host: str, frame: Frame) -> None:
        message = frame.message
        match message["do"]:
            case "log" | "file":
                self._lives.write(frame)
                self._helpers.write(host, frame)
            case "event":
                self._happen(host, event_from_data(message["event"]), message.get("usage"))

    def _happen(self, host: str, event: Event, usage: Any) -> None:
        facts = self._links[host].facts
        skew = facts.skew_seconds if facts else 0.0
        match event:
            case ReplicaStarted() if event.replica.is_helper:
                self._helpers.started(host, event)
            case ReplicaExited() if event.replica.is_helper:
                self._helpers.ended(host, event)
            case ReplicaStarted():
                self._lives.started(event)
            case ReplicaExited():
                used = usage_from_data(usage, skew) if usage else None
                self._ends.append((event._replace(at_seconds=event.at_seconds - skew), used))
                if not self._awaited:
                    self._done(host)
            case RoomFound() | AttemptDelayed():
                if isinstance(event, RoomFound):
                    self._waits_at = None
                self._tell(event)
            case EngineFailed() | EngineWarned():
                self._tell(event._replace(message=f"{host}: {event.message}"))
            case _:
                pass

    def _look(self) -> None:
        """See whether every host still answers, for as long as somebody is there."""
        if self._is_looking or not self._courier.is_open:
            return
        self._is_looking = True
        self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        for host, link in self._links.items():
            silent = 0.0 if link.is_up else self._loop.now() - link.heard_at
            if silent >= self._hosts.lost_seconds:
                self._lose(host, silent)
            elif silent >= _WORRY_SECONDS and host not in self._worried and self._lives.of(host):
                self._worried.add(host)
                why = f": {link.trouble.message}" if link.trouble else ""
                left = span(self._hosts.lost_seconds - silent, parts=1)
                words = f"{host} has not answered for {span(silent)}{why}; its replicas go on"
                self._tell(EngineWarned(self._attempt, f"{words}, and in {left} it counts as lost"))
        if any(each.end is None for each in self._lives) or any(self._helpers.folders()):
            self._look()

    def _lose(self, host: str, silent: float) -> None:
        self._lost.add(host)
        lease = self._hosts.lease_seconds
        ends = f"; whatever runs there ends by itself within {span(lease)}" if lease else ""
        words = f"the host {host} has not answered for {span(silent)}{ends}"
        self._helpers.lose(host, Exit(message=words, reason=HOST_LOST))
        if not self._lives.of(host):
            return
        self._worried.add(host)
        self._done(host)
        self._lives.lose(host, words)

    # ---------------------------------------------------------------- questions

    def usage(self, *, watched: bool) -> Iterator[Usage]:
        """What everybody uses, on hosts that answer at once; and what the ended have used."""
        for link, answer in self._ask_all({"do": "usage", "watched": watched}):
            skew = link.facts.skew_seconds if link.facts else 0.0
            yield from (usage_from_data(each, skew) for each in answer["usage"])
        yield from self._lives.used()

    def ask_all(self, what: str) -> Iterator[Any]:
        """What all hosts have to say about this, that answer at once."""
        for _, answer in self._ask_all({"do": what}):
            yield from answer[what]

    def _ask_all(self, message: dict[str, Any]) -> list[tuple[Link, dict[str, Any]]]:
        links = [self._links[name] for name in {each.host for each in self._lives if each.end is None and each.host}]
        links = [link for link in links if link.is_up and self._loop.now() - link.heard_at < _WORRY_SECONDS]

        async def ask(link: Link) -> tuple[Link, dict[str, Any]] | None:
            try:
                return link, await asyncio.wait_for(link.ask(message), _ANSWER_SECONDS)
            except (TimeoutError, DrumlineError):
                return None

        async def ask_all() -> list[tuple[Link, dict[str, Any]]]:
            return [each for each in await asyncio.gather(*map(ask, links)) if each]

        return self._courier.ask(ask_all(), 2 * _ANSWER_SECONDS) if links else []

    def stacks(self, lives: Sequence[Life], *, gently: bool, then: Callable[[], object]) -> None:
        """Have the stacks of these saved, and brought here."""
        known = [kept for life in lives if (kept := self._lives.get(life)) and kept.end is None]

        async def ask(host: str, theirs: Sequence[Kept]) -> None:
            message = {"do": "stacks", "attempt": theirs[0].life.attempt, "gently": gently}
            names = [life_to_data(each.life) for each in theirs]
            with suppress(TimeoutError, DrumlineError):  # who cannot be looked at has none
                await asyncio.wait_for(self._links[host].ask({**message, "lives": names}), _RELEASE_SECONDS)

        async def ask_all() -> None:
            await asyncio.gather(*(ask(host, theirs) for host, theirs in _grouped(known).items()))
            self._courier.bring(then)

        self._courier.send(ask_all())

    def traces(self) -> Iterator[Path]:
        """The folders into which logs come."""
        return chain(self._lives.traces(), self._helpers.folders())

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Have every host give back what was claimed and not started."""
        for link in self._links.values():
            if link.is_up:
                self._courier.send(_quietly(link.say({"do": "close"})))

    def release(self) -> None:
        """See that nothing of the run is left on any host that was ever used, and hang up."""
        if not self._courier.is_open:
            return
        used = {each.host for each in self._lives if each.host} | self._helpers.hosts()
        doubtful = {each.host for each in self._lives if each.is_lost}
        try:
            unreached = self._courier.ask(self._release(used), _COLLECT_SECONDS)
        except TimeoutError:
            unreached = sorted(used)
        unreached = [host for host in unreached if host in doubtful]
        (self._run_dir / UNREACHED).unlink(missing_ok=True)
        if unreached:
            (self._run_dir / UNREACHED).write_text("".join(f"{host}\n" for host in unreached))
            print(f"nobody could ask {listed(unreached)} whether anything is left there", file=sys.stderr)  # noqa: T201
        self._courier.close()

    async def _release(self, hosts: Iterable[str]) -> list[str]:
        if self._fetching:
            self._fetching.cancel()
        try:
            await self._luggage.collect()
        except DrumlineError as error:
            print(f"what the chief has written last is not here: {error.message}", file=sys.stderr)  # noqa: T201

        async def release(host: str) -> str | None:
            link = self._links[host]
            with suppress(TimeoutError, DrumlineError):
                if await link.rise(_WORRY_SECONDS):
                    await asyncio.wait_for(link.ask({"do": "release"}), _RELEASE_SECONDS)
                    return None
            return host

        return sorted(filter(None, await asyncio.gather(*map(release, hosts))))

    async def _hang_up(self) -> None:
        for link in self._links.values():
            if link.shell:
                await link.shell.close()


async def _quietly(errand: Coroutine[Any, Any, None]) -> None:
    with suppress(EngineError):  # who does not hear it has let go already
        await errand


def _grouped(lives: Iterable[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for each in lives:
        found.setdefault(each.host, []).append(each)
    return found


def _stops(lives: Iterable[Kept]) -> dict[tuple[int, float], list[Kept]]:
    found: dict[tuple[int, float], list[Kept]] = {}
    for each in lives:
        if each.kill_at is not None:
            found.setdefault((each.life.attempt, each.kill_at), []).append(each)
    return found


def _by_attempt(lives: Iterable[Kept]) -> dict[int, list[Kept]]:
    found: dict[int, list[Kept]] = {}
    for each in lives:
        found.setdefault(each.life.attempt, []).append(each)
    return found


def _stop(lives: Sequence[Kept], attempt: int, grace_seconds: float) -> dict[str, Any]:
    names = [life_to_data(each.life) for each in lives]
    return {"do": "stop", "lives": names, "attempt": attempt, "grace": grace_seconds, "offsets": _offsets(lives)}


def _offsets(lives: Iterable[Kept]) -> dict[str, int]:
    return {life_to_data(each.life): each.offset for each in lives}


def _secrets(launches: Iterable[Launch]) -> dict[str, str]:
    """The secrets of these, of this machine; raise EngineError for one that is not set."""
    names = {value.variable for each in launches for value in each.env.values() if isinstance(value, Secret)}
    for name in names:
        if not os.environ.get(name):
            raise EngineError(f"the secret {name} is not set", hint=f"set it where you launch: `export {name}=…`")
    return {name: os.environ[name] for name in names}
