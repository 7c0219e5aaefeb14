"""Only the claims of the run are shown and deleted; of the output of a command in a pod only the end is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from drumline.engine.kubernetes import names, output
from drumline.engine.kubernetes.output import ClusterOutput
from drumline.engine.output import RunOutput
from unit.engine.kubernetes.cluster_objects import plan_of

Json = dict[str, Any]
PLAN = plan_of("", options="output: {size: 1GiB}")
(NAME,) = names.created_claims(PLAN)


class Server:
    """A server with one claim, which it deletes only by the claim's uid."""

    namespace = "team"

    def __init__(self, claim: Json | None) -> None:
        self.claim = claim
        self.asked: list[tuple[str, str]] = []

    async def find(self, kind: str, name: str) -> Json | None:
        assert (kind, name) == ("PersistentVolumeClaim", NAME)
        return self.claim

    async def list(self, kind: str) -> list[Json]:
        assert kind == "PersistentVolumeClaim"
        return [self.claim] if self.claim else []

    async def delete(self, kind: str, name: str, *, uid: str = "") -> bool:
        self.asked.append((f"{kind}/{name}", uid))
        self.claim = None
        return True


def claim_of(run: str) -> Json:
    labels = {names.RUN: run}
    return {"metadata": {"name": NAME, "uid": "u1", "labels": labels}, "status": {"capacity": {"storage": "1Gi\n\x1b"}}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Server:
    made = Server(request.param)

    @asynccontextmanager
    async def open_api(*_: object, **__: object) -> AsyncIterator[Server]:
        yield made

    monkeypatch.setattr(output, "open_api", open_api)
    return made


def cluster_output() -> ClusterOutput:
    return ClusterOutput(cast("RunOutput", type("RunOutput", (), {"plan": PLAN})()))


@pytest.mark.parametrize("server", [claim_of(names.base(PLAN))], indirect=True)
def test_a_claim_of_the_run_is_deleted_by_its_uid(server: Server) -> None:
    (found,) = cluster_output().volumes()
    assert "1Gi" in found.words
    assert found.words.isprintable()
    cluster_output().remove([NAME])
    assert server.asked == [(f"PersistentVolumeClaim/{NAME}", "u1")]


@pytest.mark.parametrize("server", [claim_of("another-run"), claim_of(""), None], indirect=True)
def test_a_claim_of_another_user_with_the_same_name_is_neither_shown_nor_deleted(server: Server) -> None:
    assert cluster_output().volumes() == []
    cluster_output().remove([NAME])
    assert server.asked == []


def test_only_the_end_of_the_output_of_a_command_is_kept() -> None:
    said = bytearray()

    async def say() -> None:
        write = output._into(said)
        for _ in range(1000):
            await write(b"x" * (1 << 16))
        await write(b"\nno space left\x1b[2J\n")

    asyncio.run(say())
    assert len(said) <= 16 << 10
    assert output._last(said) == "no space left\\x1b[2J"
