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


def damage(data: bytes, rng: Random, *, most: int = 6, pieces: Sequence[bytes] = PIECES) -> bytes:
    """Return the bytes with some of them changed, removed, doubled, moved or cut off."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, len(damaged))
        end = min(len(damaged), start + rng.choice((1, 4, 30, 200)))
        match rng.randrange(8):
            case 0 if start < len(damaged):
                damaged[start] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[start:end]
            case 2:
                damaged[end:end] = damaged[start:end] * rng.choice((1, 1, 3, 40))
            case 3:
                piece = damaged[start:end]
                del damaged[start:end]
                at = rng.randint(0, len(damaged))
                damaged[at:at] = piece
            case 4 if rng.random() < 0.3:
                del damaged[start:]
            case 5:
                damaged[start:end] = rng.randbytes(end - start)
            case _:
                damaged[start:start] = rng.choice(pieces)
    return bytes(damaged)


def damage_lines(data: bytes, rng: Random) -> bytes:
    """Return the lines with some of them removed, doubled, moved or indented."""
    lines = data.splitlines(keepends=True) or [b""]
    for _ in range(rng.randint(1, 5)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                lines.insert(at, lines[other])
            case 1 if len(lines) > 1:
                del lines[at]
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = b" " * rng.randrange(9) + lines[at].lstrip(b" ")
            case _:
                key, colon, value = lines[at].partition(b":")
                odd = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
                lines[at] = key + colon + b" " + odd + b"\n" if rng.random() < 0.7 else odd + b":" + value
    return b"".join(lines)


def twist(value: Any, rng: Random) -> Any:
    """Return the JSON value with one part of another type, removed, doubled or unusual."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return {**value, rng.choice(TEXTS): strange(rng)}
            case 2:
                return {rng.choice(TEXTS) if name == key else name: each for name, each in value.items()}
            case _:
                return {**value, key: twist(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case _:
                return [*value[:at], twist(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.4:
        return damage(value.encode("utf-8", "surrogatepass"), rng, most=2).decode(errors="replace")
    return strange(rng)


def strange(rng: Random) -> Any:
    """Return any JSON value, also ones that JSON cannot contain."""
    match rng.randrange(8):
        case 0 | 1 | 2:
            return rng.choice(NUMBERS)
        case 3 | 4:
            return rng.choice(TEXTS)
        case 5:
            return [strange(rng) for _ in range(rng.randrange(4))]
        case 6:
            return {rng.choice(TEXTS): strange(rng) for _ in range(rng.randrange(4))}
        case _:
            deep: Any = rng.choice(NUMBERS)
            for _ in range(rng.choice((3, 50, 900))):
                deep = [deep] if rng.random() < 0.5 else {"a": deep}
            return deep
