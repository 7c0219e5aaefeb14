"""Limits of Linux for arguments and environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from drumline.plan.types import Launch, Shared

# The longest string that Linux passes to a process (MAX_ARG_STRLEN).
LONGEST_STRING_BYTES = 131_071


def too_long_arguments(launches: Sequence[Launch]) -> Iterator[str]:
    """Yield a message for each variable or argument that is too long, with the first replica that has it."""
    named = set()
    for launch in launches:
        for what, length in _strings(launch):
            if length > LONGEST_STRING_BYTES and what not in named:
                named.add(what)
                yield (
                    f"{what} of {launch.replica.id} has {length:,} bytes, more than the {LONGEST_STRING_BYTES:,}"
                    f" that Linux passes to a process: these {len(launches):,} replicas cannot start"
                )


def _strings(launch: Launch) -> Iterator[tuple[str, int]]:
    """Yield each string that the process gets, with its length in bytes."""
    for name, value in launch.env.items():
        length = value.length if isinstance(value, Shared) else len(os.fsencode(str(value)))
        yield name, len(name) + 1 + length
    for word in launch.replica.argv:
        yield "a word in the command", len(os.fsencode(word))
