"""A launch, as far as it comes before there is a command line.

Three things have to be loaded for it: what reads a spec, what looks after a run, and what reads arguments and shows
lines. The first is loaded here, the second meanwhile in the supervisor's own process, and the third when replicas are
about to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumline.load.load import Loaded, load
from drumline.load.typed import read_typed
from drumline.record import Record
from drumline.supervise.detach import Begun, hold_interrupts, launch, release_interrupts
from drumline.supervise.spare import Spare


class Early(Record):
    """How far a launch has come: a supervisor is there, its spec may have been read, and its run may have begun.

    From the moment that there is a run interrupts are held, until somebody is loaded who can say how to come back to
    it. `failed` is what came in between.
    """

    spare: Spare
    loaded: Loaded | None = None
    begun: Begun | None = None
    failed: Exception | None = None


def begin(words: Sequence[str], spare: Spare) -> Early:
    """Begin what `drumline train` with these words asks for, where they and the spec are plain enough."""
    typed = read_typed(words)
    if typed is None:
        return Early(spare)
    loaded = None
    try:
        loaded = load(typed.file, given=typed.given, name=typed.name, unique=True, complete=True)
        if loaded.plan.engine != "local" or not loaded.is_same_for_any_run:
            return Early(spare, loaded)
        hold_interrupts()
        plan = typed.applied(loaded.plan)
        begun = launch(plan, spec=loaded.data, directory=loaded.directory, spare=spare)
        return Early(spare, loaded, begun)
    except Exception as error:  # noqa: BLE001 - whoever knows how to say it is loaded only now
        release_interrupts()
        return Early(spare, loaded, failed=error)
