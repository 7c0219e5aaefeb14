"""Exceptions in what was printed: found, followed back to what led to them, and cut to what their author wants."""

from __future__ import annotations

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.evidence import Peers, closing, read_evidence
from drumline.run.exception import find_raised, lines_of, trim

ME = Peers(ReplicaId("worker", 0))


def frames(*names: str, path: str = "/project/train.py") -> str:
    return "".join(f'  File "{path}", line {number}, in {name}\n    {name}()\n' for number, name in enumerate(names, 1))


def traceback(message: str, *names: str, path: str = "/project/train.py") -> str:
    return f"Traceback (most recent call last):\n{frames(*names, path=path)}{message}\n"


def trimmed(log: str) -> list[str]:
    chain = closing(lines_of(log.encode()))
    assert chain
    return trim(chain)


def test_calls_in_libraries_are_a_word() -> None:
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


def test_whatever_ran_the_script_is_left_out_and_the_last_calls_stay_where_no_other_is_the_authors() -> None:
    ran = frames("run_path", path="/usr/lib/python3.11/runpy.py") + frames("become", path="/x/drumline/runtime/fork.py")
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


def test_a_deep_recursion_keeps_its_ends() -> None:
    shown = trimmed(traceback("RecursionError: too deep", *(f"f{number}" for number in range(1000))))
    assert len(shown) < 20
    assert [line for line in shown if "calls in" in line] == ["  … 992 calls in your own"]


def test_what_led_to_an_exception_comes_before_it() -> None:
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    log = traceback("KeyError: 'x'", "a") + link + traceback("RuntimeError: cannot train", "b")
    shown = trimmed(log)
    assert (shown[2], shown[4], shown[-1]) == ("KeyError: 'x'", "which led to", "RuntimeError: cannot train")


def test_a_long_message_is_cut_and_the_lines_of_others_behind_it_are_not_of_it() -> None:
    message = "\n".join(["ValueError: many", *(f"line {number}" for number in range(30))])
    assert trimmed(traceback(message, "a"))[-2:] == ["line 4", "…"]
    log = traceback("ValueError: one", "a") + "2024-01-01 12:00:00.1: I tensorflow/core: bye\n"
    assert trimmed(log)[-1] == "ValueError: one"


def test_colours_bars_and_ranks_are_no_part_of_it() -> None:
    log = '\x1b[31m[rank3]: Traceback (most recent call last):\x1b[0m\n[rank3]:   File "a.py", line 1, in f\n'
    log += "50%|##\r100%|####\r[rank3]: ValueError: bad\r\n"
    (chain,) = find_raised(lines_of(log.encode()))
    assert chain.raised[-1].sentence == "ValueError: bad"


def test_a_crash_of_the_interpreter_names_the_last_calls() -> None:
    log = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    log += '  File "/project/ops.py", line 4 in crash\n  File "/project/train.py", line 9 in <module>\n'
    assert trimmed(log) == [
        '  File "/project/train.py", line 9, in <module>',
        '  File "/project/ops.py", line 4, in crash',
        "Fatal Python error: Segmentation fault",
    ]
    evidence = read_evidence(log.encode(), ME)
    assert evidence
    assert (evidence.said, evidence.reports) == ("Fatal Python error: Segmentation fault", "")


@pytest.mark.parametrize("log", ["", "step 1: loss 0.5\n", "all is well\n", "Traceback (most recent call last):\n"])
def test_whoever_says_nothing_of_an_end_has_no_evidence_that_it_failed(log: str) -> None:
    assert read_evidence(log.encode(), ME) is None


def test_an_exception_that_was_survived_is_not_what_ended_it() -> None:
    log = (
        traceback("ValueError: handled", "a")
        + "step 4: loss 0.5\n"
        + traceback("OSError: Connection reset by peer", "b")
    )
    evidence = read_evidence(log.encode(), ME)
    assert evidence
    assert evidence.reports == "gone"


def test_a_report_while_it_ends_does_not_hide_what_it_failed_of() -> None:
    log = traceback("ValueError: bad", "a") + traceback("JaxRuntimeError: UNAVAILABLE: Connection reset by peer", "b")
    evidence = read_evidence(log.encode(), ME)
    assert evidence
    assert (evidence.said, evidence.reports) == ("ValueError: bad", "")


@pytest.mark.parametrize("cut", range(0, 300, 7))
def test_of_a_log_that_is_cut_anywhere_only_whole_tracebacks_count(cut: int) -> None:
    once = traceback("KeyError: 'ü'", "a", "b").encode()
    log = once * 2
    for start in (log[cut:], bytes(range(256)) + log[cut:]):
        evidence = read_evidence(start, ME)
        assert (evidence and evidence.said) == ("KeyError: 'ü'" if cut <= len(once) else None)
    evidence = read_evidence(log[: max(0, len(log) - cut)], ME)
    assert evidence is None or "KeyError: 'ü'".startswith(evidence.said)
