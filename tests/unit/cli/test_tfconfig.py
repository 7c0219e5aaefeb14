"""``drumline tfconfig make`` and ``drumline tfconfig check``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings

from drumline.cli import run
from scaffold.clusters import Cluster, clusters
from scaffold.effort import examples

TWO = ("--worker", "a:2222,b:2222")
TWO_JSON = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": %d}}'
COMMENT = "# TensorFlow reads this when the strategy is created, so it must be set before."


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def run_cli(*argv: str, stdin: bytes = b"") -> Answer:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(["tfconfig", *argv])
    return Answer(code, out.getvalue(), err.getvalue())


def make(*argv: str) -> Answer:
    return run_cli("make", *argv)


def options(cluster: Cluster) -> list[str]:
    return [word for role, addresses in cluster.items() for word in (f"--{role}", ",".join(addresses))]


def nodes(cluster: Cluster) -> list[tuple[str, int]]:
    return [(role, index) for role, addresses in cluster.items() for index in range(len(addresses))]


# make


@pytest.mark.parametrize("task", ["worker:1", "worker.1"])
@pytest.mark.parametrize(
    "workers",
    [TWO, ("--worker", "a:2222", "--worker", "b:2222"), ("--worker", "a:2222, b:2222"), ("--hosts", "a,me@b")],
)
def test_make_prints_the_json_of_one_node_and_nothing_else(task: str, workers: tuple[str, ...]) -> None:
    assert make(*workers, "--task", task) == Answer(0, TWO_JSON % 1 + "\n", "")


@pytest.mark.parametrize("how", [("--export",), ("-o", "shell"), ("--export", "-o", "shell")])
def test_make_prints_a_line_for_a_shell(how: tuple[str, ...]) -> None:
    assert make(*TWO, "--task", "worker:0", *how) == Answer(0, f"export TF_CONFIG='{TWO_JSON % 0}'\n", "")


@pytest.mark.parametrize("how", [("--python",), ("-o", "python")])
def test_make_prints_lines_for_a_script(how: tuple[str, ...]) -> None:
    expected = f"import os\n\n{COMMENT}\nos.environ[\"TF_CONFIG\"] = '{TWO_JSON % 0}'\n"
    assert make(*TWO, "--task", "worker:0", *how) == Answer(0, expected, "")


def test_make_all_puts_the_node_and_its_address_above_each_shell_line() -> None:
    answer = make(*TWO, "--all", "--export")
    assert answer.out.splitlines() == [
        "# worker.0 on a:2222",
        f"export TF_CONFIG='{TWO_JSON % 0}'",
        "",
        "# worker.1 on b:2222",
        f"export TF_CONFIG='{TWO_JSON % 1}'",
    ]


def test_make_all_puts_the_node_and_its_address_above_the_python_lines() -> None:
    answer = make(*TWO, "--all", "--python")
    assert answer.out.splitlines()[:6] == [
        "# worker.0 on a:2222",
        "import os",
        "",
        COMMENT,
        f"os.environ[\"TF_CONFIG\"] = '{TWO_JSON % 0}'",
        "",
    ]
    assert answer.out.count("import os") == 2


def test_make_all_is_one_json_object_with_a_line_for_each_node() -> None:
    answer = make(*TWO, "--all")
    assert answer.out == f'{{\n  "worker.0": {TWO_JSON % 0},\n  "worker.1": {TWO_JSON % 1}\n}}\n'


@pytest.mark.parametrize("option", ["--chief", "--master"])
@pytest.mark.parametrize("task", ["chief:0", "master:0", "master.0"])
def test_master_is_another_word_for_chief_and_is_never_written(option: str, task: str) -> None:
    answer = make(*TWO, option, "h:1", "--task", task)
    assert json.loads(answer.out) == {
        "cluster": {"chief": ["h:1"], "worker": ["a:2222", "b:2222"]},
        "task": {"type": "chief", "index": 0},
    }


def test_the_evaluator_is_listed_for_the_evaluator_only() -> None:
    configs = json.loads(make(*TWO, "--evaluator", "e:1", "--all").out)
    assert {node for node, value in configs.items() if "evaluator" in value["cluster"]} == {"evaluator.0"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            (*TWO, "--ps", "p:1", "--task", "ps:0"),
            (
                "warning: --ps: parameter servers without a chief: today's strategies need one to coordinate, and a"
                " mirrored strategy with ps in its cluster hangs without a message; add a `chief`, or drop `ps`\n"
            ),
        ),
        (
            (*TWO, "--worker", "localhost:1", "--all"),
            (
                "warning: the cluster: `localhost:1` means the machine where it is read, so a node on another one, such"
                " as `a:2222`, cannot reach it\n"
            ),
        ),
        (
            ("--worker", "a:1", "--all"),
            "note: the cluster: has one node only, which also works without TF_CONFIG\n",
        ),
    ],
)
def test_warnings_are_printed_beside_the_result(argv: tuple[str, ...], message: str) -> None:
    answer = make(*argv)
    assert (answer.code, answer.err) == (0, message)
    assert json.loads(answer.out)


def test_make_warns_when_no_process_can_be_started_with_it() -> None:
    addresses = ",".join(f"node-{number:05}.example:2222" for number in range(5_000))
    answer = make("--worker", addresses, "--task", "worker:4999")
    assert answer.code == 0
    assert answer.err.startswith("warning: TF_CONFIG: has ")
    assert json.loads(answer.out)["task"]["index"] == 4999


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            (),
            "error: no replica trains: give --worker or --chief\nhint: such as `--worker a:2222,b:2222`\n",
        ),
        (
            ("--ps", "p:1", "--evaluator", "e:1", "--all"),
            "error: no replica trains: give --worker or --chief\nhint: such as `--worker a:2222,b:2222`\n",
        ),
        (
            TWO,
            (
                "error: the node is missing: choose it with --task, or add --all\n"
                "hint: the cluster has worker.0 and worker.1\n"
            ),
        ),
        (
            (*TWO, "--chief", "h:1", "--ps", "p:1,q:1,r:1", "--task", "ps:3"),
            (
                "error: --task ps:3: not in the cluster\n"
                "hint: the cluster has chief.0, worker.0, worker.1 and ps.0 to ps.2\n"
            ),
        ),
        (
            (*TWO, "--task", "chief:0"),
            "error: --task chief:0: not in the cluster\nhint: the cluster has worker.0 and worker.1\n",
        ),
        *(
            (
                (*TWO, "--task", task),
                (
                    f"error: --task {task}: expected a role and its index, such as `worker:0`\n"
                    "hint: the cluster has worker.0 and worker.1\n"
                ),
            )
            for task in ("worker", "wroker:0", "worker:-1", "worker:first", "worker:0:0", "0", "")
        ),
        ((*TWO, "--task", "worker:0", "--all"), "error: --task and --all cannot be combined\nhint: use one of them\n"),
        (
            (*TWO, "--all", "--export", "--python"),
            "error: --export, --python and -o cannot be combined\nhint: use one of them\n",
        ),
        (
            (*TWO, "--all", "--export", "-o", "json"),
            "error: --export, --python and -o cannot be combined\nhint: use one of them\n",
        ),
        (
            ("--worker", "a", "--all"),
            "--worker: `a` has no port: write `a:2222`\nerror: one problem; nothing was done\n",
        ),
        (
            ("--worker", "a,b:1,c:0x,", "--master", "m:99999", "--ps", "p:1,::1", "--all"),
            (
                "--worker: `a` has no port: write `a:2222`\n"
                "--worker: `c:0x` has no port number: write `c:2222`\n"
                "--worker: an address is empty: write `host:port`\n"
                "--master: `m:99999` has a port outside 1 to 65535\n"
                "--ps: `::1` is an IPv6 address without brackets: write `[::1]:2222`\n"
                "error: 5 problems; nothing was done\n"
            ),
        ),
        (
            (*TWO, "--ps", "A:2222", "--chief", "h:1", "--master", "m:1", "--evaluator", "e:1,f:1", "--all"),
            (
                "--ps: `A:2222` is already the address of worker.0, written `a:2222`\n"
                "--chief: there is at most one chief, not 2\n"
                "--evaluator: there is at most one evaluator, not 2\n"
                "error: 3 problems; nothing was done\n"
            ),
        ),
        (
            (*TWO, "--evaluator", "b:2222", "--task", "worker:0"),
            "--evaluator: `b:2222` is already the address of worker.1\nerror: one problem; nothing was done\n",
        ),
    ],
)
def test_make_reports_problems_and_prints_no_result(argv: tuple[str, ...], message: str) -> None:
    assert make(*argv) == Answer(2, "", message)


# check


@pytest.mark.parametrize("index", [0, 1])
def test_check_reads_the_variable_of_this_shell(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO_JSON % index)
    end = "it acts as chief" if index == 0 else "worker.0 on a:2222 acts as chief"
    me = f"worker.{index} on {'ab'[index]}:2222"
    answer = f"TF_CONFIG is fine: this node is {me}, one of 2 workers with no chief; {end}\n"
    assert run_cli("check") == Answer(0, answer, "")


def test_check_reads_a_file_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "tf.json"
    file.write_text(f"{TWO_JSON % 0}\n")
    words = "is fine: this node is worker.0 on a:2222, one of 2 workers with no chief; it acts as chief\n"
    assert run_cli("check", str(file)) == Answer(0, f"{file} {words}", "")
    assert run_cli("check", "-", stdin=file.read_bytes()) == Answer(0, f"<stdin> {words}", "")


def test_check_without_a_tf_config_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert run_cli("check") == Answer(
        2,
        "",
        "error: TF_CONFIG is not set, so TensorFlow would train in a single process\n"
        "hint: name a file, or `-` for standard input; `drumline tfconfig make --help` shows how to make one\n",
    )


def test_an_empty_variable_is_not_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "")
    assert run_cli("check") == Answer(
        2,
        "",
        "TF_CONFIG: is empty, which TensorFlow treats as invalid JSON, not as unset; run `unset TF_CONFIG`\n"
        "error: TF_CONFIG has one problem\n",
    )


def test_check_lists_warnings_and_problems_but_no_notes() -> None:
    text = b'{"cluster": {"worker": ["a:1", "b"], "chief": ["a:1"], "ps": ["p:1"]}, "environment": "cloud", "tusk": 1}'
    assert run_cli("check", "-", stdin=text) == Answer(
        2,
        "",
        "warning: <stdin>: tusk: is not a key that TensorFlow reads; did you mean `task`?\n"
        "<stdin>: cluster.worker[1]: `b` has no port: write `b:2222`\n"
        "<stdin>: cluster.chief[0]: `a:1` is already the address of worker.0\n"
        "<stdin>: `task` is missing: without it the role and index of this node are unknown\n"
        "error: <stdin> has 3 problems\n",
    )


def test_check_prints_notes_and_the_description_of_the_node() -> None:
    text = b'{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "environment": "cloud"}'
    assert run_cli("check", "-", stdin=text) == Answer(
        0,
        "<stdin> is fine: this node is worker.0 on a:1, all alone\n",
        "note: <stdin>: environment: is written by Kubeflow and Google Cloud; TensorFlow ignores it\n"
        "note: <stdin>: cluster: has one node only, which also works without TF_CONFIG\n",
    )


def test_check_as_json_has_all_diagnostics_and_the_same_exit_code() -> None:
    text = b'{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "1", "id": 1}, "job": {}}'
    answer = run_cli("check", "-", "-o", "json", stdin=text)
    assert (answer.code, answer.err) == (2, "error: <stdin> has one problem\n")
    assert json.loads(answer.out) == {
        "ok": False,
        "task": "worker.1",
        "chief": "worker.0",
        "who": "this node is worker.1 on b:1, one of 2 workers with no chief; worker.0 on a:1 acts as chief",
        "problems": [{"path": "task.index", "message": 'expected a number, got the text "1": write 1'}],
        "warnings": [{"path": "task.id", "message": "is not a key that TensorFlow reads"}],
        "notes": [
            {
                "path": "job",
                "message": "is written by Google Cloud; TensorFlow ignores it",
            }
        ],
    }


def test_check_as_json_of_an_invalid_value_describes_no_node() -> None:
    answer = run_cli("check", "-", "-o", "json", stdin=b"{")
    assert answer.code == 2
    assert json.loads(answer.out) == {
        "ok": False,
        "task": None,
        "chief": None,
        "who": None,
        "problems": [{"path": "", "message": "is not JSON: line 1, column 2: it ends before it is complete"}],
        "warnings": [],
        "notes": [],
    }


def test_of_thousands_of_problems_a_hundred_and_their_number_are_shown() -> None:
    text = json.dumps({"cluster": {"worker": [0] * 5_000}, "task": {"type": "worker", "index": 0}}).encode()
    answer = run_cli("check", "-", stdin=text)
    assert answer.err.splitlines()[98:] == [
        "<stdin>: cluster.worker[98]: expected `host:port`, got 0",
        "<stdin>: cluster.worker[99]: expected `host:port`, got 0",
        "... and 4,900 more; `-o json` shows all",
        "error: <stdin> has 5,000 problems",
    ]
    whole = json.loads(run_cli("check", "-", "-o", "json", stdin=text).out)
    assert len(whole["problems"]) == 5_000


def test_a_file_that_cannot_be_read_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"\xff": 1}')
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert run_cli("check", str(tmp_path / "nothing")) == Answer(2, "", f"error: {tmp_path}/nothing: no such file\n")
    assert run_cli("check", str(tmp_path)) == Answer(
        2, "", f"error: {tmp_path}: is a directory\nhint: name a file in it\n"
    )
    assert run_cli("check", str(tmp_path / "latin")) == Answer(
        2, "", f"error: {tmp_path}/latin: is not UTF-8 text (byte 3)\nhint: save it as UTF-8\n"
    )
    assert run_cli("check", str(tmp_path / "latin" / "below")) == Answer(
        2, "", f"error: {tmp_path}/latin/below: cannot be read: Not a directory\n"
    )
    assert run_cli("check", str(tmp_path / "endless")) == Answer(
        2,
        "",
        f"{tmp_path}/endless: is longer than 1,000,000 characters\nerror: {tmp_path}/endless has one problem\n",
    )


def test_json_instead_of_a_file_name_is_refused() -> None:
    assert run_cli("check", TWO_JSON % 0) == Answer(
        2,
        "",
        "error: expected the name of a file, got JSON\nhint: pipe it in: `echo '...' | drumline tfconfig check -`\n",
    )


# both


@given(clusters())
@settings(max_examples=examples(40))
def test_check_accepts_the_output_of_make_for_any_cluster_and_node(cluster: Cluster) -> None:
    configs = json.loads(make(*options(cluster), "--all").out)
    assert list(configs) == [f"{role}.{index}" for role, index in nodes(cluster)]
    for role, index in nodes(cluster):
        made = make(*options(cluster), "--task", f"{role}:{index}")
        assert (made.code, json.loads(made.out)) == (0, configs[f"{role}.{index}"])
        checked = run_cli("check", "-", stdin=made.out.encode())
        assert checked.code == 0
        assert f"this node is {role}.{index} on {cluster[role][index]}," in checked.out


@given(clusters())
@settings(max_examples=examples(10), deadline=None)
def test_shell_and_python_read_exactly_the_json(cluster: Cluster) -> None:
    tasks = [f"{role}.{index}" for role, index in nodes(cluster)]
    texts = [make(*options(cluster), "--task", task).out for task in tasks]
    shell = "".join(make(*options(cluster), "--task", task, "--export").out + "printenv TF_CONFIG\n" for task in tasks)
    python = "".join(
        make(*options(cluster), "--task", task, "--python").out + 'print(os.environ["TF_CONFIG"])\n' for task in tasks
    )
    assert output_of(["sh", "-eu"], shell) == "".join(texts)
    assert output_of([sys.executable, "-I", "-S", "-"], python) == "".join(texts)


def test_the_lines_of_all_nodes_can_be_executed() -> None:
    last = make(*TWO, "--task", "worker:1").out
    assert output_of(["sh", "-eu"], make(*TWO, "--all", "--export").out + "printenv TF_CONFIG\n") == last
    lines = make(*TWO, "--all", "--python").out + 'print(os.environ["TF_CONFIG"])\n'
    assert output_of([sys.executable, "-I", "-S", "-"], lines) == last


def output_of(argv: list[str], script: str) -> str:
    return subprocess.run(argv, input=script, text=True, capture_output=True, check=True).stdout


@pytest.mark.parametrize("line", ["export TF_CONFIG='%s'", "TF_CONFIG='%s' python x.py", "TF_CONFIG=%s"])
def test_check_reads_the_value_in_a_shell_line(line: str) -> None:
    answer = run_cli("check", "-", stdin=(line % (TWO_JSON % 1)).encode())
    assert answer.code == 0
    assert answer.out.startswith("<stdin> is fine: this node is worker.1")


def test_a_shell_line_with_an_open_quote_is_refused() -> None:
    answer = run_cli("check", "-", stdin=b"export TF_CONFIG='{")
    assert (answer.code, answer.err.splitlines()[0]) == (2, "error: <stdin>: a quote in it is never closed")
