"""The JSON schema of a tool's arguments: checks the schema itself, and arguments against it."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import re2
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

# Matches the regular expressions of an operator's schema, always in time linear in the length of the text.


_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|u\{(?P<any>[0-9a-fA-F]{1,6})\}|c(?P<control>[A-Za-z])|.)",
    re.DOTALL,
)


class UnsupportedPatternError(ValueError):
    """RE2 does not support the expression; the message says why."""


def matches(pattern: str, text: str) -> bool:
    """Whether a regular expression of a JSON schema matches anywhere in a text. Raises UnsupportedPatternError."""
    return compiled(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """The compiled expression. Raises UnsupportedPatternError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_ESCAPE.sub(_escape_of_re2, pattern), options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "it is not Unicode"
        raise UnsupportedPatternError(f"the pattern {pattern[:120]!r} cannot be used here: {reason}") from error


def _escape_of_re2(escape: re.Match[str]) -> str:
    """Translates an escape of ECMA-262 to the syntax of RE2. Escapes that both share are unchanged."""
    if escape["high"]:
        code = 0x10000 + ((int(escape["high"], 16) & 0x3FF) << 10) + (int(escape["low"], 16) & 0x3FF)
        return f"\\x{{{code:x}}}"
    if digits := escape["four"] or escape["any"]:
        return f"\\x{{{digits}}}"
    return f"\\x{ord(escape['control']) % 32:02x}" if escape["control"] else escape[0]


VIOLATIONS_MAX = 20
ARGUMENTS, PARAMETERS = "arguments", "parameters"
"""The fields of violations that concern the arguments as a whole, or the schema."""

_SHOWN_CHARACTERS, _NAMES_SHOWN = 120, 20


class UnsupportedSchemaError(ValueError):
    """A valid JSON schema that this server does not support; the message says why."""


class ArgumentSchema:
    """A JSON schema (draft 2020-12) of type object. References are never fetched.

    Its regular expressions are matched by RE2; see `patterns.py`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Checks the schema.

        Raises:
            InvalidArgumentError: it is not a valid schema, or refers to something outside of it.
            UnsupportedSchemaError: it is valid, but uses features that this server does not support.
        """
        self._schema = dict(schema)
        refuse(value_violations(self._schema, PARAMETERS))
        refuse(_schema_violations(self._schema))
        _check_support(self._schema)
        self._validator = _Validator(self._schema, registry=Registry())
        _try(self._validator)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, in the order of the schema."""
        return tuple(_properties(self._schema))

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises InvalidArgumentError with up to 20 violations, each with the path of its argument."""
        value = dict(arguments)
        refuse(value_violations(value, ARGUMENTS))
        found = [violation for error in self._errors(value) for violation in _violations(error)]
        refuse(islice(dict.fromkeys(found), VIOLATIONS_MAX))

    def from_texts(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Converts arguments that are all texts to the types of the schema: "5" becomes 5, JSON becomes an object.

        A text that is valid as it is stays a text. One that cannot be converted stays, too, and fails the check later.
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
    """The JSON value of a text, or the text if it is not JSON; `True` and `None` are accepted in any case."""
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
        for violation in _violations(_clearest(error)):
            yield FieldViolation(_joined(PARAMETERS, violation.field), violation.description)
    else:
        resource = DRAFT202012.create_resource(schema)
        yield from _reference_violations(REGISTRY.resolver_with_root(resource), resource)


def _check_support(schema: Mapping[str, Any]) -> None:
    """Raises UnsupportedSchemaError if RE2 does not support an expression, or if something else would match it."""
    parts = list(_objects(schema))
    patterns = [pattern for part in parts for pattern in _mapping(part, "patternProperties")]
    try:
        for pattern in (*patterns, *(part["pattern"] for part in parts if isinstance(part.get("pattern"), str))):
            compiled(pattern)
    except UnsupportedPatternError as error:
        raise UnsupportedSchemaError(str(error)) from error
    # For unevaluatedProperties, jsonschema matches the patterns itself, with `re`.
    if patterns and any("unevaluatedProperties" in part for part in parts):
        raise UnsupportedSchemaError("unevaluatedProperties and patternProperties cannot be used in one schema here")
    # An inner $schema would select another validator, which does not use RE2.
    if any(isinstance(part.get("$schema"), str) for part in parts[1:]):
        raise UnsupportedSchemaError("$schema can only be used at the top level of a schema")


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a JSON value, beginning with the value itself: a reference may use any of them as a schema."""
    if isinstance(value, Mapping):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _objects(item)


def _clearest(error: SchemaError) -> SchemaError | ValidationError:
    """The error with the clearest message: if no alternative of a choice matches, the one that lists names."""
    return next((each for each in error.context or () if each.validator == "enum"), error)


def _reference_violations(resolver: Any, resource: Resource[Any]) -> Iterator[FieldViolation]:
    """Yields a violation for every reference to something that is not in the schema."""
    contents = resource.contents if isinstance(resource.contents, dict) else {}
    for reference in (contents.get("$ref"), contents.get("$dynamicRef")):
        if isinstance(reference, str) and not _exists(resolver, reference):
            shown = reference[:_SHOWN_CHARACTERS]
            yield FieldViolation(PARAMETERS, f"refers to {shown!r}, which is not in the schema; nothing is fetched")
    for inner in resource.subresources():
        yield from _reference_violations(resolver.in_subresource(inner), inner)


def _exists(resolver: Any, reference: str) -> bool:
    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True


def _try(validator: Draft202012Validator) -> None:
    try:
        validator.is_valid({})
    except RecursionError:
        raise InvalidArgumentError.of(PARAMETERS, "refers to itself in an endless loop") from None


def _violations(error: ValidationError | SchemaError) -> Iterator[FieldViolation]:
    """Violations in an argument, with what would be valid; they never show the argument's value."""
    path = _path(error.absolute_path)
    match error.validator:
        case "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield FieldViolation(_joined(path, name), "must be given")
        case "additionalProperties":
            known = ", ".join(map(repr, islice(_properties(error.schema), _NAMES_SHOWN))) or "none"
            for name in _additional(error.instance, error.schema):
                yield FieldViolation(_joined(path, name), f"is not a known name; known names: {known}")
        case str() as keyword:
            describe = _DESCRIPTIONS.get(keyword, partial(_other, keyword))
            yield FieldViolation(path or ARGUMENTS, describe(error.validator_value))
        case _:
            yield FieldViolation(path or ARGUMENTS, "must not have something that the tool's schema always forbids")


def _additional(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """The names that match neither `properties` nor `patternProperties`."""
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
        yield ValidationError("there are unknown names")
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
"""Draft 2020-12, but all keywords with regular expressions are implemented here, with RE2."""


def _is_expression(text: Any) -> bool:
    """Whether a pattern is a regular expression, even if RE2 does not support it; re.error if `re` does not, either."""
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
    return f"must satisfy {keyword!r} of the tool's schema: {_shown(value)}"


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
