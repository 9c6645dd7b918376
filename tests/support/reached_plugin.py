"""The plugin of pytest for `tests.support.reached`."""

import os
import time
from collections.abc import Generator

import pytest

from tests.support.reached import TEST, Tracer

_tracer = Tracer()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Traces a test with its fixtures."""
    os.environ[TEST] = item.nodeid
    began = time.monotonic()
    _tracer.start()
    try:
        return (yield)
    finally:
        _tracer.stop(programs=0, seconds=time.monotonic() - began)
        del os.environ[TEST]
