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
    """Run it; a run that is about to begin gets its supervisor before anything else is read, and perhaps begins."""
    spare, failed = None, None
    if sys.argv[1:2] == ["train"] and not {"-h", "--help", "--dry-run"}.intersection(sys.argv):
        from drumline.supervise.detach import Spare  # noqa: PLC0415 - only here

        gc.disable()  # until the replicas run, nothing that we make is garbage
        spare = Spare()  # it imports what it needs beside us, and is forked while we are small
        from drumline.supervise.launch import launch_again  # noqa: PLC0415 - after the fork

        try:
            launch_again(sys.argv[1:], spare)
        except Exception as error:  # noqa: BLE001 - whoever knows how to say it is loaded only now
            failed = error
    from drumline import cli  # noqa: PLC0415 - after the fork

    cli.main(spare, failed)


if __name__ == "__main__":
    main()
