"""Every command that README and docs show is run, and prints the output that they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from docs.pages import PAGES, ROOT, TABLE, framework_of, read_blocks, read_table, sections
from docs.terminal import Terminal, read_row, try_block
from drumline.cli import COMMANDS, group

# Only commands that set up or test the checkout itself, or would change the reader's machine.
MOST_NOT_RUN = 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_on_a_page_prints_the_output_that_the_page_shows(page: Path, tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, framework_of(page))) as terminal:
        # See tests/cluster/test_docs.py and tests/hosts/test_docs.py.
        here = (block for block in read_blocks(page) if not {"cluster", "hosts"} & block.marks.keys())
        wrong = [line for block in here for line in try_block(block, terminal)]
    assert not wrong, "\n".join(wrong)


def test_every_code_block_has_a_language() -> None:
    known = ("console", "sh", "yaml", "text", "python", "json", "toml", TABLE)
    strange = [block.place for page in PAGES for block in read_blocks(page) if block.language not in known]
    assert not strange


def test_every_row_of_a_table_of_commands_has_a_command_or_states_that_none_is_needed() -> None:
    tables = [block for page in PAGES for block in read_blocks(page) if block.language == TABLE]
    assert {block.page for block in tables} == {page for page in PAGES if page.parent.name == "coming-from"}
    rows = [(block.place, row) for block in tables for row in read_table(block.text)]
    assert not [(place, row) for place, row in rows if bool(read_row(row)) == row[-1].startswith("Nothing")]


def test_few_commands_of_pages_are_not_run_and_each_has_a_reason() -> None:
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
    """Return the longest form of each option of a command and of its subcommands."""
    command = group.get_command(click.Context(group), name)
    assert command is not None
    below = command.commands.values() if isinstance(command, click.Group) else (command,)
    yield ""
    for each in below:
        for parameter in each.params:
            if isinstance(parameter, click.Option):
                yield max(parameter.opts, key=len)
