"""Every command that README and docs show is typed, and prints what they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from docs.pages import PAGES, ROOT, Block, framework_of, read_blocks, sections
from docs.terminal import Terminal, differences, read_commands
from drumline.cli import COMMANDS, group

# A few: what sets up or tests the checkout itself, and what would change the reader's machine.
MOST_NOT_RUN = 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_tells_you_to_type_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, framework_of(page))) as terminal:
        wrong = [line for block in read_blocks(page) for line in try_block(block, terminal)]
    assert not wrong, "\n".join(wrong)


def try_block(block: Block, terminal: Terminal) -> Iterator[str]:
    """Type what a block says to type; say where it went otherwise than shown."""
    if "file" in block.marks:
        terminal.write(block.marks["file"], block.text)
    if "not run" in block.marks or "demo" in block.marks:  # what the demo shows is its own test's
        return
    if block.language == "sh":
        printed, code = terminal.type(block.text)
        if code != 0:
            yield f"{block.place}: exit code {code}\n{printed}"
    elif block.language == "console":
        for command in read_commands(block.text):
            printed, code = terminal.type(command.text)
            if code != 0 and not command.may_fail:
                yield f"{block.place}: $ {command.text}: exit code {code}"
            if unlike := differences(command.output, printed):
                yield "\n  ".join((f"{block.place}: $ {command.text}", *unlike))


def test_every_block_says_what_it_is() -> None:
    known = ("console", "sh", "yaml", "text", "python", "json")
    strange = [block.place for page in PAGES for block in read_blocks(page) if block.language not in known]
    assert not strange


def test_few_commands_are_not_run_and_each_says_why() -> None:
    left_out = [block for page in PAGES for block in read_blocks(page) if "not run" in block.marks]
    assert len(left_out) <= MOST_NOT_RUN
    assert all(block.marks["not run"] for block in left_out)


def test_commands_md_has_every_command_with_every_option() -> None:
    found = sections(ROOT / "docs" / "commands.md")
    missing = [
        f"{name} {option}"
        for name in COMMANDS
        for option in options_of(name)
        if option not in found.get(f"drumline {name}", "")
    ]
    assert not missing


def options_of(name: str) -> Iterator[str]:
    """The longest spelling of each option of a command and of the commands below it."""
    command = group.get_command(click.Context(group), name)
    assert command is not None
    below = command.commands.values() if isinstance(command, click.Group) else (command,)
    yield ""
    for each in below:
        for parameter in each.params:
            if isinstance(parameter, click.Option):
                yield max(parameter.opts, key=len)
