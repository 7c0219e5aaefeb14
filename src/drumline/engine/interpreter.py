"""Find the interpreter that `python` in a command of a run means: the same as in the shell that launches the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from drumline.engine.protocol import Interpreter
from drumline.errors import InputError

# The folders of the system's own programs. A `python` there belongs to no environment.
_SYSTEM = {
    f"{root}/{folder}" for root in ("", "/usr", "/usr/local", "/opt/homebrew", "/snap") for folder in ("bin", "sbin")
}
_SHIMS = "shims"  # the folder of programs of pyenv, asdf and mise that start the version set as the default
_PRINT_EXECUTABLE = "import sys; print(sys.executable)"
_ANSWER_SECONDS = 10


def find_interpreter(environ: Mapping[str, str], *, own: str, base: str, program: str) -> Interpreter:
    """Return the interpreter for commands that name `python`.

    `own` is drumline's Python, `base` the one from which its environment was made, `program` the file of the running
    command. An active environment is preferred; then the first `python` on PATH if the running command is the
    `drumline` on PATH, as after `pipx install`; then drumline's own.
    """
    path = _search_path(environ, own)
    first = shutil.which("python", path=path)
    if first and _same_folder(first, own):
        return Interpreter(first, _describe(first, environ))
    if first and not _is_default(first, base):
        return Interpreter(own, _OWN) if _wraps(first, own) else Interpreter(first, _describe(first, environ))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = f"{environ.get(variable, '')}/bin/python"
        if environ.get(variable) and os.access(python, os.X_OK):
            return Interpreter(python, _describe(python, environ))
    if first and _is_called_by_name(program, path):
        return Interpreter(_follow_shim(first), _FIRST)
    return Interpreter(own, _OWN)


_OWN = "drumline's own, since no environment is active"
_FIRST = "the first `python` on PATH"


def has_drumline(interpreter: Interpreter, environ: Mapping[str, str]) -> bool:
    """Return whether this Python can import drumline: from PYTHONPATH or from its own environment."""
    named = [Path(each) for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if any((each / "drumline" / "runtime" / "__init__.py").is_file() for each in named):
        return True
    library = Path(interpreter.folder).parent / "lib"
    patterns = ("site-packages/drumline-*.dist-info", "dist-packages/drumline-*.dist-info")
    return any(next(library.glob(f"python3*/{pattern}"), None) for pattern in patterns)


def require_interpreter(interpreter: Interpreter, commands: Iterable[tuple[str, ...]]) -> None:
    """Raise InputError if this Python no longer exists, unless every command has an absolute path of its program."""
    if not _is_gone(interpreter.path) or all(os.path.isabs(argv[0]) for argv in commands):  # noqa: PTH117
        return
    raise InputError(
        f"the Python of this run's launch is gone: {interpreter.path} ({interpreter.reason})",
        hint="create its environment again at that path, or start a new run with `drumline train`",
    )


def _is_gone(path: str) -> bool:
    """Return whether the file does not exist; False for a file in a folder that this user cannot read."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _search_path(environ: Mapping[str, str], own: str) -> str:
    """Return PATH as in the user's shell: without drumline's own folder, which `uv tool run` adds to its front."""
    path = environ.get("PATH", os.defpath)
    prefix = Path(own).parent.parent
    if "UV" not in environ or Path(environ.get("VIRTUAL_ENV", "")) == prefix:
        return path
    first, _, rest = path.partition(os.pathsep)
    return rest if _same_folder(f"{first}/python", own) else path


def _describe(python: str, environ: Mapping[str, str]) -> str:
    folder = str(Path(python).parent.parent)
    for variable, words in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        if environ.get(variable) and os.path.normpath(environ[variable]) == folder:
            return f"the active {words}"
    return _FIRST


def _is_default(python: str, base: str) -> bool:
    """Return whether this Python is in no environment: the system's, a version manager's, or drumline's `base`."""
    folder = Path(python).parent
    if (folder.parent / "pyvenv.cfg").is_file() or (folder.parent / "conda-meta").is_dir():
        return False
    return str(folder) in _SYSTEM or folder.name == _SHIMS or os.path.realpath(python) == os.path.realpath(base)


def _is_called_by_name(program: str, path: str) -> bool:
    found = shutil.which("drumline", path=path)
    return found is not None and os.path.realpath(found) == os.path.realpath(program)


def _wraps(python: str, own: str) -> bool:
    """Return whether this is a script that starts drumline's own Python."""
    return _is_script(python) and (real := _executable_of(python)) is not None and _same_folder(real, own)


def _follow_shim(python: str) -> str:
    return _executable_of(python) or python if Path(python).parent.name == _SHIMS else python


def _is_script(path: str) -> bool:
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return file.read(2) == b"#!"
    return False


def _executable_of(python: str) -> str | None:
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        answer = subprocess.run(
            [python, "-ISc", _PRINT_EXECUTABLE],
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=_ANSWER_SECONDS,
        )
        if os.access(found := answer.stdout.strip(), os.X_OK):
            return found
    return None


def _same_folder(one: str, other: str) -> bool:
    return Path(one).parent == Path(other).parent
