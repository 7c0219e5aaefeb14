"""Write a draft as a drumline.yml, with comments about decisions and about what is not carried over."""

from __future__ import annotations

import re
import textwrap

from drumline.spec import document
from drumline.spec.dialect.draft import SpecDraft, lines_of, plain
from drumline.spec.write import write_yaml
from drumline.words import printable

_WIDTH = 110


def write(draft: SpecDraft) -> str:
    """Return the spec as YAML; warnings are listed at the top."""
    text = write_yaml(plain(draft.tree()))
    # The YAML is parsed again to find the line of each value.
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
    origin = f", which was written for {draft.dialect}" if draft.dialect else ""
    header = _comment(f"Made by `drumline convert` from {source}{origin}.")
    if draft.warnings:
        header += _comment("Differences from the original:")
        for warning in draft.warnings:
            header += _comment(str(warning), hang="  ")
    return [*header, ""]


def _comment(text: str, indent: str = "", hang: str = "") -> list[str]:
    # `printable` escapes line breaks, which would end the comment.
    wrapped = textwrap.wrap(
        printable(text),
        _WIDTH - len(indent),
        initial_indent=f"# {hang}",
        subsequent_indent=f"# {hang}{hang}",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"{indent}{line}" for line in wrapped]
