"""The error that ends a training before it starts."""

from __future__ import annotations


class StartError(SystemExit):
    """The training would fail or hang. Uncaught, this prints its message without a traceback.

    The exit code is 1. `except Exception` does not catch it.
    """
