"""Warnings, attributed to the caller's code, about answers that differ from what was asked."""

import sys
import warnings
from collections.abc import Iterable
from traceback import walk_stack
from typing import Any, TypeVar

from mnemon.shared.errors import IgnoredFilterWarning, IncompleteHistoryWarning, UnmatchedFilterWarning

_Response = TypeVar("_Response")


def noted(response: _Response) -> _Response:
    """The response; warns, where the caller's code calls this package, if something of the past is missing in it."""
    if getattr(response, "history_incomplete", False):
        said = "something that was known then may be missing: it was purged, erased or pruned since"
        warnings.warn(said, IncompleteHistoryWarning, stacklevel=_outside())
    return response


def warn_of_filters(ignored: Iterable[Any], unmatched: Iterable[Any]) -> None:
    """Warns of filters, each with a `key` and a `reason`, where the caller's code calls this package."""
    found: list[tuple[str, type[Warning]]]
    found = [(f"the filter {each.key!r} was not applied: {each.reason}", IgnoredFilterWarning) for each in ignored]
    found += [(f"the filter {each.key!r} finds nothing: {each.reason}", UnmatchedFilterWarning) for each in unmatched]
    level = _outside() if found else 0
    for message, kind in found:
        warnings.warn(message, kind, stacklevel=level)


def _outside() -> int:
    """The level, for the function that calls this one, of the nearest frame outside of the client and the server."""
    frames = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_stack(sys._getframe(1)))
    return next((level for level, name in enumerate(frames, 1) if name not in ("mnemon", "mnemon_server")), 1)
