"""Every method over gRPC, and over HTTP in every form: the same answers, and the same errors with their details."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2
from mnemon_server.commands.isolation.calls import Answer

from tests.support.http_calls import Outcome, call_grpc, call_http, forms_of, http_client
from tests.support.rpc_fuzzing import WITHOUT_END, Fuzzer
from tests.support.rpcs import Rpc, rpcs
from tests.support.server import Connection, whole_server

HTTP = {"http_listen": "127.0.0.1:0"}
MASK_CHARS_MAX = 16_384
CALLABLE = [rpc for rpc in rpcs() if not rpc.method.client_streaming]


def likened(outcome: Outcome) -> Any:
    """What must be the same on two servers that were sent the same."""
    messages = tuple(json_format.MessageToDict(message) for message in outcome.messages)
    if any("chunk" in message for message in messages):
        # The files of two vaults are never the same.
        messages = tuple({"kind": kind} for kind in sorted({key for message in messages for key in message}))
    details = tuple(map(_likened_detail, outcome.details)) if outcome.code != "OK" else ()
    return outcome.code, details, Answer("", "", messages).likened({})


def _likened_detail(detail: tuple[str, bytes]) -> tuple[str, Any]:
    """Entries of a map, and so what is wrong with them, come in any order."""
    kind, data = detail
    if kind != "google.rpc.BadRequest":
        return detail
    violations = error_details_pb2.BadRequest.FromString(data).field_violations
    return kind, sorted((violation.field, violation.description, violation.reason) for violation in violations)


def requests(seed: int) -> Sequence[tuple[Rpc, Any]]:
    """A random request for each method; an empty one where JSON cannot express it."""
    fuzzer, made = Fuzzer(seed), []
    for rpc in CALLABLE:
        request = fuzzer.request(rpc)
        made.append((rpc, request if can_be_json(request) else rpc.request()))
    return made


def can_be_json(request: Any) -> bool:
    """Whether JSON can express a request as it is: it has no time in the year 10,000 and no huge mask, for example."""
    if "update_mask" in type(request).DESCRIPTOR.fields_by_name and len(str(request.update_mask)) > MASK_CHARS_MAX:
        return False
    try:
        read = json_format.Parse(json_format.MessageToJson(request), type(request)())
    except (json_format.ParseError, json_format.SerializeToJsonError, ValueError):
        return False
    return bool(read.SerializeToString(deterministic=True) == request.SerializeToString(deterministic=True))


async def outcome_over(
    server: Connection, client: httpx.AsyncClient, way: int, rpc: Rpc, request: Any
) -> tuple[str, Outcome]:
    """The outcome over gRPC, or in another form of each method for each `way`."""
    first = rpc.method.name in WITHOUT_END
    if not way:
        return "gRPC", await call_grpc(server.channel, rpc, request, first=first)
    forms = forms_of(rpc)
    form = forms[way % len(forms)]
    return form, await call_http(client, rpc, request, form, first=first)


async def test_the_same_requests_have_the_same_outcomes_over_grpc_and_in_every_form(tmp_path: Path) -> None:
    ways = range(1 + max(len(forms_of(rpc)) for rpc in CALLABLE))
    seen, codes = set(), set()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(whole_server(tmp_path / str(way), **HTTP)) for way in ways]
        clients = [await stack.enter_async_context(http_client(server)) for server in servers]
        for rpc, request in requests(seed=7):
            outcomes = [
                await outcome_over(server, client, way, rpc, request)
                for way, (server, client) in enumerate(zip(servers, clients, strict=True))
            ]
            expected = likened(outcomes[0][1])
            codes.add(expected[0])
            for form, outcome in outcomes:
                assert likened(outcome) == expected, (rpc.name, form, request, outcome, outcomes[0][1])
                seen.add((rpc.name, form))
    assert {(rpc.name, form) for rpc in CALLABLE for form in ("gRPC", *forms_of(rpc))} <= seen
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes


@pytest.mark.parametrize("rpc", [rpc for rpc in rpcs() if rpc.method.client_streaming], ids=lambda rpc: rpc.name)
async def test_a_stream_of_requests_is_refused_with_the_reason(http_server: Any, rpc: Rpc) -> None:
    for form in forms_of(rpc):
        outcome = await call_http(http_server, rpc, rpc.request(), form)
        assert (outcome.code, outcome.reason) == ("UNIMPLEMENTED", "UNIMPLEMENTED"), form
        assert "call it over gRPC" in outcome.message


@pytest.fixture(name="http_server")
async def _http_server(tmp_path: Path) -> Any:
    async with whole_server(tmp_path, **HTTP) as server, http_client(server) as client:
        yield client
