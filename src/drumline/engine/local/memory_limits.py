"""The memory limits of one run's lives: a cgroup for each that has one, and a warning where there can be none."""

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
    """Makes and removes the groups of a run; which one a life has is written beside its trace before it is made.

    So whoever takes the run up again finds it, from wherever that is done. What knows cgroups is loaded where there
    is a limit: a line without one starts as fast as before.
    """

    def __init__(self, run_dir: Path, tell: ReportEvent) -> None:
        self._run_dir = run_dir
        self._tell = tell
        self._ground: CgroupParent | None = None
        self._told: set[tuple[int, str]] = set()

    def make(self, folder: Path, attempt: int, memory_bytes: int | None) -> str:
        """Make the group of a life that is about to begin; none where it has no limit, or none can be kept."""
        if memory_bytes is None:
            return ""
        from drumline.engine.local.cgroup import NoCgroupError, make_group, own_cgroup_parent  # noqa: PLC0415

        self.clear(folder)  # of a supervisor that was killed before the life began
        try:
            ground = self._ground = self._ground or own_cgroup_parent()
            name = self._name(folder)
            write_file(folder / GROUP, os.fsencode(ground.path / name))
            return str(make_group(ground, name, memory_bytes))
        except NoCgroupError as error:
            (folder / GROUP).unlink(missing_ok=True)
            self._warn(attempt, f"memory limits are not enforced: {error}")
            return ""

    def group(self, folder: Path) -> Path | None:
        """The group of a life, if it has one; by its name it can be no other's."""
        try:
            path = Path(os.fsdecode(read_regular(folder / GROUP, _LONGEST_PATH)))
        except OSError:
            return None
        return path if path.name == self._name(folder) else None

    def members(self, folder: Path) -> set[int]:
        """Everybody in the group of a life."""
        group = self.group(folder)
        if group is None:
            return set()
        from drumline.engine.local.cgroup import members  # noqa: PLC0415

        return members(group)

    def clear(self, folder: Path) -> None:
        """Remove the group of a life of which nobody is left."""
        group = self.group(folder)
        if group is None:
            return
        from drumline.engine.local.cgroup import remove_group  # noqa: PLC0415

        if remove_group(group):
            (folder / GROUP).unlink(missing_ok=True)

    def _warn(self, attempt: int, message: str) -> None:
        """Say it once an attempt, not once a replica."""
        if (attempt, message) not in self._told:
            self._told.add((attempt, message))
            self._tell(EngineWarned(attempt, message))

    def _name(self, folder: Path) -> str:
        """Whose it is, for people; and the number of the run's folder, which no other folder has meanwhile."""
        run = os.stat(self._run_dir)  # noqa: PTH116
        life = ".".join(folder.relative_to(self._run_dir).parts[1:])
        return f"drumline-{os.getuid()}-run{self._run_dir.name}-{life}-{run.st_dev:x}-{run.st_ino:x}"
