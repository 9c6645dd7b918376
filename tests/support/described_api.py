"""The OpenAPI document as a client sees it: checks what it says about messages, and makes requests from it."""

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

_ADDRESS = "urn:openapi"
DEPTH_MAX = 4
TEXTS = ("", "ada", "a b", "42", "metadata.a", "create_time", "2026-01-31T12:00:00Z")
NUMBERS = (0, 1, -1, 2.5, 100)
_BY_FORMAT: Mapping[str, tuple[Any, ...]] = {
    "date-time": ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456+01:00"),
    "int32": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "int64": ("0", "1", "-1", "9223372036854775807"),
}


class DescribedApi:
    """The document, as it is served."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Reads the document, and closes it: what it does not name is wrong here, though clients must tolerate it."""
        self.document = document
        self._closed = DRAFT202012.create_resource(_closed(document))
        self._given = DRAFT202012.create_resource(document)

    def operation(self, path: str) -> dict[str, Any]:
        """What it says about a method."""
        found: dict[str, Any] = self.document["paths"][path]["post"]
        return found

    def complaints(self, pointer: str, value: Any, *, closed: bool = True) -> list[str]:
        """How a value differs from the schema at a JSON pointer."""
        found = self._validator(pointer, closed=closed).iter_errors(value)
        return [f"{each.json_path}: {each.message}"[:500] for each in found]

    @cache  # noqa: B019 - lives as long as the test
    def _validator(self, pointer: str, *, closed: bool) -> Draft202012Validator:
        registry = Registry().with_resource(_ADDRESS, self._closed if closed else self._given)
        return Draft202012Validator(
            {"$ref": f"{_ADDRESS}#{pointer}"}, registry=registry, format_checker=FormatChecker(["date-time"])
        )

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema, or the one that it refers to."""
        for key in schema.get("$ref", "#/").split("/")[1:]:
            schema = schema[key] if key in schema else self._part(schema, key)
        return schema

    def _part(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.document[key] if key else schema
        return found


class Requests:
    """Requests made from the schemas alone, from a seed."""

    def __init__(self, api: DescribedApi, seed: int) -> None:
        self._api = api
        self._random = random.Random(seed)

    def of(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """A value that a schema allows."""
        schema = self._api.resolved(schema)
        choose = self._random.choice
        kind = schema.get("type")
        match choose(kind) if isinstance(kind, list) else kind:
            case "object" if "properties" in schema:
                return self._object(schema, depth)
            case "object":
                inner = schema["additionalProperties"]
                return {} if inner is True or depth > DEPTH_MAX else {"key": self.of(inner, depth + 1)}
            case "array":
                return [] if depth > DEPTH_MAX else [self.of(schema["items"], depth + 1) for _ in range(choose((1, 2)))]
            case "boolean":
                return choose((True, False))
            case "integer":
                return int(choose(_BY_FORMAT[schema["format"]]))
            case "number":
                return choose(NUMBERS)
            case "string":
                return self._text(schema)
        return choose((None, 1, "a", [1], {"a": True}))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        excluded = [set(each["required"]) for each in schema.get("not", {}).get("anyOf", ())]
        chosen: dict[str, Any] = {}
        names = list(schema["properties"])
        self._random.shuffle(names)
        for name in sorted(names, key=lambda each: each not in schema.get("required", ())):
            needed = name in schema.get("required", ())
            clashes = any(name in pair and pair - {name} <= chosen.keys() for pair in excluded)
            if needed or (not clashes and depth <= DEPTH_MAX and self._random.random() < 0.5):
                chosen[name] = self.of(schema["properties"][name], depth + 1)
        return chosen

    def _text(self, schema: dict[str, Any]) -> str:
        if "enum" in schema or "examples" in schema:
            return str(self._random.choice(schema.get("enum") or schema["examples"]))
        if "contentEncoding" in schema:
            return "AAAA"
        return str(self._random.choice(_BY_FORMAT.get(schema.get("format", ""), TEXTS)))


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _closed(each) for key, each in value.items()}
    is_object = isinstance(value.get("properties"), dict) and value.get("type") == "object"
    return {**inner, "additionalProperties": False} if is_object else inner
