"""The meaning of pod statuses, from statuses and events that were collected from a real cluster (`data`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumline.engine.kubernetes.answer_fields import seconds_of
from drumline.engine.kubernetes.pod_status import PodEnded, PodRunning, PodStatus, read_pod_status
from drumline.engine.kubernetes.wait_reason import PodEvent, PodWaiting, read_event
from drumline.run.event import Exit
from drumline.run.failure import describe_exit, failed_by_itself, failure_class, reason_of
from drumline.spec.quantity import parse_quantity

DATA = Path(__file__).parent / "data"
SEEN = [json.loads(line) for line in (DATA / "pods.jsonl").read_text().splitlines()]
EVENTS = [json.loads(line) for line in (DATA / "events.jsonl").read_text().splitlines()]
NOW = seconds_of("2026-11-15T20:50:00Z") or 0.0


def states(case: str, *, now: float = NOW, asked: bool = False, trouble: PodWaiting | None = None) -> list[PodStatus]:
    """Return the state of a pod after each of its changes."""
    return [
        read_pod_status(each["pod"], now=now, deleted=each["type"] == "DELETED", asked=asked, trouble=trouble)
        for each in SEEN
        if each["case"] == case
    ]


def last_pod(case: str) -> dict[str, Any]:
    """Return the last status of a pod."""
    found: dict[str, Any] = [each["pod"] for each in SEEN if each["case"] == case][-1]
    return found


WAITS = {
    "too-many-cpus": "none of 2 nodes can run it: 2 have too few free CPUs; it asks for 1000 CPUs",
    "too-much-memory": "none of 2 nodes can run it: 2 have too little free memory; it asks for 4.9 TiB of memory",
    "no-gpu": "none of 2 nodes can run it: 2 have too few free nvidia.com/gpu; it asks for 8 nvidia.com/gpu",
    "no-such-node": "none of 2 nodes can run it: 2 do not match its node selector",
    "no-toleration-many": "none of 2 nodes can run it: 1 has too few free CPUs and 1 does not match its node selector;"
    " it asks for 1000 CPUs",
    "claim-missing": "its claim nothere does not exist",
    "claim-unbound": "its claim is not bound to a volume",
    "image-unreachable": "its image registry.invalid/team/train:1 cannot be pulled:"
    " dial tcp: lookup registry.invalid on 10.255.255.53:53: no such host",
    "init-image": "its image registry.invalid/x:1 cannot be pulled:"
    " dial tcp: lookup registry.invalid on 10.255.255.53:53: no such host",
    "init-waits": "unpacks the project and waits for the names of its peers",
}
NEVER = {
    "image-name-invalid": "the name of its image is not valid: Failed to apply default image tag"
    ' "Team/Train image": couldn\'t parse image name "Team/Train image": invalid reference format: repository name'
    " (Train image) must be lowercase",
    "image-never": "its image is not on its node, and may not be pulled:"
    ' Container image "nothere:1" is not present with pull policy of Never',
    "secret-missing": 'its container cannot be created: secret "nothere" not found',
    "secret-key-missing": "its container cannot be created: couldn't find key TOKEN in Secret logs-facts/there",
}
ENDS = {
    "exit-3": ("exit code 3", "Exited", "crash"),
    "segfault": ("exit code 139: killed by signal 11 (SEGV)", "Exited", "crash"),
    "command-not-found": (
        'exit code 127: the command was not found; exec: "nosuchcommand": executable file not found in $PATH',
        "CannotExecute",
        "crash",
    ),
    "out-of-memory": (
        "killed by signal 9 (KILL) by the kernel's out-of-memory killer; its limit is 48.0 MiB",
        "OutOfMemory",
        "out_of_memory",
    ),
    "child-out-of-memory": ("exit code 3; its limit is 48.0 MiB", "OutOfMemory", "out_of_memory"),
    "init-failed": ("exit code 5; in the init container drumline", "InitFailed", "lost"),
    "init-out-of-memory": (
        (
            "killed by signal 9 (KILL) by the kernel's out-of-memory killer; in the init container drumline;"
            " its limit is 48.0 MiB"
        ),
        "OutOfMemory",
        "out_of_memory",
    ),
    "deadline": (
        "exit code 137: killed by signal 9 (KILL); its pod exceeded activeDeadlineSeconds",
        "DeadlineExceeded",
        "time",
    ),
    "disk-full": (
        (
            "exit code 137: killed by signal 9 (KILL);"
            ' evicted from node2: Usage of EmptyDir volume "s" exceeds the limit "1Mi"'
        ),
        "OverLimit",
        "crash",
    ),
    "node-full": (
        (
            "node1 rejected it: Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000,"
            " used: 0, capacity: 2000"
        ),
        "Rejected",
        "lost",
    ),
    "low": (
        "exit code 137: killed by signal 9 (KILL); preempted on node1 by a pod of higher priority",
        "Displaced",
        "preempted",
    ),
    "to-evict": (
        "exit code 0; evicted from node1 through the API, as by `kubectl drain`",
        "Evicted",
        "preempted",
    ),
    "to-delete": ("exit code 137: killed by signal 9 (KILL); its pod was deleted", "Deleted", "preempted"),
    "on-lost-node-forever": ("logs-ghost was removed from the cluster", "NodeLost", "lost"),
}


@pytest.mark.parametrize("case", WAITS)
def test_the_reason_of_a_waiting_pod_is_described(case: str) -> None:
    found = states(case)[-1]
    assert isinstance(found, PodWaiting)
    assert (found.message, found.is_fatal) == (WAITS[case], False)


@pytest.mark.parametrize("case", NEVER)
def test_a_reason_that_cannot_change_is_fatal(case: str) -> None:
    found = states(case)[-1]
    assert isinstance(found, PodWaiting)
    assert (found.message, found.is_fatal) == (NEVER[case], True)


@pytest.mark.parametrize("case", ENDS)
def test_an_exit_has_a_description_a_reason_and_a_class(case: str) -> None:
    found = next(each for each in states(case) if isinstance(each, PodEnded))
    assert (describe_exit(found.exit), reason_of(found.exit), failure_class(found.exit, "tensorflow")) == ENDS[case]
    assert not found.exit.ok


def test_the_error_of_a_registry_is_the_same_at_each_attempt() -> None:
    assert len(set(states("image-unreachable"))) == 1


def test_an_exit_with_0_is_a_success() -> None:
    found = states("exit-0")[-1]
    assert isinstance(found, PodEnded)
    assert found.exit.ok
    assert found.container == "replica"
    assert found.ended_at == seconds_of("2026-11-15T20:48:03Z")


def test_an_evicted_pod_that_exits_with_0_has_not_succeeded() -> None:
    end = states("to-evict")[-1]
    assert isinstance(end, PodEnded)
    assert (end.exit.code, end.exit.ok, failed_by_itself(end.exit)) == (0, False, False)


def test_every_pod_that_started_goes_from_waiting_to_running_to_ended_and_not_back() -> None:
    order = (PodWaiting, PodRunning, PodEnded)
    for case in {each["case"] for each in SEEN}:
        ranks = [order.index(type(each)) for each in states(case)]
        assert ranks == sorted(ranks), case


def test_the_exit_of_the_container_is_read_before_the_pod_has_a_final_phase() -> None:
    ends = [
        each
        for each in SEEN
        if each["case"] == "segfault" and isinstance(read_pod_status(each["pod"], now=NOW), PodEnded)
    ]
    assert [each["pod"]["status"]["phase"] for each in ends] == ["Pending", "Failed"]


@pytest.mark.parametrize("state", [{"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}}], ids=str)
def test_an_unobserved_exit_before_a_kubelet_restarted_is_an_exit(state: dict[str, Any]) -> None:
    pod = last_pod("exit-3")
    (container,) = pod["status"]["containerStatuses"]
    again = {**container, "state": state, "lastState": container["state"], "restartCount": 1}
    status = {**pod["status"], "phase": "Running", "containerStatuses": [again]}
    assert read_pod_status({**pod, "status": status}, now=NOW) == states("exit-3")[-1]


def test_the_log_of_a_failed_init_container_is_shown() -> None:
    end = states("init-failed")[-1]
    assert isinstance(end, PodEnded)
    assert end.container == "drumline"


def test_a_requested_deletion_is_not_described() -> None:
    end = states("to-delete", asked=True)[-1]
    assert isinstance(end, PodEnded)
    assert (end.exit.code, end.exit.reason, end.exit.message) == (137, "", "")


def test_a_pod_that_is_stopped_before_its_start_is_described_so_whatever_its_init_container_did() -> None:
    for case in ("init-failed", "init-waits", "too-many-cpus"):
        end = read_pod_status(last_pod(case), now=NOW, deleted=True, asked=True)
        assert isinstance(end, PodEnded)
        assert end.exit == Exit(message="it was stopped before it started"), case


def test_a_pod_without_a_node_has_ended_when_its_deletion_is_requested() -> None:
    pod = last_pod("too-many-cpus")
    pod = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-15T20:50:00Z"}}
    gone = read_pod_status(pod, now=NOW)
    assert isinstance(gone, PodEnded)
    assert (gone.exit.reason, gone.exit.message) == ("Deleted", "its pod was deleted")


def test_out_of_memory_while_a_pod_is_stopped_is_reported() -> None:
    end = states("out-of-memory", asked=True)[-1]
    assert isinstance(end, PodEnded)
    assert end.exit.out_of_memory


def test_a_pod_that_ended_before_it_was_deleted_ended_by_itself() -> None:
    pod = last_pod("exit-3")
    metadata = {**pod["metadata"], "deletionTimestamp": "2026-11-15T20:49:40Z", "deletionGracePeriodSeconds": 30}
    end = read_pod_status({**pod, "metadata": metadata}, now=NOW)
    assert isinstance(end, PodEnded)
    assert (end.exit.code, end.exit.reason) == (3, "")


def test_a_pod_is_lost_when_its_node_has_not_answered_for_some_time() -> None:
    pod = next(each["pod"] for each in SEEN if each["case"] == "on-lost-node")
    overdue_at = (seconds_of("2026-11-15T20:49:23Z") or 0) + 30
    waits = read_pod_status(pod, now=overdue_at - 1)
    assert isinstance(waits, PodRunning)
    assert waits.overdue_at == overdue_at
    lost = read_pod_status(pod, now=overdue_at)
    assert isinstance(lost, PodEnded)
    assert (lost.exit.message, failure_class(lost.exit, "plain")) == ("logs-ghost does not answer any more", "lost")
    assert (lost.exit.seen, lost.container) == (False, "replica")


def test_a_pod_that_remains_after_its_deletion_is_lost() -> None:
    pod = next(each["pod"] for each in SEEN if each["case"] == "runs")
    pod = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-15T20:49:00Z"}}
    lost = read_pod_status(pod, now=NOW)
    assert isinstance(lost, PodEnded)
    assert (lost.exit.reason, lost.exit.message) == ("NodeLost", "its pod was deleted, and node2 does not answer")


def test_a_pod_that_disappeared_while_it_ran_was_deleted() -> None:
    pod = last_pod("runs")
    gone = read_pod_status(pod, now=NOW, deleted=True)
    assert isinstance(gone, PodEnded)
    assert (gone.exit.reason, gone.exit.message, gone.exit.seen) == ("Deleted", "its pod was deleted", False)


def test_a_pod_that_kueue_holds_back_has_that_reason() -> None:
    pod = {
        "spec": {"containers": [{"name": "replica"}], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
    }
    assert read_pod_status(pod, now=NOW) == PodWaiting("Held", "held back by kueue.x-k8s.io/admission")


def test_a_pod_without_a_status_waits_without_a_reason() -> None:
    assert read_pod_status({}, now=NOW) == PodWaiting()
    assert read_pod_status({"status": {"phase": "Pending"}}, now=NOW) == PodWaiting()


def test_reasons_that_only_events_contain_are_found() -> None:
    found = {each.name: each for event in EVENTS if (each := read_event(event))}
    quota = "it exceeds the quota q: it asks for requests.cpu=4; used requests.cpu=0 of requests.cpu=1"
    assert found["digits-1-worker-0"] == PodEvent("Job", "digits-1-worker-0", PodWaiting("Quota", quota))
    mount = found["map-missing"].wait
    assert mount.message.startswith("a volume cannot be mounted: ")
    assert mount.message.endswith('configmap "nothere" not found')
    assert states("map-missing", trouble=mount)[-1] == mount
    claim = found["unbound"].wait
    assert "nosuchclass" in claim.message
    assert states("claim-unbound", trouble=claim)[-1] == claim


def test_each_event_about_an_exceeded_quota_gives_the_same_reason() -> None:
    told = {each.wait for event in EVENTS if event["reason"] == "FailedCreate" and (each := read_event(event))}
    assert len(told) == 1


def test_a_pod_that_a_policy_forbids_is_not_reported_as_a_quota() -> None:
    said = 'Error creating: pods "x-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    event = {"reason": "FailedCreate", "message": said, "involvedObject": {"kind": "Job", "name": "x"}}
    found = read_event(event)
    assert found is not None
    assert found.wait.reason == "Forbidden"
    assert found.wait.message.startswith('its pod may not be created: violates PodSecurity "restricted:latest"')


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", 0.5), ("2", 2.0), ("48Mi", 48 << 20), ("1.5Gi", 1.5 * (1 << 30)), ("1e3", 1000.0), ("2k", 2000.0)],
)
def test_amounts_are_read_as_kubernetes_writes_them(text: str, amount: float) -> None:
    assert parse_quantity(text) == pytest.approx(amount)


@pytest.mark.parametrize("text", [None, "", "much", "-1", "1ii"])
def test_an_invalid_amount_is_none(text: object) -> None:
    assert parse_quantity(text) is None


def test_a_short_image_name_matches_its_full_name_in_messages() -> None:
    text = json.dumps(last_pod("image-unreachable"))
    pod = json.loads(text.replace('"image": "registry.invalid/team/', '"image": "'))
    found = read_pod_status(pod, now=NOW)
    assert isinstance(found, PodWaiting)
    assert found.message == (
        "its image train:1 cannot be pulled: dial tcp: lookup registry.invalid on 10.255.255.53:53: no such host"
    )
