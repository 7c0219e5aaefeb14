"""Becomes another program, as the keeper of a cold replica does."""

import os
import signal
import sys

for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and children would inherit that
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
