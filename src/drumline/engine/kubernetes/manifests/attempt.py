"""The content of the pods of one attempt; values that they share are computed once."""

from __future__ import annotations

from collections.abc import Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests import volumes
from drumline.engine.kubernetes.manifests.pod import PodContent
from drumline.engine.kubernetes.manifests.variables import IndexSource, variables
from drumline.engine.kubernetes.paths import Object
from drumline.engine.kubernetes.place import awaits_names, hosts
from drumline.plan.types import Launch, Plan

# A longer list of names is stored in a shared ConfigMap instead of in each pod.
_INLINE = 1024
PEERS = "DRUMLINE_PEERS"


class AttemptPods:
    """Makes pod contents from launches; `shared` collects long values for the shared ConfigMap."""

    def __init__(self, plan: Plan, launches: Sequence[Launch], parts: int) -> None:
        self.shared: dict[str, str] = {}
        self._plan = plan
        self._parts = parts
        self._attempt = launches[0].attempt
        self._prepared = [launches[0].place.data_dirs[number] for number in _prepared(plan)]
        self._peers = ",".join(_peers(plan, self._attempt))

    def content(
        self, launches: Sequence[Launch], labels: Object, index_source: IndexSource | None = None
    ) -> PodContent:
        """Return the content of the pods of these replicas."""
        first = launches[0]
        given = variables(
            launches,
            shared_in=names.shared_values(self._plan, self._attempt),
            secrets_in=names.secret(self._plan),
            index_source=index_source,
        )
        self.shared.update(given.shared)
        return PodContent(
            argv=first.replica.argv,
            variables=given,
            resources=first.replica.resources,
            place=first.place if len({each.place.port for each in launches}) == 1 else first.place.replace(port=0),
            mounts=volumes.mounts(self._plan, first.replica.id, self._parts),
            labels=labels,
            carries=self._parts > 0,
            peers=self._peers_variable(),
            prepared=self._prepared,
            makes_folders=True,
        )

    def _peers_variable(self) -> Object | None:
        if not self._peers:
            return None
        if len(self._peers) <= _INLINE:
            return {"name": PEERS, "value": self._peers}
        self.shared[PEERS] = self._peers
        where = {"name": names.shared_values(self._plan, self._attempt), "key": PEERS}
        return {"name": PEERS, "valueFrom": {"configMapKeyRef": where}}


def _peers(plan: Plan, attempt: int) -> list[str]:
    """Return the names that every pod waits for: those of all replicas except evaluators."""
    if not awaits_names(plan):
        return []
    return [host for replica, host in hosts(plan, attempt).items() if replica.role != "evaluator"]


def _prepared(plan: Plan) -> list[int]:
    """Return the indexes of the data that a preparation makes."""
    made = {each.variable for each in plan.preparations}
    return [number for number, data in enumerate(plan.data) if data.variable in made]
