"""Record the code revision of a run. It runs in a separate process, since git may take long."""

from __future__ import annotations

from pathlib import Path

from drumline.store.folder import RunFolder
from drumline.store.launch import add_facts
from drumline.store.revision import code_facts


def main(folder: str, directory: str) -> None:
    """Record the revision of the code in `directory` with the run in `folder`."""
    add_facts(RunFolder(Path(folder)), **code_facts(Path(directory)))
