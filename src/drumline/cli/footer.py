"""The last line of a terminal that follows a run: how far the training is, read now and then."""

from __future__ import annotations

import time

from drumline.cli.progress import sum_up
from drumline.store.folder import RunFolder
from drumline.store.launch import read_facts
from drumline.view.feed import Feed
from drumline.view.progress import read_standings
from drumline.view.scalars import output_dir
from drumline.view.standing import Standing

_PAUSE_SECONDS = 1.0
_PAUSES_PER_LOOK = 20  # a line of many is looked at less often, so that it never costs more than a twentieth of a core


class Footer:
    """What to say of a run now; looks again when it is time."""

    def __init__(self, feed: Feed, folder: RunFolder) -> None:
        self._feed = feed
        self._run = folder.id
        self._output = output_dir(folder, feed.plan, str(read_facts(folder).get("directory", "")))
        self._text = ""
        self._next = 0.0

    def text(self) -> str:
        """One line; empty while nothing is known."""
        if time.monotonic() >= self._next:
            before = time.process_time()  # what it costs, and not what others make it wait
            self._text = self._look()
            cost = time.process_time() - before
            self._next = time.monotonic() + max(_PAUSE_SECONDS, _PAUSES_PER_LOOK * cost)
        return self._text

    def _look(self) -> str:
        chief = self._feed.plan.chief
        found = read_standings(self._feed.lives(), self._output, None, time.time())
        behind = [f"{self._run}.{name}" for name, standing in found.items() if standing.is_behind]
        return sum_up(self._run, found.get(chief, Standing()) if chief else Standing(), behind)
