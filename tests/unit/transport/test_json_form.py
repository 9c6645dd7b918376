"""JSON requests: what is wrong with one is said by field."""

import json
from typing import Any

import pytest
from mnemon.v1 import facts_pb2, memory_pb2
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http import json_form

Create = memory_pb2.CreateMemoryRequest


async def violations(value: Any, kind: Any = Create) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as raised:
        await json_form.message_of(kind, json.dumps(value).encode())
    return {each.field: each.description for each in raised.value.violations}


async def test_names_are_taken_as_json_and_as_the_proto_spells_them() -> None:
    for name in ("memoryId", "memory_id"):
        text = json.dumps({"memory": {name: "m"}}).encode()
        assert (await json_form.message_of(Create, text)) == Create(memory=memory_pb2.Memory(memory_id="m"))


async def test_every_unknown_field_is_named_with_its_place_and_what_is_known_there() -> None:
    found = await violations({"memory": {"contents": "x", "scope": {"userId": "u"}}, "nothing": None})
    assert set(found) == {"memory.contents", "memory.scope.userId", "nothing"}
    assert "household" in found["memory.scope.userId"]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"memory": {"content": 5}}, "memory.content", "a text"),
        ({"memory": {"content": "\ud800"}}, "memory.content", "a text"),
        ({"memory": {"isGlobal": "yes"}}, "memory.is_global", "true or false"),
        ({"memory": {"revision": 1.5}}, "memory.revision", "a whole number"),
        ({"memory": {"confidence": "much"}}, "memory.confidence", "a number"),
        ({"memory": {"createTime": "today"}}, "memory.create_time", "a time such as"),
        ({"memory": {"decayPolicy": "SOON"}}, "memory.decay_policy", "one of DECAY_POLICY_STABLE"),
        ({"memory": {"scope": "ada"}}, "memory.scope", "an object"),
        ({"memory": {"metadata": []}}, "memory.metadata", "an object"),
        ({"memory": {"metadata": {"a": 1}}}, "memory.metadata.a", "an object"),
        ({"memory": {"metadata": {"a": {"stringValue": 1}}}}, "memory.metadata.a.string_value", "a text"),
        ({"memory": {"embeddings": {}}}, "memory.embeddings", "a list"),
        ({"memory": {"embeddings": [{"values": ["x"]}]}}, "memory.embeddings[0].values[0]", "a number"),
    ],
)
async def test_a_value_of_another_type_is_refused_with_what_is_expected(value: Any, field: str, expected: str) -> None:
    [(named, said)] = (await violations(value)).items()
    assert (named, said.startswith(f"must be {expected}")) == (field, True), said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "empty"),
        (b"[]", "must be a JSON object"),
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"a":' * 5000, "not JSON"),
        (b'{"request_id": "a", "request_id": "b"}', "duplicate"),
        (b'{"embedding": [' + b"0," * 140_000 + b"0]}", "more than 131,072 values"),
        (b'{"a":"' + b'\\"' * 500_000, "not JSON"),
        (b"[," * 20_000, "not JSON"),
    ],
)
async def test_what_is_no_json_object_is_refused(text: bytes, expected: str) -> None:
    with pytest.raises(MalformedMessageError, match=expected):
        await json_form.message_of(Create, text)


async def test_commas_of_a_text_are_no_values() -> None:
    for text in ("a, b" * 200_000, 'say "a, b", ' * 100_000):
        message: Any = await json_form.message_of(Create, json.dumps({"memory": {"content": text}}).encode())
        assert message.memory.content == text


async def test_of_very_many_faults_some_are_named() -> None:
    assert len(await violations({f"field{number}": 1 for number in range(100_000)})) == 100
    nearly = [0.5] * 50_000
    with pytest.raises(MalformedMessageError, match="embedding"):
        await json_form.message_of(Create, json.dumps({"embedding": [*nearly, "x"]}).encode())


async def test_objects_may_have_any_members_and_large_ones_are_read_as_well() -> None:
    value = {"fact": {"key": "k", "value": {"any": [{"thing": 1}] * 5000}}}
    message: Any = await json_form.message_of(facts_pb2.PutFactRequest, json.dumps(value).encode())
    assert len(message.fact.value["any"]) == 5000
    text = await json_form.text_of(message, message.ByteSize())
    assert json.loads(text) == value
    assert b"\n" not in text
