"""Errors as the Connect protocol writes them in JSON."""

from collections.abc import Mapping
from typing import Any

from mnemon.v1 import errors_pb2
from mnemon_server.transport.http.forms import HTTP_STATUSES, connect_code
from mnemon_server.transport.status import ERROR_DOMAIN

from tests.support.api.schemas import Schema, reference

_TEXT: Schema = {"type": "string"}


def error_schemas(comments: Mapping[str, str]) -> dict[str, Schema]:
    """The schemas of an error, by name."""
    codes = [connect_code(code) for code, status in HTTP_STATUSES.items() if status != 200]
    error = {
        "type": "object",
        "description": "Why a call failed.",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "description": "The code of gRPC.", "enum": codes},
            "message": {"type": "string", "description": "What is wrong, for people."},
            "details": {
                "type": "array",
                "description": "The same for programs.",
                "items": reference("ErrorDetail"),
            },
        },
    }
    line = {
        "type": "object",
        "description": "The last line of a stream that failed after its first message.",
        "required": ["error"],
        "properties": {"error": reference("Error")},
    }
    return {"Error": error, "ErrorDetail": _detail(comments), "StreamError": line}


def _detail(comments: Mapping[str, str]) -> Schema:
    return {
        "description": "For programs. `value` is a message of this type in base64, and `debug` the same as JSON.",
        "oneOf": [_of_type(name, *each) for name, each in _kinds(comments).items()],
    }


def _of_type(name: str, description: str, debug: Mapping[str, Any]) -> Schema:
    fields = {
        "type": {"const": f"google.rpc.{name}"},
        "value": {"type": "string", "contentEncoding": "base64"},
        "debug": {"type": "object", "properties": debug},
    }
    return {"type": "object", "title": name, "description": description, "required": list(fields), "properties": fields}


def _kinds(comments: Mapping[str, str]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    violation = {"type": "object", "properties": {"field": _TEXT, "description": _TEXT}}
    quota = {"type": "object", "properties": {"subject": _TEXT, "description": _TEXT}}
    info = {
        "reason": _reason(comments),
        "domain": {"const": ERROR_DOMAIN},
        "metadata": {"type": "object", "additionalProperties": _TEXT},
    }
    named = {"resourceType": _TEXT, "resourceName": _TEXT, "description": _TEXT}
    return {
        "ErrorInfo": ("Why; every error of a method has it.", info),
        "BadRequest": ("What is wrong in which field.", {"fieldViolations": {"type": "array", "items": violation}}),
        "ResourceInfo": ("What was not found.", named),
        "QuotaFailure": ("Which quota is used up.", {"violations": {"type": "array", "items": quota}}),
        "RetryInfo": ("When to try again.", {"retryDelay": {"type": "string", "examples": ["1s"]}}),
    }


def _reason(comments: Mapping[str, str]) -> Schema:
    enum = errors_pb2.ErrorReason.DESCRIPTOR
    names = {value.name.removeprefix("ERROR_REASON_"): value.name for value in enum.values if value.number}
    rows = [f"- `{name}`: {comments[f'{enum.full_name}.{full}']}" for name, full in names.items()]
    return {"type": "string", "description": f"{comments[enum.full_name]}\n\n" + "\n".join(rows), "enum": list(names)}
