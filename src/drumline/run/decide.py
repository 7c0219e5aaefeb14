"""Decide what the exit of a replica means for its run. The result does not depend on the order of the reports."""

from __future__ import annotations

from drumline.plan.types import Plan
from drumline.run.event import ReplicaExited
from drumline.run.failure import describe_exit, reason_of
from drumline.run.restart_unit import exit_of_stopped, forgive_exit
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from drumline.run.success import can_fail_run, deciding_replicas, has_succeeded, needed_until_end
from drumline.run.verdict import ended_state, ending_on_request, find_cause, judge_exit


def decide_exit(plan: Plan, state: RunState, event: ReplicaExited, *, may_return: bool = True) -> RunState:
    """Return the state after an exit in an attempt without a decided ending; the exit may decide it.

    With `may_return` false, the replica is not restarted by itself.
    """
    name = event.replica
    if stopped := exit_of_stopped(plan, state, event):
        return stopped
    if event.exit.ok and not needed_until_end(name):
        state = state.with_replica(name, ended_state(event, Phase.FINISHED))
        if not has_succeeded(plan, state):
            return state
        last = max(state.replicas[each].at_seconds for each in deciding_replicas(plan))
        return state.replace(ending=Ending(Phase.FINISHED, at_seconds=last), lingering=True)
    if not can_fail_run(name):
        state = state.with_replica(name, ended_state(event, Phase.FAILED, reason_of(event.exit)))
        return state.with_warning(f"{name} failed ({describe_exit(event.exit)}); the training continues without it")
    if forgiven := forgive_exit(plan, state, event, may_return=may_return):
        return forgiven
    cause = find_cause(plan, state, event)
    reason = cause.reason if cause.replica == name else "Consequence"
    state = state.with_replica(name, ended_state(event, Phase.FAILED, reason))
    return state.replace(ending=Ending(Phase.FAILED, cause.reason, cause, event.at_seconds))


def decide_late_exit(plan: Plan, before: RunState, late: ReplicaExited) -> RunState:
    """Return the state after an exit that happened before the deciding exit, but was reported after it.

    A new supervisor receives exits in any order. The first exit decides, not the first report. A replica that finished
    before the user stopped the run counts as finished.
    """
    asked_at = before.ending.at_seconds if before.ending and before.ending.phase is Phase.KILLED else None
    ends = [late]
    replicas = dict(before.replicas)
    for name, each in before.replicas.items():
        if each.exit is not None and name not in before.forgiven:
            end = ReplicaExited(name, before.attempt, each.incarnation, each.exit, each.at_seconds, each.evidence)
            ends.append(end)
            replicas[name] = ReplicaState(Phase.RUNNING, each.incarnation)
    state = before.replace(ending=None, lingering=False).with_replicas(replicas)
    ends.sort(key=lambda end: end.at_seconds, reverse=True)
    while ends and state.ending is None and (asked_at is None or ends[-1].at_seconds < asked_at):
        state = decide_exit(plan, state, ends.pop(), may_return=False)
    if before.ending and asked_at is not None:
        ending = ending_on_request(state.ending or before.ending, asked_at, before.ending.reason)
        state = state.replace(ending=ending)
    if state.ending is None:  # the late exit does not change the decision
        state = state.replace(ending=before.ending)
    if state.ending is None:
        raise AssertionError("an exit is late only after the ending was decided")
    judged = {end.replica: judge_exit(state.ending, end) for end in ends}
    # Replicas that are being stopped already get no more time to end by themselves.
    return state.with_replicas({**state.replicas, **judged}).replace(lingering=state.lingering and before.lingering)
