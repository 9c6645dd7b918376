"""JSON requests: what is wrong with one is said by field, and how large they may be."""

import json
import tracemalloc
from typing import Any

import pytest
from google.protobuf import json_format
from mnemon.v1 import facts_pb2, memory_pb2
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.namespaces import LABELS_MAX
from mnemon_server.transport.convert.shared.slices import merge
from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.json_request import VALUES_MAX, object_of, request_bytes

Create, Put = memory_pb2.CreateMemoryRequest, facts_pb2.PutFactRequest


def message_of(kind: Any, text: bytes) -> Any:
    """The message that a text describes."""
    return kind.FromString(request_bytes(kind, text))


def violations(value: Any, kind: Any = Create) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as raised:
        message_of(kind, json.dumps(value).encode())
    return {each.field: each.description for each in raised.value.violations}


def test_names_are_taken_as_json_and_as_the_proto_spells_them() -> None:
    for name in ("memoryId", "memory_id"):
        text = json.dumps({"memory": {name: "m"}}).encode()
        assert message_of(Create, text) == Create(memory=memory_pb2.Memory(memory_id="m"))


def test_every_unknown_field_is_named_with_its_place_and_what_is_known_there() -> None:
    found = violations({"memory": {"contents": "x", "scope": {"userId": "u"}}, "nothing": None})
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
def test_a_value_of_another_type_is_refused_with_what_is_expected(value: Any, field: str, expected: str) -> None:
    [(named, said)] = violations(value).items()
    assert (named, said.startswith(f"must be {expected}")) == (field, True), said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "empty"),
        (b"[]", "must be a JSON object"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"a":' * 5000, "more than 100 levels deep"),
        (b'{"request_id": "a", "request_id": "b"}', "duplicate"),
        (b'{"embedding": [' + b"0," * 140_000 + b"0]}", "more than 131,072 values"),
        (b'{"a":"' + b'\\"' * 500_000, "not JSON"),
        (b"[," * 20_000, "not JSON"),
        (b'{"a":' + b"1" * 5_000 + b"}", "not JSON"),
        (b'{"a":NaN}', "NaN is not a number"),
        (b'{"a":-Infinity}', "Infinity is not a number"),
    ],
)
def test_what_is_no_json_object_is_refused(text: bytes, expected: str) -> None:
    with pytest.raises(MalformedMessageError, match=expected):
        message_of(Create, text)


ROUNDED = 1234567890123456789
"""No double holds it."""


@pytest.mark.parametrize("number", [ROUNDED, -ROUNDED, 2**53 + 1, 10**23, 10**400])
def test_a_whole_number_that_a_double_would_round_is_refused_with_its_place(number: int) -> None:
    value = {"fact": {"value": {"order": {"ids": [1, 2**53, number]}}}}
    [(field, said)] = violations(value, Put).items()
    assert field == "fact.value.order.ids[2]"
    assert said == "must be a number that a double holds exactly, as all are within 2^53; write a larger one as text"
    for given in (number, str(number)):
        found = violations({"memory": {"metadata": {"a": {"doubleValue": given}}}})
        assert list(found) == ["memory.metadata.a.double_value"]
        assert found["memory.metadata.a.double_value"].startswith("must be a number that a double holds exactly")


@pytest.mark.parametrize("text", ["1e400", "-1e400"])
def test_a_number_beyond_all_doubles_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        message_of(Put, b'{"fact": {"value": {"n": %s}}}' % text.encode())
    assert [each.field for each in raised.value.violations] == ["fact.value.n"]


def test_numbers_that_a_double_holds_stay_as_they_are() -> None:
    given = {"a": 2**53, "b": -(2**53), "c": 2**60, "d": 1e300, "e": 0.1}
    assert (
        json_format.MessageToDict(message_of(Put, json.dumps({"fact": {"value": given}}).encode()).fact.value) == given
    )


@pytest.mark.parametrize("given", [ROUNDED, str(ROUNDED), 2**63 - 1, str(-(2**63)), 5.0, "5.0", "1e3"])
def test_whole_numbers_of_64_bits_are_exact_as_numbers_and_as_texts(given: Any) -> None:
    read = message_of(Create, json.dumps({"memory": {"metadata": {"a": {"intValue": given}}}}).encode())
    assert read.memory.metadata["a"].int_value == (int(given) if str(given).lstrip("-").isdigit() else float(given))


@pytest.mark.parametrize("given", ["9007199254740993.0", "1234567890123456789e0", 1e17])
def test_a_whole_number_that_was_rounded_on_the_way_is_refused(given: Any) -> None:
    found = violations({"memory": {"metadata": {"a": {"intValue": given}}}})
    assert list(found) == ["memory.metadata.a.int_value"]


@pytest.mark.parametrize("given", [5, "red", [1], None])
def test_a_plain_value_of_metadata_is_refused_with_the_types_that_it_may_have(given: Any) -> None:
    said = violations({"memory": {"metadata": {"score": given}}})["memory.metadata.score"]
    assert said.startswith("must be an object with one of stringValue, intValue, doubleValue, boolValue")


@pytest.mark.parametrize("number", [3_000_000_000, "3000000000", -3_000_000_000, 1e30])
def test_a_number_beyond_the_range_of_its_field_is_refused_with_the_range(number: Any) -> None:
    assert violations({"pageSize": number}, memory_pb2.ListMemoriesRequest) == {
        "page_size": "must be a whole number, -2,147,483,648 to 2,147,483,647"
    }


def test_half_a_surrogate_pair_is_named_as_such() -> None:
    assert violations({"memory": {"content": "\ud83d"}}) == {
        "memory.content": "must be a text without halves of surrogate pairs"
    }


def test_commas_of_a_text_are_no_values() -> None:
    for text in ("a, b" * 50_000, 'say "a, b", ' * 30_000):
        message: Any = message_of(Create, json.dumps({"memory": {"content": text}}).encode())
        assert message.memory.content == text


def test_of_very_many_faults_some_are_named() -> None:
    assert len(violations({f"field{number}": 1 for number in range(10_000)})) == 100
    assert len(violations({"embedding": ["x"] * 50_000})) == 100
    assert violations({"embedding": [*[0.5] * 50_000, "x"]}) == {"embedding[50000]": "must be a number"}


def test_a_name_of_a_megabyte_or_without_a_text_is_shown_as_far_as_it_can_be() -> None:
    [name] = violations({"\ud800" + "x" * 1_000_000: 1})
    assert name == "?" + "x" * 126


@pytest.mark.parametrize(
    ("value", "field", "said"),
    [
        ({"memoryId": "a", "memory_id": "b"}, "memory.memory_id", "memoryId"),
        ({"metadata": {"a": {"stringValue": "x", "intValue": 1}}}, "memory.metadata.a.int_value", "stringValue"),
    ],
)
def test_what_is_given_twice_is_refused(value: Any, field: str, said: str) -> None:
    assert violations({"memory": value}) == {field: f"must not be given together with {said}"}


def nested(levels: int, first: str, last: str) -> bytes:
    return b'{"fact":{"value":{"a":' + first.encode() * levels + b"1" + last.encode() * levels + b"}}}"


@pytest.mark.parametrize(("first", "last", "levels"), [("[", "]", 47), ('{"a":', "}", 31)])
@pytest.mark.parametrize("padding", [0, 20_000])
def test_a_value_may_be_as_deep_as_protobuf_reads_it(first: str, last: str, levels: int, padding: int) -> None:
    text = nested(levels, first, last) + b" " * 10
    if padding:
        text = text.replace(b'{"fact":', b'{"requestId":"' + b"x" * padding + b'","fact":')
    data, read = message_of(Put, text).SerializeToString(), Put()
    merge(read, data)
    assert read == json_format.Parse(text, Put())
    [(field, said)] = violations(json.loads(nested(levels + 1, first, last)), Put).items()
    assert field.startswith("fact.value.a") and said == "is too deep"


def test_no_list_is_read_far_beyond_its_limit() -> None:
    text = json.dumps({"fact": {"namespace": ["a"] * 10_000}}).encode()
    assert len(message_of(Put, text).fact.namespace) == LABELS_MAX + 1


LARGE = {
    "a text": json.dumps({"memory": {"content": "Ada likes tea, 喝茶 🙂. " * 60_000}}, ensure_ascii=False),
    "a text of escapes": json.dumps({"memory": {"content": 'é\n🙂"' * 90_000}}),
    "numbers": json.dumps({"embedding": [0.5, -1e-5, 3] * 20_000}),
}
LARGE_OBJECTS = {
    "members": json.dumps({"fact": {"value": {f"k{number}": number for number in range(20_000)}}}),
    "lists": json.dumps({"fact": {"value": {"a": [[]] * 30_000}}}),
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Create, text) for text in LARGE.values()] + [(Put, text) for text in LARGE_OBJECTS.values()],
    ids=[*LARGE, *LARGE_OBJECTS],
)
def test_a_large_text_is_read_as_protobuf_reads_it(kind: Any, text: str) -> None:
    assert message_of(kind, text.encode()) == json_format.Parse(text, kind())


@pytest.mark.parametrize("value", ["0", "[ ]", "{}", '"\\\\\\",[{"', '"\\\\","a"'])
def test_values_are_counted_and_marks_in_texts_are_none(value: str) -> None:
    def listed(count: int) -> bytes:
        return f'{{"a":[{",".join([value] * count)}]}}'.encode()

    each = value.count('","') + 1
    most = (VALUES_MAX - 1) // each
    assert len(object_of(listed(most))["a"]) == most * each
    with pytest.raises(MalformedMessageError, match="more than 131,072 values"):
        object_of(listed(most + 1))


def test_of_a_large_text_no_copy_is_made_in_pieces_before_the_whole() -> None:
    content = "Ada likes tea. " * (1 << 16)
    text = json.dumps({"memory": {"content": content}}).encode()
    tracemalloc.start()
    try:
        request_bytes(Create, text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The body as a text, the text in it, and the request as bytes, with those of the memory in it.
    assert peak < 4.5 * len(content)
