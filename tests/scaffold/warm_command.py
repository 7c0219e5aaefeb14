"""drumline with every replica forked from a warm process, which then executes the replica's command.

In `make test-ways`, the tests of the local engine use this instead of `drumline`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from drumline.__main__ import main
from drumline.load import load
from drumline.plan.make import make_plan
from drumline.plan.types import Plan, Replica, Warm

BECOME = str(Path(__file__).with_name("become.py"))


def make_warm_plan(*arguments: Any, **named: Any) -> Plan:
    """Return the plan with each command started by Python."""
    plan = make_plan(*arguments, **named)
    return plan.replace(warm=plan.warm or Warm(), replicas=tuple(map(_started_by_python, plan.replicas)))


def _started_by_python(replica: Replica) -> Replica:
    """Return the replica, started by Python; unchanged if its command is a path, is missing, or is Python itself."""
    name = replica.argv[0]
    if "/" in name or name.startswith("python") or not shutil.which(name):
        return replica
    return replica.replace(argv=(sys.executable, BECOME, *replica.argv))


if __name__ == "__main__":
    load.make_plan = make_warm_plan  # type: ignore[attr-defined]
    main()
