"""The verb `put`: move a file or folder that was sent into a scratch folder to its target, as `cp -r` would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any


def put(request: Mapping[str, Any]) -> dict[str, Any]:
    """Move `name` in the scratch folder to the target, or into it if it is a folder; then remove the scratch folder."""
    scratch, name, target = request["scratch"], request["name"], request["target"]
    source = os.path.join(scratch, name)
    try:
        if os.path.isdir(target):
            target = os.path.join(target, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(source) and not os.path.islink(source) and os.path.isdir(target):
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.move(source, target)
    except shutil.Error as error:
        raise OSError(None, str(error), target) from None
    finally:
        for each in (scratch, f"{scratch}.incoming"):
            shutil.rmtree(each, ignore_errors=True)
        for each in (f"{scratch}.carried", f"{scratch}.lock"):
            if os.path.exists(each):
                os.unlink(each)
    return {}
