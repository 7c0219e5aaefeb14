"""The error that ends a training before it starts."""

from __future__ import annotations


class StartError(SystemExit):
    """The training would fail or hang. If it is not caught, Python prints its message without a traceback.

    The exit code is 1. `except Exception` does not catch it.
    """
