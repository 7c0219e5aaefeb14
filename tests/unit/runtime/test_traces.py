"""The files that a script leaves for drumline: reports and errors, but no private folder."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import pytest

from drumline import runtime
from drumline.run import traces
from drumline.runtime import errors, progress
from drumline.runtime.progress import SIZE_BYTES, read_report

SOURCE = Path(runtime.__file__).parents[2]


def run_script(script: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", script],  # without installed packages: standard library only
        env={"PYTHONPATH": str(SOURCE), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    return tmp_path


def test_runtime_and_engine_use_the_same_file_names() -> None:
    assert (traces.REPORT, traces.ERROR) == (progress.REPORT, errors.ERROR)


def test_the_last_report_is_read(trace: Path) -> None:
    before = time.time()
    for step in range(1000):
        runtime.report(step=step, loss=1 / (step + 1), accuracy=0.5)
    last = read_report(trace / "report")
    assert last is not None
    assert (last.step, last.values) == (999, {"loss": 0.001, "accuracy": 0.5})
    assert before - 0.001 <= last.at_seconds <= time.time() + 0.001
    assert (trace / "report").stat().st_size == SIZE_BYTES


def test_a_loss_that_is_no_number_is_reported_as_such(trace: Path) -> None:
    runtime.report(step=1, loss=math.nan, most=math.inf)
    last = read_report(trace / "report")
    assert last is not None
    assert math.isnan(last.values["loss"])
    assert last.values["most"] == math.inf


def test_an_incomplete_or_missing_report_is_read_as_none(trace: Path) -> None:
    path = trace / "report"
    assert read_report(path) is None
    runtime.report(step=12345, loss=0.1)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"12345", b"12346"))
    assert read_report(path) is None
    path.write_bytes(whole[:100])
    assert read_report(path) is None
    path.write_bytes(b"")
    assert read_report(path) is None


@pytest.mark.parametrize("folder", ["", "gone"])
def test_without_a_trace_folder_a_report_is_only_checked(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path / folder) if folder else "")
    runtime.report(step=1, loss=0.5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"report\(step=-1\): a step is a number from 0"):
        runtime.report(step=-1)
    with pytest.raises(TypeError):
        runtime.report(step=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"report\(loss=…\): expected a number, got list"):
        runtime.report(step=1, loss=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="60 values are more than a report of 512 bytes can hold"):
        runtime.report(step=1, **{f"value-{number}": number for number in range(60)})


def test_an_uncaught_exception_is_recorded_as_data_and_printed_as_usual(tmp_path: Path) -> None:
    script = "from drumline import runtime\nruntime.record_errors()\nruntime.record_errors()\nraise {error}\n"
    plain = run_script("raise KeyError('é\\udce9')", {})
    done = run_script(script.format(error="KeyError('é\\udce9')"), {"DRUMLINE_TRACE": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == plain.stderr.replace("line 1", "line 4")
    kept = json.loads((tmp_path / "error").read_text())
    assert (kept["v"], kept["type"]) == (1, "KeyError")
    assert kept["message"] == "'é\\udce9'"
    assert kept["traceback"].startswith("Traceback (most recent call last):")
    assert abs(kept["at"] - time.time()) < 60

    for error in ("KeyboardInterrupt", "SystemExit('no')"):
        (tmp_path / "error").unlink(missing_ok=True)
        run_script(script.format(error=error), {"DRUMLINE_TRACE": str(tmp_path)})
        assert not (tmp_path / "error").exists()


def test_an_exception_that_cannot_be_recorded_is_printed(tmp_path: Path) -> None:
    script = "from drumline import runtime; runtime.record_errors(); 1 / 0"
    for folder in ("", str(tmp_path / "gone")):
        done = run_script(script, {"DRUMLINE_TRACE": folder})
        assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
        assert "error" not in {path.name for path in tmp_path.iterdir()}


WRITE = """
import os
from drumline import runtime
folder = runtime.write_dir("model")
assert folder.resolve() == runtime.write_dir(os.path.abspath("model")).resolve()
(folder / "weights").write_text("w")
assert folder != runtime.write_dir("other")
if os.fork() == 0:
    raise SystemExit
os.wait()
assert (folder / "weights").exists()
print(folder)
"""


@pytest.mark.parametrize(("index", "where"), [("0", "TMPDIR"), ("1", "TMPDIR"), ("1", "DRUMLINE_TRACE")])
def test_the_chief_writes_to_the_folder_and_other_replicas_to_a_temporary_one(
    index: str, where: str, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"DRUMLINE_ROLE": "worker", "DRUMLINE_INDEX": index, "DRUMLINE_CHIEF": "worker.0", where: str(temporary)}
    done = run_script(f"import os; os.chdir({str(tmp_path)!r})\n{WRITE}", env)
    assert done.returncode == 0, done.stderr
    if index == "0":
        assert (tmp_path / "model" / "weights").read_text() == "w"
        assert done.stdout == "model\n"
    else:
        assert done.stdout.startswith(str(temporary))
        assert not (tmp_path / "model").exists()
    assert list(temporary.iterdir()) == []


def test_a_replica_that_cannot_write_to_its_trace_folder_uses_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    identity = {"DRUMLINE_ROLE": "worker", "DRUMLINE_INDEX": "1", "DRUMLINE_CHIEF": "worker.0"}
    where = {"TMPDIR": str(tmp_path / "tmp"), "DRUMLINE_TRACE": "/proc/self/fdinfo"}  # not even root can write there
    done = run_script(f"import os; os.chdir({str(tmp_path)!r})\n{WRITE}", {**identity, **where})
    assert done.stdout.startswith(f"{tmp_path}/tmp/private-"), done.stderr


def test_a_recorded_exception_can_be_read_and_any_other_content_is_none(tmp_path: Path) -> None:
    path = tmp_path / "error"
    assert errors.read_error(path) is None
    run_script(
        "from drumline import runtime; runtime.record_errors(); raise KeyError('no')", {"DRUMLINE_TRACE": str(tmp_path)}
    )
    found = errors.read_error(path)
    assert found
    assert (found.type, found.message) == ("KeyError", "'no'")
    assert found.traceback.endswith("KeyError: 'no'\n")
    for text in ("", "[", "[]", "{}", '{"type": 1, "message": "", "traceback": "", "at": 1}', "[" * 100_000):
        path.write_text(text)
        assert errors.read_error(path) is None


def test_the_runtime_works_as_a_folder_that_is_copied_into_an_image(tmp_path: Path) -> None:
    target = tmp_path / "drumline" / "runtime"
    target.mkdir(parents=True)
    for path in Path(runtime.__file__).parent.glob("*.py"):
        (target / path.name).write_text(path.read_text())
    script = "from drumline import runtime; runtime.report(step=1); print(runtime.__file__, runtime.is_chief())"
    done = run_script(script, {"PYTHONPATH": str(tmp_path)})
    assert done.stdout == f"{target}/__init__.py True\n", done.stderr


def test_importing_the_runtime_package_imports_none_of_its_modules() -> None:
    tell = "import os, sys; before = set(sys.modules); import drumline.runtime; print(*set(sys.modules) - before)"
    done = run_script(tell, {})
    assert set(done.stdout.split()) == {"__future__", "drumline", "drumline.runtime"}, done.stderr


@pytest.mark.parametrize(
    "said",
    [
        *(
            "[]",
            "null",
            "7",
            "{}",
            "[" * 400,
            '{"step": 1, "at": 5, "values": []}',
            '{"step": "1", "at": 5, "values": {}}',
        ),
        *('{"step": 1, "at": NaN, "values": {}}', '{"step": 1, "at": 1e300, "values": {}}'),
        *('{"step": -1, "at": 5, "values": {}}', '{"step": 1, "at": 5, "values": {"loss": []}}'),
        *(f'{{"step": {10**300}, "at": 5, "values": {{}}}}', '{"step": 1, "at": 5, "since": [1], "values": {}}'),
        f'{{"step": 1, "at": {10**400}, "values": {{}}}}',
    ],
    ids=lambda said: said[:40],
)
def test_a_report_that_a_script_forged_is_ignored(said: str, tmp_path: Path) -> None:
    body = said.encode().ljust(SIZE_BYTES - 10)
    (tmp_path / "report").write_bytes(b"%08x " % crc32(body) + body + b"\n")
    assert read_report(tmp_path / "report") is None


def test_a_pipe_in_the_place_of_a_report_or_an_error_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_report(tmp_path / "pipe") is None
    assert errors.read_error(tmp_path / "pipe") is None


@pytest.mark.parametrize("at", ["NaN", "1e300", str(10**400), '"x"', "null"], ids=lambda at: at[:10])
def test_a_recorded_error_without_a_time_is_ignored(at: str, tmp_path: Path) -> None:
    (tmp_path / "error").write_text(f'{{"type": "E", "message": "m", "traceback": "t", "at": {at}}}')
    assert errors.read_error(tmp_path / "error") is None
