"""Errors between this machine and an agent, and errors of an agent as they are raised on this machine."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from drumline.engine.protocol import MustWait
from drumline.engine.untrusted import clean_text
from drumline.errors import DrumlineError, EngineError, InputError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class UnreachableError(EngineError):
    """The host does not answer, or the connection to it broke; a retry may help."""


class RefusedError(EngineError):
    """The host or this machine refused the request; a retry does not help."""


class MalformedError(EngineError):
    """The host has sent a message that no agent sends: too long, invalid, or about replicas of other hosts."""

    def __init__(self, host: str, error: object) -> None:
        super().__init__(f"{host} has sent something that drumline does not send: {clean_text(str(error), 200)}")


def error_from_answer(
    host: str, answer: Mapping[str, Any], *, may_wait: bool = False, folder_hint: str = ""
) -> MustWait | DrumlineError:
    """Return the exception for an agent's error; a MustWait only with `may_wait`."""
    error, said, hint = answer.get("error"), answer.get("message", ""), answer.get("hint", "")
    path, number = answer.get("path", ""), answer.get("errno", 0)
    if not (isinstance(error, str) and all(isinstance(each, str) for each in (said, hint, path))):
        return MalformedError(host, "an error without a message")
    said, path = clean_text(said), clean_text(path)
    if error == "OSError" and path and number in _DISK_FULL:
        return EngineError(f"the disk of {host} is full: {path} cannot be written", hint=folder_hint)
    if error == "OSError" and path:
        return EngineError(f"{path} cannot be used on {host}: {said}")
    if error == "MustWait" and may_wait:
        return MustWait(f"{host}: {said}")
    kind = InputError if error == "InputError" else EngineError
    return kind(f"{host}: {said}", hint=clean_text(hint))
