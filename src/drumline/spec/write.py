"""Write readable YAML."""

from __future__ import annotations

import re

import yaml


def write_yaml(value: object) -> str:
    """Write plain data as YAML, keys in the order given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes no anchors, and texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.replace("\n", "")
    style = None
    if not lines.isprintable():
        style = '"'  # in another style the library could not read it back
    elif lines != text:
        style = "|"
    elif re.match(r"[-+.]*[0-9]|[yYnN]$", text):
        style = "'"  # other readers convert `1e-6` and `y` to a number and to true
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
