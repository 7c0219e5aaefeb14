"""A supervisor that is there before anybody knows what for: forked from a process that has loaded next to nothing.

Behind a fork the kernel copies every page that either process touches; so it is done before there are many. Whatever is
imported here is imported when it is needed.
"""

from __future__ import annotations

import os
import sys


class Spare:
    """A process in a session of its own, which gets ready while it waits for its order, and takes one.

    Whoever made it and leaves without an order takes it along.
    """

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _live_alone(orders, answers)
        os.close(orders)
        os.close(answers)

    def order(self, text: str) -> str:
        """Give it an order and return all that it answers: up to its last word, or to its end."""
        try:
            with os.fdopen(self._orders, "wb") as stream:
                stream.write(text.encode())
        except BrokenPipeError:
            pass  # it was killed
        with os.fdopen(self._answers, "rb") as stream:
            return stream.read().decode()


class _Answer:
    """What a supervisor says to whoever gave it its order, who may be gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def say(self, text: str) -> None:
        if self._descriptor is not None:
            try:  # noqa: SIM105 - contextlib is one of those that are not loaded yet
                os.write(self._descriptor, text.encode())
            except OSError:
                pass

    def acknowledge(self, word: str) -> None:
        """Say a last word."""
        self.say(word)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _live_alone(orders: int, answers: int) -> None:
    answer = _Answer(answers)
    status = 1
    try:
        os.setsid()
        _let_go(orders, answers)
        _follow_order(orders, answer)
        status = 0
    except KeyboardInterrupt:
        pass  # before we had a session of our own
    except BaseException as error:  # noqa: BLE001
        import traceback  # noqa: PLC0415 - hardly ever

        traceback.print_exc()
        sys.stderr.flush()
        answer.acknowledge(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    finally:
        os._exit(status)


def _follow_order(orders: int, answer: _Answer) -> None:
    from drumline.supervise.order import follow  # noqa: PLC0415 - while whoever made us reads its spec

    with os.fdopen(orders, "rb") as stream:
        text = stream.read()
    if text:
        follow(text, answer.say, answer.acknowledge)


def _let_go(*kept: int) -> None:
    """Hold nothing of the terminal, nor anything else that whoever launched has open."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    for low, high in zip((2, *sorted(kept)), (*sorted(kept), 65536), strict=True):
        os.closerange(low + 1, high)
