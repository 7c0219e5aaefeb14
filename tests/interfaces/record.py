"""docs/interfaces.txt: the interfaces as they were promised, and how they differ from those of the code."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[2] / "docs" / "interfaces.txt"
_HEAD = """\
The interfaces of drumline that others may rely on. docs/stability.md says what is promised about them.
`make interfaces` writes this file; a test compares it with the code.
"""

Sections = dict[str, dict[str, str]]


class Difference(NamedTuple):
    """How the code differs from what was promised."""

    added: list[str]
    removed: list[str]
    changed: list[str]


def write(sections: Sections) -> str:
    """Return the text of the file."""
    parts = [_HEAD]
    for section, lines in sections.items():
        parts.append("".join(f"{line}\n" for line in (f"== {section} ==", *map(_line, lines.items()))))
    return "\n".join(parts)


def read(text: str) -> Sections:
    """Return what `write` was given."""
    sections: Sections = {}
    for line in text.splitlines():
        if line.startswith("== "):
            section = sections.setdefault(line.strip("= "), {})
        elif sections and line:
            name, _, value = line.partition("  ")
            section[name] = value.strip()
    return sections


def compare(promised: Sections, found: Sections) -> Difference:
    """Return what of the interfaces was added, removed or changed."""
    before = {f"{section}: {name}": value for section, lines in promised.items() for name, value in lines.items()}
    after = {f"{section}: {name}": value for section, lines in found.items() for name, value in lines.items()}
    return Difference(
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=[
            f"{name}: was `{value}`, is `{after[name]}`"
            for name, value in before.items()
            if after.get(name, value) != value
        ],
    )


def _line(item: tuple[str, str]) -> str:
    return "  ".join(part for part in item if part)
