"""What goes wrong on the way to a host, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumline.engine.protocol import MustWait
from drumline.errors import DrumlineError, EngineError, InputError


class AwayError(EngineError):
    """The host does not answer, or the connection to it broke; it may be worth trying again."""


class RefusedError(EngineError):
    """The host, or we, said no; trying again changes nothing."""


def raised(host: str, answer: Mapping[str, Any]) -> MustWait | DrumlineError:
    """What went wrong over there, as it is raised here."""
    message = f"{host}: {answer['message']}"
    if answer["error"] == "MustWait":
        return MustWait(message)
    kind = InputError if answer["error"] == "InputError" else EngineError
    return kind(message, hint=answer.get("hint", ""))
