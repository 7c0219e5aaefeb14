"""Find the exceptions in the output of a script, and shorten their tracebacks for display."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from drumline.record import Record
from drumline.run.progress import CONTROL
from drumline.words import clip, count

_MOST_FRAMES = 8  # frames of user code that are shown of one traceback
_MOST_LINES = 6  # lines of a message that are shown
_MOST_SOURCE = 3  # source lines of a frame that are shown
_LONGEST = 500  # characters of a line that are shown
_LONGEST_LINE = 4000  # characters of a line that are read

_RANK_PREFIX = re.compile(r"^\[rank\d+\]:(?: |$)")  # torch puts it in front of each line
_HEADS = ("Traceback (most recent call last):", "Fatal Python error: ")
_FRAME = re.compile(r' +File "(?P<path>[^"]*)", line (?P<line>\d{1,9}),? in (?P<name>.*)')
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")
_NOT_MESSAGE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|[IWEF]\d{4} \d\d:\d\d|\[?(?:INFO|WARNING|ERROR|DEBUG)\b|step \d|\*\*\* "
)
_LIBRARY_LOG = re.compile(r"(?:\d{4}-\d\d-\d\d[T ][\d:.]+: )?[IWEF]\d{4} \d\d:\d\d|RPC: |\[\[\{\{|\*\*\* | +@ ")
_UNDERLINE = re.compile(r"[\s^~]*")
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/(?P<package>[^/]+)|/lib/python3[^/]*/(?!.*-packages)|^<frozen |^<string>"
)
_OUR_OWN = re.compile(r"/drumline/runtime/(?:fork|warm|warm_fork|keeper|errors)\.py$")

# Lines that TensorFlow prints around the message of an error; they are not shown.
_NOISE = re.compile(
    r"Graph execution error:|Detected at node|Node: |Stack trace for op definition|Additional GRPC error information"
    r"|\s*:?(?:UNKNOWN:Error received from peer|\{\"created\")|\s*\[\[\{\{node|\d+ derived errors ignored|\s+\(\d+\) "
    r"|The error could be from a previous operation|Original stack trace|\d+ root error\(s\) found|^\s+File \"|\s*$"
)
# A match does not begin within a run of blanks: trying each blank would take quadratic time.
_TAILS = re.compile(r"(?<!\s)\s*+(?:\[Op:\w+\](?: name:.*)?$|\[\[\{\{node .*$|\[type\.googleapis\.com/.*$)")


class Frame(Record):
    """A call in a traceback, with the source that was printed below it."""

    path: str
    line: int
    name: str
    source: tuple[str, ...] = ()

    @property
    def package(self) -> str | None:
        """Return the library to which the frame belongs; None for user code."""
        found = _LIBRARY.search(self.path)
        return None if found is None else (found["package"] or "Python").removesuffix(".py")


class Raised(Record):
    """One printed exception: its frames, and its message, which begins with the type."""

    frames: tuple[Frame, ...]
    message: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return type and message."""
        return "\n".join(self.message)

    @property
    def sentence(self) -> str:
        """Return type and message in one line: `ValueError: bad row`."""
        kept = _shorten_message(self.message)
        kind, colon, said = (kept[0] if kept else "").partition(": ")
        return f"{kind.rpartition('.')[2]}{colon}{said}"


class Chain(Record):
    """An exception and the exceptions that led to it, oldest first."""

    raised: tuple[Raised, ...]
    first: int  # number of the line on which the first exception begins
    last: int  # number of the line on which the last exception begins

    @property
    def text(self) -> str:
        """Return the types and messages of all exceptions."""
        return "\n".join(each.text for each in self.raised)

    @property
    def is_fatal(self) -> bool:
        """Return whether a signal ended the interpreter, as a segmentation fault does."""
        return self.raised[-1].text.startswith("Fatal Python error: ")


def text_lines(tail: bytes) -> list[str]:
    """Return the lines of the end of a log without colours; of overwritten lines only the last state is returned."""
    text = tail.decode(errors="replace")
    states = "\n".join(line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
    lines = [line[:_LONGEST_LINE].rstrip() for line in CONTROL.sub("", states).split("\n")]
    return [_RANK_PREFIX.sub("", line).rstrip() for line in lines] if "[rank" in text else lines


def find_raised(lines: Sequence[str]) -> list[Chain]:
    """Return the printed exceptions in their order; an exception and those that led to it are one chain."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_HEADS)]
    chains: list[Chain] = []
    for start, end in pairwise((*starts, len(lines))):
        raised = _read(lines[start:end])
        if chains and any(line.startswith(_LINKS) for line in lines[chains[-1].last : start]):
            chains[-1] = Chain((*chains[-1].raised, raised), chains[-1].first, start)
        else:
            chains.append(Chain((raised,), start, start))
    return chains


def _read(lines: Sequence[str]) -> Raised:
    """Read one traceback: head, frames and message."""
    if lines[0].startswith("Fatal Python error: "):
        # The fault handler prints only the names of frames, thread by thread, the last call first.
        frames = list(_frames(lines, first_only=True))
        return Raised(tuple(reversed(frames)), (lines[0],))
    end = 1
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end]):
        end += 1
    return Raised(tuple(_frames(lines[:end])), tuple(_message(lines[end:])))


def _frames(lines: Sequence[str], *, first_only: bool = False) -> Iterator[Frame]:
    frame: Frame | None = None
    for line in lines:
        if found := _FRAME.fullmatch(line):
            if frame:
                yield frame
            frame = Frame(found["path"], int(found["line"]), found["name"])
        elif first_only and frame and not line.startswith(" "):
            break
        elif frame and not first_only and len(frame.source) < _MOST_SOURCE and not _UNDERLINE.fullmatch(line):
            frame = frame.replace(source=(*frame.source, line.strip()))
    if frame:
        yield frame


def _message(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a message, up to the next line that is not part of it."""
    for number, line in enumerate(lines):
        if number and (line.startswith(_LINKS) or _NOT_MESSAGE.match(line)):
            return
        yield line


def _shorten_message(message: Iterable[str]) -> list[str]:
    """Return the lines of a message without TensorFlow's lists of operations and of their definitions."""
    kept: list[str] = []
    for number, line in enumerate(message):
        if len(kept) > _MOST_LINES:
            break
        said = _TAILS.sub("", line)
        if number == 0:
            kept.append(said.removesuffix(" Graph execution error:"))  # the message is on a later line
        elif number and kept[0].endswith("Error:") and not _NOISE.match(said):
            kept[0] += f" {said.lstrip()}"
        elif not _NOISE.match(said) and said not in kept:
            kept.append(said)
    return kept


def is_noise(line: str) -> bool:
    """Return whether a line is a log message of a library."""
    return bool(_LIBRARY_LOG.match(line) or _NOISE.match(line))


def trim_traceback(chain: Chain) -> list[str]:
    """Return a short traceback: user code with its source, calls in libraries counted, the message shortened."""
    shown: list[str] = []
    for number, raised in enumerate(chain.raised[-2:]):
        if number:
            shown += ["", "which led to", ""]
        shown += _trim_frames(raised.frames)
        kept = _shorten_message(raised.message)
        shown += [clip(line, _LONGEST) for line in kept[:_MOST_LINES]]
        if len(kept) > _MOST_LINES:
            shown.append("…")
    return shown


def _trim_frames(frames: Sequence[Frame]) -> list[str]:
    frames = [frame for frame in frames if not _OUR_OWN.search(frame.path)]
    while frames and frames[0].package in ("Python", "drumline"):  # the frames that run the script
        frames = frames[1:]
    own = [number for number, frame in enumerate(frames) if frame.package is None]
    kept = {*own[:2], *own[2 - _MOST_FRAMES :]} if own else set(range(len(frames))[-2:])
    shown: list[str] = []
    skipped: list[str] = []
    for number, frame in enumerate(frames):
        if number not in kept:
            skipped.append(frame.package or "your code")
            continue
        shown += [_skipped(skipped)] if skipped else []
        skipped = []
        shown.append(clip(f'  File "{frame.path}", line {frame.line}, in {frame.name}', _LONGEST))
        shown += [clip(f"    {line}", _LONGEST) for line in frame.source]
    return [*shown, _skipped(skipped)] if skipped else shown


def _skipped(packages: Sequence[str]) -> str:
    return f"  … {count(len(packages), 'call')} in {', '.join(dict.fromkeys(packages))}"
