"""The session that README shows is really run, and drawn as a terminal shows it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from docs.pages import ROOT
from session.picture import draw
from session.recording import COLUMNS, COMMANDS, record
from session.screen import PLAIN, Look, Screen, Span

RED = Look(colour=1)


def shown(text: str, columns: int = 20) -> list[list[Span]]:
    """Return the lines that a screen shows after this output."""
    screen = Screen(columns)
    screen.write(text)
    return screen.lines()


def words(line: list[Span]) -> str:
    """Return the text of a line without its colours."""
    text = ""
    for span in line:
        text = text.ljust(span.column) + span.text
    return text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a\r\n\r\nb\r\n", [[Span(0, "a", PLAIN)], [], [Span(0, "b", PLAIN)]]),
        ("  a  b  ", [[Span(2, "a  b", PLAIN)]]),
        ("\x1b[31mred\x1b[0m not", [[Span(0, "red", RED), Span(4, "not", PLAIN)]]),
        ("\x1b[1;2mx\x1b[22my", [[Span(0, "x", Look(None, bold=True, dim=True)), Span(1, "y", PLAIN)]]),
        ("\x1b[91mx\x1b[39my", [[Span(0, "x", Look(colour=9)), Span(1, "y", PLAIN)]]),
        ("half\rfull", [[Span(0, "full", PLAIN)]]),
        ("longer\r\x1b[Kx", [[Span(0, "x", PLAIN)]]),
        ("kept\r\na line\r\n\x1b[1A\x1b[Jover it", [[Span(0, "kept", PLAIN)], [Span(0, "over it", PLAIN)]]),
        ("x" * 22, [[Span(0, "x" * 20, PLAIN)], [Span(0, "xx", PLAIN)]]),
        ("x" * 20 + "\r\ny", [[Span(0, "x" * 20, PLAIN)], [Span(0, "y", PLAIN)]]),
    ],
)
def test_the_screen_of_the_recording_shows_the_same_as_a_terminal(text: str, lines: list[list[Span]]) -> None:
    assert shown(text) == lines


@pytest.mark.parametrize("text", ["\x1b[5;5H", "\x1b[38;5;7mx", "\x07", "\x1b]0;title\x07", "\x1b[2J"])
def test_an_unknown_control_sequence_is_refused_by_the_screen(text: str) -> None:
    with pytest.raises(ValueError, match="this screen does not know"):
        shown(text)


def test_a_picture_has_every_word_in_its_place_and_colour() -> None:
    picture = ET.fromstring(draw(shown("plain <&> \x1b[31mred\x1b[0m\r\n\x1b[1mbold  it"), columns=20, title="a & b"))
    title, plain, red, bold = picture.iterfind("{*}text")
    assert title.text == "a & b"
    assert [each.text for each in (plain, red, bold)] == ["plain\xa0<&>", "red", "bold\xa0\xa0it"]
    assert (plain.get("y"), plain.get("font-weight")) == (red.get("y"), None)
    assert float(bold.get("y", 0)) > float(red.get("y", 0))
    assert bold.get("font-weight") == "700"
    assert (plain.get("fill"), red.get("fill")) == (bold.get("fill"), "#ff7b72")
    assert float(red.get("x", 0)) - float(plain.get("x", 0)) == pytest.approx(10 * 8.4)


def test_the_session_runs_and_its_picture_is_of_the_same_commands() -> None:
    lines = [words(line) for line in record()]
    assert [line for line in lines if line.startswith("$")] == [f"$ {command}" for command in COMMANDS]
    assert "drumline: run 1 (digits): 2 workers on local" in lines
    assert "┃ Run 2 failed. First replica to fail: 2.worker.1, exit code 1" in lines
    assert "┃ ValueError: bad row in shard 7" in lines
    assert lines[-1].split()[:3] == ["1", "digits", "FINISHED"]
    assert max(map(len, lines)) <= COLUMNS

    drawn = ET.parse(ROOT / "docs" / "session.svg").iterfind("{*}text")
    typed = [text.text.replace("\xa0", " ") for text in drawn if text.text and text.get("font-weight")]
    assert [text for text in typed if text.startswith("drumline")] == list(COMMANDS)
    assert "](docs/session.svg)" in (ROOT / "README.md").read_text()
