"""Forwards calls over HTTP to the endpoints of an operator."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from typing import Any
from urllib.parse import quote

import httpx

from mnemon_server.domain.errors import ToolFailedError, ToolUnreachableError
from mnemon_server.domain.tools import ANSWER_BYTES_MAX, OperatorTool

# httpx imports it in its first call, on the event loop, which takes a tenth of a second if nothing is compiled.
import_module("anyio._backends._asyncio")

REQUEST_ID_HEADER, NAMESPACE_HEADER = "Idempotency-Key", "Mnemon-Namespace"


class HttpEndpoint:
    """Posts the arguments as JSON to one URL.

    It sends the request id as `Idempotency-Key`, percent-encoded, and the namespace as `Mnemon-Namespace`, a JSON list
    in ASCII; a token is in `Authorization`. It does not follow redirects, use proxies of the environment, or keep
    cookies.
    """

    def __init__(self, tool: OperatorTool) -> None:
        """Connects on the first call."""
        self._url, self._timeout_s = httpx.URL(tool.http), tool.timeout_s
        self._client = httpx.AsyncClient(
            # A cookie from one user's call would be sent with the next user's call.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"accept": "text/*, application/json", "accept-encoding": "identity", "user-agent": "mnemon"},
            verify=ssl.create_default_context() if self._url.scheme == "https" else False,
            timeout=tool.timeout_s,
            # The registry already limits the calls; the default limit here would make further ones wait.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
            trust_env=False,
        )

    async def call(
        self, name: str, arguments: Mapping[str, Any], namespace: tuple[str, ...], request_id: str, token: str = ""
    ) -> str:
        """See `ToolEndpoint` of endpoints.py."""
        body = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False).encode()
        headers = _headers(namespace, request_id, token)
        try:
            # The client's own timeout applies to each read: an answer in tiny pieces could take for ever.
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                return await _text(name, answer)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ToolUnreachableError(f"the tool {name!r} did not answer within {self._timeout_s:g} s") from error
        except httpx.HTTPError as error:
            message = f"the tool {name!r} cannot be reached, or its endpoint closed the connection"
            raise ToolUnreachableError(message) from error

    async def aclose(self) -> None:
        """See `ToolEndpoint`."""
        await self._client.aclose()


def _headers(namespace: tuple[str, ...], request_id: str, token: str) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if request_id:
        headers[REQUEST_ID_HEADER] = quote(request_id, safe="")
    if namespace:
        headers[NAMESPACE_HEADER] = json.dumps(namespace)
    if token:
        headers["authorization"] = f"Bearer {token}"
    return headers


async def _text(name: str, answer: httpx.Response) -> str:
    if not answer.is_success:
        raise ToolFailedError(f"the tool {name!r} failed: its endpoint answered with status {answer.status_code}")
    content = await _content(name, answer)
    if content and not _is_text(answer.headers.get("content-type", "")):
        raise ToolFailedError(f"the tool {name!r} failed: its endpoint must answer text/* or application/json")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ToolFailedError(f"the tool {name!r} failed: its endpoint must answer in UTF-8") from error


async def _content(name: str, answer: httpx.Response) -> bytes:
    """The body as it was sent. Compressed bodies are refused, since a small one could unpack to any size."""
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise ToolFailedError(f"the tool {name!r} failed: its endpoint must not compress its answer")
    content = bytearray()
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise ToolFailedError(f"the tool {name!r} failed: it answered more than {ANSWER_BYTES_MAX:,} bytes")
    return bytes(content)


def _is_text(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind == "application/json"
