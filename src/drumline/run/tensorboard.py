"""TensorBoard beside a run: when it starts, and the state after its exit, which never ends the run."""

from __future__ import annotations

import re

from drumline.plan.types import TENSORBOARD, Plan
from drumline.run.event import Exit, ReplicaExited
from drumline.run.failure import describe_exit, reason_of
from drumline.run.state import Phase, RunState
from drumline.run.verdict import ended_state, judge_exit

# The exit code if TensorBoard is not installed and cannot be installed: EX_UNAVAILABLE of sysexits.h.
UNAVAILABLE_CODE = 69


def may_serve(state: RunState) -> bool:
    """Return whether TensorBoard may be started: once per run, and not while helpers prepare the run."""
    return not (state.tensorboard or state.ending or state.phase in (Phase.CREATED, Phase.BUILDING))


def tensorboard_exited(plan: Plan, state: RunState, event: ReplicaExited) -> RunState:
    """Return the state after the exit of TensorBoard, with a warning if it was not stopped."""
    state = state.replace(tensorboard_address="")
    if state.ending and not state.any_left:
        return state.with_helper(TENSORBOARD, judge_exit(state.ending, event))
    if event.exit.ok:
        return state.with_helper(TENSORBOARD, ended_state(event, Phase.FINISHED))
    state = state.with_helper(TENSORBOARD, ended_state(event, Phase.FAILED, reason_of(event.exit)))
    return state.with_warning(_describe(plan.run, event.exit))


def pythons(plan: Plan) -> tuple[str, ...]:
    """Return the interpreters that may have TensorBoard installed, for a run without an environment for it."""
    words = (replica.argv[0] for replica in plan.replicas if replica.id == plan.chief)
    own = (word for word in words if re.fullmatch(r"(.*/)?python[0-9.]*", word))
    return tuple(dict.fromkeys((*own, "python")))


def _describe(run: str, exit_: Exit) -> str:
    if exit_.code == UNAVAILABLE_CODE:
        return (
            "TensorBoard is not installed and could not be; the training continues without it: `pip install"
            " tensorboard` where the training runs, or set `tensorboard: false`;"
            f" `drumline logs {run}.tensorboard` shows more"
        )
    return (
        f"TensorBoard failed ({describe_exit(exit_)}); the training continues without it:"
        f" `drumline logs {run}.tensorboard` shows why"
    )
