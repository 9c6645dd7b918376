"""Values keep their types in messages and back, and can be written as JSON."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import mnemon
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon._messages import convert
from mnemon._messages import documents as requests
from mnemon._messages.translation import read
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(TEXTS, max_size=3),
    st.datetimes(timezones=st.just(UTC)),
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_metadata_comes_back_with_its_types(metadata: dict[str, Any]) -> None:
    message = pb.Document(doc_id="a", metadata=convert.metadata_to_pb("metadata", metadata))

    back = read(mnemon.Document, pb.Document.FromString(message.SerializeToString())).metadata

    assert back == metadata
    assert {key: type(value) for key, value in back.items()} == {key: type(value) for key, value in metadata.items()}


def test_a_time_of_another_zone_is_the_same_instant() -> None:
    moment = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    sent = pb.Document(metadata=convert.metadata_to_pb("metadata", {"when": moment}))

    assert read(mnemon.Document, sent).metadata == {"when": moment}


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (None, "null is not a value"),
        (date(2026, 12, 1), "or a datetime, not date"),
        ({"a": 1}, "or a datetime, not dict"),
        ({"a": 1}, "must be text, a whole number"),
        (2**63, "must fit into 64 bits"),
        (datetime(2024, 5, 1), "must carry a time zone"),
        (["a", 1], "must be text, not int"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_metadata_that_cannot_be_sent_is_refused_with_its_key(value: Any, right: str) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=right) as raised:
        requests.index_document("a", "text", {"topic": value}, scope=None, ack="durable")

    assert raised.value.violations[0].field.startswith("metadata.topic")


def test_a_filter_value_that_cannot_be_sent_is_left_unset_for_the_server_to_report() -> None:
    sent = convert.filters_to_pb({"topic": None, "year": 2024})  # type: ignore[dict-item]

    assert sent["topic"].WhichOneof("kind") is None
    assert sent["year"].int_value == 2024


@pytest.mark.parametrize(
    ("argument", "given_name", "choices"),
    [("view", "all", "'ids', 'standard', 'full'"), ("mode", "magic", "'vector', 'keyword', 'hybrid'")],
)
def test_an_unknown_name_is_refused_with_the_choices(argument: str, given_name: str, choices: str) -> None:
    with mnemon.Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError, match=choices) as raised:
        client.documents.search("text", **{argument: given_name})  # type: ignore[arg-type]

    assert raised.value.violations[0].field == argument


def _answer() -> mnemon.SearchAnswer:
    document = pb.Document(doc_id="a", content="One. Two é three.", metadata=convert.metadata_to_pb("m", {"n": 5}))
    document.create_time.FromJsonString("2024-05-01T12:00:00Z")
    result = pb.DocumentMatch(document=document, source="chromadb", score={"relevance": 0.5, "vector": 0.25})
    result.passage.MergeFrom(pb.Passage(index=1, start=5, end=10))
    response = pb.SearchDocumentsResponse(
        results=[result], ignored_filters=[common_pb2.IgnoredFilter(key="k", reason="no document carries it")]
    )
    response.diagnostics.mode = common_pb2.SEARCH_MODE_HYBRID
    return read(mnemon.SearchAnswer, response)


def test_a_search_answer_is_a_sequence_of_its_results() -> None:
    answer = _answer()

    assert (len(answer), [hit.doc_id for hit in answer], answer[0].doc_id) == (1, ["a"], "a")
    assert answer.ignored_filters == (mnemon.IgnoredFilter("k", "no document carries it"),)
    assert answer.diagnostics.mode == mnemon.SearchMode.HYBRID


def test_a_result_shows_the_matching_passage_and_no_score_that_was_not_computed() -> None:
    hit = _answer()[0]

    assert hit.passage_text == "Two é"
    assert (hit.vector_score, hit.keyword_score) == (0.25, None)


def test_an_answer_can_be_written_as_json() -> None:
    written = json.loads(_answer().to_json())

    hit = written["results"][0]
    assert (hit["doc_id"], hit["score"], hit["metadata"]) == ("a", 0.5, {"n": 5})
    assert hit["create_time"] == "2024-05-01T12:00:00+00:00"
    assert written["diagnostics"]["mode"] == "hybrid"
    assert _answer().to_dict() == written


def test_a_failed_item_can_be_written_as_json() -> None:
    error = mnemon.InvalidArgumentError("bad", violations=[mnemon.FieldViolation("doc_id", "must not be empty")])

    assert mnemon.IndexResult("", error=error).to_dict()["error"] == {
        "code": "INVALID_ARGUMENT",
        "message": "bad",
        "violations": [{"field": "doc_id", "description": "must not be empty"}],
    }


def test_a_type_of_value_from_a_later_server_is_not_dropped_silently() -> None:
    with pytest.raises(mnemon.InternalError, match="'later'"):
        read(mnemon.Document, pb.Document(metadata={"later": common_pb2.MetadataValue()}))


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        mnemon.Document("a", "text").content = "other"  # type: ignore[misc]
