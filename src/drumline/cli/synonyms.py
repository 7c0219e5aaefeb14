"""The names that other systems give to drumline's commands."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.words import nearest

_WORDS = {
    "train": "run create apply submit launch start up",
    "status": "get list ls ps jobs describe show",
    "kill": "stop delete cancel terminate down",
    "logs": "log tail follow attach",
    "inspect": "exec shell ssh",
    "check": "validate lint plan",
    "doctor": "system info",
    "monitor": "top stats",
    "render": "template",
}
SYNONYMS = {word: command for command, words in _WORDS.items() for word in words.split()}
_ACCOUNT_COMMANDS = ("account", "login", "user", "whoami")


def command_hint(word: str, commands: Iterable[str]) -> str:
    """Return the hint for a word that is no command."""
    if word in _ACCOUNT_COMMANDS:
        return "there are no accounts: a run belongs to the user that starts it"
    near = SYNONYMS.get(word) or nearest(word, commands)
    return f"did you mean `drumline {near}`?" if near else "`drumline --help` lists them"
