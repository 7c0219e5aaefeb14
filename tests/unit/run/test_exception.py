"""Exceptions in logs: they are found, with those that led to them, and shortened to the calls of the user's code."""

from __future__ import annotations

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.event import Evidence
from drumline.run.evidence import Peers, closing_exception, read_evidence
from drumline.run.exception import find_raised, is_noise, text_lines, trim_traceback

PEERS = Peers(ReplicaId("worker", 0))


def frames(*names: str, path: str = "/project/train.py") -> str:
    return "".join(f'  File "{path}", line {number}, in {name}\n    {name}()\n' for number, name in enumerate(names, 1))


def traceback(message: str, *names: str, path: str = "/project/train.py") -> str:
    return f"Traceback (most recent call last):\n{frames(*names, path=path)}{message}\n"


def trimmed(log: str) -> list[str]:
    chain = closing_exception(text_lines(log.encode()))
    assert chain
    return trim_traceback(chain)


def test_calls_in_libraries_are_shortened_to_their_number() -> None:
    site = "/env/lib/python3.11/site-packages"
    log = (
        "Traceback (most recent call last):\n"
        + frames("<module>", "train")
        + frames("fit", path=f"{site}/keras/src/trainer.py")
        + frames("error_handler", "execute", path=f"{site}/tensorflow/eager.py")
        + "ValueError: bad\n"
    )
    assert trimmed(log) == [
        '  File "/project/train.py", line 1, in <module>',
        "    <module>()",
        '  File "/project/train.py", line 2, in train',
        "    train()",
        "  … 3 calls in keras, tensorflow",
        "ValueError: bad",
    ]


def test_calls_that_ran_the_script_are_left_out_and_the_last_calls_stay_if_none_is_of_the_user() -> None:
    ran = frames("run_path", path="/usr/lib/python3.11/runpy.py") + frames(
        "become", path="/x/drumline/runtime/warm_fork.py"
    )
    log = f"Traceback (most recent call last):\n{ran}{frames('<module>')}OSError: no\n"
    assert trimmed(log)[0] == '  File "/project/train.py", line 1, in <module>'
    inside = traceback("KeyError: 'x'", "a", "b", "c", path="/env/lib/python3.11/site-packages/tool/main.py")
    assert trimmed(inside) == [
        "  … 1 call in tool",
        '  File "/env/lib/python3.11/site-packages/tool/main.py", line 2, in b',
        "    b()",
        '  File "/env/lib/python3.11/site-packages/tool/main.py", line 3, in c',
        "    c()",
        "KeyError: 'x'",
    ]


def test_a_deep_recursion_keeps_its_first_and_last_calls() -> None:
    shown = trimmed(traceback("RecursionError: too deep", *(f"f{number}" for number in range(1000))))
    assert len(shown) < 20
    assert [line for line in shown if "calls in" in line] == ["  … 992 calls in your code"]


def test_what_led_to_an_exception_comes_before_it() -> None:
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = traceback("KeyError: 'x'", "a") + link + traceback("RuntimeError: cannot train", "b")
    shown = trimmed(log)
    assert (shown[2], shown[4], shown[-1]) == ("KeyError: 'x'", "which led to", "RuntimeError: cannot train")


def test_a_long_message_is_cut_and_log_lines_after_it_are_not_part_of_it() -> None:
    message = "\n".join(["ValueError: many", *(f"line {number}" for number in range(30))])
    assert trimmed(traceback(message, "a"))[-2:] == ["line 4", "…"]
    log = traceback("ValueError: one", "a") + "2024-01-01 12:00:00.1: I tensorflow/core: bye\n"
    assert trimmed(log)[-1] == "ValueError: one"


def test_colours_progress_bars_and_rank_prefixes_are_removed() -> None:
    log = '\x1b[31m[rank3]: Traceback (most recent call last):\x1b[0m\n[rank3]:   File "a.py", line 1, in f\n'
    log += "50%|##\r100%|####\r[rank3]: ValueError: bad\r\n"
    (chain,) = find_raised(text_lines(log.encode()))
    assert chain.raised[-1].sentence == "ValueError: bad"


def test_a_crash_of_the_interpreter_names_the_last_calls() -> None:
    log = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    log += '  File "/project/ops.py", line 4 in crash\n  File "/project/train.py", line 9 in <module>\n'
    assert trimmed(log) == [
        '  File "/project/train.py", line 9, in <module>',
        '  File "/project/ops.py", line 4, in crash',
        "Fatal Python error: Segmentation fault",
    ]
    evidence = read_evidence(log.encode(), PEERS)
    assert evidence
    assert (evidence.said, evidence.reports) == ("Fatal Python error: Segmentation fault", "")


@pytest.mark.parametrize("log", ["", "step 1: loss 0.5\n", "all is well\n", "Traceback (most recent call last):\n"])
def test_a_log_without_an_exception_is_no_evidence(log: str) -> None:
    assert read_evidence(log.encode(), PEERS) is None


def test_an_exception_after_which_the_training_continued_is_not_the_cause() -> None:
    log = (
        traceback("ValueError: handled", "a")
        + "step 4: loss 0.5\n"
        + traceback("OSError: Connection reset by peer", "b")
    )
    evidence = read_evidence(log.encode(), PEERS)
    assert evidence
    assert evidence.reports == "gone"


def test_a_report_about_a_peer_during_the_exit_does_not_hide_the_own_exception() -> None:
    log = traceback("ValueError: bad", "a") + traceback("JaxRuntimeError: UNAVAILABLE: Connection reset by peer", "b")
    evidence = read_evidence(log.encode(), PEERS)
    assert evidence
    assert (evidence.said, evidence.reports) == ("ValueError: bad", "")


@pytest.mark.parametrize("cut", range(0, 300, 7))
def test_of_a_log_that_is_cut_anywhere_only_whole_tracebacks_count(cut: int) -> None:
    once = traceback("KeyError: 'ü'", "a", "b").encode()
    log = once * 2
    for start in (log[cut:], bytes(range(256)) + log[cut:]):
        evidence = read_evidence(start, PEERS)
        assert (evidence and evidence.said) == ("KeyError: 'ü'" if cut <= len(once) else None)
    evidence = read_evidence(log[: max(0, len(log) - cut)], PEERS)
    assert evidence is None or "KeyError: 'ü'".startswith(evidence.said)


def test_of_a_crash_only_the_calls_of_the_thread_that_crashed_are_shown() -> None:
    log = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n"
    log += '  File "/project/a.py", line 1 in crash\n  ...\n  File "/project/a.py", line 9 in main\n\n'
    log += 'Thread 0x2 (most recent call first):\n  File "/project/b.py", line 2 in wait\n'
    assert trimmed(log) == [
        '  File "/project/a.py", line 9, in main',
        '  File "/project/a.py", line 1, in crash',
        "Fatal Python error: Aborted",
    ]


def test_an_abort_alone_is_no_evidence_and_another_crash_is() -> None:
    assert read_evidence(b"Fatal Python error: Aborted\n", PEERS) is None
    assert read_evidence(b"Fatal Python error: Bus error\n", PEERS) == Evidence("Fatal Python error: Bus error")


def test_three_source_lines_of_a_call_are_shown_without_underlines() -> None:
    log = 'Traceback (most recent call last):\n  File "/project/a.py", line 1, in f\n'
    log += "    first(\n    ^^^^^^\n      second,\n      ~~~^^\n    third,\n    fourth)\nValueError: bad\n"
    assert trimmed(log)[1:] == ["    first(", "    second,", "    third,", "ValueError: bad"]


@pytest.mark.parametrize(("count", "is_cut"), [(6, False), (7, True)])
def test_six_lines_of_a_message_are_shown(count: int, is_cut: bool) -> None:
    message = ["ValueError: many", *(f"line {number}" for number in range(1, count))]
    shown = trimmed(traceback("\n".join(message), "a"))[2:]
    assert shown == [*message[:6], *(["…"] if is_cut else [])]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (8, [f"f{number}" for number in range(8)]),
        (9, ["f0", "f1", "… 1 call in your code", "f3", "f4", "f5", "f6", "f7", "f8"]),
    ],
)
def test_eight_calls_of_the_user_are_shown_the_first_two_and_the_last_six(count: int, expected: list[str]) -> None:
    shown = trimmed(traceback("ValueError: bad", *(f"f{number}" for number in range(count))))[:-1]
    assert [line.strip().removesuffix("()") for line in shown if " File " not in line] == expected


@pytest.mark.parametrize(("length", "expected"), [(500, "x" * 500), (501, "x" * 499 + "…")])
def test_500_characters_of_a_line_are_shown(length: int, expected: str) -> None:
    assert trimmed(traceback("x" * length, "a"))[-1] == expected


@pytest.mark.parametrize(("length", "expected"), [(200, "x" * 200), (201, "x" * 199 + "…")])
def test_200_characters_of_what_failed_are_evidence(length: int, expected: str) -> None:
    assert read_evidence(traceback("x" * length, "a").encode(), PEERS) == Evidence(expected)


def test_an_exception_without_calls_has_its_message() -> None:
    assert trimmed("Traceback (most recent call last):\nKeyError: 'x'\nand more\n") == ["KeyError: 'x'", "and more"]


def test_only_the_last_exception_and_the_one_that_led_to_it_are_shown() -> None:
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    log = link.join(traceback(f"{name}: bad", "f") for name in ("KeyError", "OSError", "ValueError"))
    (chain,) = find_raised(text_lines(log.encode()))
    assert [each.text.splitlines()[0] for each in chain.raised] == ["KeyError: bad", "OSError: bad", "ValueError: bad"]
    assert (chain.first, chain.last) == (0, 14)
    assert [line for line in trim_traceback(chain) if not line.startswith(" ")] == [
        "OSError: bad",
        "",
        "which led to",
        "",
        "ValueError: bad",
    ]


def test_exceptions_without_a_link_are_separate() -> None:
    chains = find_raised(text_lines((traceback("KeyError: a", "f") + traceback("OSError: b", "g")).encode()))
    assert [chain.text.splitlines() for chain in chains] == [["KeyError: a"], ["OSError: b"]]


def test_a_line_that_was_redrawn_is_read_in_its_last_form() -> None:
    assert text_lines(b"10%\r50%\r100%\nnext\r\n\r\r\n  \r\nlast") == ["100%", "next", "", "", "last"]
    assert text_lines(b"[rank1]: a\n[rank12]:\n[rank1]:b\n") == ["a", "", "[rank1]:b", ""]


@pytest.mark.parametrize(
    "message",
    [
        "tf.errors.InvalidArgumentError: Graph execution error:\n\nDetected at node x\nbad shape [Op:MatMul] name: ",
        "InvalidArgumentError: bad shape [[{{node x}}]]",
        "jax.errors.InvalidArgumentError: bad shape",
    ],
)
def test_the_summary_of_an_exception_is_one_line_without_module_or_graph(message: str) -> None:
    (chain,) = find_raised(text_lines(traceback(message, "f").encode()))
    assert chain.raised[-1].sentence == "InvalidArgumentError: bad shape"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("W1118 09:00:00.1 1 pjrt.cc:3] slow", True),
        ("*** Begin stack trace ***", True),
        ("Detected at node x", True),
        ("", True),
        ("loading data", False),
        ("step 3 loss 0.1", False),
    ],
)
def test_log_lines_of_libraries_are_noise(line: str, expected: bool) -> None:
    assert is_noise(line) is expected


def test_a_report_long_after_an_exception_is_about_another_failure() -> None:
    failed, report = traceback("ValueError: bad", "a"), traceback("OSError: Connection reset by peer", "b")
    own = len(failed.splitlines())
    for lines_between, said in ((119 - own, "ValueError: bad"), (120 - own, "connection reset by peer")):
        evidence = read_evidence((failed + "waiting\n" * lines_between + report).encode(), PEERS)
        assert evidence
        assert evidence.said == said


@pytest.mark.parametrize(
    "sign", ["Epoch 2/9", "~~~ Epoch 2/9 ~~~", "step 4: loss 0.5", "4/9 - 1s - 10ms/step - loss: 9.5"]
)
def test_progress_after_an_exception_shows_that_the_training_continued(sign: str) -> None:
    log = traceback("ValueError: handled", "a") + f"{sign}\n" + traceback("OSError: Connection reset by peer", "b")
    evidence = read_evidence(log.encode(), PEERS)
    assert evidence
    assert evidence.said == "connection reset by peer"


def test_a_report_names_the_peer_in_its_exception_or_else_in_the_lines_around_it() -> None:
    other, third = ReplicaId("worker", 1), ReplicaId("worker", 2)
    own_id = ReplicaId("worker", 0)
    peers = Peers(own_id, addresses={"10.0.0.1:2222": own_id, "10.0.0.2:2222": other, "10.0.0.3:2222": third})
    line = "connecting from 10.0.0.1:2222 to 10.0.0.2:2222 and 10.0.0.9:2222\n"
    for message, named in (("by peer", (other,)), ("by peer 10.0.0.3:2222", (third,))):
        log = line + traceback(f"OSError: Connection reset {message}", "a")
        evidence = read_evidence(log.encode(), peers)
        assert evidence
        assert evidence == Evidence(evidence.said, "gone", named)


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ("/job:ps/replica:0/task:1", (ReplicaId("ps", 1),)),
        ("/job:jax_worker/replica:0/task:1", (ReplicaId("worker", 0),)),
        ("1\n2", (ReplicaId("worker", 0), ReplicaId("worker", 1))),
        ("3", ()),
    ],
)
def test_a_task_is_the_replica_of_its_role_or_else_the_one_of_that_rank(
    names: str, named: tuple[ReplicaId, ...]
) -> None:
    chief = ReplicaId("chief", 0)
    peers = Peers(chief, ranks=(chief, ReplicaId("worker", 0), ReplicaId("worker", 1)))
    log = f"The following tasks are unhealthy (stopped sending heartbeats):\n{names}\n"
    assert read_evidence(log.encode(), peers) == Evidence("a peer stopped sending heartbeats", "silent", named)
