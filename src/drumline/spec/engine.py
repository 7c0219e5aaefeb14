"""The `engine` block of a spec."""

from typing import ClassVar

from drumline.default import DEFAULT_ENGINE
from drumline.spec.block import Block
from drumline.spec.struct import structs


class Engine(Block, frozen=True):
    """Where replicas run. A spec may have options of several engines; `--on NAME` chooses one."""

    # `spec_type` adds a field for each engine that is known.
    short: ClassVar[str | None] = "default"
    keys_need_values: ClassVar[bool] = True
    default: str | None = None

    def options(self, name: str) -> Block | None:
        """Return the block of this engine; None if the spec has none."""
        block: Block | None = getattr(self, options_field(name), None)
        return block

    @property
    def chosen(self) -> str:
        """Return the spec's default engine, else the only one that it has options for, else drumline's default."""
        known = [each for each in structs.fields(self) if each.name != "default"]
        given = [each.encode_name for each in known if getattr(self, each.name) is not None]
        return self.default or (given[0] if len(given) == 1 else DEFAULT_ENGINE)


def options_field(engine: str) -> str:
    """Return the attribute of `Engine` that has the block of this engine."""
    return f"{engine.replace('-', '_')}_options"
