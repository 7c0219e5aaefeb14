"""Read all steps in a log, in order, each with its byte offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from drumline.record import Record
from drumline.run.progress import LONGEST_BYTES, newest_first, read_piece


class Counted(Record):
    """A step in a log; or an epoch, in a log without steps."""

    end: int  # offset of the byte after it in the log
    step: int | None
    epoch: int | None = None
    steps: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Return a key that sorts steps by progress."""
        return self.epoch or 0, self.step or 0


class StepReader:
    """Reads a log in pieces from its beginning; the header of an epoch (`Epoch 1/3`) applies to the bar below it."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._names_epochs = False
        self._rest = b""
        self._is_cut = False  # the last incomplete piece was too long, and its beginning was dropped
        self._offset = 0

    def read(self, data: bytes) -> Iterator[Counted]:
        """Yield the steps in the next bytes of the log; an incomplete last piece is kept for the next call."""
        data = self._rest + data
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[whole:]
        start, self._offset = self._offset, self._offset + whole
        pieces = list(newest_first(data[:whole], is_cut=self._is_cut)) if whole else []
        self._is_cut = self._is_cut and not whole
        if len(self._rest) > LONGEST_BYTES:
            self._offset += len(self._rest)
            self._rest, self._is_cut = b"", True
        for piece in reversed(pieces):
            found = read_piece(piece)
            if found is None:
                continue
            if found.step is None and found.loss is None:  # the header of an epoch
                self._epoch, self._names_epochs = found.epoch, True
                continue
            epoch = found.epoch if found.epoch is not None else self._epoch
            if epoch is None and self._names_epochs:
                continue  # a bar after the end of an epoch is an evaluation
            yield Counted(start + piece.end, found.step, epoch, found.steps)
            if found.epoch is None and found.step == found.steps and piece.ends_line:
                self._epoch = None


def usual_stride(counted: Iterable[Counted]) -> int:
    """Return the most common number of steps from one step in a log to the next; 1 if there are too few."""
    gaps: Counter[int] = Counter()
    before: Counted | None = None
    for each in counted:
        if before and each.epoch == before.epoch and each.step is not None and before.step is not None:
            gaps[each.step - before.step] += 1
        before = each
    common = [gap for gap, _ in gaps.most_common() if gap > 0]
    return common[0] if common else 1
