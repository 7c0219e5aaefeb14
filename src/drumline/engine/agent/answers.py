"""The answers of an agent as types: one record for each kind of request, checked when the answer arrives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from drumline.engine.local.port_owners import PortOwner
from drumline.engine.untrusted import clean_text, load_record, require_path, require_within
from drumline.plan.types import Place, ReplicaId
from drumline.record import Record
from drumline.run.idle import WorkSample
from drumline.run.usage import Usage

T = TypeVar("T")

_FRAME = ("do", "id", "bytes")  # keys that belong to the frame of an answer
_MOST_BYTES = 1 << 62
MOST_PORT = 65_535
_MOST_CORES = 1 << 16
_MOST_GPUS = 1024
_MOST_WARNINGS = 100
_OWNER_CHARS = 200
_GPU = re.compile(r"[\w:./-]{1,100}", re.ASCII)
_VERSION = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}[\w+.-]{0,20}", re.ASCII)
_BOOT = re.compile(r"[\w-]{0,64}", re.ASCII)
_ADDRESS = re.compile(r"[\w.:%\[\]-]{1,100}", re.ASCII)


class Done(Record):
    """The request was carried out; the answer has no values."""


class FactsAnswer(Record):
    """Facts about a host: its resources and system."""

    base: str
    boot: str
    python: str
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...]
    executable: str
    free_bytes: int  # on the disk of the base folder
    is_writable: bool


class PackagesAnswer(Record):
    """The version of each requested package that is installed for a Python on the host."""

    packages: Mapping[str, str]


class ClockAnswer(Record):
    """The host's clocks: `now` is in seconds since its boot, `time` in seconds since 1970."""

    now: float
    time: float


class ListenAnswer(Record):
    """The ports on which the agent listens now, and the requested ports that were taken."""

    ports: tuple[int, ...]
    taken: tuple[int, ...]


class CallAnswer(Record):
    """Why the connection to each peer failed; "" for one that did not."""

    troubles: tuple[str, ...]


class FilesAnswer(Record):
    """The content of each file that was found, by its path."""

    found: Mapping[str, str]


class ReceiveAnswer(Record):
    """The answer to `receive`: hashes of contents that are missing in the folder or were damaged on their way.

    Without a manifest in the request, only `damaged` is set.
    """

    damaged: tuple[str, ...]
    folder: str = ""
    free_bytes: int = 0
    missing: tuple[str, ...] = ()
    written: int = 0


class PortsAnswer(Record):
    """The processes that listen on the requested ports."""

    owners: tuple[PortOwner, ...]


class PlaceAnswer(Record):
    """The place of each requested replica, by its id."""

    places: Mapping[str, Place]
    warnings: tuple[str, ...]


class UsageAnswer(Record):
    """The usage of each replica."""

    usage: tuple[Usage, ...]


class WorkSamplesAnswer(Record):
    """The work that each replica has done so far."""

    work_samples: tuple[WorkSample, ...]


class ReplicaSockets(Record):
    """The ports on which a replica listens, and the `host:port` of its connections."""

    replica: ReplicaId
    listening: tuple[int, ...]
    connected: tuple[str, ...]


class SocketsAnswer(Record):
    """The sockets of each replica."""

    sockets: tuple[ReplicaSockets, ...]


def read_answer(kind: type[T], message: Mapping[str, Any]) -> T:
    """Return an answer as a record of this kind; raise ValueError for another kind or values out of range."""
    data = {name: value for name, value in message.items() if name not in _FRAME}
    found = load_record(kind, data)
    match found:
        case FactsAnswer():
            _check_facts(found)
        case PlaceAnswer():
            for place in found.places.values():
                _check_place(place)
            require_within(len(found.warnings), 0, _MOST_WARNINGS)
        case ReceiveAnswer():
            require_path(found.folder or None)
            for number in (found.free_bytes, found.written):
                require_within(number, 0, _MOST_BYTES)
        case PortsAnswer():
            return found.replace(owners=tuple(map(_clean_owner, found.owners)))
        case SocketsAnswer():
            for each in found.sockets:
                _check_sockets(each)
    return found


def _check_facts(facts: FactsAnswer) -> None:
    require_path(facts.base)
    require_path(facts.executable)
    _require(_BOOT, facts.boot)
    _require(_VERSION, facts.python)
    _check_gpus(facts.gpus)


def _check_place(place: Place) -> None:
    """Check values that are used in the environments of other replicas, and in commands on the host."""
    require_within(place.port, 1, MOST_PORT)
    require_within(place.cores, 1, _MOST_CORES)
    folders = (place.workdir, place.output_dir, place.checkpoint_dir, *place.data_dirs)
    for path in (*folders, place.python_dir, place.environment, place.runtime):
        require_path(path)
    _check_gpus(place.gpus or ())
    if place.domain is not None or place.written:
        raise ValueError("a place with fields of another engine")


def _check_gpus(gpus: tuple[str, ...]) -> None:
    require_within(len(gpus), 0, _MOST_GPUS)
    for gpu in gpus:
        _require(_GPU, gpu)


def _check_sockets(sockets: ReplicaSockets) -> None:
    for port in sockets.listening:
        require_within(port, 1, MOST_PORT)
    for address in sockets.connected:
        _require(_ADDRESS, address)


def _clean_owner(owner: PortOwner) -> PortOwner:
    require_within(owner.port, 1, MOST_PORT)
    return owner.replace(
        user=clean_text(owner.user, _OWNER_CHARS),
        command=clean_text(owner.command, _OWNER_CHARS),
        replica=clean_text(owner.replica, _OWNER_CHARS),
        traces="",
    )


def _require(pattern: re.Pattern[str], text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"an answer with the invalid value {text[:100]!r}")
