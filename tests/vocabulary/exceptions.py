"""Where a retired word may stay, each with the reason: reviewed one by one."""

from __future__ import annotations

import re
from typing import NamedTuple


class Exempt(NamedTuple):
    """Lines of some files that match a pattern."""

    path: str  # a pattern of fnmatch
    line: str  # a regular expression that the line matches
    reason: str

    def matches(self, line: str) -> bool:
        """Return whether a line is exempt."""
        return re.search(self.line, line) is not None


IN_TEXTS = (
    Exempt("tests/unit/test_vocabulary.py", "", "tests with retired words"),
    Exempt("tests/vocabulary/*.py", "", "names the retired words"),
    Exempt("src/drumline/cli/tfconfig.py", '"who":', "a stable key of `drumline tfconfig check -o json`"),
    Exempt("docs/interfaces.txt", "^who$", "the same key"),
    Exempt("tests/unit/cli/test_tfconfig.py", '"who":', "the same key"),
    Exempt("docs/interfaces.txt", r"\bblames\b", "a field of the journal, which is stable"),
    Exempt("src/drumline/run/*.py", r"\bblames\b", "the same field"),
    Exempt("docs/interfaces.txt", "^(objections|remarks|shortages)$", "stable keys of `drumline check -o json`"),
    Exempt("src/drumline/cli/check.py", '"(objections|remarks|shortages)":', "the same keys"),
)
IN_NAMES = (
    Exempt("src/drumline/run/event.py", "^blames$", "a field of the journal, which is stable"),
    Exempt("tests/vocabulary/*.py", "", "names the retired words"),
)
