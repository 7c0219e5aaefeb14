"""Whether a file may be in a dialect: a look at its bytes, so that only who has such a file pays for reading it."""

from __future__ import annotations

import re

# What no spec of ours has; looked for without a pattern, which would have to be compiled for everybody.
_SIGNS = (b"\ntrain:", b'"train"', b"'train'", b"apiVersion", b"eplicaSpecs", b"\nitems:", b"\ndeploy:", b"\nservice:")
_FIRST = (b"train:", b"items:", b"deploy:", b"service:")
_SIGNS_OF_HELM = (b".Values", b".Release", b".Chart", b"{{-", b"{{ include", b"{{ template", b"{{/*")
_HELM = (
    rb"\{\{-?[ \t]*(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b"
    rb'|(?:include|template|define)[ \t]+"|(?:if|range|with|else|end)\b[^{}]*\}\}|/\*)'
)


def may_be_foreign(data: bytes) -> bool:
    """Whether a closer look is worth it."""
    return data.startswith(_FIRST) or any(sign in data for sign in _SIGNS) or is_template(data) or bool(helm_line(data))


def helm_line(data: bytes) -> int | None:
    """The first line of a file with an action of Helm; None if it is no template of Helm."""
    if not any(sign in data for sign in _SIGNS_OF_HELM) or is_template(data) or _is_own(data):
        return None
    action = re.search(_HELM, data)
    return data.count(b"\n", 0, action.start()) + 1 if action else None


def _is_own(data: bytes) -> bool:
    return re.search(rb"^(project|run)[ \t]*:", data, re.MULTILINE) is not None


def is_template(data: bytes) -> bool:
    """Whether a file is a Jinja template: statements where lines begin, and not in the middle of a spec of ours."""
    if b"{%" not in data and b"{#" not in data:
        return False
    begins = re.search(rb"^[ \t]*\{(%[-+]?[ \t]*[a-z]|#)", data, re.MULTILINE)
    return begins is not None and not _is_own(data)
