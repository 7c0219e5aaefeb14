"""What a training script does that nobody who reads its spec can see."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from drumline.errors import Problem
from drumline.plan.types import Plan

_MOST_BYTES = 1 << 20
_SETS = rb"""(?m)^[^#\n]*environ\[\s*["']TF_CONFIG["']\s*\]\s*=(?!=)"""
# Who looks first whether it is there only fills in for who does not give it.
_LOOKS = rb"""["']TF_CONFIG["']\s*(?:\)|,|(?:not\s+)?in\b)"""


def remarks(plan: Plan, directory: str) -> Iterator[Problem]:
    """Name where a script takes from its replicas what each is given: all of them would be the same one."""
    if plan.framework != "tensorflow" or len(plan.replicas) == 1:
        return
    for name in dict.fromkeys(word for each in plan.replicas for word in each.argv if word.endswith(".py")):
        try:
            with open(os.path.join(directory, plan.workdir, name), "rb") as stream:  # noqa: PTH118, PTH123
                text = stream.read(_MOST_BYTES)
        except (OSError, ValueError):
            continue
        found = re.search(_SETS, text)
        if found and not re.search(_LOOKS, text):
            message = "sets TF_CONFIG itself, so that every replica takes itself for the same one; take that out"
            yield Problem(name, text.count(b"\n", 0, found.end()) + 1, "", message)
