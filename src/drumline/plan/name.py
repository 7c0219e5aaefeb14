"""Names of replicas, which are DNS labels of at most 63 characters, and names of variables."""

from __future__ import annotations

import re
from binascii import crc32

LIMIT = 63


def replica_name(name: str, run: str, role: str, index: int) -> str:
    """Return `digits-4-worker-0`; a long name is shortened, and a changed name gets a digest."""
    # The dot of a trial becomes two dashes, so that run 2 of `a-7` and run 7.2 of `a` differ.
    end = f"-{run.replace('.', '--')}-{role}-{index}"
    label = re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")
    if not label or not label[0].isalpha():
        label = f"r{label}"  # a Service's name must begin with a letter
    if label == name and len(label) + len(end) <= LIMIT:
        return label + end
    digest = f"{crc32(name.encode()):08x}"
    return f"{label[: LIMIT - len(end) - len(digest) - 1].rstrip('-')}-{digest}{end}"


def variable_name(parameter: str) -> str:
    """Return the environment variable of a parameter: LR_DECAY for `lr-decay`."""
    return parameter.upper().replace("-", "_")
