"""A supervisor is forked by a process that has no thread, since locks of a thread would stay held in the child."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import _thread, os
from drumline.supervise import detach
begun, may_end = _thread.allocate_lock(), _thread.allocate_lock()
begun.acquire()
may_end.acquire()
def work():  # as the destructors of a thread that was joined
    begun.release()
    may_end.acquire()
_thread.start_new_thread(work, ())
begun.acquire()
assert len(os.listdir("/proc/self/task")) == 2
detach.time.sleep = lambda _: may_end.locked() and may_end.release()  # it ends while it is waited for
detach._wait_threads_gone()
print(len(os.listdir("/proc/self/task")))
"""


def test_a_thread_that_is_about_to_end_is_waited_for_before_the_fork() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
