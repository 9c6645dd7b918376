"""Sends an API key with every call."""

import os
import re
from functools import partial
from typing import Any

API_KEY_VARIABLE = "MNEMON_API_KEY"
_KEY = re.compile(r"[!-~]+")
_CALLS = frozenset({"unary_unary", "unary_stream", "stream_unary", "stream_stream"})


def resolve_api_key(given: str | None) -> str:
    """The given key, otherwise that in MNEMON_API_KEY, otherwise an empty text.

    Raises:
        ValueError: it cannot be a key. The message does not contain it.
    """
    key = (os.environ.get(API_KEY_VARIABLE, "") if given is None else given).strip()
    if key and not _KEY.fullmatch(key):
        raise ValueError(f"api_key, or {API_KEY_VARIABLE}, is not an API key: it has spaces, or other than ASCII")
    return key


class AuthorizedChannel:
    """A channel, blocking or asyncio, whose calls send the key as a header.

    Interceptors would do the same for several times the cost, and call credentials only exist for TLS.
    """

    def __init__(self, channel: Any, api_key: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {api_key}"),)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        return partial(self._calls, found) if name in _CALLS else found

    def _calls(self, make: Any, *arguments: Any, **keywords: Any) -> Any:
        return partial(make(*arguments, **keywords), metadata=self._metadata)
