"""Count ten steps; FAILS names the replica that raises, ATTEMPTS in how many attempts, LASTS has it wait."""

import os
import sys
import time
from pathlib import Path

name = f"{os.environ['DRUMLINE_ROLE']}.{os.environ['DRUMLINE_INDEX']}"
attempt = int(os.environ.get("DRUMLINE_ATTEMPT", "0"))
fails = name in os.environ.get("FAILS", "") and attempt < int(os.environ.get("ATTEMPTS", "9"))
for step in range(1, int(os.environ.get("STEPS", "10")) + 1):
    print(f"step {step}: loss {1 / step:.3f}", flush=True)  # noqa: T201
    if step == 3 and os.environ.get("LASTS"):
        time.sleep(600)
    time.sleep(0.1)
if fails:
    raise ValueError(f"row 17 of {name} has no label")
if (
    os.environ.get("FAILS")
    and attempt < int(os.environ.get("ATTEMPTS", "9"))
    and "evaluator" not in os.environ["FAILS"]
):
    time.sleep(600)
if "--after-evaluator" in sys.argv:
    time.sleep(2)
output = Path(os.environ.get("OUTPUT_DIR", "."))
(output / f"{name}.txt").write_text("done\n")
