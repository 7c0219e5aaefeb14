"""Find the Python packages that the install commands of a riseml.yml install with pip."""

from __future__ import annotations

import re
import shlex

_PIP = re.compile(r"(\S*/)?(pip[0-9.]*|python[0-9.]*)")
_MOST_CHARACTERS = 10_000  # of a command: the time of `shlex` grows with the square of its length
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w.,-]*\])?([=<>!~]=?=?[\w.*+,=<>!~-]+)?")


def pip_requirements(command: str) -> list[str] | None:
    """Return the requirements of a `pip install` command; None for any other command."""
    if len(command) > _MOST_CHARACTERS:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or not _PIP.fullmatch(words[0]):
        return None
    if re.search("python[0-9.]*$", words[0]) and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    if words[1:2] != ["install"]:
        return None
    lines: list[str] = []
    rest = iter(words[2:])
    for word in rest:
        option = re.fullmatch(r"(?:-r|--requirement)(?:=|(?<=-r))?(.*)", word)
        if option:
            file = option[1] or next(rest, "")
            if not file:
                return None
            lines.append(f"-r {file}")
        elif _REQUIREMENT.fullmatch(word):
            lines.append(word)
        elif word not in ("-U", "--upgrade", "-q", "--quiet", "--no-cache-dir", "--user"):
            return None
    return lines


def is_tensorflow_requirement(line: str) -> bool:
    """Return whether a requirement is a build of TensorFlow."""
    return re.match(r"(tensorflow|tf-nightly)([-_](cpu|gpu))?(?![\w-])", line) is not None
