"""The memory limits of one run's incarnations: a cgroup for each, or a warning if none can be made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.protocol import ReportEvent
from drumline.run.event import EngineWarned
from drumline.run.traces import GROUP
from drumline.runtime.private import read_regular, write_file

if TYPE_CHECKING:
    from drumline.engine.local.cgroup import CgroupParent

_LONGEST_PATH = 4096


class MemoryLimits:
    """Makes and removes the cgroups of a run.

    The path of a cgroup is written beside the incarnation's trace before it is made, so that a later supervisor finds
    it. The module for cgroups is imported only if there is a limit.
    """

    def __init__(self, run_dir: Path, report: ReportEvent) -> None:
        self._run_dir = run_dir
        self._report = report
        self._parent: CgroupParent | None = None
        self._warned: set[tuple[int, str]] = set()

    def make(self, folder: Path, attempt: int, memory_bytes: int | None) -> str:
        """Make the cgroup of an incarnation before it begins; return its path, "" if there is no limit or no cgroup."""
        if memory_bytes is None:
            return ""
        from drumline.engine.local.cgroup import NoCgroupError, make_group, own_cgroup_parent  # noqa: PLC0415

        self.clear(folder)  # left by a supervisor that was killed before the incarnation began
        try:
            parent = self._parent = self._parent or own_cgroup_parent()
            name = self._name(folder)
            write_file(folder / GROUP, os.fsencode(parent.path / name))
            return str(make_group(parent, name, memory_bytes))
        except NoCgroupError as error:
            (folder / GROUP).unlink(missing_ok=True)
            self._warn(attempt, f"memory limits are not enforced: {error}")
            return ""

    def group(self, folder: Path) -> Path | None:
        """Return the cgroup of an incarnation; None if it has none, or if the recorded path has another name."""
        try:
            path = Path(os.fsdecode(read_regular(folder / GROUP, _LONGEST_PATH)))
        except OSError:
            return None
        return path if path.name == self._name(folder) else None

    def members(self, folder: Path) -> set[int]:
        """Return the processes in the cgroup of an incarnation."""
        group = self.group(folder)
        if group is None:
            return set()
        from drumline.engine.local.cgroup import members  # noqa: PLC0415

        return members(group)

    def clear(self, folder: Path) -> None:
        """Remove the cgroup of an incarnation if it is empty."""
        group = self.group(folder)
        if group is None:
            return
        from drumline.engine.local.cgroup import remove_group  # noqa: PLC0415

        if remove_group(group):
            (folder / GROUP).unlink(missing_ok=True)

    def _warn(self, attempt: int, message: str) -> None:
        """Report a warning once for each attempt."""
        if (attempt, message) not in self._warned:
            self._warned.add((attempt, message))
            self._report(EngineWarned(attempt, message))

    def _name(self, folder: Path) -> str:
        """Return the name of a cgroup: user, run, incarnation, and the run folder's inode to make it unique."""
        run = os.stat(self._run_dir)  # noqa: PTH116
        incarnation = ".".join(folder.relative_to(self._run_dir).parts[1:])
        return f"drumline-{os.getuid()}-run{self._run_dir.name}-{incarnation}-{run.st_dev:x}-{run.st_ino:x}"
