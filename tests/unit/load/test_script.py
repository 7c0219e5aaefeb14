from __future__ import annotations

from pathlib import Path

import pytest

from drumline.load.script import remarks
from plans import plan_of

SPEC = "project: digits\nframework: {framework}\nrun: python train.py\nworkdir: code\nroles: {{worker: {workers}}}\n"


def said_of(script: str, folder: Path, *, framework: str = "tensorflow", workers: int = 2) -> list[str]:
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(script)
    return list(map(str, remarks(plan_of(SPEC.format(framework=framework, workers=workers)), str(folder))))


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['TF_CONFIG'] = json.dumps(tf_config)",
        'os.environ["TF_CONFIG"]=CONFIG',
        'if __name__ == "__main__": environ[ "TF_CONFIG" ] = "{}"',
    ],
)
def test_a_script_that_says_itself_who_it_is_is_named_with_the_line(line: str, tmp_path: Path) -> None:
    (said,) = said_of(f"import json, os\n\n{line}\nprint(os.environ['TF_CONFIG'])\n", tmp_path)
    assert said.startswith("train.py:3: sets TF_CONFIG itself")


@pytest.mark.parametrize(
    "script",
    [
        "config = json.loads(os.environ['TF_CONFIG'])",
        "# os.environ['TF_CONFIG'] = '{}'",
        "assert os.environ['TF_CONFIG'] == '{}'",
        "if 'TF_CONFIG' not in os.environ:\n    os.environ['TF_CONFIG'] = '{}'",
        "os.environ['TF_CONFIG'] = os.environ.get('TF_CONFIG', '{}')",
        "os.environ.setdefault('TF_CONFIG', '{}')",
    ],
)
def test_one_that_only_reads_it_or_fills_in_for_who_does_not_give_it_is_fine(script: str, tmp_path: Path) -> None:
    assert said_of(script, tmp_path) == []


@pytest.mark.parametrize(("framework", "workers"), [("torch", 2), ("tensorflow", 1)])
def test_who_is_alone_or_not_asked_by_it_may_set_what_they_like(framework: str, workers: int, tmp_path: Path) -> None:
    assert said_of("os.environ['TF_CONFIG'] = '{}'\n", tmp_path, framework=framework, workers=workers) == []


def test_a_script_that_is_not_here_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert list(remarks(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path))) == []
