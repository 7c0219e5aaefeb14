"""Inject a fault into one replica: FALL names replica and fault, `worker.1 raise`; FALL_AT is the step."""

import os
import sys
import time

FAULTY, _, HOW = os.environ.get("FALL", "").partition(" ")
AT = int(os.environ.get("FALL_AT", "5"))
ME = f"{os.environ['DRUMLINE_ROLE']}.{os.environ['DRUMLINE_INDEX']}"


def begin() -> None:
    """Inject faults that come before the rendezvous."""
    if FAULTY == ME and HOW == "raise-early":
        raise FileNotFoundError("no such data: digits.npz")
    if FAULTY == ME and HOW == "absent":
        print("reading the data", flush=True)
        time.sleep(7200)


def at(step: int) -> None:
    """Print the step, and inject the fault if it is due."""
    print(f"step {step}: loss {1 / (step + 1):.4f}", flush=True)
    if FAULTY != ME or step != AT:
        return
    match HOW:
        case "leave":
            sys.exit(0)
        case "leave-at-once":
            os._exit(0)
        case "exit":
            sys.exit(3)
        case "raise":
            raise ValueError(f"bad row in the data of {ME}: [nan nan]")
        case "abort":
            os.abort()
        case "memory":
            eaten = []
            while True:
                eaten.append(bytearray(16 << 20))
                for page in range(0, 16 << 20, 4096):
                    eaten[-1][page] = 1


def is_now(how: str, step: int) -> bool:
    """Return whether the script itself has to inject this fault now."""
    return (ME, how, step) == (FAULTY, HOW, AT)
