"""Reads the operator's tools from a TOML file: their names, their parameters, and the endpoints that run them.

[[tool]]
name = "weather"
description = "The weather of a city."
parameters = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
http = "https://tools.example.com/weather"
timeout_s = 5

`parameters` may be a table, too. Instead of `http`, `grpc = "host:port"` names a ToolProviderService, with
`tls = true` if it uses TLS. With `identity = true`, a token says to the endpoint who calls.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.domain.tools import TIMEOUT_DEFAULT_S, OperatorTool
from mnemon_server.services.protocols.json_values import UnsafeJsonError, read_json
from mnemon_server.services.tools.argument_schema import ArgumentSchema, UnsupportedSchemaError
from mnemon_server.services.tools.registry import MEMORY_TOOLS

FILE_BYTES_MAX = 1 << 20
TOOLS_MAX = 100
DESCRIPTION_BYTES_MAX = 8_192
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 0.1, 300.0

_KEYS = ("name", "description", "parameters", "http", "grpc", "tls", "timeout_s", "identity")
# The names that the APIs of all model vendors accept.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]*:[0-9a-f:.]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A normalised host name, and a port; None means any port."""

    host: str
    port: int | None

    def permits(self, other: "_Endpoint") -> bool:
        return self.host == other.host and self.port in (None, other.port)


def read_tools_file(path: Path, endpoints_allowed: Sequence[str]) -> tuple[OperatorTool, ...]:
    """The tools of a file. Blocks.

    Args:
        path: the file.
        endpoints_allowed: the hosts that tools may use, as host (with any port) or host:port.

    Raises:
        ConfigurationError: the file cannot be read, or a tool is not valid; the message names the tool and the key.
    """
    allowed = [_allowed(entry) for entry in endpoints_allowed]
    tools: list[OperatorTool] = []
    for number, entry in enumerate(_entries(path), 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        named = f"tool {number} ({name[:64]!r})" if isinstance(name, str) else f"tool {number}"
        try:
            tool = _tool(entry)
            _check_endpoint(tool, allowed)
        except ConfigurationError as error:
            raise _refusal(path, f"{named}: {error}") from error
        if any(tool.name == other.name for other in tools):
            raise _refusal(path, f"{named}: name must not be the name of another tool")
        tools.append(tool)
    return tuple(tools)


def _entries(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _refusal(path, f"it cannot be read: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise _refusal(path, f"it must be at most {FILE_BYTES_MAX:,} bytes")
    try:
        tables = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refusal(path, f"it is not TOML: {error}") from error
    except RecursionError as error:
        raise _refusal(path, "it is nested too deeply") from error
    tools = tables.pop("tool", [])
    if tables or not isinstance(tools, list):
        raise _refusal(path, "it must contain only [[tool]] tables")
    if len(tools) > TOOLS_MAX:
        raise _refusal(path, f"it must contain at most {TOOLS_MAX} tools")
    return tools


def _tool(entry: Any) -> OperatorTool:
    if not isinstance(entry, dict):
        raise ConfigurationError("must be a [[tool]] table")
    for key in entry:
        if key not in _KEYS:
            raise ConfigurationError(f"{key[:80]} is not a key of a tool; the keys are {', '.join(_KEYS)}")
    http, grpc = (entry.get(key, "") for key in ("http", "grpc"))
    if bool(http) == bool(grpc):
        raise ConfigurationError('must have either http = "https://..." or grpc = "host:port"')
    tool = OperatorTool(
        name=_text(entry, "name", _is_name, "must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'"),
        description=_text(entry, "description", _is_description, _DESCRIPTION_RULE),
        parameters=_parameters(entry.get("parameters")),
        http=http,
        grpc=grpc,
        tls=_tls(entry),
        identity=_flag(entry, "identity"),
        timeout_s=_timeout_s(entry.get("timeout_s", TIMEOUT_DEFAULT_S)),
    )
    if tool.name in MEMORY_TOOLS:
        raise ConfigurationError(f"name must not be that of a memory tool: {', '.join(MEMORY_TOOLS)}")
    return tool


_DESCRIPTION_RULE = f"must say what the tool is for, in at most {DESCRIPTION_BYTES_MAX:,} bytes"


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_description(text: str) -> bool:
    return bool(text.strip()) and len(text.encode()) <= DESCRIPTION_BYTES_MAX


def _text(entry: Mapping[str, Any], key: str, is_valid: Callable[[str], bool], rule: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not is_valid(value):
        raise ConfigurationError(f"{key} {rule}")
    return value


def _parameters(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = read_json(value)
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"parameters must be JSON: line {error.lineno}: {error.msg}") from error
        except UnsafeJsonError as error:
            raise ConfigurationError(f"parameters: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError("parameters must be a JSON schema, as a table or as JSON text")
    # A valid but unsupported schema is not an error here: the registry logs it, and offers the other tools.
    with suppress(UnsupportedSchemaError):
        try:
            ArgumentSchema(value)
        except InvalidArgumentError as error:
            raise ConfigurationError(str(error)) from error
    return value


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{key} must be true or false")
    return value


def _tls(entry: Mapping[str, Any]) -> bool:
    tls = _flag(entry, "tls")
    if tls and not entry.get("grpc"):
        raise ConfigurationError("tls must only be set with grpc; an http endpoint uses TLS if it begins with https://")
    return tls


def _timeout_s(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not TIMEOUT_MIN_S <= value <= TIMEOUT_MAX_S:
        raise ConfigurationError(f"timeout_s must be a number of seconds, {TIMEOUT_MIN_S:g} to {TIMEOUT_MAX_S:g}")
    return float(value)


def _check_endpoint(tool: OperatorTool, allowed: Sequence[_Endpoint]) -> None:
    endpoint = _http_endpoint(tool.http) if tool.http else _grpc_endpoint(tool.grpc)
    if not any(one.permits(endpoint) for one in allowed):
        key, shown = "http" if tool.http else "grpc", f"{endpoint.host}:{endpoint.port}"
        problem = f"{key} must name a host, or host:port, of the setting tool_endpoints_allowed; {shown!r} is not in it"
        raise ConfigurationError(problem)


def _http_endpoint(text: Any) -> _Endpoint:
    url = _parsed(text)
    if url is None or url.scheme not in _DEFAULT_PORTS or url.userinfo or url.fragment:
        raise ConfigurationError("http must be a URL, http:// or https://, without user, password and fragment")
    return _Endpoint(url.raw_host.decode(), url.port or _DEFAULT_PORTS[url.scheme])


def _grpc_endpoint(text: Any) -> _Endpoint:
    endpoint = _host_and_port(text)
    if endpoint is None or endpoint.port is None:
        raise ConfigurationError('grpc must be "host:port", without a scheme')
    return endpoint


def _allowed(entry: str) -> _Endpoint:
    endpoint = _host_and_port(entry)
    if endpoint is None:
        raise ConfigurationError(f"tool_endpoints_allowed must contain hosts, or host:port, not {entry[:80]!r}")
    return endpoint


def _host_and_port(text: Any) -> _Endpoint | None:
    # Not "http": httpx drops the default port of a scheme, so that it would look like no port.
    url = _parsed(f"endpoint://{text}") if isinstance(text, str) else None
    if url is None or url.userinfo or url.raw_path != b"/" or url.fragment or text.endswith(("/", "?", "#")):
        return None
    return _Endpoint(url.raw_host.decode(), url.port)


def _parsed(text: Any) -> httpx.URL | None:
    """The URL as the HTTP client understands it; None if it is not valid."""
    try:
        url = httpx.URL(text)
    except (TypeError, httpx.InvalidURL):
        return None
    is_reachable = _HOST.fullmatch(url.raw_host.decode()) and (url.port is None or 1 <= url.port <= 65_535)
    return url if is_reachable else None


def _refusal(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"the tools file {path.name}: {problem}")
