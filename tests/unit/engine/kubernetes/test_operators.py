"""The one object of an operator, against an API server that plays: whose it is when two supervisors ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.objects import RunObjects
from drumline.engine.kubernetes.operators import Operator
from drumline.engine.kubernetes.ownership import Ownership
from unit.engine.kubernetes.cluster_objects import objects_of, plan_of

Json = dict[str, Any]
PLAN = plan_of("roles: {worker: 2}", "jobset")
NAME = names.service(PLAN)


def jobset(uid: str, attempt: int) -> Json:
    return {"metadata": {"name": NAME, "uid": uid, "labels": {names.ATTEMPT: str(attempt)}}}


class Server:
    """Has one JobSet at most, with a Job and a Service; `after_look` happens when its JobSets were first asked for."""

    def __init__(self, there: Json | None, after_look: Callable[[Server], None] = lambda _: None) -> None:
        self.there = there
        self.made: list[Json] = []
        self._after_look = after_look

    async def list(self, kind: str, selector: str | None = None, *, fields: str = "") -> list[Json]:
        del selector, fields
        found = [self.there] if self.there else []
        if kind == "JobSet":
            look, self._after_look = self._after_look, lambda _: None
            look(self)
        return found

    async def delete(self, kind: str, name: str, *, uid: str = "") -> bool:
        assert (kind, name) == ("JobSet", NAME)
        if self.there is None or (uid and self.there["metadata"]["uid"] != uid):
            return False
        self.there = None
        return True

    async def read(self, kind: str, name: str) -> Json:
        assert (kind, name) == ("JobSet", NAME)
        assert self.there
        return self.there

    async def create(self, objects: Sequence[Json], is_wanted: Callable[[Json], bool]) -> None:
        """As Orders does: what is there already stays as it is."""
        del is_wanted
        if self.there is None:
            self.made = [*objects]
            self.there = jobset("new", 0)


def start(server: Server, attempt: int) -> None:
    operator = Operator(cast("Api", server), cast("RunObjects", server), cast("Ownership", server), PLAN)
    asyncio.run(operator.start(attempt, objects_of(PLAN, attempt)))


def attempts_made(server: Server) -> list[str]:
    """The attempt of each JobSet that was made."""
    return [each["metadata"]["labels"][names.ATTEMPT] for each in server.made if each["kind"] == "JobSet"]


def test_a_jobset_is_made_where_there_is_none() -> None:
    server = Server(None)
    start(server, 0)
    assert attempts_made(server) == ["0"]


def test_a_jobset_that_somebody_asked_for_a_moment_ago_is_the_one() -> None:
    server = Server(None, lambda server: setattr(server, "there", jobset("theirs", 0)))
    start(server, 0)
    assert server.there == jobset("theirs", 0)
    assert server.made == []


def test_a_jobset_of_another_attempt_makes_room_whichever_that_is() -> None:
    server = Server(jobset("theirs", 1000))
    start(server, 1)
    assert server.there == jobset("new", 0)
    assert attempts_made(server) == ["1"]


def test_a_jobset_of_an_attempt_before_that_is_over_makes_room() -> None:
    over = {"conditions": [{"type": "Failed", "status": "True"}]}
    server = Server({**jobset("old", 0), "status": over})
    start(server, 1)
    assert server.there == jobset("new", 0)
    assert attempts_made(server) == ["1"]
