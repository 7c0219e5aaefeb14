"""Plans of a few replicas that never run, for tests of the state machine."""

from __future__ import annotations

from drumline.plan.types import ROLES, Environment, Plan, Preparation, Replica, ReplicaId, Resources, Restart, Timeouts
from drumline.record import field_names

BUDGETS = set(field_names(Restart))


def gang(text: str) -> Plan:
    """Return the plan of `build prepare chief worker*2 ps success=worker-0 crash=2 run=60`: helpers, roles, budgets…"""
    environment: Environment | None = None
    preparations: list[Preparation] = []
    counts: dict[str, int] = {}
    restart: dict[str, object] = {}
    timeouts: dict[str, float] = {}
    success, framework = None, "tensorflow"
    tensorboard: bool | None = False
    for word in text.split():
        name, _, value = word.partition("=")
        role, _, number = word.partition("*")
        if role in ROLES:
            counts[role] = int(number or 1)
        elif word == "build":
            environment = Environment(("numpy",))
        elif word.startswith("prepare"):
            preparations.append(Preparation(word, "DATA_DIR", "data", ("true",), {}))
        elif name == "tensorboard":
            tensorboard = {"": None, "true": True}[value]
        elif name == "success":
            success = value
        elif name == "framework":
            framework = value
        elif name == "permanent":
            restart["permanent_codes"] = tuple(value.split(","))
        elif name in BUDGETS:
            restart[name] = float(value) if name.endswith(("seconds", "factor")) else int(value)
        else:
            timeouts[f"{name}_seconds"] = float(value)
    return Plan(
        run="4",
        project="digits",
        name="digits",
        framework=framework,
        engine="local",
        replicas=tuple(
            Replica(ReplicaId(role, index), f"digits-{role}-{index}", ("true",), {}, Resources())
            for role in ROLES
            for index in range(counts.get(role, 0))
        ),
        environment=environment,
        builds=environment is not None,
        preparations=tuple(preparations),
        success=success or ("chief" if "chief" in counts else "all-workers"),
        restart=Restart(**restart),  # type: ignore[arg-type]
        timeouts=Timeouts(**timeouts, is_grace_set="grace_seconds" in timeouts),
        tensorboard=tensorboard,
    )
