"""Messages from the hosts of a run, in one queue, which the session reads."""

from __future__ import annotations

import asyncio

from drumline.engine.ssh.reports import Report
from drumline.record import Record


class Connected(Record):
    """The agent of a host has connected, for the first time or again."""

    host: str


class Received(Record):
    """An agent has sent a report."""

    host: str
    report: Report


class Prepared(Record):
    """A host that connected late has run the helpers that it missed, or cannot run them, with a warning."""

    host: str
    warning: str = ""


Message = Connected | Received | Prepared
Inbox = asyncio.Queue[Message]
