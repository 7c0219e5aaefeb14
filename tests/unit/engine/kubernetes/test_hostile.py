"""Data that a pod, a node or another user of the namespace controls: no value makes its reader fail."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from drumline.engine.kubernetes.answer_fields import seconds_of, text
from drumline.engine.kubernetes.api import Change
from drumline.engine.kubernetes.api_errors import ApiLocation, is_from_node, refusal
from drumline.engine.kubernetes.capacity import eligible_nodes
from drumline.engine.kubernetes.log_lines import Cursor, LogPiece, LogStream, parse_time
from drumline.engine.kubernetes.logfile import LogFile, read_cursor
from drumline.engine.kubernetes.metrics import UsageSample, read_metrics, read_summary
from drumline.engine.kubernetes.operators import _attempt, _is_over
from drumline.engine.kubernetes.pod_exec import read_status
from drumline.engine.kubernetes.pod_status import PodEnded, is_terminating, is_unreachable, read_pod_status, started_at
from drumline.engine.kubernetes.podwatch import PodWatch, TrackedPod
from drumline.engine.kubernetes.usage_totals import UsageTotals
from drumline.engine.kubernetes.wait_reason import read_event, trim_event
from drumline.engine.tracker import ReplicaTracker
from drumline.errors import EngineError
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, ReplicaWaits
from drumline.run.incarnation import Incarnation
from drumline.run.traces import CURSOR
from drumline.spec.quantity import parse_quantity
from scaffold.kubelet import BEGAN_NS, spell
from scaffold.loops import SimulatedTimeLoop

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
PODS: list[Json] = [json.loads(line)["pod"] for line in (DATA / "pods.jsonl").read_text().splitlines()]
STRANGE: tuple[Any, ...] = (None, "x", 3, -1, [], [None, 3, "x", {}], {}, {"a": 1}, True, 1e308, "\ud800\x00\n")
WORKER = Incarnation(ReplicaId("worker", 0), 0, 0)


def paths_of(value: Any, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every part of a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*before, key)
        yield from paths_of(each, *before, key)


def replaced(value: Json, path: tuple[str | int, ...], new: Any) -> Json:
    """Return a copy with another value at this path."""
    found = target = copy.deepcopy(value)
    for key in path[:-1]:
        target = target[key]  # type: ignore[index]
    target[path[-1]] = new  # type: ignore[index]
    return found


def pods_with_one_strange_value() -> Iterator[Json]:
    shapes = {json.dumps(sorted(map(str, paths_of(each)))): each for each in PODS}
    for pod in shapes.values():
        chosen = [path for path in paths_of(pod) if path[0] != "metadata" or path[-1] == "deletionTimestamp"]
        yield from (replaced(pod, path, new) for path, new in product(chosen, STRANGE))


def test_a_status_with_any_value_of_another_type_is_read() -> None:
    for pod in pods_with_one_strange_value():
        standing = read_pod_status(pod, now=time.time(), deleted=False)
        read_pod_status(pod, now=time.time(), deleted=True, asked=True)
        assert (is_unreachable(pod), is_terminating(pod)) in product((False, True), repeat=2)
        started_at(pod)
        if isinstance(standing, PodEnded):
            assert standing.exit.message.isprintable()
            assert len(standing.exit.message) < 3000


def ended(**terminated: Any) -> PodEnded:
    """Return the exit of a pod with this state of its container."""
    status = {"containerStatuses": [{"name": "replica", "state": {"terminated": terminated}}]}
    found = read_pod_status({"spec": {"containers": [{"name": "replica"}]}, "status": status}, now=time.time())
    assert isinstance(found, PodEnded)
    return found


@pytest.mark.parametrize("code", [None, "0", 0.0, [], True, 10**30])
def test_an_exit_without_an_exit_code_is_no_success(code: Any) -> None:
    end = ended(reason="Completed") if code is None else ended(reason="Completed", exitCode=code)
    assert not end.exit.ok
    assert not end.exit.seen


def test_a_message_of_the_container_runtime_is_one_short_line() -> None:
    said = "x: \x1b]0;title\x07\n1.worker.1 FINISHED\n" + "y" * 100_000
    end = ended(reason="StartError", exitCode=128, message=said)
    assert end.exit.message.isprintable()
    assert len(end.exit.message) < 1200


@pytest.mark.parametrize("moment", ["x", "", "2026-13-01T00:00:00Z", "0001-01-01", 3, None, [], "\x00", "9" * 9999])
def test_an_invalid_time_is_none(moment: Any) -> None:
    assert seconds_of(moment) is None


def test_a_text_is_bounded_and_in_one_line() -> None:
    assert text("a\nb\x1b[2J\u009b\ud800") == "a\\nb\\x1b[2J\\x9b\\ud800"
    assert len(text("x" * 10**6)) < 1100
    assert text(["x"]) == text(None) == text(3) == ""


@pytest.mark.parametrize("reason", ["FailedMount", "FailedCreate", "Pulling", "ProvisioningFailed"])
def test_an_event_of_any_form_is_read(reason: str) -> None:
    event = {"reason": reason, "message": "m", "involvedObject": {"kind": "Pod", "name": "a", "uid": "u"}}
    assert read_event(event)
    for path, new in product(paths_of(event), STRANGE):
        strange = replaced(event, path, new)
        found, slim = read_event(strange), trim_event(strange)
        assert found == (read_event(slim) if slim else None)
        assert found is None or found.wait.message.isprintable()


def test_a_long_event_is_read_quickly_and_shortened() -> None:
    quota = "exceeded quota: a, requested: " + ", used: " * 200_000
    event = {"reason": "FailedCreate", "message": f'pods "a" is forbidden: {quota}', "metadata": {"x": "y" * 10**6}}
    began = time.process_time()
    slim = trim_event(event)
    assert time.process_time() - began < 1.0
    assert slim
    assert len(json.dumps(slim)) < 4096
    assert read_event(slim) == read_event(event)


def test_an_event_cannot_contain_a_line_break() -> None:
    trouble = read_event({"reason": "FailedMount", "message": "no\n1.worker.1 FINISHED\x1b[2J"})
    assert trouble
    assert trouble.wait.message.isprintable()


@pytest.mark.parametrize(
    "amount", ["9" * 5000, "1e999999", "1E+400", "NaN", "inf", "-1", "٣", "", None, 3, ["1"], "1" * 65, "1.0.0", "0x10"]
)
def test_an_invalid_amount_is_none(amount: Any) -> None:
    assert parse_quantity(amount) is None


METRICS: Json = {
    "items": [
        {
            "metadata": {"name": "burn"},
            "timestamp": "2026-11-15T21:16:45Z",
            "containers": [{"name": "replica", "usage": {"cpu": "92m", "memory": "54760Ki"}}],
        }
    ]
}
SUMMARY: Json = {
    "pods": [
        {
            "podRef": {"name": "burn", "namespace": "team"},
            "containers": [
                {
                    "name": "replica",
                    "cpu": {"time": "2026-11-15T21:16:59Z", "usageNanoCores": 1, "usageCoreNanoSeconds": 2},
                    "memory": {"time": "2026-11-15T21:16:59Z", "workingSetBytes": 5},
                }
            ],
        }
    ]
}
NUMBERS = (float("nan"), float("inf"), -5, 10**400, -(10**400), "9" * 400, "1e99", "9" * 64 + "E")


def test_metrics_of_any_form_give_valid_numbers() -> None:
    strange = (*STRANGE, *NUMBERS)
    readings = [
        each for path in paths_of(METRICS) for new in strange for each in read_metrics(replaced(METRICS, path, new))
    ]
    for path, new in product(paths_of(SUMMARY), strange):
        readings += read_summary(replaced(SUMMARY, path, new), "team")
    assert readings
    for each in readings:
        assert each.cpus is None or 0 <= each.cpus <= 1e6
        assert each.cpu_seconds is None or 0 <= each.cpu_seconds <= 1e10
        assert each.memory_bytes is None or (type(each.memory_bytes) is int and 0 <= each.memory_bytes <= 1 << 60)


def test_a_sample_from_the_future_does_not_hide_later_samples(tmp_path: Path) -> None:
    wall = 1000.0
    totals = UsageTotals(lambda: wall, lambda: wall, "boot")
    tracked = TrackedPod(WORKER, tmp_path)
    tracked.pod, tracked.started_at = {"metadata": {"name": "burn"}}, 900.0
    totals.add([UsageSample("burn", 253402300799.0, cpus=1.0)])
    (first,) = totals.measure([tracked])
    assert first.cpu_seconds == 100.0
    wall = 1010.0
    totals.add([UsageSample("burn", 1010.0, cpus=2.0)])
    (second,) = totals.measure([tracked])
    assert second.cpu_seconds == 120.0


@pytest.mark.parametrize(
    "code", ["9" * 5000, "-1", "256", "0", "x", "", None, 3, "٣", ["1"], "1\n"], ids=lambda code: repr(code)[:12]
)
def test_an_impossible_exit_code_is_refused(code: Any) -> None:
    status = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": code}]}}
    with pytest.raises(EngineError, match="could not be run"):
        read_status(json.dumps(status).encode())


def test_the_status_of_a_command_may_have_any_form() -> None:
    status = {
        "status": "Failure",
        "message": "no\nway",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    assert read_status(json.dumps(status).encode()) == 3
    contents = [json.dumps(replaced(status, path, new)).encode() for path, new in product(paths_of(status), STRANGE)]
    for content in (*contents, b"", b"\xff", b"[" * 100_000, b"3", b"null", b"x" * 10**6):
        said = outcome(content)
        assert said in ("0", "3") or (len(said) < 1200 and said.isprintable())


def outcome(content: bytes) -> str:
    """Return the exit code in a command's status, or the error."""
    try:
        return str(read_status(content))
    except EngineError as error:
        return error.message


def test_a_refusal_may_have_any_form() -> None:
    answer = {"message": "m", "reason": "r", "details": {"kind": "pods", "causes": [{"reason": "x"}]}}
    for path, new, status in product(paths_of(answer), STRANGE, (401, 403, 404, 409)):
        changed = replaced(answer, path, new)
        is_from_node(status, changed)
        assert refusal(status, changed, ApiLocation("c", "s", "n"), "read").message.isprintable()


def test_an_object_of_an_operator_may_have_any_form() -> None:
    an_object = {"metadata": {"labels": {"drumline.dev/attempt": "1"}}, "status": {"restarts": 1, "conditions": [{}]}}
    assert _attempt(an_object) == 2
    for path, new in product(paths_of(an_object), STRANGE):
        assert isinstance(_attempt(replaced(an_object, path, new)), int)
        assert not _is_over(replaced(an_object, path, new))


def test_pods_of_other_users_may_have_any_form_in_the_capacity_check() -> None:
    pod = {
        "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"},
    }
    node = {
        "metadata": {"name": "n"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "4", "memory": "9" * 99},
        },
    }
    for path, new in product(paths_of(pod), (*STRANGE, "9" * 5000)):
        if path != ("spec", "nodeName"):
            (found,) = eligible_nodes([node], [replaced(pod, path, new)], selector={}, tolerations=())
            assert str(found.free)


@pytest.mark.parametrize(
    "moment",
    [
        b"9999-12-31T23:59:59Z",
        b"2555-01-01T00:00:00Z",
        b"0001-01-01T00:00:00+14:00",
        b"1969-12-31T23:59:59Z",
        b"1970-01-01T00:00:00Z",
        b"0000-01-01T00:00:00Z",
    ],
)
def test_a_line_with_an_invalid_time_is_no_line_of_the_log(moment: bytes) -> None:
    assert parse_time(moment) is None


def test_the_largest_time_of_a_log_can_be_stored(tmp_path: Path) -> None:
    at_ns = parse_time(b"2262-04-11T23:47:16.854775807Z")
    assert at_ns == (1 << 63) - 1
    file = LogFile(tmp_path / "a" / "b" / "log")
    file.append([LogPiece(at_ns, b"x\n")])
    assert read_cursor(tmp_path / "a" / "b" / CURSOR).at_ns == at_ns


@pytest.mark.parametrize("line", [b"x" * 1000, b"x" * (1 << 16)], ids=["many lines", "one line without an end"])
def test_memory_for_an_incomplete_line_is_bounded(line: bytes) -> None:
    stream = LogStream(Cursor(100, BEGAN_NS, 1, 3))
    begin = spell(BEGAN_NS + 1000)
    stream.feed(begin + b" y")
    sent = got = 0
    for _ in range(20_000 if len(line) < 5000 else 300):
        data = b"\n" + begin + b" " + line if len(line) < 5000 else line
        got += sum(len(piece.data) for piece in stream.feed(data))
        sent += len(line)
    assert sent > 16 << 20
    assert got > sent - (8 << 20)  # it is passed on, and not kept


def test_a_line_without_an_end_takes_linear_time() -> None:
    began = time.process_time()
    stream = LogStream(Cursor())
    got = sum(len(piece.data) for piece in stream.feed(spell(BEGAN_NS) + b" y"))
    for _ in range(4096):
        got += sum(len(piece.data) for piece in stream.feed(b"x" * (1 << 16)))
    assert got >= 4096 << 16
    assert time.process_time() - began < 10.0


def test_a_message_of_a_node_after_a_log_is_one_short_line() -> None:
    stream = LogStream(Cursor())
    stream.feed(b"unable to \x1b[2J" + b"y" * 100_000 + b"\n")
    assert stream.kubelet_error.isprintable()
    assert len(stream.kubelet_error) < 1200


def test_events_that_change_all_the_time_are_reported_a_limited_number_of_times(tmp_path: Path) -> None:
    told: list[Event] = []

    loop = SimulatedTimeLoop()
    tracker = ReplicaTracker(tmp_path, TrackedPod, loop, told.append)
    watch = PodWatch(tracker, loop, told.append, identify=lambda _: WORKER)
    (kept,) = watch.track([WORKER])
    kept.controllers = ("job",)
    for number in range(1000):
        about = {"kind": "Job", "name": "job"}
        event = {"reason": "FailedCreate", "message": f"Error creating: {number}", "involvedObject": about}
        watch.handle_events(Change("ADDED", (event,)))
    assert 100 <= len([each for each in told if isinstance(each, ReplicaWaits)]) <= 200
