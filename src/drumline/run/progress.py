"""Read the progress of a training from its log: bars of Keras and tqdm, and lines that name a step or an epoch.

Only known formats and complete numbers are read: the end of a log that was cut anywhere gives the same result as the
whole log, or some fields are None. A field that is not known is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from drumline.record import Record

_LONGEST = 2000  # characters; no known format is longer
LONGEST_BYTES = 4 * _LONGEST
_SLOWEST, _FASTEST = 1e-9, 1e9  # steps per second; a rate beyond these is not used


class Progress(Record):
    """The progress of a training according to its log."""

    epoch: int | None = None
    epochs: int | None = None  # the total
    step: int | None = None
    steps: int | None = None  # the total of the training, or of one epoch
    loss: float | None = None
    rate: float | None = None  # steps per second, according to a progress bar
    is_latest: bool = False  # no other output follows it in the log

    @property
    def steps_eta_seconds(self) -> float | None:
        """Return the seconds until the last of `steps`, which may be the last step of only one epoch."""
        if self.step is None or self.steps is None or not self.rate:
            return None
        return (self.steps - self.step) / self.rate

    @property
    def eta_seconds(self) -> float | None:
        """Return the seconds until the last step of the last epoch; None if that is not known."""
        left = self.steps_eta_seconds
        if left is None or self.steps is None or not self.epoch or self.epochs is None or not self.rate:
            return None  # epochs are counted from 0, and the number of the last one is not known
        return left + (self.epochs - self.epoch) * self.steps / self.rate


UNKNOWN = Progress()


class Piece(Record):
    """One state of a line of a log: its text up to a newline, or up to a carriage return that overwrites it."""

    text: str
    ends_line: bool  # a newline follows, not a carriage return
    is_whole: bool  # a newline or a carriage return follows, so the text is complete
    end: int = 0  # offset of the byte after the piece


CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # control sequences of terminals

_INT = r"\d{1,15}(?![\w%]|[.,]\d)"
_FLOAT = r"[-+]?(?:(?:\d{1,20}\.?\d{0,20}|\.\d{1,20})(?:e[-+]?\d{1,3})?|nan|inf)(?![\w%]|[.,]\d)"
_NOT_TRAINING = "".join(rf"(?<!{word}[ _])" for word in ("val", "valid", "validation", "test", "eval", "best"))
_LOSS = re.compile(rf"(?<![\w/.'-]){_NOT_TRAINING}(?:train(?:ing)?[_ ])?loss'?\s?[:=]?\s*(?P<loss>{_FLOAT})", re.I)

_HEADER = re.compile(rf"[\W_]*epoch:? *\[?(?P<epoch>{_INT}) ?/ ?(?P<epochs>{_INT})\]?[\W_]*", re.I)

_CLOCK = r"(?:\d{1,9}:)?\d{1,9}:\d\d|\d{1,9}s"
_KERAS = re.compile(
    rf"\s*(?P<step>{_INT})/(?:(?P<steps>{_INT})|Unknown)(?: +━+| +\[[=>.]*\])?(?: -)?"
    rf"(?: ETA: (?P<eta>{_CLOCK})| (?:{_CLOCK}))(?: -)?(?: (?P<per>\d{{1,15}})(?P<unit>us|ms|s)/step)?(?= - )"
)
_KERAS_RATE = re.compile(r" (?P<per>\d{1,15})(?P<unit>us|ms|s)/step$")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

_TQDM = re.compile(
    rf"(?P<about>[^|]{{0,200}}?) *\d{{1,3}}%\|[^|]{{0,500}}\| *(?P<step>{_INT})/(?P<steps>{_INT})"
    r" \[[\d:]+<(?:[\d:]+|\?), +(?:(?P<rate>[\d.]+|\?)(?:it|step|steps|batch|batches)/s"
    r"|(?P<per>[\d.]+)s/(?:it|step|batch))(?:, (?P<rest>.*))?\]\s*"
)
_TRAINS = re.compile(r"(?i)(?:train|fit|step|iter|batch)\w*\W*|")
_ABOUT_EPOCH = re.compile(rf"(?i)(?:train\w*[ :,-]*)?epoch:? *\[?(?P<epoch>{_INT})(?: ?/ ?(?P<epochs>{_INT}))?\]?\W*")

_PREFIX = re.compile(
    r"(?i)(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[-+]\d\d:?\d\d)?\]?[\s:|-]*)?"  # a time
    r"(?:[\w.]+[\s:|-]+(?=(?:INFO|DEBUG)\b))?(?:\[?(?:INFO|DEBUG)\]?(?::[\w.]+:|[\s:|-]+))?"  # a logger
    r"(?:[IW]\d{4} [\d:.]+ +\d+ [^\]\s]+\] )?"  # of absl
    r"[\[(\s=*#>-]*(?:train(?:ing)?[\s:,-]+)?"
)
_ITEM = re.compile(
    rf"(?i)(?P<word>epoch|global[_ ]step|step|iteration|iter)s?\s?[:=]?\s*"
    rf"(?P<open>\[)?\s?(?P<now>{_INT})(?:\s?(?:/|of)\s?(?P<all>{_INT}))?(?(open)\s?\])[\s,;:|\])(-]*"
)


def read_progress(tail: bytes, *, is_cut: bool = False) -> Progress:
    """Return the latest progress in the end of a log; with `is_cut`, the first line may be incomplete."""
    last: Progress | None = None
    loss: float | None = None
    is_latest, knows_epoch = True, False  # `knows_epoch` is also true if the log is known to name no epoch
    for piece in newest_first(tail, is_cut=is_cut):
        if piece.ends_line and (header := _HEADER.fullmatch(piece.text)):
            opened = _counted(header["epoch"], header["epochs"], None, None) or UNKNOWN
            if last is None:
                last = opened
            elif not knows_epoch:
                last = last.replace(epoch=opened.epoch, epochs=opened.epochs)
            knows_epoch = True
        else:
            # When a step and a loss are known, only the epoch is searched: most pieces need not be parsed.
            may_add = last is None or loss is None or "epoch" in piece.text.lower()
            bar = (_read_keras(piece) or _read_tqdm(piece.text)) if may_add or piece.ends_line else None
            found = bar or (_read_line(piece.text) if may_add and piece.is_whole else None)
            if found is None:
                is_latest = False
                continue
            if last is None:
                last, knows_epoch = found.replace(is_latest=is_latest), found.epoch is not None
            elif found.epoch is not None or (bar and piece.ends_line and bar.step == bar.steps):
                knows_epoch = True  # an epoch ended here: the later lines are of an evaluation, or of the next epoch
            loss = found.loss if loss is None else loss
        if knows_epoch and loss is not None:
            break
    return (last or UNKNOWN).replace(loss=loss)


def read_piece(piece: Piece) -> Progress | None:
    """Return the progress in one complete piece, also in the header of an epoch (`Epoch 1/3`); None if it has none."""
    if not piece.is_whole:
        return None
    if piece.ends_line and (header := _HEADER.fullmatch(piece.text)):
        return _counted(header["epoch"], header["epochs"], None, None)
    return _read_keras(piece) or _read_tqdm(piece.text) or _read_line(piece.text)


def newest_first(tail: bytes, *, is_cut: bool) -> Iterator[Piece]:
    """Yield the states of all lines of a log, newest first; with `is_cut`, the oldest one is left out."""
    end, ends_line, is_whole = len(tail), False, False
    breaks = tail.replace(b"\r", b"\n")  # one search finds both line ends: two searches could take quadratic time
    while end >= 0:
        start = breaks.rfind(b"\n", 0, end) + 1
        if is_cut and start == 0:
            return
        said = tail[start : min(end, start + LONGEST_BYTES)]
        if said and (text := CONTROL.sub("", said.decode(errors="replace")).rstrip()):
            # Keras writes backspaces after a bar, before it draws the bar again; they are not part of the piece.
            last = start + len(said.rstrip(b"\b ")) if end - start <= LONGEST_BYTES else end
            yield Piece(text if len(text) <= _LONGEST else "", ends_line, is_whole, last)
        end, is_whole = start - 1, True
        ends_line = tail[end : end + 1] == b"\n" or tail[end : end + 2] == b"\r\n"


def _counted(epoch: str | None, epochs: str | None, step: str | None, steps: str | None) -> Progress | None:
    """Return these counts as numbers; None if a count exceeds its total, and so is no step or epoch."""
    found = Progress(_number(epoch), _number(epochs), _number(step), _number(steps))
    counts = ((found.epoch, found.epochs), (found.step, found.steps))
    return None if any(now is not None and all_ is not None and now > all_ for now, all_ in counts) else found


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _loss_in(text: str) -> float | None:
    found = _LOSS.search(text)
    return float(found["loss"]) if found else None


def _read_keras(piece: Piece) -> Progress | None:
    """Read a bar of Keras 2 or 3 that has a loss; a bar without a loss is one of `predict`."""
    bar = _KERAS.match(piece.text)
    if not bar:
        return None
    metrics = piece.text[bar.end() :]
    if " - loss:" not in metrics:
        return None
    counted = _counted(None, None, bar["step"], bar["steps"])
    if counted is None:
        return None
    complete = metrics if piece.is_whole else metrics.rpartition(" ")[0]  # its last word may be incomplete
    per = bar if bar["per"] else _KERAS_RATE.search(complete)
    rate = None
    if per and int(per["per"]):
        rate = _sane(1 / (float(per["per"]) * _UNITS[per["unit"]]))
    elif bar["eta"] and counted.steps and counted.step is not None and (eta := _seconds(bar["eta"])):
        rate = _sane((counted.steps - counted.step) / eta)
    return counted.replace(loss=_loss_in(complete), rate=rate)


def _sane(rate: float) -> float | None:
    """Return a rate; None if no time can be computed from it."""
    return rate if _SLOWEST < rate < _FASTEST else None


def _seconds(clock: str) -> int:
    total = 0
    for part in clock.removesuffix("s").split(":"):
        total = total * 60 + int(part)
    return total


def _read_tqdm(text: str) -> Progress | None:
    """Read a bar of tqdm that counts steps: it has no description, or one that names an epoch or a training."""
    if "%|" not in text:
        return None
    bar = _TQDM.fullmatch(text)
    if not bar:
        return None
    about, loss = bar["about"].strip(), _loss_in(bar["rest"] or "")
    epoch = _ABOUT_EPOCH.fullmatch(about)
    if not (epoch or _TRAINS.fullmatch(about)):
        return None
    counted = _counted(epoch and epoch["epoch"], epoch and epoch["epochs"], bar["step"], bar["steps"])
    if counted is None:
        return None
    said, per = bar["rate"], bar["per"]
    try:
        rate = _sane(1 / float(per) if per else float(said)) if per or said != "?" else None
    except (ValueError, ZeroDivisionError):
        rate = None
    return counted.replace(loss=loss, rate=rate)


def _read_line(text: str) -> Progress | None:
    """Read a line such as `step 5: loss 0.3`, `epoch 2 ... loss 0.3`, `loss = 0.3, step = 100` or `epoch 3/10`."""
    lowered = text.lower()
    if "loss" not in lowered and "epoch" not in lowered:
        return None
    prefix = _PREFIX.match(text)
    at = prefix.end() if prefix else 0
    loss = _LOSS.match(text, at)
    if loss:  # loss = 0.3, step = 100 (1.2 sec)
        at = loss.end() + len(text[loss.end() :]) - len(text[loss.end() :].lstrip(" \t,;|"))
    counts: dict[str, tuple[str, str | None]] = {}
    while item := _ITEM.match(text, at):
        word = "epoch" if item["word"].lower() == "epoch" else "step"
        if word in counts:
            return None  # ambiguous
        counts[word] = item["now"], item["all"]
        at = item.end()
    value = float(loss["loss"]) if loss else _loss_in(text[at:])
    epoch, epochs = counts.get("epoch", (None, None))
    step, steps = counts.get("step", (None, None))
    if not counts or (value is None and epochs is None):
        return None
    counted = _counted(epoch, epochs, step, steps)
    return counted and counted.replace(loss=value)
