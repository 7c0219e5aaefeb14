"""``drumline help``: a command's options, or a page about what no single command is about."""

from __future__ import annotations

from importlib.resources import files

import click
from click.shell_completion import CompletionItem

from drumline.cli import COMMANDS
from drumline.cli.synonyms import SYNONYMS
from drumline.cli.terminal import print_document
from drumline.errors import InputError
from drumline.words import nearest

TOPICS = ("spec", "ids", "engines", "variables", "files", "exit-codes")  # as a newcomer needs them


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics and commands, for a shell; after a command, nothing."""
    if ctx.params.get(str(param.name)):
        return []
    known = {**{name: title(name) for name in TOPICS}, **COMMANDS}
    return [CompletionItem(name, help=about) for name, about in known.items() if name.startswith(incomplete)]


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND | TOPIC]", shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show what a COMMAND takes, or a page about a TOPIC; without either, the list of topics."""
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
    """A topic's page; its first line is its title."""
    return files("drumline.cli").joinpath("topics", f"{name}.txt").read_text("utf-8")


def title(name: str) -> str:
    """What a topic is about, in one line."""
    return topic(name).partition("\n")[0]


def _overview() -> str:
    width = max(map(len, TOPICS))
    return "\n".join(
        (
            "To begin: `drumline init` writes a spec and a script, `drumline train` runs them.",
            "`drumline --help` lists all commands, `drumline help COMMAND` shows what one takes.",
            "",
            "Topics, each a page of `drumline help TOPIC`:",
            *(f"  {name.ljust(width)}  {title(name)}" for name in TOPICS),
        )
    )


def _meant(word: str) -> str:
    """What to tell somebody who asked about something that has no page."""
    near = nearest(word, (*TOPICS, *COMMANDS)) or SYNONYMS.get(word)
    return f"did you mean `drumline help {near}`?" if near else "`drumline help` lists the topics"
