"""Schemas of arguments: what they refuse, which schemas are invalid, and conversion of texts to the schema's types."""

import socket
from typing import Any

import pytest
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.services.tools.argument_schema import ArgumentSchema, UnsupportedSchemaError

ORDER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.25},
        "unit": {"enum": ["celsius", "kelvin"]},
        "kind": {"const": "forecast"},
        "daily": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        "place": {
            "type": "object",
            "properties": {"lat": {"$ref": "#/$defs/degrees"}, "names": {"type": "array", "items": {"type": "string"}}},
            "required": ["lat"],
            "additionalProperties": False,
        },
        "limit": {"anyOf": [{"type": "integer", "maximum": 10}, {"type": "null"}]},
        "code": {"type": ["string", "null"]},
        "never": False,
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"degrees": {"type": "number", "minimum": -90}},
}
CITY = {"city": "rome"}


def wrong(arguments: dict[str, Any], schema: dict[str, Any] = ORDER) -> list[tuple[str, str]]:
    with pytest.raises(InvalidArgumentError) as caught:
        ArgumentSchema(schema).check(arguments)
    return [(violation.field, violation.description) for violation in caught.value.violations]


def refused(schema: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        ArgumentSchema(schema)
    return str(caught.value)


def test_valid_arguments_pass() -> None:
    place = {"lat": -12.5, "names": ["Roma"]}
    rest = {"days": 14, "share": 0.5, "unit": "kelvin", "kind": "forecast", "daily": True, "tags": ["a"], "limit": None}
    ArgumentSchema(ORDER).check({**CITY, **rest, "place": place, "code": None})


@pytest.mark.parametrize(
    ("argument", "field", "description"),
    [
        ({"city": 5}, "city", "must be text"),
        ({"city": "r"}, "city", "must have at least 2 characters"),
        ({"city": "romeee"}, "city", "must have at most 5 characters"),
        ({"city": "R m"}, "city", 'must match the pattern "^[a-z]+$"'),
        ({"days": "5"}, "days", "must be a whole number"),
        ({"days": 1.5}, "days", "must be a whole number"),
        ({"days": True}, "days", "must be a whole number"),
        ({"days": 0}, "days", "must be at least 1"),
        ({"days": 15}, "days", "must be at most 14"),
        ({"share": 0}, "share", "must be more than 0"),
        ({"share": 1}, "share", "must be less than 1"),
        ({"share": 0.3}, "share", "must be a multiple of 0.25"),
        ({"unit": "rankine"}, "unit", 'must be one of "celsius", "kelvin"'),
        ({"kind": "past"}, "kind", 'must be "forecast"'),
        ({"daily": "true"}, "daily", "must be true or false"),
        ({"tags": []}, "tags", "must have at least 1 items"),
        ({"tags": ["a", "b", "c"]}, "tags", "must have at most 2 items"),
        ({"tags": ["a", "a"]}, "tags", "must not have the same item twice"),
        ({"tags": ["a", 2]}, "tags[1]", "must be text"),
        ({"place": {}}, "place.lat", "must be given"),
        ({"place": {"lat": -91}}, "place.lat", "must be at least -90"),
        ({"place": {"lat": 1, "names": ["x", None]}}, "place.names[1]", "must be text"),
        ({"place": {"lat": 1, "lon": 2}}, "place.lon", "is not a known name; known names: 'lat', 'names'"),
        ({"limit": 11}, "limit", "must satisfy 'anyOf' of the tool's schema: "),
        ({"code": 7}, "code", "must be text or null"),
        ({"never": 1}, "arguments", "must not have something that the tool's schema always forbids"),
    ],
)
def test_a_wrong_argument_is_named_with_the_valid_values(
    argument: dict[str, Any], field: str, description: str
) -> None:
    ((named, said),) = wrong({**CITY, **argument})
    assert named == field
    assert said == description or (description.endswith("schema: ") and said.startswith(description))


def test_a_missing_argument_is_named() -> None:
    assert wrong({}) == [("city", "must be given")]


def test_an_unknown_argument_is_named_with_the_known_ones() -> None:
    ((field, description),) = wrong({**CITY, "town": "x"})
    assert field == "town"
    assert description.startswith("is not a known name; known names: 'city', 'days',")


def test_all_wrong_arguments_are_named_up_to_twenty() -> None:
    assert [field for field, _ in wrong({"days": 0, "unit": 1})] == ["days", "unit", "city"]
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert len(wrong({f"a{number}": "x" for number in range(100)}, schema)) == 20
    assert len(wrong({f"a{number}": 1 for number in range(100)}, ORDER)) == 20


def test_the_value_of_an_argument_is_not_repeated() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ArgumentSchema(ORDER).check({"city": "s3cret-value", "unit": "s3cret-value", "days": "s3cret-value"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\x00b", 2**64, 2**53 + 1, b"x"])
def test_values_that_are_not_json_are_refused_even_without_a_schema(value: Any) -> None:
    schema = ArgumentSchema({"type": "object"})
    schema.check({"any": [[[]]]})
    with pytest.raises(InvalidArgumentError, match=r"^arguments\.any\[1\]: "):
        schema.check({"any": [1, value]})


def test_arguments_beyond_a_mebibyte_or_32_levels_are_refused() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    schema = {"type": "object"}
    assert wrong({"any": deep}, schema) == [("arguments", "must be at most 32 levels deep")]
    assert wrong({"any": "x" * (1 << 20)}, schema) == [
        ("arguments", "must be at most 1,048,576 bytes as JSON in UTF-8")
    ]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, 'parameters.type: must be "object": a tool is called with named arguments'),
        ({"type": "array"}, 'parameters.type: must be "object": a tool is called with named arguments'),
        ({"type": "thing"}, "parameters.type: "),
        ({"type": "object", "properties": []}, "parameters.properties: must be an object"),
        (
            {"type": "object", "properties": {"a": {"type": "int"}}},
            'parameters.properties.a.type: must be one of "array", "boolean", "integer"',
        ),
        (
            {"type": "object", "properties": {"a": {"pattern": "("}}},
            "parameters.properties.a.pattern: must be a valid regular",
        ),
        ({"type": "object", "required": "city"}, "parameters.required: must be a list"),
        (
            {"type": "object", "properties": {"a": {"minimum": float("nan")}}},
            "parameters.properties.a.minimum: must be a finite number",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "parameters: refers to 'https://example.com/a.json', which is not in the schema; nothing is fetched",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
            "parameters: refers to 'file:///etc/passwd', which is not in the schema; nothing is fetched",
        ),
        (
            {"type": "object", "properties": {"a": {"items": {"$ref": "#/$defs/none"}}}},
            "parameters: refers to '#/$defs/none', which is not in the schema; nothing is fetched",
        ),
        ({"type": "object", "$ref": "#"}, "parameters: refers to itself in an endless loop"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_valid_values(schema: dict[str, Any], said: str) -> None:
    assert refused(schema).startswith(said)


def test_a_reference_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *args: asked.append(args))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **_: asked.append(args))
    refused({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}})
    assert asked == []


def test_a_schema_may_refer_to_itself_if_that_ends() -> None:
    schema = ArgumentSchema(
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}},
        }
    )
    schema.check({"tree": {"left": {"left": {}}}})
    with pytest.raises(InvalidArgumentError, match=r"tree\.left\.left: must be an object"):
        schema.check({"tree": {"left": {"left": 3}}})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("city", "12", "12"),
        ("city", "true", "true"),
        ("days", "5", 5),
        ("days", " 5 ", 5),
        ("days", "50", 50),
        ("days", "five", "five"),
        ("days", "5.5", "5.5"),
        ("days", "99999999999999999999", "99999999999999999999"),
        ("share", "0.25", 0.25),
        ("share", "NaN", "NaN"),
        ("daily", "true", True),
        ("daily", "False", False),
        ("daily", "yes", "yes"),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", "a, b", "a, b"),
        ("tags", '{"a": 1}', '{"a": 1}'),
        ("place", '{"lat": 3}', {"lat": 3}),
        ("place", '{"lat": 3', '{"lat": 3'),
        ("place", '{"lat": 3, "lat": 4}', '{"lat": 3, "lat": 4}'),
        ("limit", "7", 7),
        ("limit", "null", None),
        ("code", "null", "null"),
        ("unknown", "5", "5"),
    ],
)
def test_a_text_is_converted_to_the_schemas_type_or_stays(name: str, text: str, value: Any) -> None:
    read = ArgumentSchema(ORDER).from_texts({name: text})
    assert read == {name: value}
    assert type(read[name]) is type(value)


def test_a_converted_text_is_checked_by_its_value() -> None:
    schema = ArgumentSchema(ORDER)
    read = schema.from_texts({"city": "rome", "days": "50", "place": '{"lat": "x"}'})
    assert wrong(read) == [("days", "must be at most 14"), ("place.lat", "must be a number")]


def test_the_names_of_the_arguments_are_known() -> None:
    assert ArgumentSchema(ORDER).names[:2] == ("city", "days")
    assert ArgumentSchema({"type": "object"}).names == ()


def offering(**keywords: Any) -> ArgumentSchema:
    return ArgumentSchema({"type": "object", **keywords})


@pytest.mark.parametrize(
    "keywords",
    [
        {"properties": {"a": {"pattern": "^(x+)+$"}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#/elsewhere"}}, "elsewhere": {"pattern": "^(x+)+$"}},
        {"patternProperties": {"^(x+)+$": {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {"^(x+)+$": {}}, "additionalProperties": {"type": "integer"}},
        {"propertyNames": {"pattern": "^(x+)+$"}},
    ],
)
def test_no_text_makes_a_pattern_slow(keywords: dict[str, Any]) -> None:
    # A backtracking matcher would not finish.
    slow = "x" * 10_000 + "!"
    with pytest.raises(InvalidArgumentError):
        offering(**keywords).check({"a": slow} if "properties" in keywords else {slow: "text"})


@pytest.mark.parametrize(
    ("pattern", "text", "no_match"),
    [
        ("b", "abc", "ac"),
        (r"^\u00e9\u{1F600}\uD83D\uDE00$", "é😀😀", "e"),
        (r"^\\u00e9$", r"\u00e9", "é"),
        (r"^\cJ\/\-$", "\n/-", "J/-"),
        ("^a$", "a", "a\n"),
        (r"^\p{L}+$", "Ünïcode", "5"),
    ],
)
def test_patterns_are_those_of_json_schema(pattern: str, text: str, no_match: str) -> None:
    schema = offering(properties={"a": {"pattern": pattern}})
    schema.check({"a": text})
    with pytest.raises(InvalidArgumentError):
        schema.check({"a": no_match})


def test_a_name_without_letters_is_unknown_too() -> None:
    with pytest.raises(InvalidArgumentError):
        offering(additionalProperties=False).check({"": 1})


def test_names_matching_a_pattern_are_checked_against_their_own_schema() -> None:
    schema = offering(
        patternProperties={"^n_": {"type": "integer"}, "^t_": {"pattern": "b"}}, additionalProperties=False
    )
    schema.check({"n_a": 5, "t_a": "abc"})
    with pytest.raises(InvalidArgumentError) as caught:
        schema.check({"n_a": "5", "t_a": "a", "other": 1})
    assert sorted(violation.field for violation in caught.value.violations) == ["n_a", "other", "t_a"]


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"properties": {"a": {"pattern": "(?=x)"}}}, r"the pattern '\(\?=x\)' cannot be used here: invalid perl"),
        ({"patternProperties": {r"(x)\1": {}}}, "cannot be used here: invalid escape sequence"),
        ({"elsewhere": {"pattern": "(?!x)"}}, "cannot be used here"),
        ({"patternProperties": {"x": {}}, "allOf": [{"unevaluatedProperties": False}]}, "in one schema"),
        (
            {"$defs": {"old": {"$id": "urn:old", "$schema": "http://json-schema.org/draft-07/schema#"}}},
            "at the top level of a schema",
        ),
    ],
)
def test_a_schema_of_unbounded_cost_is_not_supported(keywords: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=reason):
        offering(**keywords)
