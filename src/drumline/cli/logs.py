"""``drumline logs``: the output of replicas, ordered by time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator

import click

from drumline.cli.find import find_target
from drumline.cli.options import SECONDS
from drumline.cli.stream import Screen, follow
from drumline.errors import NotFoundError
from drumline.view.feed import Feed, Item, Lines


@click.command()
@click.argument("run", metavar="ID")
@click.option("-f", "--follow", "following", is_flag=True, help="Continue until the run is over.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--since", type=SECONDS, metavar="TIME", help="Only the lines of this last period: 5m.")
@click.option("--attempt", type=click.IntRange(min=0), metavar="N", help="Only this attempt.")
@click.option("--role", type=click.Choice(["chief", "worker", "ps", "evaluator"]), help="Only this role.")
@click.option("--timestamps/--no-timestamps", default=True, help="Show the time of each line, in UTC.")
def command(
    run: str,
    *,
    following: bool,
    tail: int | None,
    since: float | None,
    attempt: int | None,
    role: str | None,
    timestamps: bool,
) -> None:
    """Show the output of the replicas of ID, ordered by time.

    ID is a run such as 4, or a replica such as 4.worker.1 or 4.chief.
    """
    folder, target = find_target(run)
    plan = folder.plan()
    replicas = set(target.replicas(plan))
    if role:
        replicas &= {each for each in replicas if each.role == role}
        if not replicas:
            raise NotFoundError(f"{run} has no {role}")
    feed = Feed(folder, replicas=replicas, attempt=attempt)
    ids = [folder.id, *(f"{folder.id}.{replica}" for replica in dict.fromkeys((*plan.all_ids, *replicas)))]
    screen = Screen(ids, timestamps=timestamps)
    since_at = None if since is None else time.time() - since
    batches = _since(_batches(feed), since_at)
    for items in batches if tail is None else [_last(batches, tail)]:
        screen.show(items, {})
    if following:
        follow(feed, screen, folder)


def _batches(feed: Feed) -> Iterator[list[Item]]:
    """Yield the items of a feed in batches, until no further item exists."""
    while items := feed.poll(time.time()):
        yield items


def _since(batches: Iterable[list[Item]], at: float | None) -> Iterator[list[Item]]:
    for items in batches:
        yield items if at is None else [item for item in items if item.at >= at]


def _last(batches: Iterable[list[Item]], number: int) -> list[Item]:
    """Return the last lines of the replicas, and the changes of state since the first of them."""
    kept: deque[tuple[Item, int]] = deque()  # each with the number of its lines
    lines = 0
    for items in batches:
        for item in items:
            kept.append((item, _count(item)))
            lines += kept[-1][1]
            while kept and lines - kept[0][1] >= number:
                lines -= kept.popleft()[1]
    found = [item for item, _ in kept]
    if found and isinstance(found[0], Lines) and lines > number:
        cut = found[0].data.split(b"\n", lines - number)[-1]
        found[0] = found[0].replace(data=cut)
    return found


def _count(item: Item) -> int:
    if not isinstance(item, Lines):
        return 0
    return item.data.count(b"\n") + (not item.data.endswith(b"\n"))
