"""What is submitted, written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from drumline.spec.write import write_yaml


def render(objects: Sequence[dict[str, Any]], form: str) -> str:
    """Write objects so that `kubectl create -f -` reads them."""
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"
    return "---\n".join(write_yaml(each) for each in objects)
