"""Whether a script may start warm, and which variables are set before, from its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.local.warm.command import Command, NotWarm
from drumline.engine.local.warm.script import inspect_script


@pytest.mark.parametrize("call", ["numpy.random.seed(3)", "random.seed(3)", "seed_everything(3)", "set_seed(3)"])
def test_a_script_that_seeds_before_it_imports_its_framework_starts_cold(tmp_path: Path, call: str) -> None:
    script = Command("python", (), path="train.py")
    (tmp_path / "train.py").write_text(f"import numpy\n{call}\nimport jax\n")
    with pytest.raises(NotWarm, match=r"^train\.py seeds random numbers before it imports jax$"):
        inspect_script(script, "jax", (), str(tmp_path))
    (tmp_path / "train.py").write_text(f"import numpy\nimport jax\n{call}\n")
    inspect_script(script, "jax", (), str(tmp_path))


def test_a_variable_that_a_named_module_may_read_is_set_before_the_import_of_the_framework(tmp_path: Path) -> None:
    script, modules = Command("python", (), path="train.py"), ["torch._dynamo"]
    variable = "TORCHINDUCTOR_CACHE_DIR"
    (tmp_path / "train.py").write_text(f'import os\nos.environ["{variable}"] = "x"\nimport torch\n')
    assert inspect_script(script, "torch", modules, str(tmp_path)) == {variable: "x"}
    (tmp_path / "train.py").write_text(f'import os\nimport torch\nos.environ["{variable}"] = "x"\n')
    assert inspect_script(script, "torch", (), str(tmp_path)) == {}
    with pytest.raises(NotWarm, match=rf"^train\.py sets {variable}, which a module of warm\.import may read when"):
        inspect_script(script, "torch", modules, str(tmp_path))
