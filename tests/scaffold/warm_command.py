"""The command line with every replica from a warm process: it is forked there, and becomes what its spec says.

`make test-ways` has all the tests of the local engine type this instead of `drumline`.
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
    """The plan as it is, with each command begun by Python."""
    plan = make_plan(*arguments, **named)
    return plan.replace(warm=plan.warm or Warm(), replicas=tuple(map(_begun_by_python, plan.replicas)))


def _begun_by_python(replica: Replica) -> Replica:
    """The same replica; one whose command is a file of its own, is not there, or is Python already, stays as it is."""
    name = replica.argv[0]
    if "/" in name or name.startswith("python") or not shutil.which(name):
        return replica
    return replica.replace(argv=(sys.executable, BECOME, *replica.argv))


if __name__ == "__main__":
    load.make_plan = make_warm_plan  # type: ignore[attr-defined]
    main()
