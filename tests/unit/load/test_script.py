from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumline.load.script import find_script_warnings
from scaffold.plans import plan_of

SPEC = "project: digits\nframework: {framework}\nrun: python train.py\nworkdir: code\nroles: {{worker: {workers}}}\n"


def warnings_of(script: str, folder: Path, *, framework: str = "tensorflow", workers: int = 2) -> list[str]:
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(script)
    return list(map(str, find_script_warnings(plan_of(SPEC.format(framework=framework, workers=workers)), str(folder))))


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['TF_CONFIG'] = json.dumps(tf_config)",
        'os.environ["TF_CONFIG"]=CONFIG',
        'if __name__ == "__main__": environ[ "TF_CONFIG" ] = "{}"',
        "os.environ.update({'TF_CONFIG': json.dumps(config)})",
        "os.environ.update(TF_CONFIG=json.dumps({'cluster': {}}))",
        "os.environ.update({'A': str({}), 'TF_CONFIG': '{}'})",
        "os.environ |= {'TF_CONFIG': '{}'}",
        "os.putenv('TF_CONFIG', '{}')",
    ],
)
def test_a_script_that_sets_tf_config_is_reported_with_the_line(line: str, tmp_path: Path) -> None:
    (warning,) = warnings_of(f"import json, os\n\n{line}\nprint(os.environ['TF_CONFIG'])\n", tmp_path)
    assert warning.startswith("train.py:3: sets TF_CONFIG itself")


@pytest.mark.parametrize(
    "script",
    [
        "config = json.loads(os.environ['TF_CONFIG'])",
        "# os.environ['TF_CONFIG'] = '{}'",
        "assert os.environ['TF_CONFIG'] == '{}'",
        "if 'TF_CONFIG' not in os.environ:\n    os.environ['TF_CONFIG'] = '{}'",
        "os.environ['TF_CONFIG'] = os.environ.get('TF_CONFIG', '{}')",
        "os.environ.setdefault('TF_CONFIG', '{}')",
        "os.environ.update(LEVEL='1')\nprint(os.environ['TF_CONFIG'])",
        "# os.environ.update({'TF_CONFIG': '{}'})",
    ],
)
def test_a_script_that_reads_tf_config_or_sets_a_default_is_fine(script: str, tmp_path: Path) -> None:
    assert warnings_of(script, tmp_path) == []


@pytest.mark.parametrize(("framework", "workers"), [("torch", 2), ("tensorflow", 1)])
def test_tf_config_can_be_set_by_a_single_worker_or_with_another_framework(
    framework: str, workers: int, tmp_path: Path
) -> None:
    assert warnings_of("os.environ['TF_CONFIG'] = '{}'\n", tmp_path, framework=framework, workers=workers) == []


def test_a_missing_script_is_not_checked(tmp_path: Path) -> None:
    assert list(find_script_warnings(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path))) == []


SETS = "import os\n\ndef join():\n    os.environ['TF_CONFIG'] = '{}'\n"


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import cluster", "cluster.py"),
        ("import os, cluster as c", "cluster.py"),
        ("from cluster import join", "cluster.py"),
        ("from tools import cluster", "tools/cluster.py"),
        ("from tools.cluster import (\n    join,\n)", "tools/cluster.py"),
        ("import tools.cluster", "tools/cluster.py"),
        ("import tools.other", "tools/__init__.py"),
        ("if True:\n    from tools import *", "tools/__init__.py"),
    ],
)
def test_an_imported_module_of_the_project_is_checked(line: str, module: str, tmp_path: Path) -> None:
    (tmp_path / "code" / module).parent.mkdir(parents=True)
    (tmp_path / "code" / module).write_text(SETS)
    (tmp_path / "code" / "train.py").write_text(line)
    (warning,) = map(str, find_script_warnings(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path)))
    assert warning.startswith(f"{module}:4: sets TF_CONFIG itself, and is imported by train.py, so that all replicas")


def test_modules_that_import_each_other_are_checked_once(tmp_path: Path) -> None:
    (tmp_path / "code" / "tools").mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text("import tools.a\nimport train\n")
    (tmp_path / "code" / "tools" / "a.py").write_text("from . import b\nfrom .. import train\n")
    (tmp_path / "code" / "tools" / "b.py").write_text(f"from .a import x\n{SETS}")
    warnings = list(
        map(str, find_script_warnings(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path)))
    )
    assert [each.partition(":")[0] for each in warnings] == ["tools/b.py"]


def test_code_under_a_modules_main_check_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import cluster\nimport tensorflow\n")
    (tmp_path / "code" / "cluster.py").write_text(f"if __name__ == '__main__':\n    {SETS}")
    assert list(find_script_warnings(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path))) == []


@pytest.mark.parametrize(
    ("run", "file"),
    [
        ("cd . && python train.py --lr 1", "train.py"),
        ("python -m tools.train --lr 1", "tools/train.py"),
        ("python -m tools", "tools/__main__.py"),
        ("python src/train.py", "src/train.py"),
    ],
)
def test_the_script_is_found_in_a_shell_command_and_as_a_module(run: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(SETS)
    plan = plan_of(f"project: digits\nrun: {run}\nroles: {{worker: 2}}\n")
    assert [str(each).partition(":")[0] for each in find_script_warnings(plan, str(tmp_path))] == [file]


def test_a_pipe_instead_of_a_script_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    os.mkfifo(tmp_path / "code" / "train.py")
    assert list(find_script_warnings(plan_of(SPEC.format(framework="tensorflow", workers=2)), str(tmp_path))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import " + ".".join(["a"] * 500_000),  # each part is a folder to look into
        "from " + "." * 1_000_000 + " import a",
        "from a import " + ", ".join(f"b{number}" for number in range(100_000)),
    ],
)
def test_the_time_to_check_a_script_with_absurd_imports_is_bounded(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    is_file = os.path.isfile

    def look(path: str) -> bool:
        looked.append(path)
        return is_file(path)

    monkeypatch.setattr("os.path.isfile", look)
    assert warnings_of(f"{line}\n", tmp_path) == []
    assert len(looked) < 10_000


def test_a_command_with_a_very_long_word_is_checked_in_linear_time(tmp_path: Path) -> None:
    """With a pattern that starts again at each letter, this takes hours."""
    plan = plan_of(SPEC.format(framework="tensorflow", workers=2))
    replicas = tuple(each.replace(argv=("sh", "-c", "a" * 900_000)) for each in plan.replicas)
    assert list(find_script_warnings(plan.replace(replicas=replicas), str(tmp_path))) == []
