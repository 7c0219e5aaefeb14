"""Make one command for all replicas of a role from the commands of the single replicas in rendered objects.

Where these differ, the shell fills in the index of the replica, or addresses of replicas.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from drumline.spec.dialect.rendered import Process

# The addresses of a role, as drumline chose them.
_HOSTS = (
    'hosts() { python -c \'import json, os, sys; c = json.loads(os.environ["TF_CONFIG"])["cluster"];'
    ' print(",".join(c[sys.argv[1]]))\' "$1"; }'
)
_INDEX = '"$DRUMLINE_INDEX"'
_MARK = "\0"
_LETTERS, _DIGITS = str.maketrans("0123456789", "abcdefghij"), str.maketrans("abcdefghij", "0123456789")
_PYTHON = re.compile(r"/usr/(?:local/)?bin/(python[0-9.]*)")


class DifferentArguments(ValueError):  # noqa: N818
    """The arguments of a role's replicas differ by more than their index or their own address."""


def command_of(replicas: Sequence[Process], processes: Sequence[Process]) -> list[str] | str:
    """Return the arguments that all replicas of a role run; a shell command if they differ.

    `processes` are the replicas of all roles. Raise DifferentArguments if they have no common command.
    """
    marked = [_marked(each, processes) for each in replicas]
    words = [_common(several, replicas[0].role) for several in zip_longest(*marked, fillvalue="")]
    if not any(_MARK in word for word in words):
        return words
    written = " ".join(_quoted(word) for word in words)
    return f"{_HOSTS}\nexec {written}" if "$(hosts" in written else f"exec {written}"


def _marked(process: Process, processes: Sequence[Process]) -> list[str]:
    """Return the arguments of a replica with marks for the addresses of replicas and of whole roles."""
    hosts: dict[str, list[str]] = {}
    for each in processes:
        hosts.setdefault(each.role, []).append(each.host)
    return [_mark_hosts(_PYTHON.sub(r"\1", word) if at == 0 else word, hosts) for at, word in enumerate(process.argv)]


def _mark_hosts(word: str, hosts: Mapping[str, Sequence[str]]) -> str:
    port = r":[0-9]{1,5}"
    for role, names in hosts.items():
        whole = ",".join(re.escape(name) + port for name in names)
        word = re.sub(rf"(?<![\w.-]){whole}(?![\w.,:-])", f"{_MARK}all {role}{_MARK}", word)
        for index, name in enumerate(names):
            word = re.sub(rf"(?<![\w.-]){re.escape(name)}{port}(?![\w.-])", _one(role, index), word)
    return word


def _one(role: str, index: int) -> str:
    """Return the mark of a replica's address; it has no digits, which would be taken for an index."""
    return f"{_MARK}one {role} {str(index).translate(_LETTERS)}{_MARK}"


def _common(several: Sequence[str], role: str) -> str:
    """Return one argument for all replicas of a role, with a mark where it has their index or their own address."""
    if len(set(several)) == 1:
        return several[0]
    own = {word.replace(_one(role, index), f"{_MARK}own {role}{_MARK}") for index, word in enumerate(several)}
    if len(own) == 1:
        return own.pop()
    zeros = [match.start() for match in re.finditer(r"(?<![0-9])0(?![0-9])", several[0])]
    for chosen in (zeros, *([zero] for zero in zeros)):  # which zeros of replica 0 are its index: all, or one
        ends = (*chosen, len(several[0]))
        parts = [several[0][begin:end] for begin, end in zip((0, *(zero + 1 for zero in chosen)), ends, strict=True)]
        if all(word == str(index).join(parts) for index, word in enumerate(several)):
            return f"{_MARK}index{_MARK}".join(parts)
    raise DifferentArguments(" and ".join(f"`{word.replace(_MARK, '')}`" for word in several[:2]))


def _quoted(word: str) -> str:
    return "".join(_fragments(word)) or "''"


def _fragments(word: str) -> Iterator[str]:
    for at, part in enumerate(word.split(_MARK)):
        if at % 2 == 0:
            yield shlex.quote(part) if part else ""
            continue
        match part.split():
            case ["index"]:
                yield _INDEX
            case ["all", role]:
                yield f'"$(hosts {role})"'
            case ["own", role]:
                yield f'"$(hosts {role} | cut -d, -f$((DRUMLINE_INDEX + 1)))"'
            case ["one", role, letters]:
                yield f'"$(hosts {role} | cut -d, -f{int(letters.translate(_DIGITS)) + 1})"'
