"""The verb `remove`: remove files and folders on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any


def remove(request: Mapping[str, Any]) -> dict[str, Any]:
    """Remove these paths, folders with their content; skip paths that do not exist."""
    for each in request["paths"]:
        path = os.path.expanduser(each)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    return {}
