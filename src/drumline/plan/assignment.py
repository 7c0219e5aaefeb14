"""Read TF_CONFIG from a shell command: `export TF_CONFIG='…'`, `TF_CONFIG='…' python x.py`, or output of `env`."""

from __future__ import annotations

import json
import re

from drumline.record import Record

_NAME = re.compile(r"(?:\A|(?<=[\s;&|(]))TF_CONFIG=")
# The text before TF_CONFIG: other variables, and commands that set variables. Each word ends at a separator, so that a
# text can be matched in only one way.
_BEFORE = re.compile(r"[\s;&|(]*(?:(?:export|declare|typeset|set|env|local|-\w+|[A-Za-z_]\w*=[^\s;&|(]*)[\s;&|(]+)*")
_SETS_ONLY = re.compile(r"\b(?:export|declare|typeset|set|local)\b")


class Assignment(Record):
    """The value of TF_CONFIG in a shell command, and the command after the assignment; empty if there is none."""

    value: str
    command: str


def read_assignment(text: str) -> Assignment | None:
    """Return the assignment in a shell command that sets TF_CONFIG; None for any other text.

    Raise ValueError for an unclosed quote.
    """
    name = _NAME.search(text)
    if name is None or not _BEFORE.fullmatch(text, 0, name.start()):
        return None
    if text[name.end() :].startswith("{"):  # `env` prints it without quotes
        return Assignment(*_split_json(text[name.end() :]))
    value, end = _read_word(text, name.end())
    rest = text[end:]
    own_command = re.split(r"[;&|\n]", text[: name.start()])[-1]
    if _SETS_ONLY.search(own_command):  # the other words of such a command are variables too
        rest = re.sub(r"\A[^;&|\n]*", "", rest)
    return Assignment(value, _command(rest))


def _split_json(text: str) -> tuple[str, str]:
    """Return the JSON object at the start of a text, and the command after it; the whole text if it is not JSON."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return text, ""
    return text[:end], _command(text[end:])


def _command(text: str) -> str:
    return text.strip("; &|)\t\r\n")


def _read_word(text: str, start: int) -> tuple[str, int]:
    """Return one shell word without its quotes, and the offset of its end."""
    value: list[str] = []
    at = start
    while at < len(text) and text[at] not in " \t\r\n;&|)":
        char = text[at]
        if char == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise ValueError("a quote in it is never closed")
            value.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            inside = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(text, at)
            if inside is None:
                raise ValueError("a quote in it is never closed")
            value.append(re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), inside[1]))
            at = inside.end()
        elif char == "\\":
            value.append(text[at + 1 : at + 2].strip("\n"))
            at += 2
        else:
            value.append(char)
            at += 1
    return "".join(value), at
