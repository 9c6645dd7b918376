"""A blocking client of one endpoint: JSON in, JSON out, within limits of time and size."""

import json
import random
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx
import structlog

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.key_file import read_key

_log = structlog.get_logger()

ATTEMPTS_MAX = 4
FIRST_DELAY_S = 0.25
"""Time before the second attempt. It doubles with each further one, and varies by half."""

_TOO_MANY = 429
_PASSING_STATUSES = frozenset({408, 425, _TOO_MANY, 500, 502, 503, 504})
_ADVICE = {
    401: "; the key is missing or wrong",
    403: "; the key does not permit this",
    404: "; the URL or the name of the model is wrong",
    413: "; the request was too large",
}
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class EndpointError(Exception):
    """An endpoint did not give a usable answer. The message contains no key, no text of a request or of an answer."""


class EndpointAnswerError(EndpointError):
    """The endpoint answered with success, and the answer cannot be read."""


class EndpointRefusalError(EndpointError):
    """The endpoint refused the request with a status that another attempt would get again."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


class _PassingError(EndpointError):
    """Another attempt may succeed, not before `delay_s` if the endpoint named a time."""

    def __init__(self, message: str, delay_s: float | None = None, *, is_away: bool = True) -> None:
        self.delay_s, self.is_away = delay_s, is_away
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Where an endpoint is, and what its calls may take."""

    name: str
    """The purpose, as in its errors: `the embedding endpoint`."""
    url: str
    """The base of its paths, such as `http://localhost:11434/v1`."""
    key_file: Path | None = None
    """Holds the key, which is read for each call, so that it can be replaced."""
    timeout_s: float = 30.0
    """For a call with all of its attempts."""
    answer_bytes_max: int = 64 << 20


class EndpointClient:
    """Gets JSON from an endpoint, or posts it there. Any thread may call it, also several at once.

    Attempts to post that may succeed later (no connection, status 429 or 5xx) are repeated, up to four in all, after a
    growing delay or the endpoint's `Retry-After`. While an endpoint is away, only one call at a time tries it, once.
    The others fail immediately, so that they do not all hold a thread until their timeout.

    It does not follow redirects, use proxies of the environment, or keep cookies.

    Raises:
        ConfigurationError: the URL or the key file is invalid.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._base = base_url(settings.url)
        self._headers()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._away: EndpointError | None = None
        self._probing = False
        self._client = httpx.Client(
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"accept": "application/json", "accept-encoding": "identity", "user-agent": "mnemon"},
            verify=ssl.create_default_context() if self._base.scheme == "https" else False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
            trust_env=False,
        )

    @property
    def place(self) -> str:
        """The URL, for the log."""
        return str(self._base)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON value that the endpoint answers to `body`, posted to `path` below its URL. Blocks.

        Raises:
            EndpointError: the endpoint cannot be reached, refuses the request, or its answer is not JSON in time.
            ConfigurationError: the key file is no longer valid.
        """
        headers = self._headers()
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        deadline = time.monotonic() + self._settings.timeout_s
        attempts = self._enter()
        try:
            answer = self._attempts(f"{self.place}/{path}", content, headers, deadline, attempts)
        except _PassingError as error:
            self._leave(error if error.is_away else None)
            raise
        except BaseException:
            self._leave(None)
            raise
        self._leave(None)
        return answer

    def get(self) -> Any:
        """The JSON value at the URL itself, with a single attempt. Blocks.

        Raises:
            EndpointError: the endpoint cannot be reached, refuses the request, or its answer is not JSON in time.
            ConfigurationError: the key file is no longer valid.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        return self._attempt("GET", self.place, None, self._headers(), deadline)

    def close(self) -> None:
        """Ends delays between attempts, and closes connections."""
        self._closed.set()
        self._client.close()

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._settings.key_file is not None:
            headers["authorization"] = f"Bearer {read_key(self._settings.key_file)}"
        return headers

    def _enter(self) -> int:
        """How many attempts a call has."""
        with self._lock:
            if self._away is None:
                return ATTEMPTS_MAX
            if self._probing:
                raise EndpointError(str(self._away))
            self._probing = True
            return 1

    def _leave(self, away: EndpointError | None) -> None:
        with self._lock:
            before, self._away = self._away, away
            self._probing = False
        if away is not None and before is None:
            _log.warning("endpoint is away", url=self.place, reason=str(away))
        elif away is None and before is not None:
            _log.info("endpoint is back", url=self.place)

    def _attempts(self, url: str, content: bytes, headers: Mapping[str, str], deadline: float, attempts: int) -> Any:
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt("POST", url, content, headers, deadline)
            except _PassingError as error:
                delay = error.delay_s
                if delay is None:
                    delay = FIRST_DELAY_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
                if attempt == attempts or time.monotonic() + delay >= deadline or self._closed.wait(delay):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], deadline: float
    ) -> Any:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            with self._client.stream(method, url, content=content, headers=headers, timeout=left) as answer:
                return self._read(answer, deadline)
        except httpx.TimeoutException as error:
            raise self._late() from error
        except (httpx.HTTPError, RuntimeError) as error:  # a closed client raises RuntimeError
            raise _PassingError(f"{self._settings.name} cannot be reached, or closed the connection") from error

    def _read(self, answer: httpx.Response, deadline: float) -> Any:
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise EndpointAnswerError(f"{self._settings.name} compressed its answer, although it was asked not to")
        body = bytearray()
        for chunk in answer.iter_raw():
            body += chunk
            if len(body) > self._settings.answer_bytes_max:
                raise EndpointAnswerError(
                    f"{self._settings.name} answered more than {self._settings.answer_bytes_max:,} bytes"
                )
            if time.monotonic() > deadline:
                # The client's timeout applies to each read: an answer in tiny pieces could take for ever.
                raise self._late()
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            if answer.is_success:
                raise EndpointAnswerError(f"the answer of {self._settings.name} is not JSON") from error
            value = None
        if answer.is_success:
            return value
        raise self._refusal(answer, value)

    def _refusal(self, answer: httpx.Response, value: Any) -> EndpointError:
        status = answer.status_code
        message = f"{self._settings.name} answered with status {status}{_code(value)}{_ADVICE.get(status, '')}"
        if status not in _PASSING_STATUSES:
            return EndpointRefusalError(message, status)
        delay_s = _retry_after_s(answer.headers.get("retry-after", ""))
        return _PassingError(message, delay_s, is_away=status != _TOO_MANY)

    def _late(self) -> _PassingError:
        return _PassingError(f"{self._settings.name} did not answer within {self._settings.timeout_s:g} s")


def base_url(text: str) -> httpx.URL:
    """The URL of an endpoint.

    Raises:
        ConfigurationError: it is not an absolute URL of HTTP, or contains more than a path.
    """
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.userinfo:
        raise ConfigurationError("the URL of an endpoint must not contain a user or a password; use a key file")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ConfigurationError(
            f"{text!r} is not the URL of an endpoint; it must look like https://api.openai.com/v1 or "
            "http://localhost:11434/v1"
        )
    return url


def _code(value: Any) -> str:
    """The name of the error in an answer. Its message is left out, because it may repeat the request."""
    error = value.get("error") if isinstance(value, dict) else None
    names = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    name = next((name for name in names if isinstance(name, str) and _CODE.fullmatch(name)), None)
    return f" ({name})" if name else ""


def _retry_after_s(text: str) -> float | None:
    """The delay in a `Retry-After`: seconds, or a date."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
