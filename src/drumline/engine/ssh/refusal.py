"""What goes wrong on the way to a host, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumline.engine.protocol import MustWait
from drumline.engine.untrusted import clean_text
from drumline.errors import DrumlineError, EngineError, InputError


class AwayError(EngineError):
    """The host does not answer, or the connection to it broke; it may be worth trying again."""


class RefusedError(EngineError):
    """The host, or we, said no; trying again changes nothing."""


class MalformedError(EngineError):
    """The host has sent what no agent of ours sends: too much, in another form, or about replicas of other hosts."""

    def __init__(self, host: str, error: object) -> None:
        super().__init__(f"{host} has sent something that drumline does not send: {clean_text(str(error), 200)}")


def raised(host: str, answer: Mapping[str, Any], *, may_wait: bool = False) -> MustWait | DrumlineError:
    """Return what went wrong on a host as it is raised here; `may_wait`: it was asked for something to wait for."""
    error, said, hint = answer.get("error"), answer.get("message", ""), answer.get("hint", "")
    if not (isinstance(error, str) and isinstance(said, str) and isinstance(hint, str)):
        return MalformedError(host, "an error without a message")
    message = f"{host}: {clean_text(said)}"
    if error == "MustWait" and may_wait:
        return MustWait(message)
    kind = InputError if error == "InputError" else EngineError
    return kind(message, hint=clean_text(hint))
