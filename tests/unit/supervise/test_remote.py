"""The counterpart of a follower on the machine of a remote supervisor, and the check of versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumline import __version__
from drumline.errors import EngineError
from drumline.store.folder import RunFolder
from drumline.store.launch import SENT_BY
from drumline.supervise.message import OLDEST, OWN, PROTOCOL, Piece, VersionError, read_answer, write_head
from drumline.supervise.remote import answer, start
from scaffold.past_runs import finished, write_run

PIECES = [Piece("a", 0, 3), Piece("b", 0, 3)]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path, 4, finished())


def head_of(found: bytes) -> dict[str, Any]:
    return dict(json.loads(found.partition(b"\n")[0]))


def changed(message: bytes, **fields: object) -> bytes:
    return json.dumps({**head_of(message), **fields}).encode() + b"\n" + message.partition(b"\n")[2]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"protocol": 9, "oldest": PROTOCOL + 1}, "install drumline 9.9 or newer on this side"),
        ({"protocol": OLDEST - 1, "oldest": 0}, f"install drumline {__version__} there"),
    ],
    ids=["newer", "older"],
)
def test_a_follower_of_an_incompatible_version_gets_an_error_with_the_version_to_install(
    run: RunFolder, versions: dict[str, object], said: str
) -> None:
    request = write_head(do="read", pieces=[("events.jsonl", 0, 10)])
    found = head_of(answer(run, changed(request, drumline="9.9", **versions)))
    assert said in found["error"]
    assert (found["protocol"], found["drumline"]) == (PROTOCOL, __version__), (
        "the answer has the versions of its sender"
    )


def test_a_newer_follower_that_supports_this_protocol_gets_an_answer(run: RunFolder) -> None:
    request = changed(write_head(do="read", pieces=[("events.jsonl", 0, 10)]), protocol=9, drumline="9.9", more=[1])
    assert head_of(answer(run, request))["found"] == [[run.journal_file.stat().st_size, 10]]


def test_an_unknown_message_and_a_request_without_a_supervisor_get_an_error(run: RunFolder) -> None:
    assert "does not know the message 'dance'" in head_of(answer(run, write_head(do="dance")))["error"]
    told = head_of(answer(run, write_head(do="request", request={"do": "stop"})))
    assert told["reply"] == {"ok": False, "message": "run 4 has no supervisor"}
    with pytest.raises(EngineError, match=r"refused: drumline .* does not know the message 'dance'"):
        read_answer("4", answer(run, write_head(do="dance")))


@pytest.mark.parametrize("name", ["../4/events.jsonl", "/etc/passwd", "", "a//b", ".", "a\0b", 5])
def test_only_files_of_the_run_are_read(run: RunFolder, name: object) -> None:
    assert "not a part of a file" in head_of(answer(run, write_head(do="read", pieces=[(name, 0, 10)])))["error"]


@pytest.mark.parametrize("pieces", [None, [["events.jsonl", -1, 5]], [["events.jsonl"]], [["a", 0, 1]] * 1000])
def test_an_invalid_list_of_pieces_is_refused(run: RunFolder, pieces: object) -> None:
    assert "error" in head_of(answer(run, write_head(do="read", pieces=pieces)))


@pytest.mark.parametrize("sent", [b"", b"\xff", b"[]\n", b"{}\n", b'{"protocol": true, "oldest": 1, "journal": 1}\n'])
def test_an_invalid_message_gets_an_error(run: RunFolder, sent: bytes) -> None:
    assert head_of(answer(run, sent))["error"]
    assert head_of(start(run, sent))["error"]


@pytest.mark.parametrize(
    ("found", "rest"),
    [
        ([[3, 3]], b"abc"),
        ([[3, 3], [3, 3]], b"abc"),
        ([[3, 3], [3, 4]], b"abcdefg"),
        ([[3, -1], [3, 3]], b"abc"),
        ([["3", 3], [3, 3]], b"abcdef"),
        ({"a": 1}, b""),
        (None, b""),
    ],
)
def test_other_pieces_than_were_asked_for_are_refused(found: object, rest: bytes) -> None:
    with pytest.raises(EngineError, match="something that drumline does not send"):
        read_answer("4", write_head(locked=True, found=found) + rest, PIECES)


def test_the_bytes_of_an_answer_are_divided_into_the_requested_pieces() -> None:
    found = read_answer("4", write_head(locked=True, found=[[9, 2], [0, 0]]) + b"ab", PIECES)
    assert [(each.size, each.data) for each in found.found] == [(9, b"ab"), (0, b"")]
    assert (found.locked, found.returning) == (True, False)


def test_an_answer_with_a_newer_journal_version_is_refused() -> None:
    with pytest.raises(VersionError, match=f"with version {OWN.journal + 1}"):
        read_answer("4", changed(write_head(found=[]), journal=OWN.journal + 1))


def test_a_folder_of_another_run_is_not_used(run: RunFolder) -> None:
    files = {"plan.json": "{}", "launch.json": json.dumps({"at": 5.0, SENT_BY: "x"}), "drumline.yml": ""}
    order = write_head(asked="") + json.dumps({"files": files, "secrets": {}}).encode()
    before = run.plan_file.read_bytes()
    assert "is the folder of another run" in head_of(start(run, order))["error"]
    assert run.plan_file.read_bytes() == before
