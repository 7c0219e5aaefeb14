"""The replica that blocks a gang, by stacks that were recorded from real gangs that hung.

`stacks/*.txt`: two ranks of torch on gloo, of JAX and of TensorFlow's MultiWorkerMirroredStrategy, and a gang with a
parameter server. The second rank did what the name of the file states. The stacks are those of py-spy 0.4.3 with
(`native`) and without (`plain`) native frames, or those that Python printed when it was aborted (`aborted`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.blocking import Activity, ActivityKind, Diagnosis, all_wait, find_blocking_replica, read_activity
from drumline.run.stacks import Frame, main_thread, read_threads

STACKS = Path(__file__).with_name("stacks")
CHIEF, FIRST, SECOND, THIRD = (
    ReplicaId("chief", 0),
    ReplicaId("worker", 0),
    ReplicaId("worker", 1),
    ReplicaId("worker", 2),
)


def recorded(scene: str, form: str) -> dict[ReplicaId, str]:
    """Return the stacks of a gang in one of the forms, by replica."""
    parts = re.split(r"(?m)^=== (\w+) (\w+\.\d+)\n", (STACKS / f"{scene}.txt").read_text())[1:]
    texts = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {ReplicaId.parse(name): text for each, name, text in texts if each == form}


def activities(scene: str, form: str, stopped: frozenset[ReplicaId] = frozenset()) -> dict[ReplicaId, Activity]:
    return {name: read_activity(text, is_stopped=name in stopped) for name, text in recorded(scene, form).items()}


@pytest.mark.parametrize(
    ("scene", "form", "message"),
    [
        ("torch-sleep", "native", "worker.1 is in sleep (torch_line.py:11), worker.0 waits in all_reduce"),
        ("torch-sleep", "plain", "worker.1 is in load_batch (torch_line.py:11), worker.0 waits in all_reduce"),
        ("torch-sleep", "aborted", "worker.1 is in load_batch (torch_line.py:11), worker.0 waits in all_reduce"),
        ("torch-lock", "native", "worker.1 is in Lock.acquire (torch_line.py:18), worker.0 waits in all_reduce"),
        ("torch-spin", "native", "worker.1 is in load_batch (torch_line.py:13), worker.0 waits in all_reduce"),
        ("torch-spin", "plain", "worker.1 is in load_batch (torch_line.py:13), worker.0 waits in all_reduce"),
        ("torch-barrier", "native", "worker.1 is in sleep (torch_line.py:40), worker.0 waits in barrier"),
        ("torch-ddp", "native", "worker.1 is in sleep (torch_line.py:32), worker.0 waits in backward"),
        ("torch-ddp", "plain", "worker.1 is in main (torch_line.py:32), worker.0 waits in backward"),
        ("torch-early", "native", "worker.1 is in sleep (torch_line.py:26), worker.0 waits in init_process_group"),
        ("jax-sleep", "native", "worker.1 is in sleep (jax_line.py:11), worker.0 waits in process_allgather"),
        ("jax-lock", "plain", "worker.1 is in load_batch (jax_line.py:18), worker.0 waits in process_allgather"),
        ("jax-early", "native", "worker.1 is in sleep (jax_line.py:26), worker.0 waits in initialize"),
        ("tensorflow-sleep", "native", "worker.1 is in sleep (tf_line.py:11), worker.0 waits in a step of TensorFlow"),
        (
            "tensorflow-lock",
            "plain",
            "worker.1 is in load_batch (tf_line.py:18), worker.0 waits in a step of TensorFlow",
        ),
        (
            "tensorflow-spin",
            "native",
            "worker.1 is in load_batch (tf_line.py:14), worker.0 waits in a step of TensorFlow",
        ),
        ("tensorflow-early", "plain", "worker.1 is in main (tf_line.py:26), worker.0 waits in ensure_initialized"),
    ],
)
def test_the_replica_that_is_not_where_the_others_wait_blocks_the_gang(scene: str, form: str, message: str) -> None:
    assert find_blocking_replica(activities(scene, form)) == Diagnosis(SECOND, message)


def test_a_stopped_replica_blocks_the_gang_wherever_it_was() -> None:
    message = "worker.1 is stopped (torch_line.py:20), worker.0 waits in all_reduce"
    assert find_blocking_replica(activities("torch-stop", "native", frozenset((SECOND,)))) == Diagnosis(SECOND, message)


@pytest.mark.parametrize(
    "frames",
    [
        ("distribute/coordinator/values.py", "_wait_and_maybe_error", "distribute/coordinator/values.py", "fetch"),
        ("eager/context.py", "add_c_function", "checkpoint/checkpoint.py", "write"),
    ],
    ids=["for a step of a worker", "for servers that receive a function"],
)
def test_a_chief_that_waits_for_its_parameter_servers_does_not_block_the_gang(
    frames: tuple[str, str, str, str],
) -> None:
    inner, wait, outer, call = frames
    library = "/env/lib/python3.11/site-packages/tensorflow/python"
    chief = f"""Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "{library}/{inner}", line 98 in {wait}
  File "{library}/{outer}", line 111 in {call}
  File "/home/you/train.py", line 7 in <module>
"""
    found = {CHIEF: read_activity(chief), FIRST: Activity(ActivityKind.SERVES, "join")}
    assert found[CHIEF].kind is ActivityKind.WAITS
    assert find_blocking_replica(found).replica is None


def test_a_stopped_replica_needs_no_stack() -> None:
    found = {**activities("jax-stop", "native"), SECOND: read_activity("", is_stopped=True)}
    assert find_blocking_replica(found) == Diagnosis(SECOND, "worker.1 is stopped, worker.0 waits in process_allgather")


def test_a_parameter_server_that_never_serves_blocks_the_gang() -> None:
    found = activities("tensorflow-ps", "native")
    assert found[FIRST].kind is ActivityKind.SERVES
    message = "ps.0 is in sleep (ps_line.py:6), chief.0 waits in ensure_initialized"
    assert find_blocking_replica(found) == Diagnosis(ReplicaId("ps", 0), message)


def at(word: str, place: str = "train.py:3") -> Activity:
    return Activity(ActivityKind.ELSEWHERE, word, place)


def waits(word: str, *, is_certain: bool = True) -> Activity:
    return Activity(ActivityKind.WAITS, word, "train.py:9", is_certain)


SERVES, UNKNOWN, STOPPED = (
    Activity(ActivityKind.SERVES, "join"),
    Activity(ActivityKind.UNKNOWN),
    Activity(ActivityKind.STOPPED),
)


@pytest.mark.parametrize(
    ("found", "replica", "message"),
    [
        ({FIRST: at("sleep")}, FIRST, "worker.0 is in sleep (train.py:3)"),
        ({FIRST: UNKNOWN}, FIRST, "worker.0 shows no stack"),
        ({FIRST: waits("a"), SECOND: UNKNOWN}, SECOND, "worker.1 shows no stack, worker.0 waits in a"),
        ({FIRST: waits("a"), SECOND: waits("a")}, None, "each replica waits in a"),
        (
            {FIRST: waits("a"), SECOND: waits("b")},
            None,
            "worker.0 waits in a (train.py:9), worker.1 waits in b (train.py:9)",
        ),
        ({FIRST: at("sleep"), SECOND: at("sleep")}, None, "each replica is in sleep (train.py:3)"),
        ({FIRST: at("x"), SECOND: at("y")}, None, "worker.0 is in x (train.py:3), worker.1 is in y (train.py:3)"),
        (
            {FIRST: waits("a"), SECOND: at("x"), THIRD: waits("b")},
            SECOND,
            "worker.1 is in x (train.py:3), the others wait in a and b",
        ),
        ({FIRST: at("x"), SECOND: STOPPED}, SECOND, "worker.1 is stopped"),
        ({CHIEF: at("sleep"), FIRST: SERVES, SECOND: SERVES}, CHIEF, "chief.0 is in sleep (train.py:3)"),
        ({CHIEF: UNKNOWN, FIRST: SERVES, SECOND: SERVES}, None, "chief.0 shows no stack"),
        ({FIRST: waits("a"), SECOND: at("x"), ReplicaId("evaluator", 0): at("y")}, SECOND, None),
        ({}, None, ""),
    ],
)
def test_the_message_states_what_waits_and_what_does_not(
    found: dict[ReplicaId, Activity], replica: ReplicaId | None, message: str | None
) -> None:
    diagnosis = find_blocking_replica(found)
    assert diagnosis.replica == replica
    assert message is None or diagnosis.message == message


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({FIRST: waits("a"), SECOND: waits("b")}, True),
        ({FIRST: waits("a"), SECOND: STOPPED}, True),
        ({FIRST: waits("a"), ReplicaId("ps", 0): SERVES}, True),
        ({FIRST: waits("a"), ReplicaId("evaluator", 0): at("x")}, True),
        ({FIRST: waits("a"), SECOND: at("x")}, False),
        ({FIRST: waits("a"), SECOND: UNKNOWN}, False),
        ({FIRST: waits("a"), SECOND: waits("b", is_certain=False)}, False),
        ({FIRST: STOPPED}, False),
    ],
)
def test_all_wait_only_if_each_certainly_waits(found: dict[ReplicaId, Activity], expected: bool) -> None:
    assert all_wait(found) is expected


@pytest.mark.parametrize(
    ("scene", "form", "is_certain"),
    [
        ("torch-sleep", "plain", True),
        ("torch-ddp", "native", True),
        ("torch-ddp", "plain", False),  # it may compute
        ("jax-sleep", "native", True),
        ("jax-sleep", "plain", False),
        ("tensorflow-sleep", "native", False),  # an epoch may be one step
    ],
)
def test_a_frame_that_may_also_compute_is_not_certain_to_wait(scene: str, form: str, is_certain: bool) -> None:
    found = activities(scene, form)[FIRST]
    assert (found.kind, found.is_certain) == (ActivityKind.WAITS, is_certain)


def test_threads_of_py_spy_and_of_faulthandler_are_read() -> None:
    text = (
        'Process 7: python a b\nPython v3.12.1 (/usr/bin/python3.12)\n\nThread 7 (active+gil): "MainThread"\n'
        "    f (a.py:3)\n    0x7f (?)\n    g<int (*)(long)> (libx.so)\nThread 0x8 (idle)\n    h (b c.py:4)\n"
        '\nProcess 9: sh\nThread 9 (idle): "MainThread"\n    other (c.py:1)\n'
    )
    frames = (Frame("f", "a.py", 3), Frame("0x7f", "?"), Frame("g<int (*)(long)>", "libx.so"))
    thread = main_thread(text)
    assert thread
    assert thread.frames == frames
    assert [each.name for each in read_threads(text)] == ["MainThread", "", "MainThread"]
    aborted = (
        "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  <no Python frame>\n\n"
        'Current thread 0x2 (most recent call first):\n  File "a b.py", line 3 in f\n\nExtension modules: x\n'
    )
    last = main_thread(aborted)
    assert last
    assert last.frames == (Frame("f", "a b.py", 3),)


@pytest.mark.parametrize("text", ["", "Error: no such process\n", "\x00\x1b[2J", "Thread 7"])
def test_a_text_without_stacks_has_no_activity(text: str) -> None:
    assert read_activity(text) == Activity(ActivityKind.UNKNOWN)


def test_a_thread_without_frames_has_no_activity() -> None:
    assert read_activity('Thread 7 (idle): "x"\n') == Activity(ActivityKind.ELSEWHERE, "nothing")


def frames_of(*lines: str) -> tuple[Frame, ...]:
    (thread,) = read_threads("\n".join(['Thread 1 (idle): "MainThread"', *lines]))
    return thread.frames


@pytest.mark.parametrize("line", ["    f (a:1]", "f (a:1)", "   f (a:1)", "     (lib.so)", "    f ()", "     (a:1)"])
def test_a_line_of_another_format_is_no_frame(line: str) -> None:
    assert frames_of(line) == ()


def test_a_line_number_has_at_most_nine_digits() -> None:
    assert frames_of("    f (a:123456789)") == (Frame("f", "a", 123456789),)
    assert frames_of("    f (a:1234567890)") == (Frame("f", "a:1234567890"),)


def test_a_line_has_at_most_4000_characters() -> None:
    longest = "f" * (4000 - len("     (a:1)"))
    assert frames_of(f"    {longest} (a:1)") == (Frame(longest, "a", 1),)
    assert frames_of(f"    {longest}f (a:1)") == ()


def test_the_main_thread_is_that_of_the_first_process() -> None:
    threads = [f'Thread 1 (idle): "MainThread"\n    {name} (a:1)\n' for name in ("before", "first", "second")]
    text = f"{threads[0]}Process 7: python\n{threads[1]}Process 8: python\n{threads[2]}"
    for each in (text, text.partition("Process 8")[0]):
        found = main_thread(each)
        assert found
        assert found.frames == (Frame("first", "a", 1),)


WAITS = Activity(ActivityKind.WAITS, "all_reduce", "train.py:3")


def test_a_replica_that_waits_alone_is_named() -> None:
    assert find_blocking_replica({ReplicaId("worker", 0): WAITS}).message == "worker.0 waits in all_reduce (train.py:3)"


@pytest.mark.parametrize(("replicas", "more"), [(4, ""), (5, " and 1 more")])
def test_at_most_four_replicas_are_named_one_by_one(replicas: int, more: str) -> None:
    line = {ReplicaId("worker", n): Activity(ActivityKind.WAITS, f"f{n}") for n in range(replicas)}
    named = ", ".join(f"worker.{n} waits in f{n}" for n in range(4))
    assert find_blocking_replica(line) == Diagnosis(None, f"{named}{more}")


def activity_in(*frames: str) -> Activity:
    return read_activity("\n".join(['Thread 1 (idle): "MainThread"', *(f"    {frame}" for frame in frames)]))


def test_native_code_that_waits_for_the_others_is_named_if_no_python_code_does() -> None:
    found = activity_in("epoll_wait (libc.so.6)", "c10d::Wait<int>(x) (libtorch.so)", "main (/home/me/train.py:7)")
    assert found == Activity(ActivityKind.WAITS, "c10d::Wait", "train.py:7", is_certain=True)


def test_compiled_code_without_python_is_named_by_its_innermost_frame() -> None:
    assert activity_in("first (a.so)", "second (b.so)") == Activity(ActivityKind.ELSEWHERE, "first")


def test_code_with_library_frames_only_is_at_its_innermost_frame() -> None:
    site = "/env/lib/python3.11/site-packages"
    assert activity_in(f"f ({site}/a.py:1)", f"g ({site}/b.py:2)") == Activity(ActivityKind.ELSEWHERE, "f", "a.py:1")
