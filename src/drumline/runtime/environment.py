"""Build a Python environment once: `environment.py ROOT PYTHON REQUIREMENT…`; whoever wants the same finds it there.

An environment knows its own path, so it is built in its place; a mark that is written last says that it is whole. Who
builds holds its lock alone, also by what he starts; who uses it holds the lock with others. What nobody used for long
goes when another is built. A line `-c REQUIREMENT` only constrains the others.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MARK = "drumline.json"
KEEP_SECONDS = 30 * 86_400.0

# Appended, so that it hides nothing; through a variable, so that no environment is tied to one version of drumline.
_LINK = "import os, sys; sys.path += filter(None, [os.environ.get('DRUMLINE_RUNTIME')])\n"
# What would turn the build away from the environment, or away from what its name says.
_NOT_FOR_BUILDS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "UV_PYTHON")
_PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_EXTRA_INDEX_URL", "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX", "trusted-host": "UV_INSECURE_HOST", "cert": "SSL_CERT_FILE",
}  # fmt: skip
_NEWS = re.compile(
    r"\s*(Collecting|Downloading|Building|Installing build dependencies|Installing collected packages|Resolved|Prepared"
    r"|Installed|Built)\b"
)
_LAST_LINES = 30
_SAY_EVERY_SECONDS, _STILL_AFTER_SECONDS = 3.0, 10.0


class NotBuilt(Exception):  # noqa: N818
    """An environment could not be built; nothing of it is left."""


def folder_of(root: str, python: str, requirements: Sequence[str]) -> str:
    """The folder of the environment that this interpreter and these requirements make; looks at nothing."""
    machine = os.uname()
    key = json.dumps([1, machine.sysname, machine.machine, python, *requirements])
    first = next((line for line in requirements if not line.startswith("-")), "python")
    last = first.partition(" ")[0].rpartition("/")[2]  # of a URL that has no name
    name = re.split(r"[^A-Za-z0-9._-]", last, maxsplit=1)[0].strip("._-").lower()[:40] or "python"
    return os.path.join(root, f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}")


def is_ready(folder: str) -> bool:
    """Whether an environment is there and whole; one whose interpreter was uninstalled is not."""
    return os.path.exists(f"{folder}/{MARK}") and os.access(f"{folder}/bin/python", os.X_OK)


def use(folder: str) -> int | None:
    """A descriptor that keeps an environment from being removed while any process has it; None if there is none."""
    for _ in range(20):
        if not is_ready(folder):
            return None
        lock = take_lock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if lock is not None and is_ready(folder):
            with suppress(OSError):
                os.utime(lock)
            return lock
        if lock is not None:
            os.close(lock)
        time.sleep(0.005)  # who looks whether it is used holds it for a moment
    return None


def provide(root: str, python: str, requirements: Sequence[str]) -> str:
    """Return the folder of a whole environment, built if it is not there; raise NotBuilt with a sentence.

    Who comes while another builds waits. Its interpreter is `bin/python` in it.
    """
    folder = folder_of(root, python, requirements)
    if is_ready(folder):
        _say(f"{folder} is there already")
        return folder
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            _say(f"{folder} is being built by somebody else; waiting for that")
            lock = take_lock(folder, fcntl.LOCK_EX)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    assert lock is not None
    try:
        if is_ready(folder):
            _say(f"{folder} is there now")
        else:
            _build(folder, python, requirements, lock)
            os.utime(lock)
    except OSError as error:
        raise NotBuilt(f"cannot build {folder}: {error.strerror}") from None
    finally:
        os.close(lock)
    for removed in remove_unused(root, KEEP_SECONDS):
        _say(f"removed {removed}, which nobody used for {KEEP_SECONDS / 86_400:.0f} days")
    return folder


def remove_unused(root: str, older_than_seconds: float) -> Iterator[str]:
    """Remove what nobody uses and nobody used for so long, and what an interrupted build left; say which."""
    for folder in kept(root):
        if is_ready(folder) and time.time() - last_used(folder) < older_than_seconds:
            continue
        with suppress(OSError):  # somebody else's, or a disk that is only read
            lock = take_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is None:
                continue
            try:
                whole = is_ready(folder)
                _remove(folder)
                os.unlink(f"{folder}.lock")  # who waits for it sees that it is another
            finally:
                os.close(lock)
            if whole:
                yield folder


def kept(root: str) -> list[str]:
    """All folders that are or were to become environments."""
    try:
        names = {name.removesuffix(".lock") for name in os.listdir(root)}
    except OSError:  # nothing was built yet
        return []
    return [os.path.join(root, name) for name in sorted(names) if re.fullmatch(r".+-[0-9a-f]{16}", name)]


def last_used(folder: str) -> float:
    """When somebody began to use it, in seconds of the clock on the wall."""
    try:
        return os.stat(f"{folder}.lock").st_mtime
    except OSError:
        return 0.0


def take_lock(folder: str, how: int) -> int | None:
    """Lock a folder as flock(2) does; None if others have it and nobody is to wait."""
    path = f"{folder}.lock"
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            os.close(lock)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)  # it was removed while we waited


def _remove(folder: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{MARK}")  # first: what is half removed is no environment
    shutil.rmtree(folder, ignore_errors=True)


def _build(folder: str, python: str, requirements: Sequence[str], lock: int) -> None:
    began = time.monotonic()
    _remove(folder)
    uv = shutil.which("uv")
    wanted = ", ".join(line for line in requirements if not line.startswith("-"))
    _say(f"building {folder} with {'uv' if uv else 'venv and pip'} and {python}: {wanted or 'nothing but Python'}")
    try:
        os.mkdir(folder, 0o700)
        make = [uv, "venv", "--no-project", "--allow-existing", "--python", python] if uv else [python, "-m", "venv"]
        environ = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_BUILDS}
        environ |= {"PYTHONUNBUFFERED": "1", "PIP_USER": "0", "UV_PYTHON_DOWNLOADS": "never"}
        environ |= _settings_for_uv(python, environ) if uv else {}
        _run([*make, folder], environ, lock, "make the environment")
        packages = next(Path(folder, "lib").glob("python3*/site-packages"))
        (packages / "drumline-runtime.pth").write_text(_LINK)
        if requirements:
            interpreter = f"{folder}/bin/python"
            pip = [
                interpreter,
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar=off",
            ]
            install = [uv, "pip", "install", "--python", interpreter] if uv else pip
            _run([*install, *_write_requirements(folder, requirements)], environ, lock, "install the requirements")
        count = len(list(packages.glob("*.dist-info")))
        size = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)
        mark = {"python": python, "requirements": list(requirements), "packages": count, "bytes": size}
        Path(folder, f"{MARK}.new").write_text(json.dumps(mark))
        os.rename(f"{folder}/{MARK}.new", f"{folder}/{MARK}")
    except BaseException:
        _remove(folder)
        raise
    _say(
        f"built {folder}: {count} package{'s'[: count != 1]}, {size / 1e6:.0f} MB, in {time.monotonic() - began:.0f} s"
    )


def _write_requirements(folder: str, requirements: Sequence[str]) -> list[str]:
    """As files, where both installers read options and fill in `${VARIABLES}` too."""
    constraints = [line[3:] for line in requirements if line.startswith("-c ")]
    wanted = [line for line in requirements if not line.startswith("-c ")]
    words = []
    for option, name, lines in (("-r", "requirements", wanted), ("-c", "constraints", constraints)):
        if lines:
            path = f"{folder}/drumline-{name}.txt"
            Path(path).write_text("".join(f"{line}\n" for line in lines))
            words += [option, path]
    return words


def _run(command: Sequence[str], environ: Mapping[str, str], lock: int, purpose: str) -> None:
    """Run a part of the build and say how far it is; of one that fails, show the last lines and raise NotBuilt."""
    process = subprocess.Popen(
        command,
        env=environ,
        cwd="/",  # whatever stands in the folder from which somebody trains changes no environment
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
    )
    try:
        last = _follow(process, purpose)
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if code:
        for line in last:
            sys.stdout.write(f"{line}\n")
        tool = "uv" if os.path.basename(command[0]) == "uv" else f"python -m {command[2]}"
        raise NotBuilt(f"`{tool}` could not {purpose} (exit code {code})")


def _follow(process: subprocess.Popen[bytes], purpose: str) -> Sequence[str]:
    """Read what an installer says until it ends; say what is new now and then, and return the last lines."""
    assert process.stdout
    began = said = time.monotonic()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    rest, news, found, still = b"", "", 0, purpose
    while True:
        if select.select([process.stdout], [], [], 1.0)[0]:
            data = os.read(process.stdout.fileno(), 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in (raw.decode(errors="replace").rstrip() for raw in lines):
                last.append(line)
                found += line.lstrip().startswith("Collecting ")
                news = line.strip() if _NEWS.match(line) else news
            if not data:
                last.extend([rest.decode(errors="replace")] if rest else [])
                return last
        now = time.monotonic()
        if now - said >= (_SAY_EVERY_SECONDS if news else _STILL_AFTER_SECONDS):
            still, count = news or still, f"{found} packages found; " if found else ""
            _say(f"{now - began:.0f} s: {count}{'' if news else 'still: '}{still[:100]}")
            said, news = now, ""


def _settings_for_uv(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Where packages come from, as pip was told; uv reads none of pip's files and variables."""
    answer = subprocess.run([python, "-m", "pip", "config", "list"], env=environ, capture_output=True, check=False)
    known: dict[str, str] = {}
    lines = re.findall(rb"^(global|install|:env:)\.([a-z-]+)=(.*)$", answer.stdout, re.MULTILINE)
    lines = [[word.decode(errors="replace") for word in line] for line in lines]
    for _, name, value in sorted(lines, key=lambda line: ("global", "install", ":env:").index(line[0])):
        with suppress(ValueError, SyntaxError):
            known[name] = str(ast.literal_eval(value))
    for name in _PIP_TO_UV:
        if given := environ.get(f"PIP_{name.upper().replace('-', '_')}"):
            known[name] = given
    between = {"find-links": ","}
    told = {
        uvs: between.get(name, " ").join(known[name].split()) for name, uvs in _PIP_TO_UV.items() if known.get(name)
    }
    return {name: value for name, value in told.items() if name not in environ}


def _say(text: str) -> None:
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


def main(root: str, python: str, *requirements: str) -> int:
    """Provide an environment; an interrupt or TERM leaves nothing of it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        provide(root, python, requirements)
    except NotBuilt as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
