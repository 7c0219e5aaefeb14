"""What goes wrong on the way to a host, in sentences that say what to do."""

from __future__ import annotations

from drumline.errors import EngineError


class AwayError(EngineError):
    """The host does not answer, or the connection to it broke; it may be worth trying again."""


class RefusedError(EngineError):
    """The host, or we, said no; trying again changes nothing."""
