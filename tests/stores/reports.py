"""Fail since a peer is gone, in the words of torch."""

import os
import time
from pathlib import Path

while not Path(os.environ["OUTPUT_DIR"], "ready").exists():
    time.sleep(0.01)
address = f"[{os.environ['MASTER_ADDR']}]:{os.environ['MASTER_PORT']}"
raise RuntimeError(f"Connection closed by peer {address}")
