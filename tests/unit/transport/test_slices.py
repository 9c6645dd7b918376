"""A message that is read slice by slice is the one that protobuf reads at once."""

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from mnemon.v1 import common_pb2, facts_pb2, memory_pb2
from mnemon_server.domain.filters import PARTS_MAX
from mnemon_server.transport.convert.shared.counts import cut
from mnemon_server.transport.convert.shared.json_values import object_from_pb
from mnemon_server.transport.convert.shared.slices import FIELDS_MAX, SLICE_BYTES, merge
from mnemon_server.transport.errors import MalformedMessageError

from tests.support.cases import ordinary
from tests.support.rpc_fuzzing import Fuzzer
from tests.support.rpcs import rpcs

RPCS = {rpc.name: rpc for rpc in rpcs()}


def read(kind: Any, data: bytes, slice_bytes: int = SLICE_BYTES) -> Any:
    message = kind()
    merge(message, data, slice_bytes)
    return message


def encoded(message: Message) -> bytes:
    """As bytes, after lists and maps that are too long were cut, as they always are."""
    if message.DESCRIPTOR.full_name.startswith("mnemon"):
        cut(message)
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", ordinary(RPCS))
def test_requests_of_every_method_are_read_as_protobuf_reads_them(name: str) -> None:
    fuzzer = Fuzzer(seed=15)
    for _ in range(10):
        request = fuzzer.request(RPCS[name])
        data = request.SerializeToString()
        for slice_bytes in (0, 7, 64, SLICE_BYTES):
            assert encoded(read(type(request), data, slice_bytes)) == encoded(request), (slice_bytes, data)


def test_bytes_that_protobuf_refuses_are_refused() -> None:
    chance = random.Random(16)
    request = facts_pb2.PutFactRequest(
        fact={"namespace": ["user", "ada"], "key": "k", "metadata": {"a": {"int_value": 300}}}
    )
    request.fact.value.update({"text": "tea", "list": [1, {"a": []}, None], "number": 1.5})
    whole = request.SerializeToString()
    for attempt in range(5_000):
        data = bytearray(whole[: chance.randrange(1, len(whole) + 1)])
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 8, 10, 18, 127, 128, 255, chance.randrange(256)))
        try:
            at_once = encoded(facts_pb2.PutFactRequest.FromString(bytes(data)))
        except DecodeError:
            with pytest.raises(DecodeError):
                read(facts_pb2.PutFactRequest, bytes(data), 4)
            continue
        try:
            sliced = encoded(read(facts_pb2.PutFactRequest, bytes(data), 4))
        except DecodeError:
            continue  # groups, which no message of ours has
        assert sliced == at_once, (attempt, bytes(data))


def test_parts_that_come_twice_are_merged_or_replaced_as_protobuf_says() -> None:
    first, second = (
        facts_pb2.PutFactRequest(
            fact={"namespace": [f"n{n}"], "metadata": {"same": {"string_value": f"{n}"}, f"only {n}": {"int_value": n}}}
        )
        for n in (1, 2)
    )
    first.fact.value.update({"same": {"left": 1}, "other": [1]})
    second.fact.value.update({"same": {"right": 2}})
    data = first.SerializeToString() + second.SerializeToString()
    assert encoded(read(facts_pb2.PutFactRequest, data, 0)) == encoded(facts_pb2.PutFactRequest.FromString(data))
    text, nested = Value(string_value="a"), Value(list_value={"values": [{"bool_value": True}]})
    for parts in ((text, nested), (nested, text), (nested, Value(struct_value={}), nested)):
        data = b"".join(part.SerializeToString() for part in parts)
        assert encoded(read(Value, data, 0)) == encoded(Value.FromString(data))


TOO_LONG = (
    facts_pb2.BatchGetFactsRequest(names=[{"key": "k"}] * 50_000),
    memory_pb2.CreateMemoryRequest(memory={"metadata": {f"k{n}": {"bool_value": True} for n in range(50_000)}}),
)


@pytest.mark.parametrize("request_", TOO_LONG, ids=lambda one: type(one).__name__)
def test_of_a_list_or_map_that_is_too_long_little_more_is_kept_than_it_may_have(request_: Any) -> None:
    assert read(type(request_), request_.SerializeToString(), 512).ByteSize() < 10_000


@pytest.mark.parametrize(("parts", "kept"), [(PARTS_MAX, PARTS_MAX), (50_000, PARTS_MAX + 1)])
def test_of_a_filter_at_least_so_many_parts_are_kept_that_its_reader_refuses_it_if_they_are_too_many(
    parts: int, kept: int
) -> None:
    request = memory_pb2.CountMemoriesRequest()
    part = {"condition": {"field": "agent", "comparator": "COMPARATOR_EQ", "values": [{"string_value": "x" * 50}]}}
    request.filter.filter.all_of.filters.extend([common_pb2.Filter(**part)] * parts)
    for slice_bytes in (64, SLICE_BYTES):
        read_ = read(memory_pb2.CountMemoriesRequest, request.SerializeToString(), slice_bytes)
        assert kept <= len(read_.filter.filter.all_of.filters) <= parts


def test_a_message_with_more_fields_than_any_may_have_is_refused_before_its_end() -> None:
    data = facts_pb2.GetFactRequest(namespace=[""]).SerializeToString() * (FIELDS_MAX + 1)
    message = facts_pb2.GetFactRequest()
    with pytest.raises(MalformedMessageError, match=f"a GetFactRequest of more than {FIELDS_MAX:,} fields"):
        merge(message, data)
    assert len(message.namespace) <= FIELDS_MAX


def wide_object(kind: str) -> Struct:
    if kind == "keys":
        return Struct(fields={str(number): Value(bool_value=True) for number in range(FIELDS_MAX + 1)})
    return Struct(fields={"a": Value(list_value={"values": [Value(bool_value=True)] * (FIELDS_MAX + 1)})})


@pytest.mark.parametrize("kind", ["keys", "a list"])
def test_of_an_object_with_too_many_values_so_many_are_read_that_its_reader_refuses_it(kind: str) -> None:
    value = wide_object(kind)
    wide, good = facts_pb2.PutFactRequest(fact={"value": value}), facts_pb2.PutFactRequest(fact={"key": "good"})
    message = read(
        facts_pb2.BulkPutFactsRequest, facts_pb2.BulkPutFactsRequest(requests=[wide, good]).SerializeToString()
    )
    assert message.requests[1] == good
    with pytest.raises(ValueError, match="must contain at most 100,000 values"):
        object_from_pb(message.requests[0].fact.value)


def test_an_object_of_one_key_a_hundred_thousand_times_is_refused() -> None:
    once = Struct()
    once.fields["a"].number_value = 1
    with pytest.raises(MalformedMessageError, match="Struct"):
        read(Struct, once.SerializeToString() * (FIELDS_MAX + 1))
