"""A host that does not send what a chief has written holds up no end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.engine.ssh import errands
from drumline.engine.ssh.errands import Errands


class Luggage:
    """Output that takes as long as a test likes."""

    def __init__(self, shell: Any, *, rate_bytes: int, looks: int) -> None:
        self._shell = shell
        self._rate_bytes = rate_bytes
        self._looks = looks

    async def collect(self) -> None:
        for _ in range(self._looks):
            await asyncio.sleep(0.05)
            self._shell.received_bytes += self._rate_bytes


def collect(monkeypatch: pytest.MonkeyPatch, *, rate_bytes: int, looks: int) -> list[object]:
    monkeypatch.setattr(errands, "_STALLED_SECONDS", 0.1)
    shell = SimpleNamespace(received_bytes=0)
    links = cast("Any", {"h1": SimpleNamespace(shell=shell)})
    told: list[object] = []
    luggage = cast("Any", Luggage(shell, rate_bytes=rate_bytes, looks=looks))
    sent = Errands(links, luggage)
    asyncio.run(asyncio.wait_for(sent.collect(told.append, lambda: told.append("ended")), 10))
    return told


@pytest.mark.parametrize("rate_bytes", [0, 1])
def test_an_end_is_told_when_its_host_sends_nothing_or_a_byte_now_and_then(
    monkeypatch: pytest.MonkeyPatch, rate_bytes: int
) -> None:
    warning, end = collect(monkeypatch, rate_bytes=rate_bytes, looks=1_000_000)
    assert "has sent next to nothing" in str(warning)
    assert end == "ended"


def test_a_large_output_is_waited_for_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collect(monkeypatch, rate_bytes=1 << 20, looks=20) == ["ended"]


def test_hosts_are_released_in_time_while_one_sends_its_output_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "_STALLED_SECONDS", 0.1)
    asked: list[object] = []

    class Host:
        shell = SimpleNamespace(received_bytes=0)

        async def rise(self, _seconds: float) -> bool:
            return True

        async def ask(self, message: dict[str, object], _kind: object) -> None:
            asked.append(message["do"])

    links = {"h1": Host(), "h2": Host()}
    luggage = cast("Any", Luggage(Host.shell, rate_bytes=1 << 20, looks=1_000_000))
    sent = Errands(cast("Any", links), luggage)
    assert asyncio.run(asyncio.wait_for(sent.release(links, 0.3), 30)) == ["h1", "h2"]
    assert asked == ["release", "release"]
