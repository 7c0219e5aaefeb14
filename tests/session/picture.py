"""Draw lines of a terminal as an SVG with text, in a dark window, equal in every browser."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from drumline.cli.frame import BAR
from session.screen import Look, Span

# A character's cell; every span is made as wide as its cells, whichever font a reader has.
_WIDE, _HIGH, _SIZE = 8.4, 19, 14
_MARGIN, _BAR = 18, 38
_FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_GROUND, _TITLE, _EDGE, _TEXT, _DIM = "#0d1117", "#161b22", "#30363d", "#d6dde6", "#8b949e"
_COLOURS = (
    *("#6e7681", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#d6dde6"),
    *("#8b949e", "#ffa198", "#a5f0b0", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0f5", "#ffffff"),
)
_LIGHTS = ("#ff5f57", "#febc2e", "#28c840")


def draw(lines: Sequence[Sequence[Span]], *, columns: int, title: str) -> str:
    """Return the picture of these lines, with a fixed number of columns."""
    width = round(columns * _WIDE + 2 * _MARGIN)
    height = _BAR + 2 * _MARGIN + _HIGH * len(lines) - 6
    lights = "".join(
        f'<circle cx="{_MARGIN + 4 + 20 * place}" cy="{_BAR / 2:g}" r="6" fill="{colour}"/>'
        for place, colour in enumerate(_LIGHTS)
    )
    top = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="{escape(title)}" font-family="{_FONT}" font-size="{_SIZE}">'
    )
    window = (
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="{_GROUND}" stroke="{_EDGE}"/>'
    )
    bar = f"M.5 {_BAR}V10.5a10 10 0 0 1 10-10h{width - 21}a10 10 0 0 1 10 10V{_BAR}z"
    named = (
        f'<text x="{width / 2:g}" y="{_BAR / 2 + 4.5:g}" fill="{_DIM}" font-size="13" text-anchor="middle">'
        f"{escape(title)}</text>"
    )
    texts = [_text(span, _BAR + _MARGIN + 9 + _HIGH * row) for row, line in enumerate(lines) for span in line]
    edge = f'<path d="{bar}" fill="{_TITLE}" stroke="{_EDGE}"/>'
    return "\n".join((top, window, edge, lights, named, *texts, "</svg>\n"))


def _text(span: Span, y: int) -> str:
    if span.text == BAR:  # one line from top to bottom, whatever the font makes of it
        left, top = _MARGIN + span.column * _WIDE + _WIDE / 2 - 1.5, y - _SIZE
        return f'<rect x="{left:.1f}" y="{top}" width="3" height="{_HIGH}" fill="{_colour(span.look)}"/>'
    # No-break spaces, since a picture's others are run together.
    words = escape(span.text).replace(" ", "\N{NO-BREAK SPACE}")
    weight = ' font-weight="700"' if span.look.bold else ""
    return (
        f'<text x="{_MARGIN + span.column * _WIDE:.1f}" y="{y}" fill="{_colour(span.look)}"{weight}'
        f' textLength="{len(span.text) * _WIDE:.1f}" lengthAdjust="spacingAndGlyphs">{words}</text>'
    )


def _colour(look: Look) -> str:
    if look.colour is not None:
        return _COLOURS[look.colour]
    return _DIM if look.dim else _TEXT
