"""What comes from the hosts of a run: one stream of messages, which the session reads."""

from __future__ import annotations

import asyncio

from drumline.engine.ssh.reports import Report
from drumline.record import Record


class Connected(Record):
    """An agent answers on a host, perhaps again."""

    host: str


class Received(Record):
    """An agent has sent a report."""

    host: str
    report: Report


class Prepared(Record):
    """A host that was away at first has run the helpers it missed, or it cannot, as the warning says."""

    host: str
    warning: str = ""


Message = Connected | Received | Prepared
Inbox = asyncio.Queue[Message]
