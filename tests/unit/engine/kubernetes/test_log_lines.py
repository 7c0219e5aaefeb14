"""Log lines from the kubelet, over connections that break anywhere: none is lost or repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.engine.kubernetes.log_lines import Cursor, LogPiece, LogStream, parse_time
from drumline.engine.kubernetes.logfile import LogFile, read_cursor, write_cursor
from drumline.run.traces import CURSOR
from drumline.store.logs import LogReader
from scaffold.effort import examples
from scaffold.kubelet import BEGAN_NS, Kubelet, spell

contents = st.binary(max_size=50).map(lambda data: data.replace(b"\n", b"\r"))
gaps = st.sampled_from((0, 0, 1, 1000, 10**6, 3 * 10**8, 2 * 10**9))


def take(log: list[LogPiece], stream: LogStream, data: bytes, sizes: list[int]) -> None:
    """Feed the data, in chunks of these sizes."""
    start = 0
    for size in (*sizes, len(data)):
        log += stream.feed(data[start : start + size])
        start += size


def follow(cursor: Cursor, pieces: list[LogPiece]) -> Cursor:
    for piece in pieces:
        cursor = cursor.after(piece)
    return cursor


@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_the_log_is_complete_after_any_number_of_broken_connections(data: st.DataObject) -> None:
    kubelet, cursor, log = Kubelet(), Cursor(), b""
    at_ns = BEGAN_NS
    for _ in range(data.draw(st.integers(1, 6))):
        for line in data.draw(st.lists(contents, max_size=8)):
            at_ns += data.draw(gaps) + (len(line) // 16)
            kubelet.write(at_ns, line)
        sent = kubelet.send(cursor.since)
        breaks = data.draw(st.booleans())
        stream, got = LogStream(cursor), list[LogPiece]()
        take(
            got,
            stream,
            sent[: data.draw(st.integers(0, len(sent)))] if breaks else sent,
            data.draw(st.lists(st.integers(1, 40), max_size=5)),
        )
        got += [] if breaks else stream.end()
        cursor = follow(cursor, got)
        log += b"".join(piece.data for piece in got)
        assert kubelet.written.startswith(log)
        assert cursor.size == len(log)
        if not breaks:
            assert log == kubelet.written
    stream = LogStream(cursor)
    log += b"".join(piece.data for piece in (*stream.feed(kubelet.send(cursor.since)), *stream.end()))
    assert log == kubelet.written


@settings(deadline=None, max_examples=examples(100))
@given(before=st.lists(contents, min_size=1), after=st.lists(contents), quiet=st.sampled_from((0, 10**6, 5 * 10**9)))
def test_all_lines_of_a_new_log_file_are_new(before: list[bytes], after: list[bytes], quiet: int) -> None:
    kubelet = Kubelet()
    for number, line in enumerate(before):
        kubelet.write(BEGAN_NS + 1000 * number, line)
    first = LogStream(Cursor())
    cursor = follow(Cursor(), [*first.feed(kubelet.send("")), *first.end()])
    kubelet.rotate()
    for number, line in enumerate(after):
        kubelet.write(BEGAN_NS + 1000 * (len(before) + number) + quiet, line)
    second = LogStream(cursor)
    new = [*second.feed(kubelet.send(cursor.since)), *second.end()]
    assert b"".join(piece.data for piece in new) == b"".join(line + b"\n" for line in after)
    assert second.has_gap == bool(after)


def test_lines_of_two_streams_with_times_out_of_order_are_read_once_each() -> None:
    kubelet = Kubelet()
    for number, at in enumerate((100, 300, 200, 500, 400, 600)):
        kubelet.write(BEGAN_NS + at, b"%d" % number)
    sent = kubelet.send("")
    for cut in range(len(sent)):
        first = LogStream(Cursor())
        got = first.feed(sent[:cut])
        second = LogStream(follow(Cursor(), got))
        got += [*second.feed(kubelet.send(follow(Cursor(), got).since)), *second.end()]
        assert b"".join(piece.data for piece in got) == kubelet.written, cut


def test_a_connection_that_ends_early_repeats_no_line() -> None:
    kubelet = Kubelet()
    for number in range(10):
        kubelet.write(BEGAN_NS + 1000 * number, b"line %d" % number)
    first = LogStream(Cursor())
    cursor = follow(Cursor(), first.feed(kubelet.send("")))
    again = LogStream(cursor)
    assert again.feed(kubelet.send(cursor.since)[:100]) == []
    assert again.end() == []


def test_a_last_line_without_a_newline_gets_none() -> None:
    kubelet = Kubelet()
    kubelet.write(BEGAN_NS, b"done")
    kubelet.write(BEGAN_NS + 1, b"100%", ends=False)
    stream = LogStream(Cursor())
    pieces = stream.feed(kubelet.send(""))
    assert b"".join(piece.data for piece in pieces) == b"done\n100%"
    cursor = follow(Cursor(), pieces)
    again = LogStream(cursor)
    assert again.feed(kubelet.send(cursor.since)) == []
    assert again.end() == []


def test_a_message_of_the_kubelet_itself_is_no_line_of_the_log() -> None:
    stream = LogStream(Cursor())
    assert stream.feed(b"unable to retrieve container logs for containerd://4711") == []
    assert stream.end() == []
    assert stream.kubelet_error == "unable to retrieve container logs for containerd://4711"
    late = LogStream(Cursor())
    said = b"failed to create fsnotify watcher: too many open files\n"
    pieces = late.feed(spell(BEGAN_NS) + b" step 1\n" + said)
    assert [piece.data for piece in pieces] == [b"step 1\n"]
    assert late.kubelet_error == said.decode().strip()


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (b"2026-11-15T21:07:06.444619436Z", 1794776826444619436),
        (b"2026-11-15T22:07:06.444619436+01:00", 1794776826444619436),
        (b"2026-11-15T21:07:06Z", 1794776826000000000),
        (b"2026-11-15T21:07:06.5Z", 1794776826500000000),
        (b"2026-13-15T21:07:06Z", None),
        (b"step", None),
        (b"", None),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: bytes, ns: int | None) -> None:
    assert parse_time(text) == ns


def test_a_cursor_is_unchanged_after_it_was_written_and_an_incomplete_one_is_none(tmp_path: Path) -> None:
    cursor = Cursor(1 << 40, BEGAN_NS, 3, 17, is_open=True)
    write_cursor(tmp_path / "cursor", cursor)
    assert read_cursor(tmp_path / "cursor") == cursor
    data = bytearray((tmp_path / "cursor").read_bytes())
    data[3] ^= 1
    (tmp_path / "cursor").write_bytes(data)
    assert read_cursor(tmp_path / "cursor") == Cursor()
    assert read_cursor(tmp_path / "nothing") == Cursor()


@settings(deadline=None, max_examples=examples(50))
@given(lines=st.lists(contents, min_size=1, max_size=10), killed=st.integers(0, 9), cut=st.integers(0, 400))
def test_a_collector_that_is_killed_between_log_and_cursor_can_be_continued(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], killed: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("life")
    kubelet = Kubelet()
    for number, line in enumerate(lines):
        kubelet.write(BEGAN_NS + 1000 * number, line)
    file, stream, old = LogFile(folder / "log"), LogStream(Cursor()), Cursor()
    sent = kubelet.send("")[:cut]
    for number in range(0, len(sent), 37):
        if number // 37 == killed:
            old = file.cursor
        file.append(stream.feed(sent[number : number + 37]))
    write_cursor(folder / CURSOR, old)  # the last cursor that was stored
    returned = LogFile(folder / "log")
    again = LogStream(returned.cursor)
    returned.append(again.feed(kubelet.send(returned.cursor.since)))
    returned.append(again.end(), has_gap=again.has_gap)
    assert (folder / "log").read_bytes() == kubelet.written


def test_lines_that_were_fetched_late_have_the_time_at_which_they_were_written(tmp_path: Path) -> None:
    kubelet = Kubelet()
    for number, at in enumerate((0.0, 0.1, 7.3, 60.0)):
        kubelet.write(BEGAN_NS + int(at * 1e9), b"line %d" % number)
    file, stream = LogFile(tmp_path / "log"), LogStream(Cursor())
    file.append(stream.feed(kubelet.send("")))
    blocks = LogReader(tmp_path).read(until=0.0)
    assert [(block.data, round(block.at - BEGAN_NS / 1e9, 3), block.exact) for block in blocks] == [
        (b"line 0\nline 1\n", 0.1, True),
        (b"line 2\n", 7.3, True),
        (b"line 3\n", 60.0, True),
    ]


def test_a_log_without_its_cursor_is_fetched_again_from_its_beginning(tmp_path: Path) -> None:
    kubelet = Kubelet()
    kubelet.write(BEGAN_NS, b"first")
    (tmp_path / "log").write_bytes(b"first\nand more that is not there any more\n")
    file, stream = LogFile(tmp_path / "log"), LogStream(Cursor())
    file.append(stream.feed(kubelet.send(file.cursor.since)))
    assert (tmp_path / "log").read_bytes() == b"first\n"
