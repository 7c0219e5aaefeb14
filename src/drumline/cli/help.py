"""``drumline help``: the help of a command, or a page about a topic."""

from __future__ import annotations

from importlib.resources import files

import click
from click.shell_completion import CompletionItem

from drumline.cli import COMMANDS
from drumline.cli.synonyms import SYNONYMS
from drumline.cli.terminal import print_document
from drumline.errors import InputError
from drumline.words import nearest

TOPICS = ("spec", "ids", "engines", "variables", "files", "exit-codes")  # the ones needed first at the top


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return topics and commands for completion; nothing after a command."""
    if ctx.params.get(str(param.name)):
        return []
    known = {**{name: title(name) for name in TOPICS}, **COMMANDS}
    return [CompletionItem(name, help=about) for name, about in known.items() if name.startswith(incomplete)]


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND | TOPIC]", shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a COMMAND or a page about a TOPIC; without either, list the topics."""
    if not words:
        print_document(f"{_overview()}\n")
    elif words[0] in COMMANDS:
        root = ctx.find_root().command
        root.main([*words, "--help"], prog_name="drumline", standalone_mode=False, color=ctx.color)
    elif len(words) > 1 or words[0] not in TOPICS:
        raise InputError(f"no command or topic `{' '.join(words)}`", hint=_meant("-".join(words)))
    else:
        print_document(topic(words[0]))


def topic(name: str) -> str:
    """Return the page of a topic; its first line is the title."""
    return files("drumline.cli").joinpath("topics", f"{name}.txt").read_text("utf-8")


def title(name: str) -> str:
    """Return the title of a topic."""
    return topic(name).partition("\n")[0]


def _overview() -> str:
    width = max(map(len, TOPICS))
    return "\n".join(
        (
            "To start: `drumline init` writes a spec and a script, `drumline train` runs them.",
            "`drumline --help` lists all commands, `drumline help COMMAND` shows the help of one.",
            "",
            "Topics (`drumline help TOPIC` shows one):",
            *(f"  {name.ljust(width)}  {title(name)}" for name in TOPICS),
        )
    )


def _meant(word: str) -> str:
    """Return the hint for a word that is no command and no topic."""
    near = nearest(word, (*TOPICS, *COMMANDS)) or SYNONYMS.get(word)
    return f"did you mean `drumline help {near}`?" if near else "`drumline help` lists the topics"
