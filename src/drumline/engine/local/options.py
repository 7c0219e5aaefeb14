"""The block of the spec for this machine."""

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from drumline.engine.local.planned import LocalPlan
from drumline.engine.options import Flag, LaunchInput
from drumline.plan.codec import to_options
from drumline.plan.make import EnginePart
from drumline.plan.rules import SpecProblem
from drumline.spec.block import Block
from drumline.spec.struct import Meta
from drumline.spec.types import Spec


class Network(Block, frozen=True):
    """The network of a run on this machine."""

    private: Annotated[bool, Meta(description="Each replica at an address of its own, which only this run sees")] = (
        False
    )
    outgoing: Annotated[bool, Meta(description="Connections out of a private network; this version supports none")] = (
        False
    )


class LocalOptions(Block, frozen=True):
    """This machine."""

    network: Annotated[
        Literal["shared", "private"] | Network,
        Meta(description="private: a network of this run alone, without connections to the outside"),
    ] = "shared"


Options = LocalOptions
FLAGS: tuple[Flag, ...] = ()


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    """Return this engine's part of a plan."""
    del given
    network = _network(spec, engine)
    private = network.private if isinstance(network, Network) else network == "private"
    return EnginePart(to_options(LocalPlan(private_network=private)), forks_warm=True)


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    """Yield problems of the network's options."""
    network = _network(spec, engine)
    if isinstance(network, Network) and network.outgoing:
        message = (
            "no connection leaves a private network: that needs root, or a program that is usually not installed;"
            " fetch what is needed before, as with `prepare`, or leave the network shared"
            if network.private
            else "applies to a private network only; leave it out"
        )
        yield SpecProblem(("engine", engine, "network", "outgoing"), message)


def _network(spec: Spec, engine: str) -> str | Network:
    options = cast("LocalOptions | None", spec.engine.options(engine)) or LocalOptions()
    return options.network
