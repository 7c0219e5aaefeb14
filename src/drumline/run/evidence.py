"""Read from the end of a log whether the replica failed by itself, or reports that a certain peer is gone.

The patterns match messages of TensorFlow, torch and JAX that were collected from real runs (tests/cascades). A replica
that only reports a peer is not the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from drumline.plan.types import ROLES, ReplicaId
from drumline.record import Record
from drumline.run.event import Evidence
from drumline.run.exception import Chain, find_raised, text_lines
from drumline.run.progress import Piece, read_piece
from drumline.words import clip

TAIL_BYTES = 1 << 16
_LONGEST = 200  # characters of an error; longer ones are clipped
_LAST_LINES = 120  # a report of a peer without an exception counts only in these last lines of a log

# The reported state of a peer, its description for users, and the pattern; more specific patterns come first.
_REPORTS = (
    ("silent", "a peer stopped sending heartbeats", r"stopped sending heartbeats|heartbeat timeout"),
    ("silent", "no answer to its heartbeats", r"Deadline Exceeded\s+RPC: /\S+/Heartbeat"),
    ("absent", "a barrier timed out", r"Barrier timed out|Barrier failed because|barrier has failed"),
    ("absent", "not all replicas came to the rendezvous", r"\d/\d+ clients joined|RegisterTask|Connect\(\) timed out"),
    ("absent", "no peer listened where it connected", r"timed out after \d+ms while trying to connect"),
    ("silent", "a barrier timed out", r"failed to pass monitoredBarrier|monitoredBarrier.{0,200}timed out"),
    ("silent", "timed out in a collective", r"Timed out waiting \d+ms for (?:send|recv) operation"),
    ("silent", "timed out in a collective", r"Watchdog caught collective operation timeout"),
    ("gone", "connection reset by peer", r"connection reset by peer"),
    ("gone", "connection closed by peer", r"connection closed by peer|NCCL communicator was aborted"),
    ("gone", "connection refused", r"connection refused|failed to connect to all addresses"),
    ("gone", "socket closed", r"socket closed|Broken pipe|ncclRemoteError"),
    ("gone", "its coordinator is gone", r"Failed to send RPC to coordination service"),
    ("gone", "another task died", r"distributed service detected fatal errors"),
    ("gone", "a collective was aborted", r"Collective ops is aborted by"),
)
# A text with none of these words has no report. They are searched before the patterns, since most logs have no report.
_WORDS = (
    "heartbeat", "barrier", "clients joined", "registertask", "timed out", "nccl", "watchdog", "connection ",
    "failed to connect", "socket closed", "broken pipe", "coordination service", "distributed service",
    "collective ops",
)  # fmt: skip
_PATTERNS = tuple((kind, words, re.compile(pattern, re.I | re.S)) for kind, words, pattern in _REPORTS)

_TASK = re.compile(r"(?:/job:(?P<job>\w+)/(?:replica:\d+/)?task:)?\b(?P<number>\d{1,9})\b")
_NAMED = (
    re.compile(r"unhealthy \(stopped sending heartbeats\):\n(?P<names>(?:(?:/job:\S+|\d+)\n)+)"),
    re.compile(r"Some timed out task names:\n(?P<names>(?:(?:/job:\S+|\d+)(?:\n|$))+)"),
    # Not a task that only passes on an error of another task.
    re.compile(r"remote target (?P<names>/job:\S+)(?! while calling \S+\n.*Collective ops is aborted by)"),
    re.compile(r"\bTask (?P<names>\d+) heartbeat timeout"),
    re.compile(r"\b[Rr]anks? (?P<names>\d+(?:, \d+)*) failed to pass monitoredBarrier"),
    re.compile(r"Error reported from (?P<names>/job:\S+):"),
)
_LISTED = re.compile(r"unhealthy \(stopped sending heartbeats\)|Some timed out task names")
_LEADER = re.compile(r"RPC: /\S*CoordinationService/Heartbeat|Failed to send RPC to coordination service")
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-f:]+\]|(?<![\w.-])[\w.-]++)(?::|, )(?P<port>\d{2,5})")


class Peers(Record):
    """The replicas to which ranks, addresses and the leader in a log of the replica `me` refer."""

    me: ReplicaId
    ranks: Sequence[ReplicaId] = ()
    addresses: Mapping[str, ReplicaId] = {}
    leader: ReplicaId | None = None


def read_evidence(tail: bytes, peers: Peers) -> Evidence | None:
    """Return the evidence that the end of a log has about the end of its replica; None if it has none."""
    lines = text_lines(tail)
    chain = closing_exception(lines)
    around = "\n".join(lines[-_LAST_LINES:])
    if chain is None or chain.is_fatal:
        if found := _peer_report(around):
            return Evidence(found[1], found[0], _named_peers(around, peers))
        return _own_error(chain) if chain else None
    found = _peer_report(chain.text)
    if found is None:
        return _own_error(chain)
    return Evidence(found[1], found[0], _named_peers(chain.text, peers) or _named_peers(around, peers))


def closing_exception(lines: Sequence[str]) -> Chain | None:
    """Return the exception that ended a script: the last one before the exceptions that were raised while it ended."""
    chains = find_raised(lines)
    raised = [chain for chain in chains if not chain.is_fatal]
    if not raised:
        return chains[-1] if chains else None
    last = raised.pop()
    while raised and last.last - raised[-1].last < _LAST_LINES and _peer_report(last.text):
        between = lines[raised[-1].last : last.last]
        if _peer_report(raised[-1].text) or any(
            read_piece(Piece(line, ends_line=True, is_whole=True)) for line in between
        ):
            break
        last = raised.pop()
    return last


def _own_error(chain: Chain) -> Evidence | None:
    """Return the exception as evidence; None for an abort, which has no message and may be a request for stacks."""
    said = chain.raised[-1].sentence if chain.raised[-1].text != "Fatal Python error: Aborted" else ""
    return Evidence(clip(said, _LONGEST)) if said else None


def _peer_report(text: str) -> tuple[str, str] | None:
    """Return the state of a peer that a text reports (`gone`, `silent` or `absent`), and its description for users."""
    lowered = text.lower()
    if not any(word in lowered for word in _WORDS):
        return None
    return next(((kind, words) for kind, words, pattern in _PATTERNS if pattern.search(text)), None)


def _named_peers(text: str, peers: Peers) -> tuple[ReplicaId, ...]:
    """Return the peers that a text names: by task, by rank, as the leader, or by address."""
    if peers.leader and _LEADER.search(text) and not _LISTED.search(text):
        return (peers.leader,) if peers.leader != peers.me else ()
    for pattern in _NAMED:
        named = [name for found in pattern.finditer(text) for name in _replicas(found["names"], peers)]
        if peers_named := tuple(dict.fromkeys(name for name in named if name != peers.me)):
            return peers_named
    spelled = (f"{found['host']}:{found['port']}" for found in _ADDRESS.finditer(text))
    known = (peers.addresses[address] for address in spelled if address in peers.addresses)
    return tuple(dict.fromkeys(name for name in known if name != peers.me))


def _replicas(text: str, peers: Peers) -> Iterator[ReplicaId]:
    """Yield the replicas with these TensorFlow tasks or ranks."""
    for found in _TASK.finditer(text):
        job, number = found["job"], int(found["number"])
        if job in ROLES:
            yield ReplicaId(job, number)
        elif number < len(peers.ranks):
            yield peers.ranks[number]
