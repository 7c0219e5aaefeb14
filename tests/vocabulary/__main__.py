"""``make vocabulary``: print every retired word, and write the list of the files that have some."""

from __future__ import annotations

from vocabulary.scan import NOT_CLEAN, count, scan

HEAD = """\
# Files that still have retired words in their text or in the names that they define, and how many.
# `make vocabulary` writes this list. A test compares it with the files: none is added, and none gets more of them.
"""

if __name__ == "__main__":
    found = scan()[0]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} retired words in {len({each.path for each in found})} files")
    lines = [f"{kind} {number} {path}\n" for (kind, path), number in sorted(count().items())]
    NOT_CLEAN.write_text(HEAD + "".join(lines))
