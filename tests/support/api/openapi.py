"""The OpenAPI document of what the server answers over HTTP."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from mnemon import __version__
from mnemon.v1 import access_pb2
from mnemon_server.transport.http.forms import HTTP_STATUSES, connect_code
from mnemon_server.transport.http.intake import CURSOR, JSON_BYTES_MAX
from mnemon_server.transport.http.json_request import VALUES_MAX

from tests.support.api.errors import error_schemas
from tests.support.api.schemas import Schema, Schemas, reference
from tests.support.repository import ROOT
from tests.support.rpcs import rpcs

ABOUT = Template((Path(__file__).parent / "about.md.in").read_text("utf-8"))

_PARAMETERS: Mapping[str, Schema] = {
    "Encoding": {
        "name": "encoding",
        "in": "query",
        "description": "The form of `message`.",
        "schema": {"type": "string", "const": "json"},
    },
    "RequestId": {
        "name": "X-Request-Id",
        "in": "header",
        "description": "The name of this call in the server's log, and in its answer. The server makes one otherwise.",
        "schema": {"type": "string"},
    },
    "LastEventId": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The id of the last event that was received, in place of `cursor`; browsers send it.",
        "schema": {"type": "string"},
    },
}
_CLIENT_ERRORS, _SERVER_ERRORS = range(400, 500), range(500, 600)
_ROLES = {number: name.removeprefix("ROLE_").lower() for name, number in access_pb2.Role.items()}


def document(
    comments: Mapping[str, str], examples: Mapping[str, Mapping[str, Any]], words: Mapping[str, str]
) -> dict[str, Any]:
    """The document; services are in the order of the README.

    Args:
        comments: those of the protos, by full name.
        examples: requests by method, such as "MemoryService/GetMemory"; the rest have an empty one.
        words: further words by which people look for a method.
    """
    order = re.findall(r"`mnemon\.v1\.(\w+)`", (ROOT / "README.md").read_text("utf-8"))
    methods = sorted((rpc.method for rpc in rpcs()), key=lambda method: order.index(_service_of(method).name))
    served = [method for method in methods if not method.client_streaming]
    operations = {_path(each): _operations(each, comments, examples, words) for each in served}
    messages = Schemas(comments, [each.input_type for each in served], [each.output_type for each in served])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mnemon",
            "version": __version__,
            "summary": "A memory for AI agents.",
            "description": ABOUT.substitute(limit=JSON_BYTES_MAX >> 20, values=f"{VALUES_MAX:,}").strip(),
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server."}],
        "security": [{}, {"credential": []}],
        "tags": [_tag(service, list(each), comments) for service, each in groupby(methods, _service_of)],
        "paths": {**_probes(), **operations},
        "components": {
            "schemas": {**messages.all(), **error_schemas(comments)},
            "parameters": dict(_PARAMETERS),
            "responses": {"ClientError": _errors(_CLIENT_ERRORS), "ServerError": _errors(_SERVER_ERRORS)},
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, or the token of an identity provider (JWT).",
                }
            },
        },
    }


def text_of(content: Mapping[str, Any]) -> str:
    """The document as it is written: a change shows line by line."""
    return json.dumps(content, indent=0, ensure_ascii=False) + "\n"


def _service_of(method: MethodDescriptor) -> ServiceDescriptor:
    service: Any = method.containing_service
    return service


def _path(method: MethodDescriptor) -> str:
    return f"/{_service_of(method).full_name}/{method.name}"


def _tag(service: ServiceDescriptor, methods: list[MethodDescriptor], comments: Mapping[str, str]) -> Schema:
    text = comments[service.full_name]
    if bulk := [f"`{method.name}`" for method in methods if method.client_streaming]:
        text += f"\n\nOver gRPC alone, because they take a stream of requests: {', '.join(bulk)}."
    return {"name": service.name, "description": text}


def _operations(
    method: MethodDescriptor,
    comments: Mapping[str, str],
    examples: Mapping[str, Mapping[str, Any]],
    words: Mapping[str, str],
) -> Schema:
    post = _operation(method, comments, examples, words)
    if method.GetOptions().idempotency_level != MethodOptions.NO_SIDE_EFFECTS:
        return {"post": post}
    get = {key: value for key, value in post.items() if key not in ("requestBody", "x-also-called")}
    content = post["requestBody"]["content"]
    message = {
        "name": "message",
        "in": "query",
        "description": "The request; `{}` if it is left out.",
        "content": content,
    }
    encoding = {"$ref": "#/components/parameters/Encoding"}
    name = f"{post['operationId']}_get"
    return {"post": post, "get": {**get, "operationId": name, "parameters": [*get["parameters"], encoding, message]}}


def _operation(
    method: MethodDescriptor,
    comments: Mapping[str, str],
    examples: Mapping[str, Mapping[str, Any]],
    words: Mapping[str, str],
) -> Schema:
    service, request = _service_of(method), method.input_type
    shared = ["RequestId"]
    if method.server_streaming and CURSOR in request.fields_by_name:
        shared.append("LastEventId")
    name = f"{service.name}/{method.name}"
    # Without the id of a request: a changed form would be another request with the same one, and be refused.
    example = {key: value for key, value in examples.get(name, {}).items() if key != "requestId"}
    content: Schema = {"schema": reference(request.full_name), "example": example}
    operation: Schema = {
        "tags": [service.name],
        "operationId": f"{service.name}_{method.name}",
        "summary": method.name,
        "description": "\n\n".join(_said(method, comments)),
        "parameters": [{"$ref": f"#/components/parameters/{each}"} for each in shared],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": _answer(method, comments),
            "4XX": {"$ref": "#/components/responses/ClientError"},
            "5XX": {"$ref": "#/components/responses/ServerError"},
        },
    }
    if name in words:
        operation["x-also-called"] = words[name]
    return {**operation, "deprecated": True} if method.GetOptions().deprecated else operation


def _said(method: MethodDescriptor, comments: Mapping[str, str]) -> Iterator[str]:
    options: Any = method.GetOptions()
    yield comments[method.full_name]
    role = _ROLES[options.Extensions[access_pb2.required_role]]
    others = ", or operator" if options.Extensions[access_pb2.open_to_operators] and role != "operator" else ""
    yield f"Role: {role}{others}."
    if options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
        yield "Changes nothing; may also be a GET."


def _answer(method: MethodDescriptor, comments: Mapping[str, str]) -> Schema:
    kind = method.output_type
    headers = {"X-Request-Id": {"description": "What the server's log calls this call.", "schema": {"type": "string"}}}
    if not method.server_streaming:
        content = {"application/json": {"schema": reference(kind.full_name)}}
        return {"description": comments[kind.full_name], "headers": headers, "content": content}
    line = {
        "description": "A line for each message. If the call fails after the first, the last line is the error.",
        "anyOf": [reference(kind.full_name), reference("StreamError")],
    }
    has_cursor = CURSOR in kind.fields_by_name
    events = {
        "type": "string",
        "description": f"An event for each message, whose data is the JSON of {kind.name}"
        + (", and whose id is its cursor" if has_cursor else "")
        + ". The last one is `end`, or `error` with an Error.",
    }
    content = {"application/x-ndjson": {"schema": line}, "text/event-stream": {"schema": events}}
    return {"description": comments[kind.full_name], "headers": headers, "content": content}


def _errors(statuses: range) -> Schema:
    found: dict[int, list[str]] = {}
    for code, status in sorted(HTTP_STATUSES.items(), key=lambda each: each[1]):
        if status in statuses:
            found.setdefault(status, []).append(connect_code(code))
    rows = [f"- {status}: {', '.join(f'`{code}`' for code in codes)}" for status, codes in found.items()]
    if 400 in statuses:
        rows.append("- 404, 405, 415, 421: `unknown`, a request that calls no method")
    response: Schema = {
        "description": "The call failed. The code by status:\n\n" + "\n".join(rows),
        "content": {"application/json": {"schema": reference("Error")}},
    }
    seconds = {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
    return {**response, "headers": {"Retry-After": seconds}}


def _probes() -> Schema:
    ready = {"description": "It is ready.", "content": {"text/plain": {"schema": {"type": "string", "const": "ok\n"}}}}
    starting = {"description": "It is starting or ending.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    told = (
        ("/healthz", "IsAlive", "Whether the process answers.", {"200": ready}),
        ("/readyz", "IsReady", "Whether calls will be answered.", {"200": ready, "503": starting}),
    )
    return {
        path: {"get": {"operationId": name, "summary": text, "security": [{}], "responses": answers}}
        for path, name, text, answers in told
    }
