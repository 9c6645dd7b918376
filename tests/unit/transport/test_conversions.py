"""Values are converted to messages and back with their types."""

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon_server.domain.documents import (
    Document,
    HealthStatus,
    Passage,
    SearchAnswer,
    SearchResult,
    StoreHealth,
)
from mnemon_server.domain.records import (
    FilterNote,
    FilterNotes,
    Scope,
    SearchDiagnostics,
    SearchMode,
    View,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.transport.convert import documents as convert
from mnemon_server.wire import values as records

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.datetimes(timezones=st.just(UTC))
VALUES = st.one_of(
    TEXT,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.lists(TEXT, max_size=3).map(tuple),
    TIMES,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_metadata_comes_back_with_values_and_types(metadata: dict[str, Any]) -> None:
    message = pb.Document()
    records.fill_metadata(message.metadata, metadata)
    back = records.metadata_from_pb(pb.Document.FromString(message.SerializeToString()).metadata)
    assert back == metadata
    assert {key: type(value) for key, value in back.items()} == {key: type(value) for key, value in metadata.items()}


def test_an_empty_list_stays_a_list() -> None:
    message = pb.Document()
    records.fill_metadata(message.metadata, {"tags": ()})
    assert records.metadata_from_pb(pb.Document.FromString(message.SerializeToString()).metadata) == {"tags": ()}


@given(TIMES)
def test_times_are_kept_to_the_microsecond(time: datetime) -> None:
    assert records.time_from_pb(records.time_to_pb(time)) == time


@pytest.mark.parametrize(
    "message",
    [
        Timestamp(seconds=10**12),
        Timestamp(seconds=-(10**12)),
        Timestamp(seconds=2**63 - 1),
        Timestamp(nanos=-1),
        Timestamp(nanos=10**9),
    ],
    ids=str,
)
def test_an_invalid_time_is_none(message: Timestamp) -> None:
    assert records.time_from_pb(message) is None


def test_an_unset_value_is_none() -> None:
    assert records.value_from_pb(common_pb2.MetadataValue()) is None


async def test_a_score_of_zero_is_not_a_missing_score() -> None:
    results = (
        SearchResult("note", "", {}, 0.5, "web", vector_score=0.0, passage=Passage(1, 4, 9), document=_document()),
        SearchResult("other", "text", {"n": 1}, 0.25, "chromadb", keyword_score=0.0),
    )
    diagnostics = SearchDiagnostics(mode=SearchMode.KEYWORD, exact=True, scanned=9, duration_s=1.5)
    notes = FilterNotes((FilterNote("$or", "is reserved"),), (FilterNote("n", "has another type"),))
    answer = SearchAnswer(results, notes, diagnostics)
    message = await convert.answer_to_pb(answer, View.STANDARD)
    first, second = message.results
    assert [(m.score.HasField("vector"), m.score.HasField("keyword")) for m in (first, second)] == [
        (True, False),
        (False, True),
    ]
    assert [match.score.relevance for match in (first, second)] == [0.5, 0.25]
    assert (first.passage.index, first.passage.start, first.passage.end) == (1, 4, 9)
    assert not second.HasField("passage")
    assert (second.document.content, second.document.metadata["n"].int_value) == ("text", 1)
    assert (message.ignored_filters[0].key, message.ignored_filters[0].reason) == ("$or", "is reserved")
    assert [(each.key, each.reason) for each in message.unmatched_filters] == [("n", "has another type")]
    assert message.diagnostics.mode == common_pb2.SEARCH_MODE_KEYWORD
    assert message.diagnostics.duration.ToMilliseconds() == 1500


@pytest.mark.parametrize("outcome", list(WriteOutcome))
def test_receipts_carry_every_result(outcome: WriteOutcome) -> None:
    receipt = WriteReceipt("note", outcome, 4, datetime(2026, 1, 2, 3, 4, 5, 678, UTC), replayed=True)
    message = records.receipt_to_pb(receipt)
    assert common_pb2.WriteOutcome.Name(message.outcome) == f"WRITE_OUTCOME_{outcome.name}"
    assert (message.id, message.revision, message.replayed) == ("note", 4, True)
    assert message.commit_time.ToDatetime(UTC) == receipt.commit_time


@pytest.mark.parametrize("status", list(HealthStatus))
def test_health_has_every_field_and_a_latency_only_if_there_is_one(status: HealthStatus) -> None:
    health = StoreHealth(
        status=status, message="m", backend="b", host="h", collection="c", model_name="n", model_revision="r",
        model_precision="p", dimension=384, document_count=1, passage_count=2, pending=3,
        removal_pending_count=4, removal_out_of_reach_count=5,
    )  # fmt: skip
    message = convert.health_to_pb(health)
    assert message.state == records.STATES_TO_PB[status]
    model = message.embedding_model
    assert (model.name, model.revision, model.precision, model.dimension) == ("n", "r", "p", 384)
    assert (message.document_count, message.passage_count, message.pending_count) == (1, 2, 3)
    assert (message.removal_pending_count, message.removal_out_of_reach_count) == (4, 5)
    assert not message.HasField("latency")


def test_a_scope_without_fields_is_left_out() -> None:
    message = pb.Document()
    records.fill_scope(message, Scope())
    assert not message.HasField("scope")


def _document() -> Document:
    return Document(
        "note",
        "hoot hoot",
        {"topic": "owls"},
        scope=Scope(user="ada"),
        revision=3,
        create_time=datetime(2026, 1, 2, tzinfo=UTC),
        update_time=datetime(2026, 1, 3, tzinfo=UTC),
        passages=(Passage(0, 0, 4, (1.0, 0.0)), Passage(1, 5, 9, (0.0, 1.0))),
    )
