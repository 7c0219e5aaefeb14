from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from drumline.cli import run
from drumline.cli.init import TEMPLATES, name_project
from drumline.load.engine import known_spec_type
from drumline.spec.schema import make_schema

Captured = pytest.CaptureFixture[str]

FILES = [".drumline/schema.json", "drumline.yml", "train.py"]


def init(*words: object) -> int:
    return run(["init", *(str(word) for word in words)])


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def project_of(folder: Path) -> object:
    return yaml.safe_load((folder / "drumline.yml").read_text())["project"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_a_spec_without_a_problem_or_a_warning(
    tmp_path: Path, template: str, capsys: Captured
) -> None:
    assert init("--template", template, tmp_path / "digits") == 0
    capsys.readouterr()
    assert run(["check", str(tmp_path / "digits" / "drumline.yml")]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert TEMPLATES[template] in shown.out


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_valid_by_the_json_schema(tmp_path: Path, template: str) -> None:
    assert init("--template", template, tmp_path) == 0
    first, *_ = (tmp_path / "drumline.yml").read_text().splitlines()
    named = re.fullmatch(r"# yaml-language-server: \$schema=(.*)", first)
    assert named
    schema = json.loads((tmp_path / named[1]).read_text())
    jsonschema.validate(yaml.safe_load((tmp_path / "drumline.yml").read_text()), schema)


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_commented_example_in_a_template_is_valid(tmp_path: Path, template: str, capsys: Captured) -> None:
    assert init("--template", template, tmp_path) == 0
    spec = tmp_path / "drumline.yml"
    # Prose has one space behind its `#`; an example has none, or its indentation.
    text = re.sub(r"^( *)#(?! \S)", r"\1", spec.read_text(), flags=re.MULTILINE)
    assert {"resources", "restart", "env", "output", "checkpoint", "engine"} <= set(yaml.safe_load(text))
    spec.write_text(text)
    capsys.readouterr()
    assert run(["check", str(spec)]) == 0
    assert all("this machine has" in line for line in capsys.readouterr().err.splitlines())  # less than that, here
    jsonschema.validate(yaml.safe_load(text), json.loads(make_schema(known_spec_type())))


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_script_compiles_and_imports_only_the_runtime_of_drumline(tmp_path: Path, template: str) -> None:
    assert init("--template", template, tmp_path) == 0
    script = (tmp_path / "train.py").read_text()
    compile(script, "train.py", "exec")
    imported = re.findall(r"^\s*(?:import|from) (drumline.*)$", script, re.MULTILINE)
    assert bool(imported) is (template == "keras")
    assert all(each.startswith(("drumline import runtime", "drumline.runtime.")) for each in imported)


@pytest.mark.parametrize(
    ("options", "template"),
    [
        ([], "keras"),
        (["--framework", "tensorflow"], "keras"),
        (["--framework", "torch"], "torch"),
        (["--framework", "jax"], "jax"),
        (["--framework", "plain"], "plain"),
        (["--framework", "tensorflow", "--template", "ps"], "ps"),
    ],
)
def test_a_framework_has_a_template_of_its_own(tmp_path: Path, options: list[str], template: str) -> None:
    assert init(*options, tmp_path / "asked") == 0
    assert init("--template", template, tmp_path / "named") == 0
    assert (tmp_path / "asked" / "train.py").read_text() == (tmp_path / "named" / "train.py").read_text()


def test_the_written_files_and_the_next_command_are_printed(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "new" / "my digits"
    assert init(folder) == 0
    assert files_below(folder) == FILES
    said = capsys.readouterr()
    assert said.err == ""
    for name in FILES:
        assert f"wrote {folder / name}\n" in said.out
    for command in (f"cd '{folder}'", "drumline check", "drumline train", "python train.py"):
        assert f"\n  {command}" in said.out


def test_init_without_a_directory_writes_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    here = tmp_path / "digits"
    here.mkdir()
    monkeypatch.chdir(here)
    assert init() == 0
    assert files_below(here) == FILES
    assert project_of(here) == "digits"
    assert "cd " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        (["drumline.yml"], "{0}/drumline.yml exists already; nothing was written"),
        (["train.py"], "{0}/train.py exists already; nothing was written"),
        (["drumline.yml", "train.py"], "{0}/drumline.yml and {0}/train.py exist already; nothing was written"),
        (["drumline.yaml"], "{0}/drumline.yaml exists already; nothing was written"),
    ],
)
def test_existing_files_are_not_overwritten(
    tmp_path: Path, existing: list[str], message: str, capsys: Captured
) -> None:
    for name in existing:
        (tmp_path / name).write_text("mine")
    assert init(tmp_path) == 2
    assert f"error: {message.format(tmp_path)}\n" in capsys.readouterr().err
    assert files_below(tmp_path) == sorted(existing)
    assert all((tmp_path / name).read_text() == "mine" for name in existing)
    assert not (tmp_path / ".drumline").exists()


def test_a_dangling_link_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(tmp_path / "elsewhere.py")
    assert init(tmp_path) == 2
    assert files_below(tmp_path) == ["train.py"]


def test_an_old_schema_is_kept_and_reported(tmp_path: Path, capsys: Captured) -> None:
    schema = tmp_path / ".drumline" / "schema.json"
    schema.parent.mkdir()
    schema.write_text("{}")
    assert init(tmp_path) == 0
    assert schema.read_text() == "{}"
    assert f"kept {schema}; `drumline schema` prints the current one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("directory", "project"),
    [
        ("digits", "digits"),
        ("My Digits (v2)", "My-Digits-v2"),
        ("_private_", "private"),
        ("café", "cafe"),
        ("数字", "training"),
        ("/", "training"),
        ("a/../b", "b"),
        ("x" * 80, "x" * 63),
        ("x" * 62 + "--y", "x" * 62),
    ],
)
def test_the_project_is_named_after_the_directory(directory: str, project: str) -> None:
    assert name_project(Path(directory)) == project


@pytest.mark.parametrize("name", ["digits", "no", "null", "True", "1", "1e5", "0x1F", "2024-01-01", "e"])
def test_the_project_name_of_the_option_is_used(tmp_path: Path, name: str, capsys: Captured) -> None:
    assert init("--project", name, tmp_path) == 0
    assert project_of(tmp_path) == name
    capsys.readouterr()
    assert run(["check", str(tmp_path / "drumline.yml")]) == 0
    assert f"is fine: {name}, " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "-digits", "my digits", "a: b", "x" * 64, "digits\n"])
def test_an_invalid_project_name_is_refused(tmp_path: Path, name: str, capsys: Captured) -> None:
    assert init("--project", name, tmp_path) == 2
    assert "expected a name of at most 63 letters" in capsys.readouterr().err
    assert files_below(tmp_path) == []


def test_a_template_of_another_framework_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert init("--framework", "torch", "--template", "keras", tmp_path) == 2
    said = capsys.readouterr().err
    assert "error: --template keras is for tensorflow, not for torch\n" in said
    assert "hint: leave out --framework, or use `--template torch`\n" in said
    assert files_below(tmp_path) == []


def test_a_directory_that_is_not_writable_is_reported_in_one_sentence(capsys: Captured) -> None:
    # Not even root may create a file there.
    assert init("/sys") == 2
    assert capsys.readouterr().err.startswith("error: /sys/.drumline: cannot be written: ")


def test_a_file_instead_of_a_directory_is_reported_in_one_sentence(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("mine")
    assert init(tmp_path / "file" / "below") == 2
    assert f"error: {tmp_path / 'file'}: exists already; nothing was written\n" in capsys.readouterr().err
    assert files_below(tmp_path) == ["file"]


def init_with_limited_space(folder: Path, space_bytes: int) -> subprocess.CompletedProcess[str]:
    """Run init with a limit on the size of files, which has the effect of a full disk."""
    return subprocess.run(
        [sys.executable, "-m", "drumline", "init", "new/project"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (space_bytes, space_bytes)),
    )


def test_a_failed_init_leaves_no_files(tmp_path: Path) -> None:
    done = init_with_limited_space(tmp_path, 1000)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: new/project: cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_init_leaves_existing_files(tmp_path: Path) -> None:
    schema = tmp_path / "new" / "project" / ".drumline" / "schema.json"
    schema.parent.mkdir(parents=True)
    schema.write_text("{}")
    assert init_with_limited_space(tmp_path, 1000).returncode == 2
    assert files_below(tmp_path) == ["new/project/.drumline/schema.json"]


def test_init_for_kubectl_writes_one_template_with_a_valid_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", "--template", "kubernetes-jinja", str(tmp_path / "My_Job")]) == 0
    assert [path.name for path in (tmp_path / "My_Job").iterdir()] == ["myjob.template.jinja"]
    assert '{%- set name = "my-job" -%}' in (tmp_path / "My_Job" / "myjob.template.jinja").read_text()
    assert "drumline render myjob.template.jinja" in capfd.readouterr().out
    assert run(["init", "--template", "kubernetes-jinja", str(tmp_path / "My_Job")]) == 2
    assert "myjob.template.jinja exists already; nothing was written" in capfd.readouterr().err


def test_a_template_for_kubectl_is_for_tensorflow(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--template", "kubernetes-jinja", "--framework", "torch", str(tmp_path)]) == 2
    assert "--template kubernetes-jinja is for tensorflow, not for torch" in capfd.readouterr().err


def test_a_missing_framework_is_reported_with_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for each in ("torch", "plain"):
        (tmp_path / each).mkdir()
    monkeypatch.chdir(tmp_path / "torch")
    assert init("--framework", "torch") == 0
    shown = capsys.readouterr().out.splitlines()
    after = shown[shown.index("Next:") + 1 :]
    assert after[0] == "  pip install torch    it is missing in the environment of drumline"
    assert after[1] == "  drumline check       list every problem, or show the replicas"
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "torch.py").write_text("raise SystemExit('looked up, never imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "there"))
    (tmp_path / "torch" / "train.py").unlink()
    (tmp_path / "torch" / "drumline.yml").unlink()
    assert init("--framework", "torch") == 0
    assert "pip install" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "plain")
    assert init("--framework", "plain") == 0
    assert "pip install" not in capsys.readouterr().out
