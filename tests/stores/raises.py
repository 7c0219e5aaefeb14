"""Fail a moment after a peer has, whatever signal comes meanwhile."""

import os
import signal
import time
from pathlib import Path

signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(os.environ["OUTPUT_DIR"], "ready").touch()
time.sleep(1)
raise ValueError("row 17 has no label")
