"""Random clusters, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from drumline.plan.types import ROLES

Cluster = dict[str, list[str]]

_HOSTS = st.text(alphabet="abz019", min_size=1, max_size=6).map("n{}.example".format) | st.integers(1, 254).map(
    "[2001:db8::{:x}]".format
)
_ADDRESSES = st.builds("{}:{}".format, _HOSTS, st.integers(1, 65535))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw a cluster without warnings: all addresses differ, and a ps needs a chief."""
    addresses = draw(st.lists(_ADDRESSES, min_size=1, max_size=10, unique=True))
    cluster: Cluster = {}
    for role, most in (("chief", 1), ("evaluator", 1), ("ps", 3)):
        spare = len(addresses) - 1 if role != "ps" or cluster["chief"] else 0
        cluster[role] = [addresses.pop() for _ in range(draw(st.integers(0, min(most, spare))))]
    cluster["worker"] = addresses
    return {role: cluster[role] for role in ROLES if cluster[role]}
