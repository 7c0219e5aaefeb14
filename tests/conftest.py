"""What holds for all tests.

Tests see none of this machine's GPUs, unless they make some up. Ctrl-C and a terminal that closes are heard, also where
the process that started the tests ignores both, as a shell does for what it runs in the background. A test that fails
while the machine is suspended is tried again.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

from scaffold.absence import TryAgain, Watch
from scaffold.bytecode import compile_sources, keep_compiled_tests
from scaffold.effort import IS_QUICK, examples
from scaffold.loops import end_loops

# A deadline would only measure how busy the machine is.
settings.register_profile(
    "usual",
    deadline=None,
    max_examples=examples(60),
    derandomize=IS_QUICK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("usual")

os.environ["DRUMLINE_GPUS"] = ""
os.environ.pop("CUDA_VISIBLE_DEVICES", None)

with suppress(ValueError):  # where this is not the main thread, no handler was changed either
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """Compile what tests start, once; watch the machine for as long as tests run."""
    keep_compiled_tests()
    if not hasattr(config, "workerinput"):
        compile_sources()
    watch = Watch()
    config.pluginmanager.register(TryAgain(watch))
    config.add_cleanup(watch.stop)
    watch.start()


def pytest_collection_finish() -> None:
    """Take the collected tests, which stay to the end, out of what the garbage collector goes through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def loops() -> Iterator[None]:
    """End the loops that a test has made, with all that goes on in them."""
    yield
    end_loops()
