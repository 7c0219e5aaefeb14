"""Histories of runs as text: events are read from text, and actions are described as text.

A scenario is a title, the words of a plan (see `gang`), and lines `EVENT [-> ACTIONS] [:: PHASE OF THE RUN]`. Without
an arrow, no action is expected. `= worker.0 FINISHED, ps.0 FINISHED RunOver` is the expected state of every replica.
`running` stands for all events up to the time from which a step may have been taken. An exit is an hour after the one
before unless `at` gives its time; `worker.0@1` is of attempt 1, `worker.0+1` of incarnation 1. `unseen` is an end
that was not observed, `oom` one by the out-of-memory killer, `exits 0 Evicted` one with a reason. `worker.0 waits: no
room` gives what a replica waits for, `worker.0 never starts: no image` why it can never start. `stop at 100` is a
stop request at that time; without a time it came before all ends. `start 0 worker.1+1` is an action that starts a
replica in its second incarnation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.run.action import Action, ChooseDelay, Finish, Prepare, Serve, SetTimer, Start, Stop, TakeStacks
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    DelayChosen,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    FirstStepTaken,
    GangHung,
    RendezvousFailed,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RoomFound,
    RunAccepted,
    StacksTaken,
    StopRequested,
    SummariesFound,
    SupervisorReturned,
    TensorBoardServed,
    TimerFired,
)
from drumline.run.failure import describe_exit
from drumline.run.fold import new_run
from scaffold.decisions import step
from scaffold.gangs import gang

_REPLICA = re.compile(
    r"(?P<replica>\w+\.\d+|build|prepare[\w-]*|tensorboard)(?:@(?P<attempt>\d+))?(?:\+(?P<incarnation>\d+))? "
    r"(?:(?P<what>starts|unseen|exits|signal)(?: (?P<number>\d+))?)(?P<oom> oom)?(?: (?P<reason>[A-Z]\w+))?"
    r"(?: at (?P<at>[\d.]+))?"
)
_WAITS = re.compile(r"(?P<replica>[\w.-]+)(?:\+(?P<incarnation>\d+))? (?P<how>waits|never starts):? ?(?P<for>.*)")


class Scenario(NamedTuple):
    """A title, a plan, and lines of events, each with its number in the file."""

    title: str
    plan: Plan
    lines: tuple[tuple[int, str], ...]


class ScenarioReplay:
    """The state of a run after the events so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = new_run(plan)
        self.events: list[Event] = []
        self._hours = 0

    def apply(self, words: str) -> str:
        """Apply the events that this text describes; return their actions as text."""
        done: list[Action] = []
        for event in self._events(words):
            self.events.append(event)
            self.state, actions = step(self.plan, self.state, event)
            done += actions
        return "" if words == "running" else "; ".join(map(describe_action, done))

    def describe_states(self) -> str:
        """Return the state of every replica as text."""
        return ", ".join(f"{name} {each.phase} {each.reason}".strip() for name, each in self.state.all_states.items())

    def _events(self, words: str) -> Iterator[Event]:
        attempt = self.state.attempt
        verb, _, rest = words.partition(" ")
        timer, _, other = rest.partition("@")
        match verb, rest:
            case "accepted", "":
                yield RunAccepted()
            case "placed", _:
                yield AttemptPlaced(int(rest or attempt), tuple("host:1" for _ in self.plan.replicas))
            case "delayed", _:
                yield AttemptDelayed(attempt, rest)
            case "room", _:
                yield RoomFound(int(rest or attempt))
            case "all", "start":
                yield from (ReplicaStarted(replica.id, attempt) for replica in self.plan.replicas)
            case "running", "":
                for part in ("accepted", "placed", "all start", "timer old"):
                    if not (part == "accepted" and self.events):
                        yield from self._events(part)
            case "returned", "":
                yield SupervisorReturned()
            case "stop" | "kill", _:
                yield StopRequested(force=verb == "kill", at_seconds=float(rest.removeprefix("at ") or 0))
            case "preempted", _:
                yield StopRequested(at_seconds=float(rest.removeprefix("at ") or 0), preempted=True)
            case "resumed", "":
                yield ResumeRequested()
            case "timer", _:
                yield TimerFired(timer, int(other or (0 if timer == "run" else attempt)))
            case "delay", _:
                yield DelayChosen(int(other or attempt), float(timer))
            case "engine", _:
                yield EngineFailed(attempt, rest)
            case "stepped", _:
                yield FirstStepTaken(int(rest or attempt), self.plan.replicas[0].id, 1, 0.0)
            case "hung", _:
                yield GangHung(attempt, rest or "no progress")
            case "no-rendezvous", _:
                yield RendezvousFailed(attempt, ReplicaId.parse(rest), f"{rest} does not listen")
            case "stacks-taken", _:  # `stacks-taken worker.1: is in sleep`, or `stacks-taken : cause unknown`
                name, _, message = rest.rpartition(":")
                yield StacksTaken(attempt, ReplicaId.parse(name) if name else None, message.strip())
            case "summaries", "":
                yield SummariesFound()
            case "served", _:
                yield TensorBoardServed(rest)
            case "warned", _:
                yield EngineWarned(attempt, rest)
            case _:
                yield self._replica_event(words)

    def _replica_event(self, words: str) -> Event:
        if waits := _WAITS.fullmatch(words):
            reason, incarnation = "Waiting" if waits["for"] else "", int(waits["incarnation"] or 0)
            fatal = waits["how"] == "never starts"
            replica = ReplicaId.parse(waits["replica"])
            return ReplicaWaits(replica, self.state.attempt, incarnation, reason, waits["for"], is_fatal=fatal)
        match = _REPLICA.fullmatch(words)
        assert match, f"unknown event `{words}`"
        replica = ReplicaId.parse(match["replica"])
        attempt = int(match["attempt"] or (0 if replica == TENSORBOARD else self.state.attempt))
        incarnation = int(match["incarnation"] or 0)
        if match["what"] == "starts":
            return ReplicaStarted(replica, attempt, incarnation)
        self._hours += 1
        number = int(match["number"] or 0)
        exit_ = {"exits": Exit(code=number), "signal": Exit(signal=number), "unseen": Exit()}[match["what"]]
        exit_ = exit_.replace(out_of_memory=bool(match["oom"]), reason=match["reason"] or "")
        return ReplicaExited(replica, attempt, incarnation, exit_, float(match["at"] or self._hours * 3600))


def describe_action(action: Action) -> str:
    """Return an action as text; a stop without grace is a `kill`."""
    match action:
        case Prepare():
            return f"prepare {_describe_incarnation(action.helper, action.incarnation)}"
        case Start():
            restarted = (_describe_incarnation(name, number) for name, number in action.incarnations.items())
            return " ".join((f"start {action.attempt}", *restarted))
        case Stop():
            stopped = (_describe_incarnation(each.replica, each.incarnation) for each in action.incarnations)
            return " ".join(("stop" if action.grace_seconds else "kill", *stopped))
        case TakeStacks():
            return " ".join(("stacks", *(str(each.replica) for each in action.incarnations)))
        case Serve():
            return "serve again" if action.incarnation else "serve"
        case SetTimer():
            return f"timer {action.timer} {action.seconds:g}"
        case ChooseDelay():
            return f"choose {action.about_seconds:g}"
        case Finish():
            ending = action.ending
            words = f"finish {ending.phase} {ending.reason}".strip()
            if ending.cause is None:
                return words
            return f"{words}: {ending.cause.replica or 'the run'}, {describe_exit(ending.cause.exit)}"


def _describe_incarnation(replica: ReplicaId, incarnation: int) -> str:
    return f"{replica}+{incarnation}" if incarnation else str(replica)


def read_scenarios(path: Path) -> list[Scenario]:
    """Return the scenarios of a file: `== title`, the plan, and lines of events; `#` begins a comment."""
    numbered = [
        (number, text.partition("#")[0].strip()) for number, text in enumerate(path.read_text().splitlines(), 1)
    ]
    numbered = [(number, text) for number, text in numbered if text]
    starts = [position for position, (_, text) in enumerate(numbered) if text.startswith("==")]
    scenarios = []
    for start, end in zip(starts, (*starts[1:], len(numbered)), strict=True):
        title, plan, *lines = numbered[start:end]
        scenarios.append(Scenario(title[1].removeprefix("==").strip(), gang(plan[1]), tuple(lines)))
    return scenarios
