"""The object of an operator, with a fake API server: two supervisors may create it at the same time."""

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
    """A server of at most one JobSet; `after_list` is called after its JobSets were first listed."""

    def __init__(self, existing: Json | None, after_list: Callable[[Server], None] = lambda _: None) -> None:
        self.existing = existing
        self.made: list[Json] = []
        self._after_list = after_list

    async def list(self, kind: str, selector: str | None = None, *, fields: str = "") -> list[Json]:
        del selector, fields
        found = [self.existing] if self.existing else []
        if kind == "JobSet":
            call, self._after_list = self._after_list, lambda _: None
            call(self)
        return found

    async def delete(self, kind: str, name: str, *, uid: str = "") -> bool:
        assert (kind, name) == ("JobSet", NAME)
        if self.existing is None or (uid and self.existing["metadata"]["uid"] != uid):
            return False
        self.existing = None
        return True

    async def read(self, kind: str, name: str) -> Json:
        assert (kind, name) == ("JobSet", NAME)
        assert self.existing
        return self.existing

    async def create(self, objects: Sequence[Json], is_wanted: Callable[[Json], bool]) -> None:
        """Create the objects unless there are some, as `RunObjects` does."""
        del is_wanted
        if self.existing is None:
            self.made = [*objects]
            self.existing = jobset("new", 0)


def start(server: Server, attempt: int) -> None:
    operator = Operator(cast("Api", server), cast("RunObjects", server), cast("Ownership", server), PLAN)
    asyncio.run(operator.start(attempt, objects_of(PLAN, attempt)))


def created_attempts(server: Server) -> list[str]:
    """Return the attempt of each JobSet that was created."""
    return [each["metadata"]["labels"][names.ATTEMPT] for each in server.made if each["kind"] == "JobSet"]


def test_a_jobset_is_created_if_there_is_none() -> None:
    server = Server(None)
    start(server, 0)
    assert created_attempts(server) == ["0"]


def test_a_jobset_that_another_supervisor_has_just_created_is_used() -> None:
    server = Server(None, lambda server: setattr(server, "existing", jobset("theirs", 0)))
    start(server, 0)
    assert server.existing == jobset("theirs", 0)
    assert server.made == []


def test_a_jobset_of_any_other_attempt_is_replaced() -> None:
    server = Server(jobset("theirs", 1000))
    start(server, 1)
    assert server.existing == jobset("new", 0)
    assert created_attempts(server) == ["1"]


def test_a_jobset_of_an_ended_attempt_is_replaced() -> None:
    over = {"conditions": [{"type": "Failed", "status": "True"}]}
    server = Server({**jobset("old", 0), "status": over})
    start(server, 1)
    assert server.existing == jobset("new", 0)
    assert created_attempts(server) == ["1"]
