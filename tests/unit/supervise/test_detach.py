"""A supervisor is forked only when no other thread runs, since the locks of a thread would stay held in the child."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import _thread, os
from drumline.supervise import detach
begun, may_end = _thread.allocate_lock(), _thread.allocate_lock()
begun.acquire()
may_end.acquire()
def work():  # stands for the destructors of a thread that was joined
    begun.release()
    may_end.acquire()
_thread.start_new_thread(work, ())
begun.acquire()
assert len(os.listdir("/proc/self/task")) == 2
detach.time.sleep = lambda _: may_end.locked() and may_end.release()  # the thread ends during the wait
detach._wait_threads_gone()
print(len(os.listdir("/proc/self/task")))
"""


def test_the_fork_waits_for_a_thread_that_is_about_to_end() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
