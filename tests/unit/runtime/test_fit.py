"""What may be loaded in a process that replicas are forked from."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

from drumline.runtime.fit import Unfit, check_origins, import_all


def module(name: str, path: str) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = path
    return made


def test_a_sitecustomize_of_ones_own_makes_it_unfit(tmp_path: Path) -> None:
    own = str(tmp_path / "sitecustomize.py")
    with pytest.raises(Unfit, match=f"there is a sitecustomize, {own}"):
        check_origins({"sitecustomize": module("sitecustomize", own)})


def test_that_of_a_distribution_which_links_it_into_pythons_library_does_not() -> None:
    path = str(Path(os.__file__).with_name("sitecustomize.py"))  # Debian links it to /etc
    check_origins({"sitecustomize": module("sitecustomize", path)})


def test_what_is_not_the_environments_makes_it_unfit(tmp_path: Path) -> None:
    path = str(tmp_path / "mine.py")
    with pytest.raises(Unfit, match=f"mine would be imported from {path}, which is not the environment's"):
        check_origins({"mine": module("mine", path)})


def test_types_in_quotes_mean_the_same_and_typing_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    here = "class Here: pass\nfirst, again = typing.ForwardRef('Here'), typing.ForwardRef('Here')\n"
    Path(tmp_path, "quoting.py").write_text(f"import typing\n{here}def returns() -> typing.List['Here']: ...\n")
    Path(tmp_path, "misquoting.py").write_text("import typing\ntyping.List['not a type']\n")
    import_all(["quoting"])
    quoting = sys.modules["quoting"]
    assert quoting.first.__forward_code__ is quoting.again.__forward_code__
    assert get_type_hints(quoting.returns)["return"].__args__ == (quoting.Here,)
    with pytest.raises(SyntaxError, match="'not a type'"):
        import_all(["misquoting"])
    assert "compile" not in vars(typing)


@pytest.fixture
def postponed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A package whose part, of this text, was imported but is not to be executed before it is used."""

    def make(text: str) -> ModuleType:
        Path(tmp_path, "framework").mkdir()
        Path(tmp_path, "framework", "__init__.py").write_text("from framework import rare as rare\n")
        Path(tmp_path, "framework", "rare.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        for name in ("framework", "framework.rare"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        before = [*sys.meta_path]
        import_all(["framework"], {"framework.rare"})
        assert sys.meta_path == before
        return sys.modules["framework.rare"]

    return make


RARE = "import sys\nsys.executed += 1\nchosen = 1\n"
USES = [
    lambda: importlib.import_module("framework").rare.chosen,
    lambda: getattr(sys.modules["framework.rare"], "chosen"),  # noqa: B009
    lambda: __import__("framework.rare", fromlist=["chosen"]).chosen,
    lambda: exec("from framework.rare import *; assert chosen"),
    lambda: dir(sys.modules["framework.rare"]).index("chosen"),
    lambda: hasattr(sys.modules["framework.rare"], "nothing"),
]


@pytest.mark.parametrize("use", USES)
def test_what_few_use_is_executed_once_when_it_is_first_used(
    postponed: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]
) -> None:
    monkeypatch.setattr(sys, "executed", 0, raising=False)
    rare = postponed(RARE)
    spec = importlib.util.find_spec("framework.rare")
    assert spec
    assert rare.__file__
    assert (type(rare), rare.__name__, rare.__file__) == (ModuleType, "framework.rare", spec.origin)
    assert type(rare.__loader__) is type(getattr(rare.__spec__, "loader", None)) is type(spec.loader)
    inspect.getmodule(compile("1", rare.__file__, "eval"))  # which looks at every module
    assert sys.executed == 0  # type: ignore[attr-defined]
    use()
    use()
    assert sys.executed == 1  # type: ignore[attr-defined]
    assert rare.chosen == 1
    assert vars(rare).keys() == vars(importlib.reload(rare)).keys()
    assert not {"__getattr__", "__dir__"} & vars(rare).keys()


def test_what_is_executed_late_has_its_own_way_with_what_it_lacks(postponed: Callable[[str], ModuleType]) -> None:
    text = "import sys\nhere = sys.modules[__name__]\nassert not hasattr(here, 'late')\nlate = 2\n"
    rare = postponed(f"{text}def __getattr__(name): return name\n")
    assert (rare.made_up, rare.late) == ("made_up", 2)


def test_what_cannot_be_executed_says_so_to_whoever_uses_it(postponed: Callable[[str], ModuleType]) -> None:
    rare = postponed("import no_such_package\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            rare.anything  # noqa: B018


def test_who_comes_while_it_is_executed_waits_for_its_end(postponed: Callable[[str], ModuleType]) -> None:
    begun, go_on = threading.Event(), threading.Event()
    rare = postponed("import test_fit_gate\ntest_fit_gate.begun.set()\ntest_fit_gate.go_on.wait(60)\nchosen = 1\n")
    gate = ModuleType("test_fit_gate")
    vars(gate).update(begun=begun, go_on=go_on)
    sys.modules[gate.__name__] = gate
    try:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(lambda: rare.chosen)
            assert begun.wait(60)
            second = pool.submit(lambda: rare.chosen)
            go_on.set()
            assert (first.result(60), second.result(60)) == (1, 1)
    finally:
        del sys.modules[gate.__name__]
