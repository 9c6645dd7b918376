"""The operator's tools file: what is read from it. Each error is named with the valid values."""

import json
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.tools import OperatorTool
from mnemon_server.services.tools.http_endpoint import HttpEndpoint
from mnemon_server.services.tools.registry import ToolRegistry
from mnemon_server.services.tools.tools_file import FILE_BYTES_MAX, TOOLS_MAX, read_tools_file

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GOOD: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": json.dumps(SCHEMA),
    "http": "https://tools.example.com/weather?v=1",
}
ALLOWED = ("tools.example.com", "10.0.0.5:50051", "[::1]:8080")


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "tools.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(tool: dict[str, Any]) -> str:
    """One tool in TOML. Strings, numbers and booleans are written as in JSON."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in tool.items() if value is not None]
    return "\n".join(["[[tool]]", *lines, ""])


def refusal(folder: Path, content: str | bytes, allowed: tuple[str, ...] = ALLOWED) -> str:
    path = written(folder, content)
    with pytest.raises(ConfigurationError) as caught:
        read_tools_file(path, allowed)
    assert str(folder) not in str(caught.value)
    return str(caught.value)


def changed(folder: Path, **changes: Any) -> str:
    """The error for the valid tool with these keys replaced. None removes a key."""
    said = refusal(folder, table({**GOOD, **changes}))
    name = changes.get("name", "weather")
    named = f"tool 1 ({name[:64]!r})" if isinstance(name, str) else "tool 1"
    assert said.startswith(f"the tools file tools.toml: {named}: ")
    return said.removeprefix(f"the tools file tools.toml: {named}: ")


def test_tools_of_both_kinds_are_read(tmp_path: Path) -> None:
    content = """
[[tool]]
name = "weather"
description = "The weather of a city."
http = "https://Tools.Example.com/weather?v=1"
timeout_s = 2

[tool.parameters]
type = "object"
required = ["city"]
[tool.parameters.properties.city]
type = "string"

[[tool]]
name = "Mail_2-x"
description = "Sends mail."
parameters = '{"type": "object"}'
grpc = "10.0.0.5:50051"
tls = true

[[tool]]
name = "local"
description = "ж"
parameters = {type = "object"}
http = "http://[::1]:8080/"
"""
    assert read_tools_file(written(tmp_path, content), ALLOWED) == (
        OperatorTool(
            name="weather",
            description="The weather of a city.",
            parameters=SCHEMA,
            http="https://Tools.Example.com/weather?v=1",
            timeout_s=2.0,
        ),
        OperatorTool(
            name="Mail_2-x",
            description="Sends mail.",
            parameters={"type": "object"},
            grpc="10.0.0.5:50051",
            tls=True,
            timeout_s=10.0,
        ),
        OperatorTool(name="local", description="ж", parameters={"type": "object"}, http="http://[::1]:8080/"),
    )


def test_an_empty_file_has_no_tools(tmp_path: Path) -> None:
    assert read_tools_file(written(tmp_path, ""), ()) == ()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^the tools file none\.toml: it cannot be read: No such file"):
        read_tools_file(tmp_path / "none.toml", ())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[tool", "it is not TOML: "),
        (b"\xff", "it is not TOML: "),
        ("x = " + "[" * 5_000, "it is "),
        ("#" * (FILE_BYTES_MAX + 1), "it must be at most 1,048,576 bytes"),
        ("[tool]\nname = 'a'", "it must contain only [[tool]] tables"),
        ("tools = []", "it must contain only [[tool]] tables"),
        ("tool = [1]", "tool 1: must be a [[tool]] table"),
        (table(GOOD) * (TOOLS_MAX + 1), "it must contain at most 100 tools"),
        (table(GOOD) * 2, "tool 2 ('weather'): name must not be the name of another tool"),
        (
            table(GOOD) + table({**GOOD, "name": "b", "timeout_s": 0}),
            "tool 2 ('b'): timeout_s must be a number of seconds, 0.1 to 300",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert refusal(tmp_path, content).startswith(f"the tools file tools.toml: {said}")


@pytest.mark.parametrize("name", ["", "a b", "ä", "a.b", "x" * 65, 5, None, "a\n"])
def test_a_name_must_be_callable_by_models(tmp_path: Path, name: Any) -> None:
    assert changed(tmp_path, name=name) == "name must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'"


@pytest.mark.parametrize("name", ["manage_memory", "search_memory"])
def test_the_names_of_the_memory_tools_are_reserved(tmp_path: Path, name: str) -> None:
    said = "name must not be that of a memory tool: manage_memory, search_memory"
    assert changed(tmp_path, name=name) == said


@pytest.mark.parametrize("description", ["", "  ", 5, None, "x" * 8_193])
def test_a_description_is_required(tmp_path: Path, description: Any) -> None:
    assert (
        changed(tmp_path, description=description)
        == "description must say what the tool is for, in at most 8,192 bytes"
    )


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (None, "parameters must be a JSON schema, as a table or as JSON text"),
        ("[]", "parameters must be a JSON schema, as a table or as JSON text"),
        (5, "parameters must be a JSON schema, as a table or as JSON text"),
        ('{"type": "object",}', "parameters must be JSON: line 1: "),
        ('{"type": "object", "type": "object"}', "parameters: an object has the same key twice"),
        ('{"type": "string"}', 'parameters.type: must be "object": a tool is called with named arguments'),
        ('{"type": "object", "properties": {"a": {"type": "int"}}}', "parameters.properties.a.type: must be"),
        ('{"type": "object", "$ref": "https://example.com/s"}', "parameters: refers to 'https://example.com/s', which"),
    ],
)
def test_parameters_must_be_a_schema(tmp_path: Path, parameters: Any, said: str) -> None:
    assert changed(tmp_path, parameters=parameters).startswith(said)


def test_a_time_in_a_schema_is_refused(tmp_path: Path) -> None:
    content = table({**GOOD, "parameters": None}) + 'parameters = {type = "object", default = 2026-01-01}\n'
    assert "parameters.default: must be a JSON value, not date" in refusal(tmp_path, content)


@pytest.mark.parametrize("changes", [{"http": None}, {"http": ""}, {"grpc": "10.0.0.5:50051"}])
def test_exactly_one_endpoint_is_required(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert changed(tmp_path, **changes) == 'must have either http = "https://..." or grpc = "host:port"'


@pytest.mark.parametrize(
    "url",
    [
        "tools.example.com/weather",
        "ftp://tools.example.com/",
        "file:///etc/passwd",
        "https://user:word@tools.example.com/",
        "https://user@tools.example.com/",
        "https://tools.example.com/#part",
        "https://",
        "https://tools.example.com:99999/",
        "https://tools.example.com:0/",
        "https://tools.example.com:x/",
        "https://tools example.com/",
        "https://tools.example.com\n/",
        5,
        ["https://tools.example.com/"],
        True,
    ],
)
def test_http_must_be_a_url(tmp_path: Path, url: Any) -> None:
    said = "http must be a URL, http:// or https://, without user, password and fragment"
    assert changed(tmp_path, http=url) == said


@pytest.mark.parametrize(
    "target", ["10.0.0.5", "https://10.0.0.5:50051", "dns:///10.0.0.5:50051", "unix:/tmp/x", "10.0.0.5:50051/", 7, ":1"]
)
def test_grpc_must_be_host_and_port(tmp_path: Path, target: Any) -> None:
    assert changed(tmp_path, http=None, grpc=target) == 'grpc must be "host:port", without a scheme'


@pytest.mark.parametrize("tls", ["yes", 1])
def test_tls_must_be_a_boolean(tmp_path: Path, tls: Any) -> None:
    assert changed(tmp_path, http=None, grpc="10.0.0.5:50051", tls=tls) == "tls must be true or false"


def test_tls_does_not_apply_to_http(tmp_path: Path) -> None:
    said = "tls must only be set with grpc; an http endpoint uses TLS if it begins with https://"
    assert changed(tmp_path, tls=True) == said


@pytest.mark.parametrize("timeout_s", [0, 0.05, 300.5, -1, True, "5"])
def test_the_timeout_has_limits(tmp_path: Path, timeout_s: Any) -> None:
    assert changed(tmp_path, timeout_s=timeout_s) == "timeout_s must be a number of seconds, 0.1 to 300"


def test_a_timeout_of_nan_is_refused(tmp_path: Path) -> None:
    assert "timeout_s must be a number" in refusal(tmp_path, table(GOOD) + "timeout_s = nan\n")


def test_an_unknown_key_is_named_with_the_known_ones(tmp_path: Path) -> None:
    keys = "name, description, parameters, http, grpc, tls, timeout_s, identity"
    said = f"headers is not a key of a tool; the keys are {keys}"
    assert changed(tmp_path, headers="x") == said


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        (
            {"http": "https://example.com/"},
            "http must name a host, or host:port, of the setting tool_endpoints_allowed; 'example.com:443'",
        ),
        ({"http": "http://evil-tools.example.com/"}, "'evil-tools.example.com:80'"),
        ({"http": "https://tools.example.com.evil.org/"}, "'tools.example.com.evil.org:443'"),
        ({"http": "https://tools.example.com%2eevil.org/"}, "http must be a URL"),
        ({"http": "http://10.0.0.5/"}, "'10.0.0.5:80'"),
        ({"http": "http://[::1]/"}, "'::1:80'"),
        (
            {"http": None, "grpc": "10.0.0.5:50052"},
            "grpc must name a host, or host:port, of the setting tool_endpoints_allowed; '10.0.0.5:50052'",
        ),
        ({"http": None, "grpc": "10.0.0.50:50051"}, "'10.0.0.50:50051'"),
    ],
)
def test_an_endpoint_that_is_not_allowed_is_named(tmp_path: Path, endpoint: dict[str, Any], shown: str) -> None:
    assert shown in changed(tmp_path, **endpoint)


def test_without_a_list_no_endpoint_is_allowed(tmp_path: Path) -> None:
    assert "tool_endpoints_allowed" in refusal(tmp_path, table(GOOD), ())


@pytest.mark.parametrize(
    ("allowed", "endpoint"),
    [
        ("tools.example.com", {"http": "http://TOOLS.example.com:8443/x"}),
        ("TOOLS.Example.com:443", {"http": "https://tools.example.com"}),
        ("tools.example.com:80", {"http": "http://tools.example.com/"}),
        ("[::1]", {"http": "http://[::1]:99/"}),
        ("münchen.example", {"http": "https://xn--mnchen-3ya.example/"}),
        ("10.0.0.5", {"http": None, "grpc": "10.0.0.5:1"}),
        ("localhost:50051", {"http": None, "grpc": "LOCALHOST:50051"}),
        ("[::1]:50051", {"http": None, "grpc": "[::1]:50051"}),
    ],
)
def test_an_endpoint_is_allowed_by_host_or_by_host_and_port(
    tmp_path: Path, allowed: str, endpoint: dict[str, Any]
) -> None:
    assert len(read_tools_file(written(tmp_path, table({**GOOD, **endpoint})), ("other.example", allowed))) == 1


@pytest.mark.parametrize("entry", ["", "https://tools.example.com", "a/b", "a b", "*", "a@b", "host:99999", "host:0"])
def test_the_list_must_hold_hosts(tmp_path: Path, entry: str) -> None:
    said = f"tool_endpoints_allowed must contain hosts, or host:port, not {entry!r}"
    assert refusal(tmp_path, table(GOOD), (entry,)) == said


async def test_a_registry_refuses_taken_names_and_invalid_schemas() -> None:
    tool = OperatorTool(name="weather", description="", parameters=SCHEMA, http="http://127.0.0.1:1/")
    endpoint = HttpEndpoint(tool)
    try:
        with pytest.raises(ConfigurationError, match=r"^the tool 'weather' is defined twice"):
            ToolRegistry([(tool, endpoint), (tool, endpoint)])
        taken = OperatorTool(name="manage_memory", description="", parameters=SCHEMA, http="http://127.0.0.1:1/")
        with pytest.raises(ConfigurationError, match=r"^the tool 'manage_memory' is defined twice"):
            ToolRegistry([(taken, endpoint)])
        bad = OperatorTool(name="bad", description="", parameters={}, http="http://127.0.0.1:1/")
        with pytest.raises(ConfigurationError, match=r"^the tool 'bad': parameters\.type: must be"):
            ToolRegistry([(bad, endpoint)])
    finally:
        await endpoint.aclose()
