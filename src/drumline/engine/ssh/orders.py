"""What a host is told: everything that is wanted of it, as messages. Told twice, it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from drumline.engine.agent.launches import launch_to_data, life_to_data
from drumline.engine.ssh.replicas import HostReplica, HostReplicas

K = TypeVar("K")


def orders(lives: HostReplicas, host: str, environ: Mapping[str, str], now: float) -> list[dict[str, Any]]:
    """Whom a host is to start, and whom to stop and how soon; `environ` has the secrets of this machine."""
    wanted = [each for each in lives.of(host) if each.is_ordered]
    starts = [each for each in wanted if each.launch and each.kill_at is None]
    stops = [each for each in wanted if each.kill_at is not None]
    found = [_start(attempt, theirs, environ) for attempt, theirs in by(starts, lambda each: each.id.attempt).items()]
    for (attempt, kill_at), theirs in by(stops, lambda each: (each.id.attempt, each.kill_at)).items():
        found.append(_stop(attempt, theirs, max(0.0, (kill_at or 0.0) - now)))
    return found


def by(lives: Iterable[HostReplica], key: Callable[[HostReplica], K]) -> dict[K, list[HostReplica]]:
    """HostReplicas that have this in common, together."""
    found: dict[K, list[HostReplica]] = {}
    for each in lives:
        found.setdefault(key(each), []).append(each)
    return found


def _start(attempt: int, lives: Sequence[HostReplica], environ: Mapping[str, str]) -> dict[str, Any]:
    launches = [launch_to_data(each.launch, environ) for each in lives if each.launch]
    return {"do": "start", "attempt": attempt, "launches": launches, "offsets": _offsets(lives)}


def _stop(attempt: int, lives: Sequence[HostReplica], grace_seconds: float) -> dict[str, Any]:
    names = [life_to_data(each.id) for each in lives]
    return {"do": "stop", "lives": names, "attempt": attempt, "grace": grace_seconds, "offsets": _offsets(lives)}


def _offsets(lives: Iterable[HostReplica]) -> dict[str, int]:
    """How much of each log is here already."""
    return {life_to_data(each.id): each.offset for each in lives}
