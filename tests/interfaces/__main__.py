"""``make interfaces``: write docs/interfaces.txt, and print what differs from before."""

from __future__ import annotations

from interfaces.extract import interfaces
from interfaces.record import FILE, compare, read, write

if __name__ == "__main__":
    found = interfaces()
    difference = compare(read(FILE.read_text()) if FILE.exists() else {}, found)
    for word, lines in difference._asdict().items():
        print(*(f"{word}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    if difference.removed or difference.changed:
        print("What was removed or changed breaks users: docs/stability.md says what a release with it needs.")
    FILE.write_text(write(found))
