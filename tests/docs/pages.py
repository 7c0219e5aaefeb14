"""Read README and docs for tests: fenced blocks with the comments before them, tables, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "coming-from").glob("*.md")),
)
TABLE = "table"

_MARK = re.compile(
    r"<!-- *(?P<word>file|fragment|broken|dialect|demo|cluster|hosts|everywhere|typed|not run)"
    r"(?:: *(?P<about>.*?))? *-->"
)
_FENCE = re.compile(r"```(?P<language>\w*)\s*$")


class Block(NamedTuple):
    """A fenced block, or a table of commands: its language, where it begins, and the comments right before it."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def place(self) -> str:
        """`docs/spec.md:12`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def framework_of(page: Path) -> str | None:
    """Return the framework that a page's comment `framework:` names, None without one."""
    found = re.search(r"^<!-- framework: (\w+) -->$", page.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else None


def read_blocks(page: Path) -> Iterator[Block]:
    """Return every fenced block of a page, and every table that is marked as one of commands, in order."""
    marks: dict[str, str] = {}
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate([*page.read_text("utf-8").splitlines(), ""], start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (number, fence["language"]), []
        elif opened is None and "typed" in marks and line.startswith("|"):
            opened, lines = (number, TABLE), [line]
        elif opened is not None and (not line.startswith("|") if opened[1] == TABLE else fence):
            yield Block(page, *opened, "".join(f"{each}\n" for each in lines), marks)
            opened, marks = None, {}
        elif opened is not None:
            lines.append(line)
        elif mark := _MARK.match(line):
            marks[mark["word"]] = mark["about"] or ""
        elif line.strip():
            marks = {}
    assert opened is None, f"{page.name}: a block is never closed"


def sections(page: Path) -> dict[str, str]:
    """Return the text below each heading of any level, up to the next heading."""
    found: dict[str, str] = {}
    heading, inside = "", False
    for line in page.read_text("utf-8").splitlines():
        inside ^= line.startswith("```")
        if not inside and (match := re.match(r"#+ (.*)", line)):
            heading = match[1]
            found[heading] = ""
        elif heading:
            found[heading] += f"{line}\n"
    return found


def read_table(text: str) -> list[list[str]]:
    """Return the cells of every table row in a text, without headings."""
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        for line in text.splitlines()
        if line.strip().startswith("|")
    ]
    return [row for index, row in enumerate(rows) if not _is_heading(rows, index)]


def _is_heading(rows: list[list[str]], index: int) -> bool:
    def is_rule(row: list[str]) -> bool:
        return all(re.fullmatch(r":?-+:?", cell) for cell in row)

    return is_rule(rows[index]) or (index + 1 < len(rows) and is_rule(rows[index + 1]))
