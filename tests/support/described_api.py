"""The OpenAPI document as a client sees it: checks what it says about messages."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

_ADDRESS = "urn:openapi"


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


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _closed(each) for key, each in value.items()}
    is_object = isinstance(value.get("properties"), dict) and value.get("type") == "object"
    return {**inner, "additionalProperties": False} if is_object else inner
