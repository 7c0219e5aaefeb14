"""Commands as other systems call them: whoever comes from there is told the word that is meant here."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.words import nearest

HERE = {
    **dict.fromkeys(("run", "create", "apply", "submit", "launch", "start", "up"), "train"),
    **dict.fromkeys(("get", "list", "ls", "ps", "jobs", "describe", "show"), "status"),
    **dict.fromkeys(("stop", "delete", "cancel", "terminate", "down"), "kill"),
    **dict.fromkeys(("log", "tail", "follow", "attach"), "logs"),
    **dict.fromkeys(("exec", "shell", "ssh"), "inspect"),
    **dict.fromkeys(("validate", "lint", "plan"), "check"),
    **dict.fromkeys(("system", "info"), "doctor"),
    **dict.fromkeys(("top", "stats"), "monitor"),
    "template": "render",
}
_OF_ACCOUNTS = ("account", "login", "user", "whoami")


def meant_by(word: str, commands: Iterable[str]) -> str:
    """What to tell somebody who typed a word that is no command."""
    if word in _OF_ACCOUNTS:
        return "there are no accounts: a run belongs to whoever starts it"
    near = HERE.get(word) or nearest(word, commands)
    return f"did you mean `drumline {near}`?" if near else "`drumline --help` lists them"
