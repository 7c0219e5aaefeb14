"""The structure of the code: packages, imports between them, and the files that the processes of one `train` execute.

Run as `python -m bench.imports [CHECKOUT] [--files]`. CHECKOUT (this one unless given) has been set up by `make setup`:
an older version can be measured beside this one. Where KUBECONFIG is set, as in
`scripts/cluster/run .venv/bin/python -m bench.imports`, a run on that cluster is measured too.

Arrows are read by syntax tree from import statements, wherever in a file they are. Files are counted by an audit
hook: a file counts for a process if the process executed it, or was forked from one that had.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill

LAYERS = ("cli", "load", "supervise", "view", "engine", "store", "run", "plan", "spec", "errors", "runtime")
Graph = Mapping[str, set[str]]

# Executed at the start of every Python that is measured: writes one line for each fork and each file executed.
HOOK = """
import os, sys

pid = os.getpid()

def note(what, value):
    notes = os.open({notes!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # not kept: a supervisor closes what it inherits
    os.write(notes, f"{{os.getpid()}} {{what}} {{value}}\\n".encode())
    os.close(notes)

def audit(event, args):
    if event == "exec" and getattr(args[0], "co_name", "") == "<module>":
        note("file", args[0].co_filename)

def forked():
    global pid
    note("fork", pid)
    pid = os.getpid()

note("begin", sys.executable)
os.register_at_fork(after_in_child=forked)
sys.addaudithook(audit)
"""
# Replicas print the pid of their keeper, and run long enough for modules that are imported only later.
LOCAL = "project: shape\nrun: python -c 'import os, time; time.sleep(6); print(os.getppid())'\nroles: {worker: 2}\n"
CLUSTER = "project: shape\nrun: sleep 6\nroles: {worker: 2}\nengine: {kubernetes: {image: 'python:local'}}\n"


def main() -> None:
    names = [each for each in sys.argv[1:] if each != "--files"]
    checkout = Path(names[0] if names else ".").resolve()
    show_graph(read_graph(checkout / "src/drumline"))
    for where, spec in (("this machine", LOCAL), ("a cluster", CLUSTER)):
        if where == "this machine" or os.environ.get("KUBECONFIG"):
            processes = measure(checkout, spec)
            show_processes(where, processes)
            if "--files" in sys.argv:
                print(json.dumps({kind: sorted(files) for kind, files in processes.items()}, indent=1))


def read_graph(root: Path) -> Graph:
    """Return which modules each module of this package imports."""
    files = {module_of(path, root): path for path in root.rglob("*.py") if "templates" not in path.parts}
    return {module: set(imported(path, files)) - {module} for module, path in files.items()}


def module_of(path: Path, root: Path) -> str:
    words = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imported(path: Path, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules that import statements of this file name; `from a import b` is b where b is a module."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                below = f"{node.module}.{each.name}"
                if below in known or node.module in known:
                    yield below if below in known else node.module


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "drumline"


def show_graph(graph: Graph) -> None:
    sizes = Counter(map(package_of, graph))
    arrows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for module, targets in graph.items():
        for target in targets:
            if package_of(module) != package_of(target):
                arrows[package_of(module)][package_of(target)] += 1
    packages: Graph = {each: set(arrows[each]) for each in sizes}
    print(f"modules: {len(graph)}, packages and modules of the top: {len(sizes)}")
    print(f"imports of a module by another: {sum(map(len, graph.values()))}")
    print(f"arrows between packages: {sum(map(len, packages.values()))}")
    print(f"imports of an engine's own package from outside of `engine`: {engines_known_outside(graph)}")
    print(f"circles of packages: {circles(packages) or 'none'}; of modules: {circles(graph) or 'none'}")
    for package in sorted(sizes, key=lambda each: (each not in LAYERS, LAYERS.index(each) if each in LAYERS else 0)):
        imports = "  ".join(f"{each} {count}" for each, count in sorted(arrows[package].items()))
        print(fill(f"  {package} ({sizes[package]}) > {imports or '-'}", 110, subsequent_indent="      "))


def engines_known_outside(graph: Graph) -> int:
    """Return how often modules of other packages import from the package of one engine."""
    below = [each.split(".") for each in graph if package_of(each) == "engine"]
    engines = {each[2] for each in below if len(each) > 3}
    outside = (target for module, targets in graph.items() if package_of(module) != "engine" for target in targets)
    parts = [each.split(".") for each in outside if package_of(each) == "engine"]
    return sum(len(each) > 2 and each[2] in engines for each in parts)


def circles(graph: Graph) -> list[str]:
    """Return the cycles of the graph (sets of nodes that reach each other), as text."""
    reached = {each: reach(graph, each) for each in graph}
    found = {frozenset(other for other in reached[each] if each in reached[other]) for each in graph}
    return sorted(" ".join(sorted(each)) for each in found if each)


def reach(graph: Graph, start: str) -> set[str]:
    """Return all nodes that are reached from a node by at least one edge."""
    seen, left = set[str](), list(graph[start])
    while left:
        if (each := left.pop()) not in seen:
            seen.add(each)
            left += graph.get(each, ())
    return seen


def measure(checkout: Path, spec: str) -> dict[str, set[str]]:
    """Return the files of drumline that each kind of process of one `train` has executed at its end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder, notes = Path(scratch), Path(scratch, "notes")
        (folder / "drumline.yml").write_text(spec)
        (folder / "hook").mkdir()
        (folder / "hook/sitecustomize.py").write_text(HOOK.format(notes=str(notes)))
        python = str(checkout / ".venv/bin/python")
        quiet = {**os.environ, "DRUMLINE_HOME": str(folder / "home")}
        traced = {**quiet, "PYTHONPATH": str(folder / "hook")}
        words = ["-m", "drumline"]
        command = subprocess.Popen([python, *words, "train"], cwd=folder, env=traced, stdout=subprocess.PIPE, text=True)
        shown, _ = command.communicate()
        if command.returncode:
            raise SystemExit(f"the run that is measured failed: {shown}")
        subprocess.run([python, *words, "wait", "1"], cwd=folder, env=quiet, check=True, capture_output=True)
        told = subprocess.run([python, *words, "logs", "1"], cwd=folder, env=quiet, check=True, capture_output=True)
        return sort_out(notes.read_text().splitlines(), str(command.pid), told.stdout.decode(), checkout)


def sort_out(notes: Iterable[str], command: str, logs: str, checkout: Path) -> dict[str, set[str]]:
    """Return the files of each kind of process: replicas print their keepers, and a supervisor loads `supervise`."""
    files: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    for note in notes:
        process, what, value = note.split(" ", 2)
        if what == "begin":
            files[process] = []
        elif what == "fork":
            parents[process], files[process] = value, list(files[value])
        elif (path := Path(value)).is_relative_to(checkout / "src"):
            files[process].append(str(path.relative_to(checkout / "src/drumline")))
    keepers = {word for word in logs.split() if word in files}
    supervisors = [each for each in files if each != command and "supervise/supervisor.py" in files[each]]
    kinds = {command: "command", next(each for each in supervisors if each not in keepers): "supervisor"}
    kinds |= dict.fromkeys(keepers, "keeper")
    sorted_out: dict[str, set[str]] = {}
    for process, names in files.items():
        sorted_out.setdefault(kinds.get(process, "others"), set()).update(names)
    return sorted_out


def show_processes(where: str, processes: Mapping[str, set[str]]) -> None:
    every = set().union(*processes.values())
    print(f"one train on {where}: {len(every)} files entered")
    for kind, files in processes.items():
        counts = Counter(each.split("/")[0] for each in files)
        print(fill(f"  {kind}: {len(files)} ({'  '.join(f'{name} {n}' for name, n in sorted(counts.items()))})", 110))


if __name__ == "__main__":
    main()
