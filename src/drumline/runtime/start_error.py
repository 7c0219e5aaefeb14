"""Why a training cannot begin."""

from __future__ import annotations


class StartError(SystemExit):
    """A training that would fail or hang, stopped before it begins: uncaught, it prints its sentence and no traceback.

    Exit code 1. An `except Exception` lets it through.
    """
