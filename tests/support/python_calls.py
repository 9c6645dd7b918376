"""Counts calls of functions: how much Python computes, whatever else the machine does."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_PROBES = "slipcover.probe"
"""The module of the function that measures coverage; it is called in lines that are new, and calls further ones."""


def python_calls(run: Callable[[], Any]) -> int:
    """How many functions, of Python or of C, are called by `run` on this thread, without those of SlipCover."""
    count, probes = 0, 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count, probes
        if event.startswith("c_") and argument.__module__ == _PROBES:
            probes += 1 if event == "c_call" else -1
        elif not probes:
            count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
