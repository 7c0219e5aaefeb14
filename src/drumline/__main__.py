"""The command ``drumline``, also as ``python -m drumline``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line; who changes his mind while it is still loaded is not shown what was."""
    try:
        _main()
    except KeyboardInterrupt:
        os._exit(130)


def _main() -> None:
    """Run it; a run begins before there is a command line, if it can."""
    early = None
    if sys.argv[1:2] == ["train"] and not {"-h", "--help", "--dry-run"}.intersection(sys.argv):
        gc.disable()  # until the replicas run, nothing that we make is garbage
        from drumline.supervise.spare import Spare  # noqa: PLC0415 - only here

        spare = Spare()  # it imports what it needs beside us
        from drumline.early import begin  # noqa: PLC0415 - after the fork

        early = begin(sys.argv[2:], spare)
    from drumline import cli  # noqa: PLC0415 - after the replicas

    cli.main(early)


if __name__ == "__main__":
    main()
