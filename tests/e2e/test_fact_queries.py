"""The fact service over gRPC: searching, listing and deleting facts."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import common_pb2, tools_pb2
from mnemon.v1 import facts_pb2 as pb

from tests.support.fact_messages import ADA, BOB, get_fact, put_request, refused, search
from tests.support.memory_messages import any_of, compare, metadata, none_of
from tests.support.server import failure_of, violations
from tests.support.timeline_messages import sent
from tests.support.tool_messages import everything, put

DIMENSION = 64
"""Of the hashing embedder."""
INVALID = grpc.StatusCode.INVALID_ARGUMENT


# Searching


async def test_facts_are_found_by_meaning_and_by_word_within_their_namespace(facts: Any) -> None:
    await put(facts, ADA, "seat", {"content": "Ada prefers window seats.", "rank": 5})
    await put(facts, ADA, "tea", {"content": "Ada drinks green tea.", "rank": 3})
    await put(facts, BOB, "seat", {"content": "Bob prefers window seats, too."})
    assert (await search(facts, "window seats"))[0] == "seat"
    assert await search(facts, "window", ("user",), subtree=True, mode=common_pb2.SEARCH_MODE_KEYWORD) == ["seat"] * 2
    assert await search(facts, "window", ("user",)) == []
    assert await search(facts, "Ada", where=compare("value.rank", "LT", 5)) == ["tea"]
    assert await search(facts, "Ada", where=compare("value.rank", "EQ", 5.0)) == ["seat"]
    answer = await facts.SearchFacts(pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA), query="Ada's tea"))
    best, other = (match.score for match in answer.results)
    assert best.relevance > other.relevance
    assert best.HasField("vector") and best.HasField("keyword")
    assert (answer.diagnostics.mode, answer.diagnostics.exact) == (common_pb2.SEARCH_MODE_HYBRID, True)
    assert answer.diagnostics.returned == 2


async def test_a_filter_compares_value_keys_metadata_keys_and_fields_of_the_fact(facts: Any) -> None:
    tea = await put(
        facts, ADA, "tea", {"content": "green", "rank": 3, "topic": "drinks", "none": None}, metadata=metadata(by="bo")
    )
    await put(
        facts, ADA, "seat", {"content": "window", "rank": 5, "tags": ["travel"]}, metadata=metadata(topic="trips")
    )
    last = await put(facts, ADA, "pin", {"pin": 7}, ttl=Duration(seconds=3_600))
    later = common_pb2.Filter(condition={"field": "update_time", "comparator": common_pb2.COMPARATOR_GT})
    later.condition.values.add().timestamp_value.CopyFrom(tea.fact.update_time)
    for where, keys in (
        (any_of(compare("value.rank", "GTE", 4), compare("value.topic", "EQ", "drinks")), ["tea", "seat"]),
        (none_of(compare("value.rank", "EXISTS", True)), ["pin"]),
        (compare("metadata.topic", "IN", "drinks", "trips"), ["tea", "seat"]),
        (compare("value.by", "EQ", "bo"), ["tea"]),
        (compare("value.tags", "CONTAINS", "travel"), ["seat"]),
        (compare("value.none", "EXISTS", True), []),
        (compare("key", "NE", "tea"), ["seat", "pin"]),
        (compare("expire_time", "EXISTS", True), ["pin"]),
        (later, ["seat", "pin"]),
    ):
        assert await search(facts, where=where) == keys, where
    deletion = pb.DeleteFactsRequest(filter=pb.FactFilter(namespace=ADA, filter=later))
    assert (await facts.DeleteFacts(deletion)).deleted_count == 2
    assert last.fact.key not in [stored.key for stored in await everything(facts)]


async def test_an_error_in_a_filter_is_named(facts: Any) -> None:
    cases = [
        (compare("rank", "EQ", 5), "filter.filter.condition.field"),
        (compare("value.no key", "EQ", 5), "filter.filter.condition.field"),
        (compare("value.rank", "GT", True), "filter.filter.condition.values[0]"),
        (common_pb2.Filter(), "filter.filter"),
        (common_pb2.Filter(condition={"field": "value.rank"}), "filter.filter.condition.comparator"),
    ]
    for where, field in cases:
        filtered = pb.FactFilter(namespace=ADA, filter=where)
        for call in (
            facts.SearchFacts(pb.SearchFactsRequest(filter=filtered)),
            facts.ListFacts(pb.ListFactsRequest(filter=filtered)),
            facts.DeleteFacts(pb.DeleteFactsRequest(filter=filtered)),
        ):
            assert violations(await failure_of(call)) == {field}


@pytest.mark.parametrize("query", ["green tea", ""])
async def test_a_view_sets_how_much_of_a_fact_is_returned(facts: Any, query: str) -> None:
    vector = [0.0] * DIMENSION
    vector[3] = 1.0
    stored = (await facts.PutFact(put_request("tea", embedding=vector))).fact
    asked = pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA), query=query)

    async def seen(view: common_pb2.View) -> pb.Fact:
        asked.view = view
        [match] = (await facts.SearchFacts(asked)).results
        assert match.HasField("score") is bool(query)
        return match.fact

    assert await seen(common_pb2.VIEW_IDS) == pb.Fact(namespace=ADA, key="tea", revision=1)
    assert await seen(common_pb2.VIEW_UNSPECIFIED) == await seen(common_pb2.VIEW_STANDARD) == stored
    full = await seen(common_pb2.VIEW_FULL)
    assert [list(embedding.values) for embedding in full.embeddings] == [vector]
    full.ClearField("embeddings")
    assert full == stored


async def test_a_limit_of_zero_means_ten_and_a_negative_one_is_refused(facts: Any) -> None:
    for number in range(11):
        await put(facts, ADA, f"{number}", {"content": "tea"})
    assert [len(await search(facts, query)) for query in ("tea", "")] == [10, 10]
    negative = facts.SearchFacts(pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA), limit=-1))
    assert violations(await failure_of(negative)) == {"limit"}


async def test_without_a_query_matching_facts_are_listed_without_scores(facts: Any) -> None:
    for key in ("b", "a", "c"):
        await put(facts, ADA, key, {"content": key})
    assert await search(facts, offset=1) == ["a", "c"]
    assert await search(facts, limit=2) == ["b", "a"]
    answer = await facts.SearchFacts(pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA)))
    assert not any(match.HasField("score") for match in answer.results)


async def test_several_facts_come_in_the_requested_order_without_missing_ones(facts: Any) -> None:
    for namespace, key in ((ADA, "seat"), (ADA, "tea"), (BOB, "seat")):
        await put(facts, namespace, key, {"content": f"{namespace[1]}'s {key}"})
    names = [(BOB, "seat"), (ADA, "none"), (ADA, "tea"), (BOB, "tea"), (BOB, "seat")]
    wanted = pb.BatchGetFactsRequest(names=[pb.FactName(namespace=namespace, key=key) for namespace, key in names])
    found = (await facts.BatchGetFacts(wanted)).facts
    assert [each.value["content"] for each in found] == ["bob's seat", "ada's tea"]


# Listing


async def test_a_list_goes_page_by_page_in_the_order_of_first_storing(facts: Any) -> None:
    keys = [f"fact-{n * 7 % 25:02d}" for n in range(25)]
    runs = pb.BulkPutFactsRequest(requests=[put_request(key) for key in keys])
    assert len([answer async for answer in facts.BulkPutFacts(sent(runs))]) == 1
    await put(facts, ADA, keys[3], {"content": "changed"})
    found, token, sizes = [], "", [10, 4, 100]
    for size in sizes:
        wanted = pb.ListFactsRequest(filter=pb.FactFilter(namespace=ADA), page_size=size, page_token=token)
        page = await facts.ListFacts(wanted)
        found += [listed.key for listed in page.facts]
        token = page.next_page_token
    assert (found, token) == (keys, "")


async def test_a_page_ends_at_three_mebibytes(facts: Any) -> None:
    for number in range(8):
        await put(facts, ADA, f"{number}", {"text": "x" * 700_000}, index=pb.FactIndex(off=True))
    wanted = pb.ListFactsRequest(filter=pb.FactFilter(namespace=ADA))
    first = await facts.ListFacts(wanted)
    wanted.page_token = first.next_page_token
    second = await facts.ListFacts(wanted)
    assert [len(page.facts) for page in (first, second)] == [4, 4]
    assert first.ByteSize() < 3 << 20


async def test_a_read_of_several_ends_at_three_mebibytes_and_names_the_rest(facts: Any) -> None:
    for number in range(6):
        await put(facts, ADA, f"{number}", {"text": "x" * 1_000_000}, index=pb.FactIndex(off=True))
    names = [pb.FactName(namespace=ADA, key=f"{number}") for number in (0, 1, 0, 9, 2, 3, 4, 5)]
    first = await facts.BatchGetFacts(pb.BatchGetFactsRequest(names=names))
    assert (first.truncated, [fact.key for fact in first.facts]) == (True, ["0", "1", "2"])
    second = await facts.BatchGetFacts(pb.BatchGetFactsRequest(names=first.remaining))
    assert (second.truncated, list(second.remaining), [fact.key for fact in second.facts]) == (
        False, [], ["3", "4", "5"],
    )  # fmt: skip


async def test_a_search_ends_at_three_mebibytes_and_can_be_continued(facts: Any) -> None:
    for number in range(5):
        value = {"topic": "apples", "text": "x" * 1_000_000}
        await put(facts, ADA, f"{number}", value, index=pb.FactIndex(paths=["topic"]))
    for query in ("apples", ""):
        wanted = pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA), query=query)
        first = await facts.SearchFacts(wanted)
        wanted.offset = len(first.results)
        second = await facts.SearchFacts(wanted)
        assert [(len(page.results), page.truncated) for page in (first, second)] == [(3, True), (2, False)]
        assert {match.fact.key for page in (first, second) for match in page.results} == set("01234")
        names = pb.SearchFactsRequest(filter=wanted.filter, query=query, view=common_pb2.VIEW_IDS)
        whole = await facts.SearchFacts(names)
        assert (len(whole.results), whole.truncated) == (5, False)


async def test_a_page_token_is_valid_for_its_own_query_only(facts: Any) -> None:
    for namespace in (ADA, BOB):
        for key in ("a", "b"):
            await put(facts, namespace, key, {"content": key})
    mine = pb.FactFilter(namespace=ADA)
    token = (await facts.ListFacts(pb.ListFactsRequest(filter=mine, page_size=1))).next_page_token
    namespaces = (await facts.ListNamespaces(pb.ListNamespacesRequest(page_size=1))).next_page_token
    assert token
    assert namespaces
    for call in (
        facts.ListFacts(pb.ListFactsRequest(filter=mine, page_token=token + "A")),
        facts.ListFacts(pb.ListFactsRequest(filter=pb.FactFilter(namespace=BOB), page_token=token)),
        facts.ListFacts(pb.ListFactsRequest(filter=mine, page_token=namespaces)),
        facts.ListNamespaces(pb.ListNamespacesRequest(page_token=token)),
        facts.ListNamespaces(pb.ListNamespacesRequest(prefix=["user"], page_token=namespaces)),
    ):
        assert await refused(call) == (INVALID, "INVALID_PAGE_TOKEN")


# Expiring and deleting


@pytest.mark.parametrize("module", [pb, tools_pb2])
def test_every_method_either_is_a_read_or_takes_a_request_id(module: Any) -> None:
    [service] = module.DESCRIPTOR.services_by_name.values()
    for method in service.methods:
        changes_nothing = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
        of_items = method.input_type.fields_by_name.get("requests") if method.client_streaming else None
        asked = of_items.message_type if of_items else method.input_type
        assert changes_nothing is not ("request_id" in asked.fields_by_name), method.name


async def test_a_deleted_fact_is_gone_with_its_versions(facts: Any) -> None:
    for content in ("window", "aisle"):
        await put(facts, ADA, "seat", {"content": content})
    await put(facts, BOB, "seat", {"content": "window"})
    deleted = (await facts.DeleteFact(pb.DeleteFactRequest(namespace=ADA, key="seat"))).receipt
    assert (deleted.id, deleted.outcome, deleted.revision) == ("seat", common_pb2.WRITE_OUTCOME_DELETED, 2)
    assert [tuple(stored.namespace) for stored in await everything(facts)] == [BOB]
    again = await put(facts, ADA, "seat", {"content": "window"})
    assert again.receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    assert len((await get_fact(facts, "seat", show_versions=True)).versions) == 0


@pytest.mark.parametrize("expected", [None, 0, 7])
async def test_deleting_a_missing_fact_is_not_found_unless_that_is_allowed(facts: Any, expected: int | None) -> None:
    await put(facts, BOB, "seat", {"content": "window"})
    deletion = pb.DeleteFactRequest(namespace=ADA, key="seat", expected_revision=expected)
    assert await refused(facts.DeleteFact(deletion)) == (grpc.StatusCode.NOT_FOUND, "FACT_NOT_FOUND")
    deletion.allow_missing = True
    receipt = (await facts.DeleteFact(deletion)).receipt
    assert (receipt.id, receipt.outcome, receipt.revision) == ("seat", common_pb2.WRITE_OUTCOME_MISSING, 0)
    assert receipt.HasField("commit_time")
    assert [tuple(stored.namespace) for stored in await everything(facts)] == [BOB]


async def test_facts_are_deleted_by_filter_and_counted_beforehand(facts: Any) -> None:
    for number in range(6):
        await put(facts, (*ADA, "trip"), f"{number}", {"content": "x", "number": number})
    await put(facts, BOB, "seat", {"content": "x", "number": 1})
    wanted = pb.FactFilter(namespace=ADA, subtree=True, filter=compare("value.number", "GTE", 2))
    counted = await facts.DeleteFacts(pb.DeleteFactsRequest(filter=wanted, dry_run=True))
    assert (counted.deleted_count, len(await everything(facts))) == (4, 7)
    deletion = pb.DeleteFactsRequest(filter=wanted, request_id="once")
    answers = [await facts.DeleteFacts(deletion) for _ in range(2)]
    assert [(answer.deleted_count, answer.replayed) for answer in answers] == [(4, False), (4, True)]
    assert [stored.key for stored in await everything(facts)] == ["0", "1", "seat"]
