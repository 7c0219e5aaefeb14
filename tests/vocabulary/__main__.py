"""``make vocabulary``: print every retired word that is not exempt."""

from __future__ import annotations

from vocabulary.scan import scan

if __name__ == "__main__":
    found = scan()[0]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} retired words in {len({each.path for each in found})} files")
