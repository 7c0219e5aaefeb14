"""The rules of `.gitignore` and `.drumlineignore`, as git applies them: nested files, `!`, `**`, ignored folders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drumline.record import Record

_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t", b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9",
    b"graph": rb"!-~", b"lower": rb"a-z", b"print": rb" -~", b"punct": rb"!-/:-@\[-`{-~", b"space": rb" \t-\r",
    b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip
_NEVER = re.compile(rb"(?!)")


class Rule(Record):
    """One line of an ignore file."""

    pattern: re.Pattern[bytes]
    keeps: bool  # the line begins with `!`
    only_folders: bool  # the line ends with `/`
    anchored: bool  # matches the path relative to the file's folder; else only the last name


class Rules(Record):
    """The rules of one ignore file, and its folder."""

    base: bytes  # the folder of the file, relative to the root of the walk: empty, or with a `/` at its end
    rules: tuple[Rule, ...]

    def verdict(self, path: bytes, *, folder: bool) -> bool | None:
        """Return whether the file ignores this path, by its last line that matches; None if no line matches."""
        inner = path[len(self.base) :]
        name = inner.rpartition(b"/")[2]
        for rule in reversed(self.rules):
            if rule.only_folders and not folder:
                continue
            if rule.pattern.fullmatch(inner if rule.anchored else name):
                return not rule.keeps
        return None


def read_rules(text: bytes, base: bytes = b"") -> Rules:
    """Return the rules in the text of an ignore file; comments and empty lines have none."""
    return Rules(base, tuple(_rules(text)))


def is_ignored(files: tuple[Rules, ...], path: bytes, *, folder: bool) -> bool:
    """Return whether a path is ignored, by the first of these files that has a rule for it."""
    verdicts = (each.verdict(path, folder=folder) for each in files)
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _rules(text: bytes) -> Iterator[Rule]:
    for whole in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = _trimmed(whole.removesuffix(b"\r"))
        if not line or line.startswith(b"#"):
            continue
        keeps = line.startswith(b"!")
        line = line[1:] if keeps else line
        only_folders = line.endswith(b"/")
        line = line[:-1] if only_folders else line
        anchored = b"/" in line
        if line:
            yield Rule(_compiled(line.removeprefix(b"/")), keeps, only_folders, anchored)


def _trimmed(line: bytes) -> bytes:
    """Return a line without blanks at its end, except one after a backslash."""
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    return bare + b" " if backslashes % 2 and len(bare) < len(line) else bare


def _compiled(glob: bytes) -> re.Pattern[bytes]:
    """Return a glob as a regular expression that matches as git does; an incomplete glob never matches."""
    out, at = b"", 0
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            end = at + len(glob[at:]) - len(glob[at:].lstrip(b"*"))
            alone = end - at >= 2 and (at == 0 or glob[at - 1 : at] == b"/")
            if alone and glob[end : end + 1] == b"/":
                out, at = out + rb"(?:.*/)?", end + 1
            elif alone and end == len(glob):
                out, at = out + rb".*", end
            else:
                out, at = out + rb"[^/]*", end
        elif char == b"?":
            out, at = out + rb"[^/]", at + 1
        elif char == b"[":
            found = _bracket(glob, at + 1)
            if found is None:
                return _NEVER
            out, at = out + found[0], found[1]
        elif char == b"\\":
            if at + 1 == len(glob):
                return _NEVER
            out, at = out + re.escape(glob[at + 1 : at + 2]), at + 2
        else:
            out, at = out + re.escape(char), at + 1
    return re.compile(out, re.DOTALL)


def _bracket(glob: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the pattern of the bracket expression at this position, and its end; None if it is not closed."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    inside, first = b"", True
    while first or glob[at : at + 1] != b"]":
        first = False
        if glob[at : at + 2] == b"[:":
            name, closed, _ = glob[at + 2 :].partition(b":]")
            if closed and b"]" not in name:
                if name not in _CLASSES:
                    return None
                inside, at = inside + _CLASSES[name], at + len(name) + 4
                continue
        low, at = _member(glob, at)
        if low is None:
            return None
        if glob[at : at + 1] == b"-" and glob[at + 1 : at + 2] not in (b"]", b""):
            high, at = _member(glob, at + 1)
            if high is None:
                return None
            inside += re.escape(low) + b"-" + re.escape(high) if low <= high else b""
        else:
            inside += re.escape(low)
    if not inside:  # only empty ranges
        return (rb"[^/]" if negated else rb"(?!)"), at + 1
    return rb"(?!/)[" + (b"^" if negated else b"") + inside + rb"]", at + 1


def _member(glob: bytes, at: int) -> tuple[bytes | None, int]:
    if glob[at : at + 1] == b"\\":
        at += 1
    return (glob[at : at + 1] or None), at + 1
