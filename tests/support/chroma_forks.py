"""Chroma's child process as a copy of a process that has imported Chroma, which saves 1.4 s of processor time each."""

import faulthandler
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import pytest
from mnemon_server.engines.chroma import process

from tests.support.forks import Fork

as_program: Callable[[Mapping[str, str]], Any] = process._started
"""Starts it as the server does: with an interpreter of its own."""


class _ForkedChild(Fork):
    """It has the pipes of the server's `subprocess.Popen`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        given, self.stdin = _pipe()
        self.stdout, out = _pipe()
        self.stderr, err = _pipe()
        with given, out, err:
            super().__init__(_run, environment=environment, given=given, out=out, err=err)


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


def _run() -> None:
    from mnemon_server.engines.chroma.child import main

    os.setsid()
    faulthandler.enable()
    main()


@contextmanager
def forked_children() -> Iterator[None]:
    """Meanwhile, this process starts children this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_started", _ForkedChild)
        yield
