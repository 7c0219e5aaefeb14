"""Start the next supervisor of a run after the last one has died.

A keeper runs `python -m drumline.supervise.next_supervisor FOLDER NUMBER MOST`; the output goes to the supervisor's
log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from drumline.errors import DrumlineError
from drumline.run.event import SupervisorReturned
from drumline.store.folder import RunFolder
from drumline.supervise.detach import start_supervisor


def main(folder: str, number: str, most: str) -> None:
    """Start a supervisor, unless the run has one, is over, or was asked to stop.

    `number` is the number of this start by a keeper, `most` the largest allowed one.
    """
    try:
        start_supervisor(RunFolder(Path(folder)), asked=SupervisorReturned(int(number), int(most)))
    except DrumlineError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main(*sys.argv[1:])
