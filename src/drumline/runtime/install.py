"""Install packages into an environment with uv, or with venv and pip, and print the progress."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from configparser import Error as ConfigError
from configparser import RawConfigParser
from contextlib import suppress
from pathlib import Path

# The path is appended, so that it shadows nothing, and is in a variable, so that an environment works with any version
# of drumline.
_LINK = "import os, sys; sys.path += filter(None, [os.environ.get('DRUMLINE_RUNTIME')])\n"
# Variables that would change which packages are installed, or where.
_NOT_FOR_BUILDS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "UV_PYTHON")
_PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_EXTRA_INDEX_URL", "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX", "trusted-host": "UV_INSECURE_HOST", "cert": "SSL_CERT_FILE",
}  # fmt: skip
_PROGRESS = re.compile(
    r"\s*(Collecting|Downloading|Building|Installing build dependencies|Installing collected packages|Resolved|Prepared"
    r"|Installed|Built)\b"
)
_LAST_LINES = 30
_PRINT_SECONDS, _REPEAT_SECONDS = 3.0, 10.0


class NotBuilt(Exception):  # noqa: N818
    """An environment could not be built; its folder was removed."""


def install(folder: str, python: str, requirements: Sequence[str], lock: int) -> int:
    """Make an environment in this folder, install the requirements, and return the number of packages.

    Raise NotBuilt if that fails. All processes that are started inherit the lock, so that after the end of a killed
    builder the next one waits for them.
    """
    uv = shutil.which("uv")
    wanted = ", ".join(line for line in requirements if not line.startswith("-"))
    say(f"building {folder} with {'uv' if uv else 'venv and pip'} and {python}: {wanted or 'nothing but Python'}")
    environ = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_BUILDS}
    environ |= {"PYTHONUNBUFFERED": "1", "PIP_USER": "0", "UV_PYTHON_DOWNLOADS": "never"}
    own = f"{folder}/bin/python"
    if uv:
        settings = _settings_for_uv(python, environ)
        # uv has no variable for the setting `no-index`.
        alone = ["--no-index"] if settings.pop("UV_NO_INDEX", "").lower() in ("1", "true", "yes", "on") else []
        environ |= settings
        make = [uv, "venv", "--no-project", "--allow-existing", "--python", python, folder]
        words = [uv, "pip", "install", "--python", own, *alone]
    else:
        # From 22.3 on, pip can install into another environment; a pip in each environment takes a second and 20 MB.
        outside = not subprocess.run(
            [python, "-m", "pip", "--python", python, "--version"],
            cwd="/",
            env=environ,
            capture_output=True,
            check=False,
        ).returncode
        make = [python, "-m", "venv", *(["--without-pip"] if outside else []), folder]
        words = [python, "-m", "pip", "--python", own] if outside else [own, "-m", "pip"]
        words += ["install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    _run(make, environ, lock, "make the environment")
    packages = next(Path(folder, "lib").glob("python3*/site-packages"))
    (packages / "drumline-runtime.pth").write_text(_LINK)
    if requirements:
        files = _write_requirements(folder, requirements)
        _run([*words, *files], environ, lock, "install the requirements", packages)
    return _installed(packages)


def say(text: str) -> None:
    """Print a line about the build at once."""
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


def _write_requirements(folder: str, requirements: Sequence[str]) -> list[str]:
    """Write requirement files, in which installers accept options and `${VARIABLES}`; return arguments for them."""
    constraints = [line[3:] for line in requirements if line.startswith("-c ")]
    wanted = [line for line in requirements if not line.startswith("-c ")]
    words = []
    for option, name, lines in (("-r", "requirements", wanted), ("-c", "constraints", constraints)):
        if lines:
            path = f"{folder}/drumline-{name}.txt"
            Path(path).write_text("".join(f"{line}\n" for line in lines))
            words += [option, path]
    return words


def _run(
    command: Sequence[str], environ: Mapping[str, str], lock: int, purpose: str, packages: Path | None = None
) -> None:
    """Run a command of the build and print its progress; if it fails, print its last lines and raise NotBuilt."""
    process = subprocess.Popen(
        command,
        env=environ,
        cwd="/",  # no file of the project changes the environment
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
    )
    try:
        last = _follow(process, purpose, packages)
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    if code:
        for line in last:
            sys.stdout.write(f"{line}\n")
        tool = "uv" if os.path.basename(command[0]) == "uv" else f"python -m {command[2]}"
        raise NotBuilt(f"`{tool}` could not {purpose} (exit code {code})")


def _follow(process: subprocess.Popen[bytes], purpose: str, packages: Path | None) -> Sequence[str]:
    """Read the output of an installer until it ends, print its progress, and return the last lines."""
    assert process.stdout
    began = printed_at = time.monotonic()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    rest, news, found, last_news = b"", "", 0, purpose
    while True:
        if select.select([process.stdout], [], [], 1.0)[0]:
            data = os.read(process.stdout.fileno(), 65536)
            *lines, rest = (rest + data).split(b"\n")
            for line in (raw.decode(errors="replace").rstrip() for raw in lines):
                last.append(line)
                found += line.lstrip().startswith(("Collecting ", "Processing "))
                news = line.partition(" (from ")[0].strip() if _PROGRESS.match(line) else news
            if not data:
                last.extend([rest.decode(errors="replace")] if rest else [])
                return last
        now = time.monotonic()
        if now - printed_at >= (_PRINT_SECONDS if news else _REPEAT_SECONDS):
            last_news, count = (
                news or last_news,
                f"{found} found, {_installed(packages)} installed; " if packages else "",
            )
            say(f"{now - began:.0f} s: {count}{'' if news else 'still: '}{last_news[:80]}")
            printed_at, news = now, ""


def _installed(packages: Path) -> int:
    return len(list(packages.glob("*.dist-info")))


def _settings_for_uv(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings for the sources of packages, as variables for uv, which does not read pip's files.

    The files are read here, since a distribution's Python may have no pip.
    """
    config = RawConfigParser(strict=False)
    for file in _files_of_pip(python, environ):  # later files override earlier ones
        with suppress(OSError, ConfigError, UnicodeDecodeError):
            config.read(file, encoding="utf-8")
    parts = filter(config.has_section, ("global", "install"))
    known = {name.replace("_", "-"): value for part in parts for name, value in config.items(part)}
    for name in _PIP_TO_UV:
        if given := environ.get(f"PIP_{name.upper().replace('-', '_')}"):
            known[name] = given
    between = {"find-links": ","}
    settings = {
        uvs: between.get(name, " ").join(known[name].split()) for name, uvs in _PIP_TO_UV.items() if known.get(name)
    }
    return {name: value for name, value in settings.items() if name not in environ}


def _files_of_pip(python: str, environ: Mapping[str, str]) -> list[str]:
    home, named = environ.get("HOME", ""), environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    system = [*reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"))]
    user = [f"{home}/.pip/pip.conf", f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/pip/pip.conf"]
    return [
        *(f"{folder}/pip/pip.conf" for folder in system),
        "/etc/pip.conf",
        *([] if os.path.exists(named) else user),
        f"{os.path.dirname(os.path.dirname(python))}/pip.conf",
        *filter(None, [named]),
    ]
