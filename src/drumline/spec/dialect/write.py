"""A draft as the drumline.yml that a person would have written, with comments where something was decided."""

from __future__ import annotations

import re
import textwrap

from drumline.spec import document
from drumline.spec.dialect.draft import SpecDraft, lines_of, plain
from drumline.spec.write import write_yaml
from drumline.words import printable

_WIDTH = 110


def write(draft: SpecDraft) -> str:
    """The spec as YAML. What could not be carried over stands at its top."""
    text = write_yaml(plain(draft.tree()))
    # Where each value has come to stand, nobody knows better than who reads it.
    lines = dict(lines_of(document.parse(text.encode(), "").root))
    before: dict[int, list[str]] = {}
    for path, notes in draft.notes.items():
        above = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)
        before.setdefault(above, []).extend(notes)
    written = _header(draft)
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        indent = re.match(r"[ ]*", line)
        for note in before.get(number, ()):
            written += _comment(note, indent[0] if indent else "")
        written.append(line)
    return "\n".join(written) + "\n"


def _header(draft: SpecDraft) -> list[str]:
    source = printable(draft.location.source)
    whose = f", which was written for {draft.dialect}" if draft.dialect else ""
    header = _comment(f"Made by `drumline convert` from {source}{whose}.")
    if draft.warnings:
        header += _comment("Not as it was there:")
        for warning in draft.warnings:
            header += _comment(str(warning), hang="  ")
    return [*header, ""]


def _comment(text: str, indent: str = "", hang: str = "") -> list[str]:
    # A comment must not end where its text has a line break of its own.
    wrapped = textwrap.wrap(
        printable(text),
        _WIDTH - len(indent),
        initial_indent=f"# {hang}",
        subsequent_indent=f"# {hang}{hang}",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"{indent}{line}" for line in wrapped]
