"""Commands as other systems call them: whoever comes from there is told the word that is meant here."""

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
SYNONYMS = {word: here for here, words in _WORDS.items() for word in words.split()}
_OF_ACCOUNTS = ("account", "login", "user", "whoami")


def command_hint(word: str, commands: Iterable[str]) -> str:
    """What to tell somebody who typed a word that is no command."""
    if word in _OF_ACCOUNTS:
        return "there are no accounts: a run belongs to whoever starts it"
    near = SYNONYMS.get(word) or nearest(word, commands)
    return f"did you mean `drumline {near}`?" if near else "`drumline --help` lists them"
