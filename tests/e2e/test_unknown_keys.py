"""Deletions by a metadata key that no record has, or by a value of a type that none has, are refused as typing errors;
`top_k` is another name of `limit`.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import mnemon
import pytest
from mnemon import Client, F, Mnemon

DELETIONS: dict[str, Callable[..., Any]] = {
    "memory": lambda client, key, **options: client.memories.purge(where=F(f"metadata.{key}") == "y", **options),
    "fact": lambda client, key, **options: client.facts.delete_many((), subtree=True, where={key: "y"}, **options),
    "document": lambda client, key, **options: client.documents.delete_many(
        where=(F(f"metadata.{key}") == "y") | (F("metadata.kind") == "z"), **options
    ),
    "statement": lambda client, key, **options: client.semantic.delete_many(
        where=F(f"metadata.{key}") == "y", **options
    ),
    "event": lambda client, key, **options: client.timeline.delete_many(where=F(f"metadata.{key}") == "y", **options),
}


DELETE: dict[str, Callable[..., Any]] = {
    "memory": lambda client, where, **options: client.memories.purge(where=where, **options),
    "fact": lambda client, where, **options: client.facts.delete_many((), subtree=True, where=where, **options),
    "document": lambda client, where, **options: client.documents.delete_many(where=where, **options),
    "statement": lambda client, where, **options: client.semantic.delete_many(where=where, **options),
    "event": lambda client, where, **options: client.timeline.delete_many(where=where, **options),
}


def counted(answer: Any) -> int:
    """The count in the answer to any deletion."""
    names = ("purged_count", "deleted_count", "pruned_count")
    return int(next(getattr(answer, name) for name in names if hasattr(answer, name)))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Mnemon(tmp_path_factory.mktemp("vault"), embedding_model="hashing") as opened:
        for number in range(2):
            text = f"Ada likes tea {number}."
            opened.memories.add(text, user="ada", metadata={"kind": "x", "year": 2024, "tags": ["a"]})
            opened.facts.put(("user", "ada"), str(number), {"content": text, "kind": "x", "year": 2024, "tags": ["a"]})
            opened.documents.put(str(number), text, metadata={"kind": "x", "year": 2024, "tags": ["a"]})
            opened.semantic.add(text, user="ada", metadata={"kind": "x", "year": 2024, "tags": ["a"]})
            opened.timeline.add("task", text, user="ada", metadata={"kind": "x", "year": 2024, "tags": ["a"]})
        yield opened


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("kind", DELETIONS)
def test_a_deletion_by_a_key_that_no_record_has_is_refused(client: Client, kind: str, *, dry_run: bool) -> None:
    key = "value.knid" if kind == "fact" else "metadata.knid"
    with pytest.raises(mnemon.InvalidArgumentError) as raised:
        DELETIONS[kind](client, "knid", dry_run=dry_run)
    assert [(each.field, each.description) for each in raised.value.violations] == [
        (f"where.{key}", f"no {kind} has this key")
    ]
    # That no record has this value is an answer like any other.
    DELETIONS[kind](client, "kind", dry_run=dry_run)


NEGATED: dict[str, Callable[..., Any]] = {
    "memory": lambda client, **options: client.memories.purge(where=F("metadata.knid") != "x", **options),
    "fact": lambda client, **options: client.facts.delete_many(
        (), subtree=True, where={"knid": {"$nin": ["x"]}}, **options
    ),
    "document": lambda client, **options: client.documents.delete_many(where=~(F("metadata.knid") == "x"), **options),
    "statement": lambda client, **options: client.semantic.delete_many(where=F("metadata.knid") != "x", **options),
    "event": lambda client, **options: client.timeline.delete_many(where=F("metadata.knid") != "x", **options),
}
COUNTS: dict[str, Callable[[Client], int]] = {
    "memory": lambda client: client.memories.count(),
    "fact": lambda client: len(client.facts.search("tea", namespace=("user", "ada"), limit=10)),
    "document": lambda client: client.documents.count(),
    "statement": lambda client: len(client.semantic.search("Ada likes tea", limit=10)),
    "event": lambda client: len(client.timeline.search()),
}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("kind", NEGATED)
def test_a_negated_key_that_no_record_has_deletes_nothing(client: Client, kind: str, *, dry_run: bool) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=f"no {kind} has this key"):
        NEGATED[kind](client, dry_run=dry_run)
    assert COUNTS[kind](client) == 2


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("kind", NEGATED)
@pytest.mark.parametrize(
    ("key", "value", "types"),
    [
        ("year", "2024", "text, only with a number"),
        ("year", True, "true or false, only with a number"),
        ("year", datetime(2024, 1, 1, tzinfo=UTC), "a time, only with a number"),
        ("tags", 1, "a number, only with a list of texts"),
        ("kind", ["x"], "a list of texts, only with text"),
    ],
)
def test_a_negated_value_of_a_type_that_no_record_has_deletes_nothing(
    client: Client, kind: str, key: str, value: Any, types: str, *, dry_run: bool
) -> None:
    place = "value" if kind == "fact" else "metadata"
    erased = {"statement": "semantic"}.get(kind, kind)
    where = F(f"{place}.{key}") != value
    run = client.erasures.count if dry_run else client.erasures.run
    for delete in (
        lambda: DELETE[kind](client, where, dry_run=dry_run),
        lambda: run(kind=erased, where=where),
    ):
        with pytest.raises(mnemon.InvalidArgumentError, match=rf"{place}\.{key}: no .* with {types}"):
            delete()
    assert COUNTS[kind](client) == 2


@pytest.mark.parametrize("kind", NEGATED)
def test_a_deletion_compares_values_of_the_stored_types(client: Client, kind: str) -> None:
    place = "value" if kind == "fact" else "metadata"
    year, tags = F(f"{place}.year"), F(f"{place}.tags")
    for where, count in (
        (year != 2024.0, 0),
        (~tags.contains("a"), 0),
        (year.exists() & ~(year == 7), 2),
    ):
        found = DELETE[kind](client, where, dry_run=True)
        assert counted(found) == count


@pytest.mark.parametrize("kind", ["memory", "fact", "document", "semantic", "event"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_erasure_by_a_key_that_no_record_has_is_refused(client: Client, kind: str, *, dry_run: bool) -> None:
    place = "value" if kind == "fact" else "metadata"
    key = F(f"{place}.knid")
    for where in (key == "x", key != "x"):
        with pytest.raises(mnemon.InvalidArgumentError, match="no record of this kind has this key"):
            client.erasures.count(kind=kind, where=where) if dry_run else client.erasures.run(kind=kind, where=where)
    assert sum(client.erasures.count(kind=kind, where=F(f"{place}.kind") == "x").values()) >= 2


def test_a_purge_by_metadata_that_no_memory_has_is_refused(client: Client) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=r"metadata\.knid: no memory has this key"):
        client.memories.purge(metadata={"knid": "x"})
    assert client.memories.purge(metadata={"kind": "y"}).purged_count == 0


@pytest.mark.parametrize(
    "search",
    [
        lambda client, **most: client.documents.search("tea", **most),
        lambda client, **most: client.memories.search("tea", **most),
        lambda client, **most: client.facts.search("tea", namespace=("user", "ada"), **most),
        lambda client, **most: client.semantic.search("Ada likes tea 1.", min_similarity=0.1, **most),
        lambda client, **most: client.timeline.search("tea", user="ada", **most),
    ],
)
def test_top_k_is_another_name_of_limit(client: Client, search: Callable[..., Any]) -> None:
    assert [len(search(client, **most)) for most in ({"limit": 1}, {"top_k": 1}, {"top_k": 2})] == [1, 1, 2]
