"""The rendered script runs in real shells, and each replica is compared with its launch."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from drumline.engine.local.environment import complete_environment
from drumline.engine.protocol import Engine, Site
from drumline.engine.registry import open_engine
from drumline.load.engine import plan_spec
from drumline.plan.bind import bind
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Launch, Plan, Secret
from drumline.spec.types import Spec
from scaffold.effort import examples
from scaffold.plans import plan_of
from scaffold.strategies import specs

SHELLS = list({str(Path(path).resolve()): path for name in ("bash", "dash", "sh") if (path := shutil.which(name))})
FORMS = ("shell", "json", "yaml")
DUMP = ("/usr/bin/env", "-0")
# Variables that a shell sets by itself.
SHELLS_OWN = {"PWD", "OLDPWD", "SHLVL", "_"}
PATH = "/usr/bin:/bin"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_engine("local", Site(tmp_path, tmp_path / "home", 8, "/venv/bin"))


def launch_all(engine: Engine, plan: Plan) -> tuple[Launch, ...]:
    return bind(plan, asyncio.run(engine.place(plan)))


def dumping(plan: Plan) -> Plan:
    """Return the plan with replicas that only print their variables."""
    return plan.replace(replicas=tuple(each.replace(argv=DUMP) for each in plan.replicas))


def run_script(
    script: str, word: str, environ: Mapping[str, str], shell: str = "sh", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the script, as it would be run from a file, for one replica."""
    return subprocess.run(
        [shell, "-s", word], input=os.fsencode(script), env=dict(environ), capture_output=True, cwd=cwd, check=False
    )


def variables_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, str]:
    assert (done.returncode, done.stderr) == (0, b"")
    pairs = (pair.partition("=") for pair in os.fsdecode(done.stdout).split("\0")[:-1])
    return {name: value for name, _, value in pairs}


def assert_same_environment(got: Mapping[str, str], launch: Launch, environ: Mapping[str, str]) -> None:
    due = complete_environment(launch, environ)
    beside = SHELLS_OWN - launch.env.keys()
    assert {name: got[name] for name in got if name not in beside} == {
        name: due[name] for name in due if name not in beside
    }


EVERYTHING = """
    parameters: {note: "it's\\n$(date) `date` \\\\ \\"x\\""}
    env:
      TOKEN: {from: MY_TOKEN}
      MY_TOKEN: shadow
      NOTE_2: "{{ note }}"
      EMPTY: ""
      UID: 5
      SECONDS: 7
      OPTIND: abc
      _: under
      PWD: /elsewhere
      IFS: ","
    data: {path: "my data", prepare: make-data}
    roles:
      chief: {env: {OUTPUT_DIR: {value: /mine, override: true}}}
      worker: {replicas: 2, first: {env: {PPID: first, EXTRA: {from: OTHER}}}}
      ps: 1
      evaluator: 1
"""
SECRETS = {"MY_TOKEN": "s3cret $(id) '\"\n", "OTHER": "other s3cret"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_starts_every_replica_exactly_as_its_launch(engine: Engine, shell: str) -> None:
    plan = dumping(plan_of(EVERYTHING))
    launches = launch_all(engine, plan)
    script = engine.render(plan, launches, "shell")
    environ = {"PATH": PATH, "HOME": "/home/me", **SECRETS}
    for launch in launches:
        assert_same_environment(
            variables_of(run_script(script, str(launch.replica.id), environ, shell)), launch, environ
        )


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=specs())
def test_any_spec_can_be_rendered_and_all_formats_agree(engine: Engine, spec: Spec) -> None:
    plan = plan_spec(spec, on="local", run="4")
    launches = launch_all(engine, plan)
    script, as_json, as_yaml = (engine.render(plan, launches, form) for form in FORMS)
    assert subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, check=False).returncode == 0
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert [each["argv"] for each in json.loads(as_json)["replicas"]] == [list(each.argv) for each in plan.replicas]
    plan = dumping(plan)
    launches = launch_all(engine, plan)
    script = engine.render(plan, launches, "shell")
    sources = {value.variable for each in launches for value in each.env.values() if isinstance(value, Secret)}
    environ = {"PATH": PATH, **dict.fromkeys(sources, "s3cret")}
    launch = launches[-1]
    done = run_script(script, str(launch.replica.id), environ)
    assert_same_environment(variables_of(done), launch, environ)


def test_the_script_starts_the_command_itself_with_its_exit_code(engine: Engine) -> None:
    plan = plan_of("run: 'printf %s \"$DRUMLINE_ROLE.$DRUMLINE_INDEX\"; exit 7'\nroles: {worker: 2}")
    script = engine.render(plan, launch_all(engine, plan), "shell")
    done = run_script(script, "worker.1", {"PATH": PATH})
    assert (done.returncode, done.stdout) == (7, b"worker.1")


@pytest.mark.parametrize("word", ["", "worker.2", "prepare", "*", "worker.0 "])
def test_the_script_lists_its_replicas_if_another_is_named(engine: Engine, word: str) -> None:
    plan = plan_of("roles: {worker: 2}")
    done = run_script(engine.render(plan, launch_all(engine, plan), "shell"), word, {"PATH": PATH})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"REPLICA, one of:\n  worker.0 worker.1\n" in done.stderr


# Secrets


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_replica_without_its_secret_does_not_start_and_the_variable_is_named(
    engine: Engine, shell: str, value: str | None
) -> None:
    plan = plan_of("env: {TOKEN: {from: MY_TOKEN}}\nrun: echo started")
    script = engine.render(plan, launch_all(engine, plan), "shell")
    environ = {"PATH": PATH} if value is None else {"PATH": PATH, "MY_TOKEN": value}
    done = run_script(script, "worker.0", environ, shell)
    assert done.returncode != 0
    assert b"MY_TOKEN" in done.stderr
    assert done.stdout == b""


def test_a_secret_comes_from_the_launching_environment_not_from_variables_of_the_spec(engine: Engine) -> None:
    plan = dumping(
        plan_of(
            "env: {A: {from: B}, B: {from: C}, C: plain}\nparameters: {d: 1}\nroles: {worker: {env: {E: {from: D}}}}"
        )
    )
    script = engine.render(plan, launch_all(engine, plan), "shell")
    got = variables_of(run_script(script, "worker.0", {"PATH": PATH, "B": "b", "C": "c", "D": "d"}))
    assert {name: got[name] for name in "ABCDE"} == {"A": "b", "B": "c", "C": "plain", "D": "1", "E": "d"}


@pytest.mark.parametrize("form", FORMS)
def test_no_format_contains_a_secret(engine: Engine, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setenv("OTHER", "s3cret")
    plan = plan_of(EVERYTHING)
    text = engine.render(plan, launch_all(engine, plan), form)
    assert "s3cret" not in text
    assert "${MY_TOKEN:?}" in text
    assert "s3cret" not in plan_to_json(plan)


# Shared values


@pytest.mark.parametrize("shell", SHELLS)
def test_a_large_cluster_is_written_once_and_every_replica_receives_it_completely(engine: Engine, shell: str) -> None:
    plan = dumping(plan_of("port: 2222\nparameters: {cluster: mine}\nroles: {worker: 200, evaluator: 1}"))
    launches = launch_all(engine, plan)
    script = engine.render(plan, launches, "shell")
    assert script.count("127.0.0.1:2300") == 2  # the workers' cluster and the evaluator's
    environ = {"PATH": PATH}
    for launch in (launches[0], launches[199], launches[200]):
        got = variables_of(run_script(script, str(launch.replica.id), environ, shell))
        assert_same_environment(got, launch, environ)
        assert len(json.loads(got["TF_CONFIG"])["cluster"]["worker"]) == 200


def test_a_large_cluster_is_written_once_as_data(engine: Engine) -> None:
    plan = plan_of("port: 2222\nroles: {worker: 200}")
    text = engine.render(plan, launch_all(engine, plan), "json")
    data = json.loads(text)
    assert text.count("127.0.0.1:2300") == 1
    config = data["replicas"][7]["env"]["TF_CONFIG"]
    whole = json.loads(config.replace("${DRUMLINE_CLUSTER}", data["shared"]["DRUMLINE_CLUSTER"]))
    assert (len(whole["cluster"]["worker"]), whole["task"]) == (200, {"type": "worker", "index": 7})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": ""}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "a,b"}, "localhost,127.0.0.1,::1,a,b"),
        ({"NO_PROXY": "c"}, "localhost,127.0.0.1,::1,c"),
        ({"no_proxy": "a", "NO_PROXY": "c"}, "localhost,127.0.0.1,::1,a,c"),
    ],
)
def test_no_proxy_keeps_the_value_of_the_user(engine: Engine, environ: dict[str, str], expected: str) -> None:
    plan = dumping(plan_of(""))
    launches = launch_all(engine, plan)
    done = run_script(engine.render(plan, launches, "shell"), "worker.0", {"PATH": PATH, **environ})
    assert variables_of(done)["no_proxy"] == complete_environment(launches[0], environ)["no_proxy"] == expected


def test_no_proxy_of_the_spec_is_used_unchanged(engine: Engine) -> None:
    plan = dumping(plan_of("env: {no_proxy: mine}"))
    script = engine.render(plan, launch_all(engine, plan), "shell")
    assert variables_of(run_script(script, "worker.0", {"PATH": PATH, "no_proxy": "a"}))["no_proxy"] == "mine"


def test_the_python_of_drumline_comes_first_in_path(engine: Engine) -> None:
    plan = dumping(plan_of(""))
    script = engine.render(plan, launch_all(engine, plan), "shell")
    assert variables_of(run_script(script, "worker.0", {"PATH": PATH}))["PATH"] == f"/venv/bin:{PATH}"


# Folders


@pytest.mark.parametrize(
    "name", ["with spaces", "it's", 'say "hi"', "two\nlines", "$(date) `date` \\ *", "-n", "é 🥁", "\udcff"]
)
def test_folders_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / name).mkdir(parents=True)
    engine = open_engine("local", Site(folder, tmp_path / "home" / name, 8))
    plan = plan_of('run: pwd -P; ls -d "$OUTPUT_DIR" "$CHECKPOINT_DIR"')
    plan = plan.replace(workdir=name, output=f"out {name}")
    launches = launch_all(engine, plan)
    done = run_script(engine.render(plan, launches, "shell"), "worker.0", {"PATH": PATH})
    out = f"{folder}/out {name}"
    assert (done.returncode, os.fsdecode(done.stdout)) == (0, f"{folder}/{name}\n{out}\n{out}/checkpoint\n")


def test_a_missing_workdir_stops_the_script(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    plan = plan_of("workdir: src\nrun: echo started")
    script = engine.render(plan, launch_all(engine, plan), "shell")
    (tmp_path / "src").rmdir()
    done = run_script(script, "worker.0", {"PATH": PATH})
    assert (done.returncode != 0, done.stdout) == (True, b"")


# Data


PREPARED = """
    env: {TOKEN: {from: MY_TOKEN}, SECONDS: 7}
    data:
      - name: set
        path: "data/my set"
        prepare:
          - test "$DATA_DIR" = "$DATA_DIR_SET"
          - echo "$TOKEN $SECONDS" >> "$DATA_DIR/log"
          - test -e go
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_data_is_prepared_once_and_appears_completely_or_not_at_all(engine: Engine, tmp_path: Path, shell: str) -> None:
    plan = plan_of(PREPARED)
    script = engine.render(plan, launch_all(engine, plan), "shell")
    environ = {"PATH": PATH, "MY_TOKEN": "t0ken"}
    data = tmp_path / "data" / "my set"
    failed = run_script(script, "prepare", environ, shell)
    assert (failed.returncode, data.exists()) == (1, False)
    (tmp_path / "go").touch()
    assert run_script(script, "prepare", environ, shell).returncode == 0
    assert (data / "log").read_text() == "t0ken 7\n" * 2  # it continued where it had failed
    assert run_script(script, "prepare", environ, shell).returncode == 0
    assert (data / "log").read_text() == "t0ken 7\n" * 2
    assert [path.name for path in data.parent.iterdir()] == ["my set"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_preparation_that_is_interrupted_leaves_no_data(
    engine: Engine, tmp_path: Path, number: signal.Signals
) -> None:
    plan = plan_of("data: {path: set, prepare: 'touch \"$DATA_DIR/half\"; cat'}")
    script = tmp_path / "script"
    script.write_text(engine.render(plan, launch_all(engine, plan), "shell"))
    with subprocess.Popen(
        ["sh", script, "prepare"],
        env={"PATH": PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"in the middle\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"in the middle\n"
        os.killpg(process.pid, number)
        assert process.wait(timeout=60) != 0
    assert not (tmp_path / "set").exists()
    assert (tmp_path / "set.partial" / "half").exists()
    done = subprocess.run(
        ["sh", script, "prepare"], env={"PATH": PATH}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, (tmp_path / "set" / "half").exists()) == (0, True)


def test_existing_data_is_not_prepared(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    plan = plan_of("data: {path: set, prepare: exit 1}")
    script = engine.render(plan, launch_all(engine, plan), "shell")
    assert run_script(script, "prepare", {"PATH": PATH}).returncode == 0


def test_a_preparation_is_rendered_as_data(engine: Engine, tmp_path: Path) -> None:
    plan = plan_of("parameters: {size: 3}\ndata: {path: set, prepare: 'make-data {{ size }}'}")
    data = json.loads(engine.render(plan, launch_all(engine, plan), "json"))
    assert data["prepare"] == [
        {
            "name": "prepare",
            "path": f"{tmp_path}/set",
            "partial": f"{tmp_path}/set.partial",
            "workdir": str(tmp_path),
            "argv": ["make-data", "3"],
            "env": {
                "PATH": "/venv/bin${PATH:+:$PATH}",
                "PYTHONUNBUFFERED": "1",
                "PYTHONFAULTHANDLER": "1",
                "SIZE": "3",
                "DATA_DIR": f"{tmp_path}/set.partial",
            },
        }
    ]


# Replicas that cannot start


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("roles: {chief: 1, worker: {env: {LONG: '%s'}}}", "LONG of worker.0 has 131,077 bytes"),
        ("roles: {worker: {replicas: 2, run: {argv: [echo, '%s']}}}", "a word in the command of worker.0 has 131,072"),
    ],
)
def test_arguments_that_are_too_long_for_linux_are_named_once(engine: Engine, text: str, what: str) -> None:
    plan = plan_of(text % ("x" * 131_072))
    (problem,) = engine.problems(plan, launch_all(engine, plan))
    assert what in problem.message


def test_arguments_of_the_maximum_length_are_no_problem_and_start(engine: Engine) -> None:
    plan = dumping(plan_of(f"env: {{LONG: {'x' * (131_071 - len('LONG='))}}}"))
    launches = launch_all(engine, plan)
    assert list(engine.problems(plan, launches)) == []
    done = run_script(engine.render(plan, launches, "shell"), "worker.0", {"PATH": PATH})
    assert len(variables_of(done)["LONG"]) == 131_066


def test_a_run_too_large_for_tf_config_is_a_problem(engine: Engine) -> None:
    plan = plan_of("port: 2222\nroles: {worker: 8000}")
    (problem,) = engine.problems(plan, launch_all(engine, plan))
    assert problem.message.startswith("TF_CONFIG of worker.0 has 144,297 bytes, more than the 131,071 ")
    assert problem.message.endswith("that Linux passes to a process: these 8,000 replicas cannot start")
