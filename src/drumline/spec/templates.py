"""Recognize files that are Helm or Jinja templates."""

from __future__ import annotations

import re

_SIGNS_OF_HELM = (b".Values", b".Release", b".Chart", b"{{-", b"{{ include", b"{{ template", b"{{/*")
_HELM = (
    rb"\{\{-?[ \t]*(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b"
    rb'|(?:include|template|define)[ \t]+"|(?:if|range|with|else|end)\b[^{}]*\}\}|/\*)'
)


def helm_line(data: bytes) -> int | None:
    """Return the number of the first line with a Helm action; None if the file is not a Helm template."""
    if not any(sign in data for sign in _SIGNS_OF_HELM) or is_jinja_template(data) or _is_spec(data):
        return None
    action = re.search(_HELM, data)
    return data.count(b"\n", 0, action.start()) + 1 if action else None


def _is_spec(data: bytes) -> bool:
    """Return whether a file is a drumline spec: it has the key `project` or `run`."""
    return re.search(rb"^(project|run)[ \t]*:", data, re.MULTILINE) is not None


def is_jinja_template(data: bytes) -> bool:
    """Return whether a file is a Jinja template: it has statements at the beginning of lines, and is not a spec."""
    if b"{%" not in data and b"{#" not in data:
        return False
    begins = re.search(rb"^[ \t]*\{(%[-+]?[ \t]*[a-z]|#)", data, re.MULTILINE)
    return begins is not None and not _is_spec(data)
