"""Chroma's child process as a copy of a process that has imported Chroma, which saves 1.4 s of processor time each."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from mnemon_server.engines.chroma import process

from tests.support.forks import PipedFork

as_program: Callable[[Mapping[str, str]], Any] = process._started
"""Starts it as the server does: with an interpreter of its own."""


def _run() -> None:
    from mnemon_server.engines.chroma.child import main

    os.setsid()
    main()


@contextmanager
def forked_children() -> Iterator[None]:
    """Meanwhile, this process starts children this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_started", lambda environment: PipedFork(_run, environment=environment))
        yield
