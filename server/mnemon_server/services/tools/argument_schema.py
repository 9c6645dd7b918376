"""The JSON schema of a tool's arguments: checked itself, and what arguments are checked against."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.facts import value_violations
from mnemon_server.domain.validation import refuse
from mnemon_server.services.protocols.json_values import UnsafeJsonError, read_json
from mnemon_server.services.tools.patterns import UnsupportedPatternError, compiled, matches

VIOLATIONS_MAX = 20
ARGUMENTS, PARAMETERS = "arguments", "parameters"
"""The fields of what is wrong with all arguments together, and with the schema."""

_SHOWN_CHARACTERS, _NAMES_SHOWN = 120, 20


class UnsupportedSchemaError(ValueError):
    """It is a JSON schema, but arguments could not be checked against it in bounded time; the message says why."""


class ArgumentSchema:
    """A JSON schema (draft 2020-12) of type object. Nothing that it refers to is ever fetched.

    Its regular expressions run on RE2, see `patterns.py`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Takes a schema.

        Raises:
            InvalidArgumentError: it is no such schema, or refers to what is not in it.
            UnsupportedSchemaError: it is one, but this server does not offer what it asks for.
        """
        self._schema = dict(schema)
        refuse(value_violations(self._schema, PARAMETERS))
        refuse(_schema_violations(self._schema))
        _check_support(self._schema)
        self._validator = _Validator(self._schema, registry=Registry())
        _try(self._validator)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it names, in its order."""
        return tuple(_properties(self._schema))

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError with up to 20 violations, each with the path of its argument."""
        value = dict(arguments)
        refuse(value_violations(value, ARGUMENTS))
        found = [violation for error in self._errors(value) for violation in _violations(error)]
        refuse(islice(dict.fromkeys(found), VIOLATIONS_MAX))

    def from_texts(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a protocol whose values are all texts, as what the schema wants: "5" as 5, JSON as an object.

        A text that fits stays a text; one that cannot be read as what is wanted does, too, and will not pass the check.
        """
        properties = _properties(self._schema)
        return {
            name: self._from_text(value, properties[name]) if name in properties and isinstance(value, str) else value
            for name, value in texts.items()
        }

    def _from_text(self, text: str, schema: Any) -> Any:
        validator = self._validator.evolve(schema=schema)
        if validator.is_valid(text):
            return text
        value = _read(text)
        wrong_type = any(error.validator == "type" and not error.path for error in validator.iter_errors(value))
        return text if wrong_type else value

    def _errors(self, value: Any) -> Iterator[ValidationError]:
        try:
            yield from islice(self._validator.iter_errors(value), VIOLATIONS_MAX)
        except RecursionError:
            raise InvalidArgumentError.of(ARGUMENTS, "are nested too deeply for the tool's schema") from None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(schema, "properties")


def _mapping(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, Mapping) else {}


def _read(text: str) -> Any:
    """What a text says as JSON, with the literals of other languages; the text itself where it says nothing."""
    lowered = text.lower()
    try:
        return read_json(lowered if lowered in ("true", "false", "null") else text)
    except (UnsafeJsonError, json.JSONDecodeError):
        return text


def _schema_violations(schema: Mapping[str, Any]) -> Iterator[FieldViolation]:
    if schema.get("type") != "object":
        yield FieldViolation(f"{PARAMETERS}.type", 'must be "object": a tool is called with named arguments')
    try:
        Draft202012Validator.check_schema(schema, format_checker=_FORMATS)
    except SchemaError as error:
        for violation in _violations(_most_telling(error)):
            yield FieldViolation(_joined(PARAMETERS, violation.field), violation.description)
    else:
        resource = DRAFT202012.create_resource(schema)
        yield from _reference_violations(REGISTRY.resolver_with_root(resource), resource)


def _check_support(schema: Mapping[str, Any]) -> None:
    """Raises UnsupportedSchemaError where an expression is none of RE2's, or would be matched by something else."""
    parts = list(_objects(schema))
    patterns = [pattern for part in parts for pattern in _mapping(part, "patternProperties")]
    try:
        for pattern in (*patterns, *(part["pattern"] for part in parts if isinstance(part.get("pattern"), str))):
            compiled(pattern)
    except UnsupportedPatternError as error:
        raise UnsupportedSchemaError(str(error)) from error
    # What is evaluated, jsonschema finds out by itself, and with `re`.
    if patterns and any("unevaluatedProperties" in part for part in parts):
        raise UnsupportedSchemaError("unevaluatedProperties and patternProperties cannot be used in one schema here")
    # Another draft would be checked by a validator of its own.
    if any(isinstance(part.get("$schema"), str) for part in parts[1:]):
        raise UnsupportedSchemaError("$schema can be used at the top of a schema only")


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects of a JSON value, itself first: a reference may lead to any of them as a schema."""
    if isinstance(value, Mapping):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _objects(item)


def _most_telling(error: SchemaError) -> SchemaError | ValidationError:
    """Of a choice that nothing fits, such as that of types, the one that lists names."""
    return next((each for each in error.context or () if each.validator == "enum"), error)


def _reference_violations(resolver: Any, resource: Resource[Any]) -> Iterator[FieldViolation]:
    """Every reference that leads out of the schema, or to nothing in it."""
    contents = resource.contents if isinstance(resource.contents, dict) else {}
    for reference in (contents.get("$ref"), contents.get("$dynamicRef")):
        if isinstance(reference, str) and not _is_there(resolver, reference):
            shown = reference[:_SHOWN_CHARACTERS]
            yield FieldViolation(PARAMETERS, f"refers to {shown!r}, which is not in the schema; nothing is fetched")
    for inner in resource.subresources():
        yield from _reference_violations(resolver.in_subresource(inner), inner)


def _is_there(resolver: Any, reference: str) -> bool:
    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True


def _try(validator: Draft202012Validator) -> None:
    try:
        validator.is_valid({})
    except RecursionError:
        raise InvalidArgumentError.of(PARAMETERS, "refers to itself without end") from None


def _violations(error: ValidationError | SchemaError) -> Iterator[FieldViolation]:
    """What is wrong with an argument and what would be right; its value is never shown."""
    path = _path(error.absolute_path)
    match error.validator:
        case "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield FieldViolation(_joined(path, name), "must be given")
        case "additionalProperties":
            known = ", ".join(map(repr, islice(_properties(error.schema), _NAMES_SHOWN))) or "none"
            for name in _additional(error.instance, error.schema):
                yield FieldViolation(_joined(path, name), f"is not known here; known are {known}")
        case str() as keyword:
            describe = _DESCRIPTIONS.get(keyword, partial(_other, keyword))
            yield FieldViolation(path or ARGUMENTS, describe(error.validator_value))
        case _:
            yield FieldViolation(path or ARGUMENTS, "must not hold what the tool's schema never allows")


def _additional(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The names that neither `properties` nor `patternProperties` speaks of."""
    known, patterns = _properties(schema), _mapping(schema, "patternProperties")
    for name in instance:
        if name not in known and not any(matches(pattern, name) for pattern in patterns):
            yield name


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError("the text does not match")


def _pattern_properties(validator: Any, schemas: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, schema in schemas.items():
            for name, value in instance.items():
                if matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    if allowed is False and next(_additional(instance, schema), None) is not None:
        yield ValidationError("there are names that are not known")
    elif isinstance(allowed, dict):
        for name in _additional(instance, schema):
            yield from validator.descend(instance[name], allowed, path=name)


_Validator = extend(
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
"""Draft 2020-12, with every keyword that matches an expression here rather than in jsonschema."""


def _is_expression(text: Any) -> bool:
    """Whether a pattern is a regular expression at all, if not of a kind that RE2 takes."""
    try:
        return not isinstance(text, str) or compiled(text) is not None
    except UnsupportedPatternError:
        return re.compile(text) is not None


_FORMATS = FormatChecker(())
_FORMATS.checkers = {**Draft202012Validator.FORMAT_CHECKER.checkers, "regex": (_is_expression, re.error)}


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else _joined(path, part)
    return path


def _joined(path: str, name: str) -> str:
    return f"{path}.{name[:_SHOWN_CHARACTERS]}" if path else name[:_SHOWN_CHARACTERS]


_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def _typed(types: str | list[str]) -> str:
    named = [types] if isinstance(types, str) else types
    return "must be " + " or ".join(_TYPES.get(name, name) for name in named)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _one_of(values: list[Any]) -> str:
    text = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
    return "must be one of " + (text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def _other(keyword: str, value: Any) -> str:
    return f"must be as {keyword!r} of the tool's schema says: {_shown(value)}"


_DESCRIPTIONS: Mapping[str, Callable[[Any], str]] = {
    "type": _typed,
    "enum": _one_of,
    "const": lambda value: f"must be {_shown(value)}",
    "minimum": lambda bound: f"must be at least {bound}",
    "maximum": lambda bound: f"must be at most {bound}",
    "exclusiveMinimum": lambda bound: f"must be more than {bound}",
    "exclusiveMaximum": lambda bound: f"must be less than {bound}",
    "multipleOf": lambda unit: f"must be a multiple of {unit}",
    "minLength": lambda count: f"must have at least {count} characters",
    "maxLength": lambda count: f"must have at most {count} characters",
    "pattern": lambda pattern: f"must match the pattern {_shown(pattern)}",
    "format": lambda name: f"must be a valid {'regular expression' if name == 'regex' else name}",
    "minItems": lambda count: f"must have at least {count} items",
    "maxItems": lambda count: f"must have at most {count} items",
    "uniqueItems": lambda _: "must not have the same item twice",
}
