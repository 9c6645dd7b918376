"""Filters of documents, and of other records' metadata, as a Python program meets them."""

from collections.abc import Iterator
from typing import Any

import pytest
from mnemon import F, IgnoredFilterWarning, InvalidArgumentError, Mnemon, UnmatchedFilterWarning


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mnemon]:
    """A client with three notes, and with memories and facts about n."""
    with Mnemon(tmp_path_factory.mktemp("vault"), embedding_model="hashing") as client:
        client.documents.put("travel-1", "Ada prefers window seats.", {"topic": "travel", "year": 2023})
        client.documents.put("travel-2", "The night train leaves at nine.", {"topic": "travel", "year": 2024})
        client.documents.put("work-1", "The window report is due.", {"topic": "work", "year": 2024.0})
        for held in (5, 5.0, True, "5"):
            metadata: dict[str, Any] = {"n": held}
            client.memories.add(f"n is {held!r}", user="ada", metadata=metadata)
            client.facts.put(("users", "ada"), f"n-{held!r}", {"content": "n", **metadata})
        yield client


def test_a_filter_by_a_key_that_no_document_has_is_ignored_with_a_warning(memory: Mnemon) -> None:
    filters: dict[str, Any] = {"unused_key": 1, "topic": "travel"}
    with pytest.warns(IgnoredFilterWarning, match="unused_key") as warned:
        answer = memory.documents.search("window", filters=filters)

    assert warned[0].filename == __file__
    assert {hit.doc_id for hit in answer} <= {"travel-1", "travel-2"}
    assert [ignored.key for ignored in answer.ignored_filters] == ["unused_key"]
    with pytest.warns(IgnoredFilterWarning, match="unused_key"):
        assert memory.documents.count(filters={"unused_key": 1}) == 3
    with pytest.warns(IgnoredFilterWarning, match="unused_key") as warned:
        assert len(list(memory.documents.list(filters={"unused_key": 1}, page_size=1))) == 3
    assert len(warned) == 1


def test_a_filter_of_another_type_finds_nothing_with_a_warning(memory: Mnemon) -> None:
    filters: dict[str, Any] = {"year": "2024"}
    with pytest.warns(UnmatchedFilterWarning, match="'year' finds nothing: .*with a number"):
        answer = memory.documents.search("window", filters=filters)

    assert (list(answer), [unmatched.key for unmatched in answer.unmatched_filters]) == ([], ["year"])
    assert answer.to_dict()["unmatched_filters"][0]["key"] == "year"
    with pytest.warns(UnmatchedFilterWarning, match="year"):
        assert memory.documents.count(filters=filters) == 0
    with pytest.warns(UnmatchedFilterWarning, match="year"):
        assert list(memory.documents.list(filters=filters)) == []
    assert memory.documents.count(filters={"year": 2024.0}) == memory.documents.count(filters={"year": 2024}) == 2


def test_a_filter_that_no_document_can_match_is_refused_if_strict(memory: Mnemon) -> None:
    filters: dict[str, Any] = {"unused_key": 1, "topic": "travel", "year": "2024"}
    for call in (
        lambda: memory.documents.search("window", filters=filters, strict=True),
        lambda: memory.documents.count(filters=filters, strict=True),
        lambda: memory.documents.list_page(filters=filters, strict=True),
        lambda: next(memory.documents.list(filters=filters, strict=True)),
        lambda: memory.documents.delete_many(filters=filters),
        lambda: memory.documents.delete_many(filters=filters, dry_run=True),
    ):
        with pytest.raises(InvalidArgumentError, match="no document has this key") as raised:
            call()
        assert {each.field for each in raised.value.violations} == {"filters.unused_key", "filters.year"}
    assert memory.documents.count() == 3


@pytest.mark.parametrize(("wanted", "found"), [(5, 2), (5.0, 2), (True, 1), ("5", 1), (6, 0)])
def test_numbers_are_compared_by_value_in_every_kind_of_record(memory: Mnemon, wanted: Any, found: int) -> None:
    assert memory.memories.count(metadata={"n": wanted}) == found
    assert len(list(memory.memories.list(where=F("metadata.n") == wanted))) == found
    assert len(list(memory.facts.list(namespace=("users", "ada"), where={"n": wanted}))) == found
