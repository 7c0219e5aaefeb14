"""What is written down about a run beside its journal, by a process of its own: git may take its time."""

from __future__ import annotations

from pathlib import Path

from drumline.store.folder import RunFolder
from drumline.store.launch import add_facts
from drumline.store.revision import code_facts


def main(folder: str, directory: str) -> None:
    """Keep the revision of the code in a directory with the run in a folder."""
    add_facts(RunFolder(Path(folder)), **code_facts(Path(directory)))
