"""Facts and requests about them are converted to messages and back without loss."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from mnemon.v1 import errors_pb2
from mnemon.v1 import facts_pb2 as pb
from mnemon_server.domain.errors import FactNotFoundError
from mnemon_server.domain.facts import (
    Fact,
    FactBatch,
    FactMatch,
    FactPage,
    FactRenewal,
    FactSearchAnswer,
    FactVersion,
    RenewalReceipt,
)
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import (
    SearchDiagnostics,
    SearchMode,
)
from mnemon_server.services.background.offload import LARGE_BYTES, converted
from mnemon_server.transport.convert import facts as convert
from mnemon_server.transport.convert import facts as requests
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.convert.shared.wire import AnswerBytes

from tests.support.python_calls import python_calls
from tests.support.tool_messages import struct
from tests.support.turns import Turns

CREATED, UPDATED, ENDS = (datetime(2026, 1, day, 3, 4, 5, 678, UTC) for day in (1, 2, 3))
ADA = Namespace(("user", "ada"))
PLAIN = Fact(namespace=ADA, key="plain", value={}, created_at=CREATED, updated_at=CREATED, revision=1)
DIAGNOSTICS = SearchDiagnostics(mode=SearchMode.HYBRID, exact=True, scanned=9)


def message_of(fact: Fact) -> pb.Fact:
    """The fact as it is received."""
    message = pb.Fact()
    convert.fill_fact(message, fact)
    return pb.Fact.FromString(message.SerializeToString())


def test_a_renewal_says_when_each_fact_expires_and_which_are_missing() -> None:
    receipt = RenewalReceipt((FactRenewal(ENDS), FactRenewal(None), FactNotFoundError("k")), replayed=True)
    message = convert.renewals_to_pb(receipt)
    ends, never, missing = message.results
    assert ends.renewal.expire_time.ToDatetime(UTC) == ENDS
    assert (never.WhichOneof("outcome"), never.renewal.HasField("expire_time")) == ("renewal", False)
    assert (missing.error.reason, message.replayed) == (errors_pb2.ERROR_REASON_FACT_NOT_FOUND, True)


def test_a_repeated_namespace_is_not_checked_again() -> None:
    labels = pb.FactName(namespace=["user"] * 16)
    first = read_namespace(Reader(), "namespace", labels.namespace)
    assert read_namespace(Reader(), "namespace", labels.namespace) is first


def test_converting_a_small_fact_takes_few_calls() -> None:
    request = pb.PutFactRequest(fact=message_of(PLAIN))
    request.fact.value.update({"content": "Ada prefers window seats.", "rank": 5})
    requests.read_put(request)
    assert python_calls(lambda: requests.read_put(request)) < 200


async def test_other_calls_are_served_while_a_large_fact_is_read() -> None:
    request = pb.PutFactRequest(fact=pb.Fact(namespace=ADA, value=struct({"n": [0] * 90_000})))
    async with Turns() as turns:
        put = await converted(requests.read_put, request, request.ByteSize())
    assert put.value == {"n": [0] * 90_000}
    assert turns.count > 3


async def test_answers_end_at_the_message_limit_and_name_the_rest() -> None:
    # A number takes 11 bytes in a message instead of the 2 in which it was stored.
    facts = tuple(replace(LARGE, key=key) for key in "abc")
    page = pb.ListFactsResponse.FromString(await convert.page_to_bytes(FactPage(facts, 9, (3, 6, 9)), str))
    batch = pb.BatchGetFactsResponse.FromString(await convert.batch_to_bytes(FactBatch(facts, (((ADA[0],), "d"),))))
    answer = await convert.answer_to_bytes(FactSearchAnswer(tuple(map(FactMatch, facts)), DIAGNOSTICS), truncated=False)
    found = pb.SearchFactsResponse.FromString(answer)
    assert (len(page.facts), page.next_page_token) == (2, "6")
    assert ([fact.key for fact in batch.facts], batch.truncated) == (["a", "b"], True)
    assert [name.key for name in batch.remaining] == ["c", "d"]
    assert (len(found.results), found.truncated) == (2, True)


LARGE = replace(PLAIN, value=JsonText(json.dumps({"n": [0] * 100_000}), "fact", "f"))
VERSIONED = replace(PLAIN, versions=(FactVersion(1, LARGE.value, PLAIN.updated_at),))


@pytest.mark.parametrize("fact", [LARGE, VERSIONED], ids=["value", "version"])
async def test_other_calls_are_served_while_a_large_fact_is_written(fact: Fact) -> None:
    page, found = FactPage((fact,), None), FactSearchAnswer((FactMatch(fact),), DIAGNOSTICS)
    for write in (
        lambda: convert.got_to_bytes(fact),
        lambda: convert.batch_to_bytes(FactBatch((fact,))),
        lambda: convert.page_to_bytes(page, str),
        lambda: convert.answer_to_bytes(found, truncated=False),
    ):
        async with Turns() as turns:
            message = await write()
        assert len(message) > 20_000
        assert turns.count > 3


async def test_other_calls_are_served_while_many_names_are_read() -> None:
    request = pb.BatchGetFactsRequest(names=[pb.FactName(namespace=ADA, key=str(number)) for number in range(1_000)])
    async with Turns() as turns:
        names = await requests.read_names(request)
    assert [key for _, key in names] == [str(number) for number in range(1_000)]
    assert turns.count > 1


async def test_other_calls_are_served_while_a_large_answer_is_put_together() -> None:
    answer = AnswerBytes()
    for _ in range(3):
        assert answer.add(
            pb.BatchGetFactsResponse.FACTS_FIELD_NUMBER, [pb.Fact(key="k" * 1_000_000).SerializeToString()]
        )
    async with Turns() as turns:
        message = await answer.finish(pb.BatchGetFactsResponse(truncated=True))
    read = pb.BatchGetFactsResponse.FromString(message)
    assert [len(fact.key) for fact in read.facts] == [1_000_000] * 3 and read.truncated
    assert turns.count > 1


async def test_a_small_message_is_read_on_the_event_loop_and_errors_are_raised_either_way() -> None:
    def read(message: bytes) -> int:
        if not message:
            raise ValueError("nothing")
        return threading.get_ident()

    assert await converted(read, b"x", LARGE_BYTES - 1) == threading.get_ident()
    assert await converted(read, b"x", LARGE_BYTES) != threading.get_ident()
    for size in (0, LARGE_BYTES):
        with pytest.raises(ValueError, match="nothing"):
            await converted(read, b"", size)
