"""Requests to an API server, and answers with errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from drumline.engine.kubernetes.api import Api, Change, open_api
from drumline.engine.kubernetes.api_errors import RefusedError, UnreachableError
from drumline.engine.ports import claim_port
from drumline.errors import EngineError
from integration.kubernetes.server import (
    Answer,
    Request,
    Respond,
    changes,
    listing,
    pod,
    run,
    serve,
    status,
    write_kubeconfig,
)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that selects the server on a port as the current context."""
    return lambda port: monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "config", port)))


@pytest.fixture
def port() -> Iterator[int]:
    """Reserve a port, also while no process listens on it."""
    claim = next(filter(None, map(claim_port, range(30_000, 31_000))))
    yield claim.port
    claim.close()


@asynccontextmanager
async def asking(at: Callable[[int], None], respond: Respond, *, timeout_seconds: float = 30) -> AsyncIterator[Api]:
    async with serve(respond) as port:
        at(port)
        async with open_api(timeout_seconds=timeout_seconds) as api:
            yield api


def in_turn(*answers: Answer, asked: list[Request] | None = None) -> Respond:
    """Return the answers one after the other, and the last one repeatedly."""
    left = list(answers)

    def respond(request: Request) -> Answer:
        if asked is not None:
            asked.append(request)
        return left.pop(0) if len(left) > 1 else left[0]

    return respond


async def seen(api: Api, number: int) -> list[Change]:
    found = []
    async for change in api.watch("Pod"):
        found.append(change)
        if len(found) == number:
            break
    return found


def names(found: list[Change]) -> list[tuple[str, list[str]]]:
    return [(change.what, [each["metadata"]["name"] for each in change.objects]) for change in found]


def test_a_watch_continues_where_it_was_cut(at: Callable[[int], None]) -> None:
    asked: list[Request] = []
    respond = in_turn(
        listing(5, pod("a", 3)),
        changes(("ADDED", pod("b", 6))),
        changes(("BOOKMARK", pod("", 8)), ("MODIFIED", pod("b", 9)), is_cut=False),
        changes(("DELETED", pod("b", 10))),
        asked=asked,
    )

    async def test() -> None:
        async with asking(at, respond) as api:
            assert names(await seen(api, 4)) == [
                ("LISTED", ["a"]),
                ("ADDED", ["b"]),
                ("MODIFIED", ["b"]),
                ("DELETED", ["b"]),
            ]

    run(test())
    assert [each.params.get("resourceVersion") for each in asked] == [None, "5", "6", "9"]


@pytest.mark.parametrize("at_once", [True, False], ids=["as an answer", "as an event"])
def test_an_expired_watch_lists_all_objects_again(at: Callable[[int], None], *, at_once: bool) -> None:
    gone = status(410, "Expired", "too old resource version")
    assert gone.body
    respond = in_turn(
        listing(5, pod("a", 3)),
        gone if at_once else changes(("ERROR", gone.body), is_cut=False),
        listing(90, pod("b", 70)),
        changes(("MODIFIED", pod("b", 91))),
    )

    async def test() -> None:
        async with asking(at, respond) as api:
            assert names(await seen(api, 3)) == [("LISTED", ["a"]), ("LISTED", ["b"]), ("MODIFIED", ["b"])]

    run(test())


def test_a_watch_waits_for_an_unavailable_server(at: Callable[[int], None], port: int) -> None:
    async def test() -> None:
        async with AsyncExitStack() as hall:
            async with serve(in_turn(listing(5), changes(("ADDED", pod("a", 6)))), port):
                at(port)
                api = await hall.enter_async_context(open_api(timeout_seconds=0))
                watch = api.watch("Pod")
                before = [await anext(watch), await anext(watch)]
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.wait([waiting], timeout=0.5)  # no server is there
            assert not waiting.done()
            async with serve(in_turn(changes(("ADDED", pod("b", 7)))), port):
                assert names([*before, await waiting]) == [("LISTED", []), ("ADDED", ["a"]), ("ADDED", ["b"])]

    run(test())


def test_a_request_to_a_busy_server_is_repeated(at: Callable[[int], None]) -> None:
    asked: list[Request] = []
    busy = status(429, "TooManyRequests", "slow down")._replace(headers=("Retry-After: 0",))
    broken = status(500, "InternalError", "etcd is away")
    respond = in_turn(busy, broken, Answer(is_cut=True, lines=()), Answer(body={"kind": "Pod"}), asked=asked)

    async def test() -> None:
        async with asking(at, respond) as api:
            assert await api.read("Pod", "a") == {"kind": "Pod"}

    run(test())
    assert len(asked) == 4


def test_a_request_is_repeated_only_until_the_timeout(at: Callable[[int], None]) -> None:
    async def test() -> None:
        async with asking(at, in_turn(status(503, "", "not yet")), timeout_seconds=0.3) as api:
            with pytest.raises(UnreachableError, match="cannot serve the request now: not yet"):
                await api.read("Pod", "a")

    run(test())


def test_a_server_that_does_not_answer_is_named_with_its_address(at: Callable[[int], None], port: int) -> None:
    async def test() -> None:
        at(port)
        async with open_api(timeout_seconds=0) as api:
            with pytest.raises(
                UnreachableError, match=rf"http://127.0.0.1:{port} \(context `here`\) cannot be reached"
            ):
                await api.list("Pod")

    run(test())


def test_creating_an_existing_object_returns_it(at: Callable[[int], None]) -> None:
    there = pod("a", 7)
    respond = in_turn(status(409, "AlreadyExists", 'pods "a" already exists', kind="pods"), Answer(body=there))

    async def test() -> None:
        async with asking(at, respond) as api:
            assert await api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}) == there

    run(test())


def test_a_deletion_names_the_object_and_its_grace(at: Callable[[int], None]) -> None:
    asked: list[Request] = []

    async def test() -> None:
        async with asking(at, in_turn(Answer(), status(404, "NotFound", "", kind="pods"), asked=asked)) as api:
            assert await api.delete("Pod", "a", grace_seconds=7.4, uid="u1")
            assert not await api.delete("Pod", "a")

    run(test())
    assert asked[0].method == "DELETE"
    body = json.loads(asked[0].body)
    assert (body["gracePeriodSeconds"], body["preconditions"]) == (7, {"uid": "u1"})


def test_an_object_that_changes_while_it_is_deleted_is_deleted(at: Callable[[int], None]) -> None:
    conflict = status(409, "Conflict", "the object has been modified", kind="pods")
    precondition = "Precondition failed: UID in precondition: u1, UID in object meta: u2"
    another = status(409, "Conflict", precondition, kind="pods")

    async def test() -> None:
        async with asking(at, in_turn(conflict, Answer(), conflict, Answer(), another)) as api:
            assert await api.delete("Pod", "a")
            assert await api.delete("Pod", "a", uid="u1")
            assert not await api.delete("Pod", "a", uid="u1")  # another object has the name by now

    run(test())


def test_a_long_list_is_read_page_by_page(at: Callable[[int], None]) -> None:
    first = listing(5, pod("a", 1))
    assert first.body
    first.body["metadata"]["continue"] = "more"

    async def test() -> None:
        async with asking(at, in_turn(first, listing(5, pod("b", 2)))) as api:
            assert [each["metadata"]["name"] for each in await api.list("Pod")] == ["a", "b"]

    run(test())


REFUSALS = {
    "no credentials": (
        status(401, "Unauthorized", "Unauthorized"),
        "does not accept the credentials of the context `here`",
        "kubectl auth whoami",
    ),
    "no role": (
        status(
            403,
            "Forbidden",
            'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "team"',
        ),
        "`ann` may not list pods in the namespace `team`",
        "kubectl auth can-i list pods -n team",
    ),
    "no quota": (
        status(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2'),
        "the quota of the namespace `team` is used up: .* requested: pods=1",
        "kubectl describe quota -n team",
    ),
    "no namespace": (
        status(404, "NotFound", 'namespaces "team" not found', kind="namespaces", name="team"),
        "there is no namespace `team`",
        "kubectl create namespace team",
    ),
    "no operator": (
        Answer(404, {"message": "404 page not found"}),
        "does not support the request",
        "api-resources",
    ),
    "no sense": (status(422, "Invalid", "spec.x: Required value"), "refused to list Pods: spec.x: Required", ""),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_one_sentence_with_a_hint(case: str, at: Callable[[int], None]) -> None:
    answer, sentence, hint = REFUSALS[case]

    async def test() -> None:
        async with asking(at, in_turn(answer)) as api:
            with pytest.raises(RefusedError, match=sentence) as caught:
                await api.list("Pod")
            assert hint in caught.value.hint
            assert caught.value.exit_code == 3

    run(test())


def test_a_log_request_that_comes_before_the_node_knows_the_pod_can_be_repeated(at: Callable[[int], None]) -> None:
    async def read(answer: Answer) -> None:
        async with asking(at, in_turn(answer)) as api, api.pod_log("a", "replica") as chunks:
            _ = [chunk async for chunk in chunks]

    by_node = status(404, "NotFound", "the server could not find the requested resource ( pods/log a)", kind="pods/log")
    assert by_node.body
    by_node.body["details"]["causes"] = [{"reason": "UnexpectedServerResponse", "message": "pod does not exist"}]
    with pytest.raises(UnreachableError, match="could not find the requested resource"):
        run(read(by_node))
    with pytest.raises(RefusedError, match='pods "a" not found'):
        run(read(status(404, "NotFound", 'pods "a" not found', kind="pods")))


def test_a_namespace_that_the_user_may_not_read_is_assumed_to_exist(at: Callable[[int], None]) -> None:
    async def test() -> None:
        async with asking(at, in_turn(status(403, "Forbidden", "no"))) as api:
            await api.require_namespace()
        async with asking(at, in_turn(status(404, "NotFound", "no", kind="namespaces"))) as api:
            with pytest.raises(RefusedError, match="no namespace `team`"):
                await api.require_namespace()

    run(test())


def opened(context: str | None = None) -> str:
    """Return the server and namespace of a context, by default of the current one."""

    async def look() -> str:
        async with open_api(context) as api:
            return f"{api.where.server} {api.namespace}"

    return asyncio.run(look())


def test_a_context_is_chosen_by_its_name_over_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_kubeconfig(first, 1)
    second.write_text(write_kubeconfig(tmp_path / "x", 2).read_text().replace('"here"', '"there"'))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'missing'}:{second}")
    assert opened() == "http://127.0.0.1:1 team"
    assert opened("there") == "http://127.0.0.1:2 team"
    with pytest.raises(EngineError, match="no context `nowhere`") as caught:
        opened("nowhere")
    assert "here, there" in caught.value.hint


def test_a_missing_kubeconfig_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(EngineError, match="there is no kubeconfig"):
        opened()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match="which KUBECONFIG names"):
        opened()
    (tmp_path / "nothing").write_text("clusters: {")
    with pytest.raises(EngineError, match="cannot be used"):
        opened()


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
def test_the_token_is_read_from_the_output_of_the_configured_command(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Callable[[int], None]
) -> None:
    asked: list[Request] = []
    command = tmp_path / "token"
    command.write_text('#!/bin/sh\necho \'{"status": {"token": "fresh"}}\'\n')
    command.chmod(0o755)
    user = {"exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(command)}}

    async def test() -> None:
        async with serve(in_turn(Answer(), asked=asked)) as port:
            monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "config", port, user=user)))
            async with open_api() as api:
                await api.read("Pod", "a")
            command.unlink()
            async with open_api() as api:
                with pytest.raises(EngineError, match="credentials of the context `here` cannot be obtained"):
                    await api.read("Pod", "a")

    run(test())
    assert asked[0].headers["authorization"] == "Bearer fresh"
