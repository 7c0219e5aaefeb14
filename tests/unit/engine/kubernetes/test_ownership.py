"""Which objects belong to a run, with a fake API server that has similar objects of another user."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.api_errors import ApiLocation
from drumline.engine.kubernetes.controllers import PodControllers
from drumline.engine.kubernetes.manifests import owner
from drumline.engine.kubernetes.objects import WHOLE, RunObjects
from drumline.engine.kubernetes.ownership import NameTakenError, Ownership
from drumline.engine.kubernetes.ownership_record import MARK, RECORD, OwnershipRecord
from drumline.engine.kubernetes.project import PackedProject
from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId
from drumline.run.incarnation import Incarnation
from unit.engine.kubernetes.cluster_objects import objects_of, plan_of

Json = dict[str, Any]
PLAN = plan_of("roles: {worker: 2}")
BASE = names.base(PLAN)
WORKER = Incarnation(ReplicaId("worker", 0), 0, 0)


class Server:
    """A server that stores objects, each with a uid."""

    where = ApiLocation("here", "http://there", "team")
    namespace = "team"

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Json] = {}
        self.deleted: list[tuple[str, str, str]] = []
        self._number = 0

    def put(self, an_object: Json) -> Json:
        self._number += 1
        metadata = {**an_object["metadata"], "uid": f"u{self._number}", "resourceVersion": str(self._number)}
        made = {**an_object, "metadata": metadata}
        self.kept[made["kind"], metadata["name"]] = made
        return made

    async def create(self, an_object: Json) -> Json:
        return self.kept.get((an_object["kind"], an_object["metadata"]["name"])) or self.put(an_object)

    async def find(self, kind: str, name: str) -> Json | None:
        return self.kept.get((kind, name))

    async def list(self, kind: str, selector: str = "", *, fields: str = "") -> list[Json]:
        key, _, value = selector.partition("=")
        name = fields.removeprefix("metadata.name=")
        found = [each for (own, _), each in self.kept.items() if own == kind]
        found = [each for each in found if not key or (each["metadata"].get("labels") or {}).get(key) == value]
        return [
            {field: each[field] for field in each if field != "kind"}
            for each in found
            if not name or each["metadata"]["name"] == name
        ]

    async def delete(self, kind: str, name: str, *, uid: str = "", **_: object) -> bool:
        self.deleted.append((kind, name, uid))
        found = self.kept.get((kind, name))
        if not found or found["metadata"]["uid"] != uid:
            return False
        del self.kept[kind, name]
        return True

    async def patch(self, kind: str, name: str, change: Json) -> Json:
        metadata = self.kept[kind, name]["metadata"]
        metadata.setdefault("annotations", {}).update(change["metadata"]["annotations"])
        return self.kept[kind, name]


def ownership(server: Server, folder: Path, plan: Plan = PLAN) -> Ownership:
    return Ownership(cast("Api", server), plan, folder)


def job(incarnation: Incarnation = WORKER, plan: Plan = PLAN) -> Json:
    labels = names.labels_of(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation),
            "labels": labels,
        },
    }


def pod_of(made: Json, name: str = "", incarnation: Incarnation = WORKER, plan: Plan = PLAN) -> Json:
    """Return a pod as a controller makes it."""
    reference = {"kind": made["kind"], "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name or f"{made['metadata']['name']}-x7k2q",
            "labels": names.labels_of(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation),
            "ownerReferences": [{**reference, "controller": True}],
        },
    }


def play(test: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(Server())

    asyncio.run(run())


def test_a_pod_that_a_job_of_the_run_has_made_is_recognized_also_by_the_next_supervisor(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        pod = server.put(pod_of(await own.create(job())))
        assert await own.recognize(pod) == WORKER
        assert own.known_incarnation(pod) == WORKER
        assert await ownership(server, tmp_path).recognize(pod) == WORKER
        del server.kept[
            "Job", names.job(PLAN, WORKER.replica, WORKER.attempt, WORKER.incarnation)
        ]  # it is deleted before its pod
        assert await ownership(server, tmp_path).recognize(pod) == WORKER

    play(test)


def foreign_pods(made: Json) -> dict[str, Json]:
    """Return pods that another user can create, each with the labels of a replica."""
    own = pod_of(made)
    elsewhere = {**made, "metadata": {**made["metadata"], "uid": "u99"}}
    claimed = pod_of(made)
    claimed["metadata"]["ownerReferences"][0]["controller"] = "true"
    helper = pod_of(made)
    helper["metadata"]["labels"] = {**helper["metadata"]["labels"], names.ROLE: "unknown"}
    return {
        "no owner": {**own, "metadata": {**own["metadata"], "ownerReferences": None}},
        "owners that are no list": {**own, "metadata": {**own["metadata"], "ownerReferences": "x"}},
        "not its controller": claimed,
        "another uid": pod_of(elsewhere),
        "another name": pod_of(made, "worker-0"),
        "another replica's labels": pod_of(made, incarnation=WORKER.replace(replica=ReplicaId("worker", 1))),
        "another attempt's labels": pod_of(made, incarnation=WORKER.replace(attempt=1)),
        "a replica that is not planned": pod_of(made, incarnation=WORKER.replace(replica=ReplicaId("worker", 7))),
        "a role that is not planned": helper,
    }


@pytest.mark.parametrize("case", list(foreign_pods({"kind": "Job", "metadata": {"name": "x", "uid": "u"}})))
def test_a_foreign_pod_with_the_labels_of_a_replica_is_ignored(tmp_path: Path, case: str) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        made = await own.create(job())
        await own.create(job(WORKER.replace(replica=ReplicaId("worker", 1))))
        assert await own.recognize(server.put(foreign_pods(made)[case])) is None
        assert await own.recognize(server.put(pod_of(made))) == WORKER

    play(test)


def test_a_pod_that_a_job_has_adopted_is_not_mistaken_for_one_that_it_created(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        made = await own.create(job())
        first = server.put(pod_of(made))
        assert await own.recognize(first) == WORKER
        adopted = server.put(pod_of(made, f"{made['metadata']['name']}-00000"))
        assert await own.recognize(adopted) is None
        again = ownership(server, tmp_path)
        assert await again.recognize(adopted) is None  # though it comes first in a list
        assert await again.recognize(first) == WORKER

    play(test)


def test_a_recognized_pod_keeps_its_incarnation_when_its_labels_change(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        pod = server.put(pod_of(await own.create(job())))
        assert await own.recognize(pod) == WORKER
        pod["metadata"]["labels"] = names.labels_of(PLAN, ReplicaId("worker", 1), 0, 0)
        assert await own.recognize(pod) == WORKER

    play(test)


@pytest.mark.parametrize("value", ["x", "-1", "1e9", "٣", "9" * 5000, "", None, 3, ["0"]])
@pytest.mark.parametrize(
    "key", [names.INDEX, names.ATTEMPT, names.INCARNATION, names.FIRST_INDEX, names.RESTART_ATTEMPT]
)
def test_labels_that_are_no_numbers_give_no_incarnation(key: str, value: object) -> None:
    labels: Json = {**names.labels_of(PLAN, WORKER.replica, WORKER.attempt, WORKER.incarnation), key: value}
    if key == names.FIRST_INDEX:
        del labels[names.INDEX]
    found = names.incarnation_of(PLAN, {"labels": labels})
    assert found is None or value is None


@pytest.mark.parametrize("metadata", [{"labels": "x"}, {"labels": None}, {"annotations": []}, {"labels": {}}])
def test_labels_of_any_form_give_no_incarnation(metadata: Json) -> None:
    assert names.incarnation_of(PLAN, metadata) is None


def test_a_role_is_not_taken_from_an_annotation() -> None:
    labels = {names.RUN: BASE, names.INDEX: "0"}
    annotations = {names.ROLE: "../../../../.ssh"}
    assert names.incarnation_of(PLAN, {"labels": labels, "annotations": annotations}) is None


def test_an_object_that_another_user_created_first_is_refused_and_not_adopted(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        made = await own.create_owner(owner(PLAN))
        forged = own.mark({**job(WORKER.replace(attempt=1))})
        forged["metadata"]["annotations"][MARK] = made["metadata"]["annotations"][MARK]
        server.put(forged)  # with a reference to the owner, and a copied mark
        with pytest.raises(NameTakenError, match=r"a Job .*-r1 that this run has not created"):
            await own.create(job(WORKER.replace(attempt=1)))
        assert await own.list("Job") == []

    play(test)


def test_an_owner_that_another_user_created_after_the_run_had_ended_is_refused(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        copy = await own.create_owner(owner(PLAN))
        await own.delete_owner()
        copy["metadata"]["annotations"][WHOLE] = "2"
        server.put(copy)  # with a copied mark, and with foreign code
        orders = RunObjects(cast("Api", server), ownership(server, tmp_path), PLAN)
        with pytest.raises(NameTakenError, match=f"a ConfigMap {BASE} that this run has not created"):
            await orders.create_shared(PLAN, lambda _: pytest.fail("nothing must be created"))
        assert await orders.remove()
        assert ("ConfigMap", BASE) in server.kept

    play(test)


def test_the_mark_of_a_deleted_owner_is_not_accepted_for_the_next(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        old = await own.create(job())
        server.kept.clear()
        await own.create_owner(owner(PLAN))
        server.put(old)
        with pytest.raises(NameTakenError):
            await own.create(job())

    play(test)


def test_an_owner_with_an_unrecorded_creation_belongs_to_the_run(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        await ownership(server, tmp_path).create_owner(owner(PLAN))
        record = tmp_path / RECORD
        record.write_bytes(record.read_bytes().splitlines(keepends=True)[0] + b'{"owner": "u')
        found = await ownership(server, tmp_path).find_owner()
        assert found
        assert found["metadata"]["name"] == BASE

    play(test)


def test_two_supervisors_that_create_the_owner_at_the_same_time_use_the_same_one(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        first, second = ownership(server, tmp_path), ownership(server, tmp_path)
        assert await first.find_owner() is await second.find_owner() is None
        made = await first.create_owner(owner(PLAN))
        assert (await second.create_owner(owner(PLAN)))["metadata"]["uid"] == made["metadata"]["uid"]
        await first.create(job())
        await second.create(job())

    play(test)


def test_an_owner_that_appears_after_its_supervisor_was_killed_belongs_to_the_run(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        record = OwnershipRecord(tmp_path)
        record.renew()
        late = record.mark(owner(PLAN))
        own = ownership(server, tmp_path)
        assert await own.find_owner() is None
        server.put(late)
        assert (await own.create_owner(owner(PLAN)))["metadata"]["name"] == BASE

    play(test)


def test_a_run_that_an_older_drumline_started_is_continued(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        made = server.put(owner(PLAN))
        reference = {"kind": "ConfigMap", "name": BASE, "uid": made["metadata"]["uid"]}
        its = job()
        its["metadata"]["ownerReferences"] = [reference]
        pod = server.put(pod_of(server.put(its)))
        other = server.put(pod_of(server.put(job(WORKER.replace(attempt=1))), incarnation=WORKER.replace(attempt=1)))
        own = ownership(server, tmp_path)
        assert await own.recognize(pod) == WORKER
        assert await own.recognize(other) is None

    play(test)


def test_only_objects_of_the_run_are_removed_by_their_uid(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        orders = RunObjects(cast("Api", server), own, PLAN)
        code = PackedProject((b"project",), 1, 7, b"runtime")
        assert await orders.create_shared(PLAN, lambda _: code) == (2, code)
        assert await orders.create_shared(PLAN, lambda _: pytest.fail("nothing must be created")) == (2, None)
        server.kept = {("ConfigMap", BASE): server.kept["ConfigMap", BASE]}  # the cluster deletes the others with it
        for kind in ("Pod", "Job", "Service", "ConfigMap"):
            server.put({"kind": kind, "metadata": {"name": "theirs", "labels": names.labels(PLAN)}})
        assert await orders.remove()
        assert {name for _, name in server.kept} == {"theirs"}
        assert all(uid for _, _, uid in server.deleted)

    play(test)


def test_a_job_is_deleted_only_if_it_belongs_to_the_run(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        await own.create_owner(owner(PLAN))
        its = await own.create(job())
        server.put(job(WORKER.replace(attempt=1)))
        assert await own.delete("Job", names.job(PLAN, WORKER.replica, WORKER.attempt, WORKER.incarnation))
        assert not await own.delete("Job", names.job(PLAN, WORKER.replica, 1, WORKER.incarnation))
        assert server.deleted == [("Job", its["metadata"]["name"], its["metadata"]["uid"])]

    play(test)


def test_a_mark_of_parts_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        own = ownership(server, tmp_path)
        made = await own.create_owner(owner(PLAN))
        made["metadata"]["annotations"][WHOLE] = "9" * 5000
        with pytest.raises(EngineError, match="is not a number"):
            await RunObjects(cast("Api", server), own, PLAN).create_shared(
                PLAN, lambda _: pytest.fail("nothing must be created")
            )

    play(test)


@pytest.mark.parametrize("engine", ["jobset", "tfjob", "kubernetes"])
def test_pods_of_every_controller_are_recognized_by_their_names(tmp_path: Path, engine: str) -> None:
    plan = plan_of("roles: {worker: 3}", engine, options="jobs: indexed" if engine == "kubernetes" else "")
    incarnation = Incarnation(ReplicaId("worker", 2), 0, 0)
    kind, controller = PodControllers(plan).controller(incarnation)

    async def test(server: Server) -> None:
        own = ownership(server, tmp_path, plan)
        await own.create_owner(owner(plan))
        made = [await own.create(each) for each in objects_of(plan) if each["kind"] in ("Job", "JobSet", "TFJob")][-1]
        if engine == "jobset":
            metadata = {"name": controller, "labels": {names.JOBSET_NAME: names.service(plan)}}
            reference = {"kind": "JobSet", "uid": made["metadata"]["uid"], "controller": True}
            made = server.put({"kind": "Job", "metadata": {**metadata, "ownerReferences": [reference]}})
        assert (made["kind"], made["metadata"]["name"]) == (kind, controller)
        name = f"{controller}-worker-2" if engine == "tfjob" else f"{controller}-2-x7k2q"
        other = f"{controller}-worker-1" if engine == "tfjob" else f"{controller}-1-x7k2q"
        assert await own.recognize(server.put(pod_of(made, other, incarnation, plan))) is None
        assert await own.recognize(server.put(pod_of(made, name, incarnation, plan))) == incarnation

    play(test)


def test_the_record_is_readable_by_its_user_only_and_a_damaged_one_is_empty(tmp_path: Path) -> None:
    record = OwnershipRecord(tmp_path)
    record.renew()
    record.add_controller("u1", "Job", "a")
    assert stat.S_IMODE((tmp_path / RECORD).stat().st_mode) == 0o600
    assert OwnershipRecord(tmp_path).controllers == {"u1": ("Job", "a")}
    with (tmp_path / RECORD).open("ab") as file:
        file.write(b'[]\n"x"\n{"maker": 3}\n' + b"[" * 100 + b"\n{")
    assert OwnershipRecord(tmp_path).key == record.key


def test_a_key_is_never_part_of_an_object(tmp_path: Path) -> None:
    record = OwnershipRecord(tmp_path)
    record.renew()
    assert record.key not in json.dumps(record.mark(job()))
    assert record.has_mark(record.mark(job()))
    renamed = record.mark(job())
    renamed["metadata"]["name"] = "another"
    assert not record.has_mark(renamed)
