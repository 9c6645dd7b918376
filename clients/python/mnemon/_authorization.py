"""Sends a credential with every call: an API key, or a token that is renewed."""

import asyncio
import base64
import inspect
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

Token: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns one, which the client calls when it needs another."""
AsyncToken: TypeAlias = Token | Callable[[], Awaitable[str]]

API_KEY_VARIABLE = "MNEMON_API_KEY"
RENEWED_BEFORE_S, RENEWED_BEFORE_SHARE = 60.0, 0.2
"""A token is renewed a minute before it expires, or when a fifth of its time is left."""
_CREDENTIAL = re.compile(r"[!-~]+")
_CALLS = frozenset({"unary_unary", "unary_stream", "stream_unary", "stream_stream"})


class Credential:
    """The `authorization` of a client: a text, or the result of a function.

    The function is called for the first call, before the token expires (if it is a JWT, which says so), and when the
    server has refused the token. Calls that come meanwhile wait for it; what it raises, they raise.
    """

    def __init__(self, given: AsyncToken = "", *, name: str = "token") -> None:
        """Raises ValueError if a text cannot be a credential. The message does not contain it."""
        self._name = name
        self._get = given if callable(given) else None
        self._lock, self._async_lock = threading.Lock(), asyncio.Lock()
        self._renew_at = 0.0
        self.headers: tuple[tuple[str, str], ...] = ()
        """The header's value; empty without a credential."""
        if not callable(given):
            self._use(given)

    @property
    def is_renewed(self) -> bool:
        """Whether a function returns it."""
        return self._get is not None

    @property
    def is_due(self) -> bool:
        """Whether the function is to be called before the next call of the server."""
        return self._get is not None and time.time() >= self._renew_at

    def renew(self) -> None:
        """Calls the function if that is due. Blocks."""
        with self._lock:
            if self._get is not None and self.is_due:
                self._use(self._get())

    async def renew_async(self) -> None:
        """Calls the function if that is due: on a thread, unless it is asynchronous."""
        async with self._async_lock:
            if self._get is not None and self.is_due:
                is_async = inspect.iscoroutinefunction(self._get)
                found = self._get() if is_async else await asyncio.to_thread(self._get)
                self._use(await found if inspect.isawaitable(found) else found)

    def use_new_loop(self) -> None:
        """Lets another event loop renew it, after the one before has ended."""
        self._async_lock = asyncio.Lock()

    def may_renew(self, reason: str) -> bool:
        """Whether a call that was refused for this reason may succeed with another token, which is then due."""
        if self._get is None or reason != "UNAUTHENTICATED":
            return False
        self._renew_at = 0.0
        return True

    def _use(self, text: object) -> None:
        if not isinstance(text, str):
            if inspect.iscoroutine(text):
                text.close()
            raise TypeError(
                f"{self._name} returned {type(text).__name__}; it must return a text, and only AsyncClient awaits it"
            )
        text = text.strip()
        if text and not _CREDENTIAL.fullmatch(text):
            raise ValueError(f"{self._name} is not valid: it has spaces, or other than ASCII")
        self.headers = (("authorization", f"Bearer {text}"),) if text else ()
        now = time.time()
        left_s = _expiry_of(text) - now
        self._renew_at = now + left_s - min(RENEWED_BEFORE_S, RENEWED_BEFORE_SHARE * left_s)


def resolve_credential(api_key: str | None, token: AsyncToken | None, *, has_certificate: bool) -> Credential:
    """The given credential, otherwise the key in MNEMON_API_KEY, otherwise none.

    A certificate says who calls, too: what happens to be in the environment must not count before it.

    Raises:
        ValueError: it cannot be one, or there are two. The message does not contain it.
    """
    if token is not None:
        if api_key is not None:
            raise ValueError("api_key contradicts token; choose one")
        return Credential(token)
    key = key_in_environment(has_certificate=has_certificate) if api_key is None else api_key
    return Credential(key, name=f"api_key, or {API_KEY_VARIABLE},")


def key_in_environment(*, has_certificate: bool) -> str:
    """The API key from the environment; empty if the variable is not set, or if the client has a certificate."""
    return "" if has_certificate else os.environ.get(API_KEY_VARIABLE, "")


class AuthorizedChannel:
    """A channel, blocking or asyncio, whose calls send a credential as a header.

    Interceptors would do the same for several times the cost, and call credentials only exist for TLS.
    """

    def __init__(self, channel: Any, credential: Credential) -> None:
        self._channel, self._credential = channel, credential

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        return partial(self._calls, found) if name in _CALLS else found

    def _calls(self, make: Any, *arguments: Any, **keywords: Any) -> Any:
        call, credential = make(*arguments, **keywords), self._credential
        if not credential.is_renewed:
            return partial(call, metadata=credential.headers)

        def authorized(*given: Any, **named: Any) -> Any:
            return call(*given, **named, metadata=credential.headers)

        return authorized


def _expiry_of(token: str) -> float:
    """When a token expires, in seconds since 1970; never, if it does not say so."""
    try:
        body = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return float("inf")
