"""The kernel's log, as kernels 4 to 6 write it: processes killed for memory, and others with the same pid."""

from __future__ import annotations

import pytest

from drumline.engine.local.kernel_log import find_oom_kill

# Recorded here: a group around a run, and what stands before and after it in the log.
GROUP = """\
4,123015,36207869380,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
6,123021,36207869581,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/drumline-0-run9,task_memcg=/drumline-0-run9,task=python,pid=4344,uid=0
3,123022,36207869592,-;Memory cgroup out of memory: Killed process 4344 (python) total-vm:2017792kB, anon-rss:1136820kB, file-rss:9920kB, shmem-rss:0kB, UID:0 pgtables:2468kB oom_score_adj:0
6,115772,36207900000,-;hub: port 1(worker.0) entered blocking state
"""  # noqa: E501
# As mm/oom_kill.c prints it for a whole machine: since 5.0, and before.
MACHINE = "3,900,36207869592,-;Out of memory: Killed process 4344 (python) total-vm:2017792kB, anon-rss:1kB, UID:1000"
OLDER = "3,900,36207869592,-;Out of memory: Kill process 4344 (python) score 912 or sacrifice child"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (GROUP, "out of memory: it has no limit of its own, but a larger cgroup has one"),
        (MACHINE, "out of memory: the machine has no more"),
        (OLDER, "out of memory: the machine has no more"),
    ],
)
def test_a_killed_process_is_found_by_its_pid_and_time(log: str, words: str) -> None:
    records = log.splitlines()
    assert find_oom_kill(records, 4344, 36207.9) == words
    assert find_oom_kill(records, 4344, 36307.9) == ""  # another, that had its number before
    assert find_oom_kill(records, 434, 36207.9) == ""
    assert find_oom_kill(records, 0, 36207.9) == ""


def test_a_log_without_evidence_names_no_peer() -> None:
    assert find_oom_kill([], 1, 1.0) == ""
    assert find_oom_kill(["", "6,1,2,-;", "SUBSYSTEM=pci", "3,1,1000000,-;Killed process 1 (x)"], 1, 1.0) == ""
