"""Make the type of a spec with a block for each known engine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, cast

from drumline.spec.block import Block
from drumline.spec.engine import Engine, options_field
from drumline.spec.struct import defstruct, field, structs
from drumline.spec.types import Spec


def spec_type(engines: Mapping[str, type[Block]]) -> type[Spec]:
    """Return the type of a spec that may have a block for each of these engines; the same type for the same engines."""
    return _spec_type(tuple(engines.items()))


@cache
def _spec_type(engines: tuple[tuple[str, type[Block]], ...]) -> type[Spec]:
    names: Any = Literal[tuple(name for name, _ in engines)]
    blocks = [(options_field(name), block | None, field(default=None, name=name)) for name, block in engines]
    engine = _subtype(Engine, [("default", names | None, field(default=None)), *blocks])
    # All fields are defined again: `engine` alone would become the last field.
    fields = [(each.name, each.type, _same_default(each)) for each in structs.fields(Spec)]
    own = ("engine", engine, field(default=engine()))
    return cast("type[Spec]", _subtype(Spec, [own if each[0] == "engine" else each for each in fields]))


def _subtype(block: type[Block], fields: list[tuple[str, Any, Any]]) -> type[Block]:
    made = defstruct(
        block.__name__,
        fields,
        bases=(block,),
        namespace={"__doc__": block.__doc__},
        module=block.__module__,
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return cast("type[Block]", made)


def _same_default(each: structs.FieldInfo) -> Any:
    kept: Any = {"default": each.default, "default_factory": each.default_factory}
    return field(**kept, name=each.encode_name)
