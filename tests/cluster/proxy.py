"""Requests to the API of the cluster through one `kubectl proxy`, which is faster than starting kubectl for each."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from scaffold.waiting import PATIENCE_SECONDS

_BAD_GATEWAY = 502  # on a busy machine the proxy may not reach the server: the request can be sent again
_ATTEMPTS = 5


class ApiProxy:
    """A `kubectl proxy` at a free port of this machine; `close` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        said = self._process.stdout.readline()
        assert said.startswith("Starting to serve on "), said
        self._base = f"http://{said.split()[-1]}"

    def get(self, path: str) -> bytes:
        """Return the body of the answer; raise HTTPError if the server refuses."""
        for attempt in range(_ATTEMPTS):
            try:
                with urlopen(self._base + path, timeout=PATIENCE_SECONDS) as answer:
                    body: bytes = answer.read()
                    return body
            except HTTPError as error:
                if error.code != _BAD_GATEWAY or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods with these labels."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        found: list[dict[str, Any]] = json.loads(self.get(path))["items"]
        return found

    def close(self) -> None:
        """End the proxy."""
        self._process.terminate()
        self._process.communicate()
