"""This machine: every replica is a process beside the others, told apart by its port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drumline.engine.local.place import place
from drumline.engine.local.render import render
from drumline.engine.protocol import Capabilities, Engine, Site
from drumline.plan.types import Launch, Placement, Plan

# Linux passes no longer string to a process (MAX_ARG_STRLEN), name and `=` counted.
LONGEST_VARIABLE_BYTES = 131_071


class LocalEngine:
    """Runs a line as processes of this machine."""

    capabilities = Capabilities(forms=("shell", "json", "yaml"))

    def __init__(self, site: Site) -> None:
        self._site = site

    def place(self, plan: Plan) -> Placement:
        """Give every replica a port of its own, free at this moment unless the spec names it."""
        return place(plan, self._site)

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write a script that starts any one replica by hand, or the same as data."""
        return render(plan, launches, form, self._site)

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Refuse variables that no process can be given."""
        for name, value in launches[0].env.items() if launches else ():
            length = len(str(value).encode()) + len(name) + 1
            if length > LONGEST_VARIABLE_BYTES:
                yield (
                    f"{name} of {launches[0].replica.id} has {length:,} bytes, more than the {LONGEST_VARIABLE_BYTES:,}"
                    f" that Linux passes to a process: {len(launches):,} replicas cannot start here"
                )


def make_engine(site: Site) -> Engine:
    """Return the engine for this machine."""
    return LocalEngine(site)
