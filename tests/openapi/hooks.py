"""Hooks of schemathesis: credentials, and expected failures with their reasons.

Schemathesis loads this file. It calls every method with what the description allows, and with what it forbids.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.core.jsonschema import make_validator
from schemathesis.openapi.checks import RejectedPositiveData

OPERATORS = "mnemon.v1.TenantService"
STREAM_MS, CALL_MS = 200, 60_000
"""A watch does not end by itself."""
TEXT_MAX = 4096

SEED, SHARE = os.environ.get("MNEMON_OPENAPI_SEED", "0"), 10
"""One of so many requests is made, so that all methods have their turn within minutes; each seed makes others."""

PARTLY_READ = re.compile(r"/(?:Update(?:Document|Memory|Rule|RoutingPolicy|Tenant)|FindMatchingRule)$")
"""Of a record to change, only what the mask names is checked, and of one to match, what rules compare."""

BEYOND_THE_SCHEMA: Mapping[str, str] = {
    r"\.condition\.(?:field|values)": "depends on the kind of record",
    r"must have \d+ numbers|must not be all zeros|only finite numbers": "the length of vectors depends on the model",
    r"^(?:page_token|cursor): ": "comes from an earlier answer",
    r"^base_(?:manifest|name): ": "comes from an earlier backup",
    r"must not be empty (?:if|unless)|must have a scope or a filter": "an empty object may stand in another",
    r"levels deep|at most \d+ parts": "JSON Schema does not count levels",
    r"end_time: must not be before|importance_min: must not be more": "JSON Schema does not compare two values",
    r"a character that can be seen": "a pattern knows blanks, and no characters without width",
    r"bytes of UTF-8": "JSON Schema counts characters",
    r"must belong to the same user|must differ from|if the first is one": "JSON Schema does not compare two values",
    r"must be set only with|must not be set together|must be left out|must be empty": "depends on another field",
    r"must not name \w+ with a scope|needs a namespace": "depends on another field",
    r"has no effect, since the signal \w+ is not evaluated": "depends on another field",
    r"no \w+ has this key": "depends on the records that are stored",
    r"must be unset if": "depends on another field",
    r"names an origin, so": "depends on another field",
    r"this server has no others": "the tokenizers depend on a setting",
    r"kinds?(?:\[\d+\])?(?:\.kind)?: must be one of": "rules and decisions are kinds that are not searched by text",
    r"must name each kind once": "JSON Schema does not compare two values",
    r"names no API key of this tenant": "depends on the keys that there are",
    r"must not be the user whose records are shared": "JSON Schema does not compare two values",
    r"must be a time zone": "their names are hundreds, in any case",
    r"must be in the future": "JSON Schema knows no clock",
    r"within 2\^53": "any number is a value of JSON",
}
"""Demands of the server that a schema cannot express: field and description of a violation, and the reason."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Adds the credential; operators belong to no tenant, and call other methods."""
    key = os.environ["MNEMON_OPERATOR_KEY" if OPERATORS in case.path else "MNEMON_ADMIN_KEY"]
    deadline = STREAM_MS if "/Watch" in case.path else CALL_MS
    case.headers = {**(case.headers or {}), "authorization": f"Bearer {key}", "connect-timeout-ms": str(deadline)}


@schemathesis.hook
def before_load_schema(context: Any, schema: Any) -> None:
    """Leaves out what takes minutes to make: texts at their limits if these are long, and filters within filters."""
    schemas = schema["components"]["schemas"]
    _unlimit(schemas)
    schemas["Filter"]["properties"] = {"condition": schemas["Filter"]["properties"]["condition"]}


def _unlimit(schema: Any) -> None:
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, dict | list):
            _unlimit(each)
    if isinstance(schema, dict) and isinstance(most := schema.get("maxLength"), int) and most > TEXT_MAX:
        del schema["maxLength"]


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether a request is one of the share that is made."""
    request = f"{SEED} {case.method} {case.path} {case.query} {case.body}"
    return crc32(request.encode("utf-8", "surrogatepass")) % SHARE == 0


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether a failure is one."""
    if isinstance(failure, RejectedPositiveData):
        return not PARTLY_READ.search(case.path) and any(_unsaid(response.json()))
    if isinstance(failure, AcceptedNegativeData):
        return not PARTLY_READ.search(case.path) and not _is_other_form(case)
    return True


def _unsaid(error: Mapping[str, Any]) -> Iterator[str]:
    """The reasons of a refusal that the description could have given."""
    if error["code"] != "invalid_argument":
        return
    violations = [each for detail in error["details"] for each in detail["debug"].get("fieldViolations", ())]
    for each in violations or [{"field": "", "description": error["message"]}]:
        said = f"{each['field']}: {each['description']}"
        if not any(re.search(pattern, said) for pattern in BEYOND_THE_SCHEMA):
            yield said


def _is_other_form(case: Any) -> bool:
    """Whether the request is another form of one that is allowed, which protobuf's JSON obliges a server to read.

    Numbers may be in quotes, enums may be numbers, and null is the same as leaving a field out.
    """
    body = case.operation.get_body_for_media_type(case.media_type) if case.media_type else None
    if body is None:
        return False
    validator = make_validator(_lenient(body.optimized_schema), case.operation.schema.adapter.jsonschema_validator_cls)
    return bool(validator.is_valid(_without_null(case.body)))


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _lenient(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lenient(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: each if key in ("required", "enum", "const") else _lenient(each) for key, each in schema.items()}
    forms: list[dict[str, Any]] = [{"type": "null"}]
    if schema.get("type") in ("integer", "number") or schema.get("type") in (["integer", "null"], ["number", "null"]):
        forms.append({"type": "string", "pattern": r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$"})
    if all(isinstance(each, str) and each.isupper() for each in schema.get("enum", (0,))):
        forms.append({"type": "integer"})
    return {"anyOf": [inner, *forms]} if "type" in schema and isinstance(schema["type"], str | list) else inner
