"""Small packages made on the spot, so that nothing has to be fetched to install something."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str = "1.0", code: str = "", needs: tuple[str, ...] = ()) -> Path:
    """Write the wheel of a package with one module of its name; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}.py": code or f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)
    return path
