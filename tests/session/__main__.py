"""``make session``: record the picture of README again."""

from __future__ import annotations

from pathlib import Path

from session.picture import draw
from session.recording import COLUMNS, record

PICTURE = Path(__file__).parents[2] / "docs" / "session.svg"
TITLE = "digits: drumline on this machine"

if __name__ == "__main__":
    PICTURE.write_text(draw(record(), columns=COLUMNS, title=TITLE))
