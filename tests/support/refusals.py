"""The fields for which a request is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mnemon_server.domain.errors import InvalidArgumentError


def refused_fields(read: Callable[[Any], Any], request: Any) -> list[str]:
    """The fields that a reader of requests, which may be asynchronous, refuses: in alphabetical order."""
    try:
        found = read(request)
        if isinstance(found, Coroutine):
            asyncio.run(found)
    except InvalidArgumentError as error:
        return sorted(violation.field for violation in error.violations)
    return []
