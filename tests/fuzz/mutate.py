"""Random damage to bytes, texts, and JSON values; the same random generator makes the same damage."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

# Difficult values for readers: extreme numbers, words that are values, special characters.
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 1e308, -1e308, 5e-324, 0.1),
    *(float("inf"), float("-inf"), float("nan"), True, False, None),
)
TEXTS = (
    *("", " ", "\0", "\x1b[2J", "\r", "\t", "\ufeff", "\u2028", "\x85", "é", "😀", "\ud800", "٣", "①", "'", '"', "\\"),
    *("null", "true", "no", "1e999", "-0", "NaN", "0x10", "1_000", "..", "/", "../../etc/passwd", "~", "$(id)"),
    *("{{ lr }}", "{% for x in y %}", "*a", "&a ", "<<", "!!python/object:os.system ", "worker.0", "ps.99999999"),
    *("a" * 300, "9" * 5000, "worker.0.0", "%s%n", "-", "--help", "=", ":", "@", "host:0", "[::1]:99999"),
)
PIECES = (
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\t",
        b"\0",
        b"  ",
        b": ",
        b"- ",
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"'",
        b"#",
        b"|\n",
        b"? ",
    ),
    *(
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"!!str ",
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(
        b"{{",
        b"}}",
        b"{%",
        b"%}",
        b"9" * 400,
        b"-1",
        b"1e999",
        b"null",
        b"~",
        b",",
        b"[" * 50,
        b"{a: " * 50,
        b"x" * 5000,
    ),
)


def damage(data: bytes, chance: Random, *, most: int = 6, pieces: Sequence[bytes] = PIECES) -> bytes:
    """Return the bytes with some of them changed, removed, doubled, moved or cut off."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, most)):
        start = chance.randint(0, len(damaged))
        end = min(len(damaged), start + chance.choice((1, 4, 30, 200)))
        match chance.randrange(8):
            case 0 if start < len(damaged):
                damaged[start] ^= 1 << chance.randrange(8)
            case 1:
                del damaged[start:end]
            case 2:
                damaged[end:end] = damaged[start:end] * chance.choice((1, 1, 3, 40))
            case 3:
                piece = damaged[start:end]
                del damaged[start:end]
                at = chance.randint(0, len(damaged))
                damaged[at:at] = piece
            case 4 if chance.random() < 0.3:
                del damaged[start:]
            case 5:
                damaged[start:end] = chance.randbytes(end - start)
            case _:
                damaged[start:start] = chance.choice(pieces)
    return bytes(damaged)


def damage_lines(data: bytes, chance: Random) -> bytes:
    """Return the lines with some of them removed, doubled, moved or indented."""
    lines = data.splitlines(keepends=True) or [b""]
    for _ in range(chance.randint(1, 5)):
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                lines.insert(at, lines[other])
            case 1 if len(lines) > 1:
                del lines[at]
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = b" " * chance.randrange(9) + lines[at].lstrip(b" ")
            case _:
                key, colon, value = lines[at].partition(b":")
                odd = chance.choice(TEXTS).encode("utf-8", "surrogatepass")
                lines[at] = key + colon + b" " + odd + b"\n" if chance.random() < 0.7 else odd + b":" + value
    return b"".join(lines)


def twist(value: Any, chance: Random) -> Any:
    """Return the JSON value with one part of another type, removed, doubled or unusual."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        match chance.randrange(8):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return {**value, chance.choice(TEXTS): strange(chance)}
            case 2:
                return {chance.choice(TEXTS) if name == key else name: each for name, each in value.items()}
            case _:
                return {**value, key: twist(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        match chance.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case _:
                return [*value[:at], twist(value[at], chance), *value[at + 1 :]]
    if isinstance(value, str) and chance.random() < 0.4:
        return damage(value.encode("utf-8", "surrogatepass"), chance, most=2).decode(errors="replace")
    return strange(chance)


def strange(chance: Random) -> Any:
    """Return any JSON value, also ones that JSON cannot contain."""
    match chance.randrange(8):
        case 0 | 1 | 2:
            return chance.choice(NUMBERS)
        case 3 | 4:
            return chance.choice(TEXTS)
        case 5:
            return [strange(chance) for _ in range(chance.randrange(4))]
        case 6:
            return {chance.choice(TEXTS): strange(chance) for _ in range(chance.randrange(4))}
        case _:
            deep: Any = chance.choice(NUMBERS)
            for _ in range(chance.choice((3, 50, 900))):
                deep = [deep] if chance.random() < 0.5 else {"a": deep}
            return deep
