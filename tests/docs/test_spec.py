"""docs/spec.md has every key of the spec with its default, and every YAML block of the pages is a spec that passes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from docs.pages import PAGES, ROOT, Block, read_blocks, read_table, sections
from drumline.cli import run
from drumline.engine.kubernetes import options as blocks
from drumline.engine.local import options as local
from drumline.engine.local.network import find_network_problem
from drumline.engine.ssh import options as hosts
from drumline.load.engine import known_spec_type
from drumline.spec import types
from drumline.spec.quantity import parse_seconds
from drumline.spec.schema import blocks_of

MINIMAL = {"project": "project: digits\n", "run": "run: python train.py\n", "roles": "roles: {worker: 2}\n"}

# The tables of a section, in their order: one per type of the spec.
TABLES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "The file": (known_spec_type(),),
    "Commands": (types.Run,),
    "Roles": (types.Roles, types.Role),
    "First": (types.First,),
    "Resources": (types.Resources,),
    "Variables and secrets": (types.Value,),
    "TensorFlow": (types.TensorFlow,),
    "PyTorch": (types.Torch,),
    "Environment": (types.Environment,),
    "Data": (types.Data,),
    "Restart": (types.Restart,),
    "Backoff": (types.Backoff,),
    "Timeouts": (types.Timeouts,),
    "Engine": (type(known_spec_type()(project="x").engine),),
    "local": (local.LocalOptions,),
    "Network": (local.Network,),
    "ssh": (hosts.SshOptions, hosts.SshHost),
    "kubernetes, jobset, tfjob": (blocks.KubernetesOptions,),
    "Image": (blocks.Image,),
    "Volume": (types.Volume,),
    "Toleration": (blocks.Toleration,),
    "Warm": (types.Warm,),
}
BLOCKS = [
    pytest.param(block, id=block.place) for page in PAGES for block in read_blocks(page) if block.language == "yaml"
]


@pytest.mark.parametrize("block", BLOCKS)
def test_yaml_that_is_shown_passes_check(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if "network: private" in block.text and (forbidden := find_network_problem()):
        pytest.skip(forbidden)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    Path("drumline.yml").write_text(complete(block.text) if "fragment" in block.marks else block.text)
    code = run(["check"])
    # Warnings about this machine or about hosts in general, not about the spec itself.
    usual = ("this machine has", "OUTPUT_DIR is not shared")
    said = "".join(line for line in capfd.readouterr().err.splitlines() if not any(each in line for each in usual))
    warned = "warning:" in said and "dialect" not in block.marks  # dialects warn of lost keys
    assert (code, warned) == ((2, False) if "broken" in block.marks else (0, False)), said


def complete(fragment: str) -> str:
    """Return a complete spec with these keys."""
    own = yaml.safe_load(fragment)
    return "".join(line for key, line in MINIMAL.items() if key not in own) + fragment


def test_every_type_of_the_spec_has_a_table() -> None:
    assert set(blocks_of(known_spec_type())) == {each for several in TABLES.values() for each in several}


@pytest.mark.parametrize("section", TABLES)
def test_the_tables_of_a_section_have_every_key_and_its_default(section: str) -> None:
    rows = read_table(sections(ROOT / "docs" / "spec.md")[section])
    fields = [field for block in TABLES[section] for field in msgspec.structs.fields(block)]
    assert [row[0].strip("`") for row in rows] == [field.encode_name for field in fields]
    wrong = [row[0] for row, field in zip(rows, fields, strict=True) if not says_default(row[1], field)]
    assert not wrong


def says_default(shown: str, field: msgspec.structs.FieldInfo) -> bool:
    """Return whether a cell has a field's default; a computed default is described in words or left out."""
    text = shown.strip("`")
    if field.required:
        return text == "required"
    match field.default:
        case bool() as default:
            return text == str(default).lower()
        case float() as default:
            return parse_seconds(text) == default
        case int() | str() as default:
            return text == str(default)
        case _:
            return text != "required"
