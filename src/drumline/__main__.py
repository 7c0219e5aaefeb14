"""The command ``drumline``, also as ``python -m drumline``."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line; Ctrl-C during start-up exits with 130 and no traceback."""
    try:
        from drumline import cli  # noqa: PLC0415 - an interrupt of the import is caught, too

        cli.main()
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    main()
