"""An operator's tool learns who calls it from a token, which it verifies with the server's public key."""

import json
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import grpc
import jwt
import mnemon
import pytest
from mnemon.v1 import tool_provider_pb2 as pb
from mnemon_server.domain.errors import ConfigurationError

from tests.support.access import guarded_server, key_id, make_key
from tests.support.server import Connection, run_command, whole_server
from tests.support.tool_endpoints import RecordingHandler, saying, tool_server
from tests.support.tool_messages import call
from tests.support.tool_providers import tool_provider

ALLOWED = ("127.0.0.1",)
REQUIRED = ["iss", "aud", "sub", "exp", "iat", "jti"]


def keys_of(folder: Path) -> jwt.PyJWKSet:
    """The keys that the command prints for tools."""
    printed = run_command("tool-jwks", "--data-dir", str(folder))
    assert printed.returncode == 0, printed.stderr
    return jwt.PyJWKSet.from_dict(json.loads(printed.stdout))


def verified(header: str, keys: jwt.PyJWKSet, audience: str) -> dict[str, Any]:
    """What a token says, as a tool would read it. Raises a PyJWTError if it is not valid for this tool."""
    scheme, _, token = header.partition(" ")
    assert scheme == "Bearer"
    key = keys[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(
        token, key, algorithms=["EdDSA"], audience=audience, issuer="mnemon", options={"require": REQUIRED}
    )


def tools_file(folder: Path, **endpoints: str) -> Path:
    """A file with tools that are told who calls."""
    file = folder / "tools.toml"
    tool = "[[tool]]\nname = '{}'\ndescription = 'Tells it.'\nparameters = {{type = 'object'}}\nidentity = true\n{}\n"
    file.write_text("".join(tool.format(name, where) for name, where in endpoints.items()))
    return file


def guarding(check: Callable[[str], Mapping[str, Any]]) -> Callable[[BaseHTTPRequestHandler], None]:
    """An endpoint that answers with what it knows about the caller, or 401."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        try:
            claims = check(handler.request_received.headers.get("authorization", ""))
        except jwt.PyJWTError:
            saying("who are you?", status=401)(handler)
        else:
            saying(json.dumps(claims), content_type="application/json")(handler)

    return answer


@asynccontextmanager
async def guarded_tools(folder: Path) -> AsyncIterator[tuple[Connection, str, str]]:
    """A server with a tool over HTTP and one over gRPC, which answer only who is verified; and what names them."""
    keys = keys_of(folder / "data")

    async def provide(request: pb.ProvideToolRequest, context: Any) -> str:
        headers = dict(context.invocation_metadata())
        try:
            return json.dumps(verified(headers["authorization"], keys, provider.address))
        except jwt.PyJWTError:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        return ""

    with tool_server(saying("")) as endpoint:
        endpoint.answer = guarding(lambda header: verified(header, keys, endpoint.url))
        async with tool_provider(provide) as provider:
            file = tools_file(folder, news=f"grpc = '{provider.address}'", weather=f"http = '{endpoint.url}'")
            async with guarded_server(folder / "data", tools_file=file, tool_endpoints_allowed=ALLOWED) as connection:
                yield connection, endpoint.url, provider.address


async def test_a_tool_verifies_who_calls_it_over_http_and_over_grpc(tmp_path: Path) -> None:
    whole = make_key(tmp_path / "data", "writer", tenant="acme")
    bound = make_key(tmp_path / "data", "writer", "--user", "ada", "--user", "bob", "--namespace", "users.ada")
    async with guarded_tools(tmp_path) as (connection, url, grpc_address):
        for secret, expected in (
            (whole, {"tenant": "acme", "roles": ["writer"], "users": ["*"], "namespaces": ["*"]}),
            (bound, {"tenant": "default", "roles": ["writer"], "users": ["ada", "bob"], "namespaces": ["users.ada"]}),
        ):
            async with mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client:
                for tool, audience in (("weather", url), ("news", grpc_address)):
                    before = int(time.time())
                    claims = json.loads((await client.tools.call(tool, {})).content)
                    who = {"sub": f"key:{key_id(secret)}", "aud": audience, "tool": tool, "iss": "mnemon"}
                    assert claims == {
                        **expected, **who, "iat": claims["iat"], "exp": claims["exp"], "jti": claims["jti"],
                    }  # fmt: skip
                    assert before <= claims["iat"] < claims["exp"] <= claims["iat"] + 60
                # A call in a model's text is one of the same caller; two calls have two tokens.
                text = "[[ABP_TOOL:weather]]{}[[END_ABP_TOOL]]" * 2
                outputs = [result.output for result in (await client.tools.execute(text)).results]
                said = [json.loads(output.content) for output in outputs if output is not None]
                assert [claims["sub"] for claims in said] == [f"key:{key_id(secret)}"] * 2
                assert said[0]["jti"] != said[1]["jti"]


async def test_a_token_is_for_one_endpoint_and_by_one_key(tmp_path: Path) -> None:
    secret = make_key(tmp_path / "data", "writer")
    with tool_server(saying("sunny")) as endpoint:
        file = tools_file(tmp_path, weather=f"http = '{endpoint.url}'")
        async with (
            guarded_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=ALLOWED) as connection,
            mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client,
        ):
            await client.tools.call("weather", {})
        header = endpoint.received[0].headers["authorization"]
        keys, others = keys_of(tmp_path / "data"), keys_of(tmp_path / "another")
        assert verified(header, keys, endpoint.url)
        with pytest.raises(jwt.InvalidAudienceError):
            verified(header, keys, "https://elsewhere.example.com/")
        with pytest.raises(KeyError):
            verified(header, others, endpoint.url)
        assert secret not in str(endpoint.received)


async def test_the_same_request_id_of_two_tenants_or_users_is_not_the_same_to_a_tool(tmp_path: Path) -> None:
    secrets = [
        make_key(tmp_path / "data", "writer", *flags, tenant=tenant)
        for tenant in ("acme", "globex")
        for flags in ((), ("--user", "ada"), ("--user", "bob"))
    ]
    with tool_server(saying("sunny")) as endpoint:
        file = tools_file(tmp_path, weather=f"http = '{endpoint.url}'")
        async with guarded_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=ALLOWED) as connection:
            for secret in secrets * 2:
                async with mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client:
                    await client.tools.call("weather", {}, request_id="the same")
    sent = [each.headers["idempotency-key"] for each in endpoint.received]
    assert len(set(sent)) == len(secrets)
    assert sent[: len(secrets)] == sent[len(secrets) :]


def test_the_key_outlives_a_restart_and_is_for_the_owner_alone(tmp_path: Path) -> None:
    first = keys_of(tmp_path)
    [file] = tmp_path.glob("tool-identity*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["d"] not in run_command("tool-jwks", "--data-dir", str(tmp_path)).stdout
    assert [key.key_id for key in keys_of(tmp_path).keys] == [key.key_id for key in first.keys]
    written = json.loads(file.read_text())
    for damaged in ("", "{", json.dumps(written | {"d": "A" * 43}), json.dumps(written | {"d": "A"})):
        file.write_text(damaged)
        refused = run_command("tool-jwks", "--data-dir", str(tmp_path))
        assert refused.returncode == 1
        assert "is damaged; remove it" in refused.stderr


async def test_a_tool_without_identity_is_not_told_who_calls(tmp_path: Path) -> None:
    secret = make_key(tmp_path / "data", "writer")
    with tool_server(saying("sunny")) as endpoint:
        file = tools_file(tmp_path, weather=f"http = '{endpoint.url}'")
        file.write_text(file.read_text().replace("identity = true", "identity = false"))
        async with (
            guarded_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=ALLOWED) as connection,
            mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client,
        ):
            await client.tools.call("weather", {})
    assert "authorization" not in endpoint.received[0].headers
    assert not [*(tmp_path / "data").glob("tool-identity*")]


async def test_without_authentication_the_caller_is_anonymous(tmp_path: Path) -> None:
    with tool_server(saying("sunny")) as endpoint:
        file = tools_file(tmp_path, weather=f"http = '{endpoint.url}'")
        settings = {"tools_file": file, "tool_endpoints_allowed": ALLOWED}
        async with whole_server(tmp_path / "data", **settings) as connection:
            await call(connection.tools, "weather", {})
        claims = verified(endpoint.received[0].headers["authorization"], keys_of(tmp_path / "data"), endpoint.url)
        assert (claims["sub"], claims["tenant"], claims["roles"]) == ("anonymous", "default", ["admin"])
        with pytest.raises(ConfigurationError, match="identity = true needs a data folder"):
            async with whole_server(tmp_path / "memory", knowledge_store_backend="in_memory", **settings):
                pass
