"""The table of bad specs: the name of each, its text, and the whole of its report."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = Path(__file__).with_suffix(".txt").read_text("utf-8")

TABLE: list[tuple[str, str, str]] = re.findall(
    r"^=== (?P<name>.+)\n(?P<spec>(?s:.+?))^>>>\n(?P<report>(?:.+\n)+)", TEXT, re.MULTILINE
)
