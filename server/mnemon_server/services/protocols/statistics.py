"""Counts the results of parsing texts."""

import threading
from dataclasses import replace

from mnemon_server.domain.tool_calls import Fallback, ParseOptions, ParseResult, ProtocolStatistics


class ProtocolCounters:
    """Counts since this object was created; any thread may count and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statistics = ProtocolStatistics()

    def count(self, result: ParseResult, options: ParseOptions) -> None:
        """Counts one text that was parsed with `options`."""
        names = _counts(result, dual_mode=options.dual_mode)
        with self._lock:
            raised = {name: getattr(self._statistics, name) + 1 for name in names}
            self._statistics = replace(self._statistics, **raised)

    def statistics(self) -> ProtocolStatistics:
        """A consistent snapshot of the counts."""
        with self._lock:
            return self._statistics


def _counts(result: ParseResult, *, dual_mode: bool) -> list[str]:
    if not result.has_marker:
        return ["total", "plain_text"]
    if result.success and result.fallback is Fallback.NONE:
        return ["total", "abp_success"]
    if not dual_mode:
        return ["total", "abp_failed"]
    return ["total", "abp_failed", "vcp_fallback_success" if result.success else "vcp_fallback_failed"]
