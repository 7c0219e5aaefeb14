"""A fake TensorBoard that starts at once: it answers requests, and exits on TERM."""

from __future__ import annotations

import shlex
import sys
import zipfile
from pathlib import Path

STAND_IN = """
import argparse, http.server, os, signal
parser = argparse.ArgumentParser()
for option in ("-m", "--logdir", "--host", "--port", "--load_fast"):
    parser.add_argument(option)
asked = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
http.server.HTTPServer((asked.host, int(asked.port)), http.server.BaseHTTPRequestHandler).serve_forever()
"""


def write_python(folder: Path) -> Path:
    """Write a program that looks like a Python with TensorBoard; return its path."""
    (folder / "board.py").write_text(STAND_IN)
    python = folder / "board-python"
    serve = shlex.join([sys.executable, "-IS", str(folder / "board.py")])
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec {serve} "$@"\n')
    python.chmod(0o755)
    return python


def write_wheel(folder: Path) -> None:
    """Write the wheel of a package named tensorboard."""
    about = "tensorboard-2.21.0.dist-info"
    files = {
        "tensorboard/__init__.py": "",
        "tensorboard/main.py": STAND_IN,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tensorboard\nVersion: 2.21.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "tensorboard-2.21.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD")))
