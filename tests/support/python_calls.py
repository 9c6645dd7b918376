"""Counts calls of functions: how much Python computes, whatever else the machine does."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def python_calls(run: Callable[[], Any]) -> int:
    """How many functions, of Python or of C, are called by `run` on this thread."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
