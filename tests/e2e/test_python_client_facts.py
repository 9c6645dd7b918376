"""Every method for facts of the Python client against a real server."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import mnemon
import pytest
from mnemon import Client, Fact, WriteOutcome

from tests.support.repository import ROOT
from tests.support.server import wait_until

ADA, BOB = ("user", "ada"), ("user", "bob")
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without facts."""
    with Client(address) as found:
        found.facts.delete_many((), subtree=True)
        yield found


def fill(client: Client) -> None:
    """Three facts of Ada, in three namespaces, and one of Bob."""
    client.facts.put(ADA, "tea", {"content": "Ada likes green tea.", "category": "drinks", "score": 5})
    client.facts.put((*ADA, "work"), "report", {"content": "The report is due.", "score": 2})
    client.facts.put((*ADA, "work", "old"), "draft", {"content": "A draft of the report.", "score": 3.5})
    client.facts.put(BOB, "tea", {"content": "Bob likes black tea."}, metadata={"category": "drinks"})


def test_a_fact_is_stored_read_changed_and_removed(client: Client) -> None:
    value = {"content": "tea", "n": 5, "nested": {"list": [1, None, {"a": True}]}, "half": 0.5}
    first = client.facts.put(ADA, "tea", value, metadata={"at": LONG_AGO, "n": 7}, create_time=LONG_AGO)
    assert (first.key, first.receipt.outcome) == ("tea", WriteOutcome.CREATED)
    read = client.facts.get(ADA, "tea")
    assert first.fact == read
    assert (read.namespace, read.value, read.metadata) == (ADA, value, {"at": LONG_AGO, "n": 7})
    assert (read.create_time, read.ttl, read.expire_time, read.index) == (LONG_AGO, None, None, None)

    again = client.facts.put(ADA, "tea", {"content": "coffee"}, mode="update", expected_revision=read.revision)
    assert again.fact is not None and again.fact.revision == read.revision + 1
    changed = client.facts.get(ADA, "tea", versions=True)
    assert (changed.value, changed.create_time) == ({"content": "coffee"}, LONG_AGO)
    assert [(version.revision, version.value) for version in changed.versions] == [(read.revision, value)]
    assert client.facts.get(ADA, "tea").versions == ()

    assert client.facts.delete(ADA, "tea").outcome is WriteOutcome.DELETED
    with pytest.raises(mnemon.FactNotFoundError):
        client.facts.delete(ADA, "tea")
    assert client.facts.delete(ADA, "tea", allow_missing=True).outcome is WriteOutcome.MISSING
    with pytest.raises(mnemon.FactNotFoundError):
        client.facts.get(ADA, "tea")


def test_write_modes_and_expected_revisions_are_checked(client: Client) -> None:
    with pytest.raises(mnemon.FactNotFoundError):
        client.facts.put(ADA, "tea", {}, mode="update")
    client.facts.put(ADA, "tea", {}, mode="create")
    with pytest.raises(mnemon.FactExistsError):
        client.facts.put(ADA, "tea", {"n": 1}, mode="create")
    with pytest.raises(mnemon.RevisionMismatchError):
        client.facts.put(ADA, "tea", {"n": 1}, expected_revision=99)
    with pytest.raises(mnemon.RevisionMismatchError):
        client.facts.delete(ADA, "tea", expected_revision=99)
    with pytest.raises(mnemon.FactNotFoundError):
        client.facts.put(BOB, "tea", {"n": 1}, mode="update")
    assert client.facts.get(ADA, "tea").value == {}


def test_a_missing_key_is_chosen_and_a_repeated_request_is_reported(client: Client) -> None:
    first = client.facts.put(ADA, None, {"content": "tea"}, request_id="put-once")
    again = client.facts.put(ADA, None, {"content": "tea"}, request_id="put-once")
    other = client.facts.put(ADA, None, {"content": "tea"})

    assert first.key == again.key != other.key
    assert (first.receipt.replayed, again.receipt.replayed) == (False, True)
    assert len(list(client.facts.list(ADA))) == 2


def test_facts_are_found_by_text_and_by_conditions(client: Client) -> None:
    fill(client)

    answer = client.facts.search("green tea", namespace=ADA)
    assert [(match.key, match.namespace) for match in answer] == [("tea", ADA)]
    assert answer[0].score is not None and answer[0].score > 0.5
    assert [match.key for match in client.facts.search("tea", namespace=("user",), subtree=True, limit=2)] == [
        "tea"
    ] * 2
    below = client.facts.search("report tea", namespace=ADA, subtree=True, where={"score": {"$gte": 3}})
    assert {match.key for match in below} == {"tea", "draft"}
    drinks = client.facts.search(subtree=True, where={"category": "drinks"})
    assert [(match.namespace, match.score) for match in drinks] == [(ADA, None), (BOB, None)]
    assert [match.key for match in client.facts.search(namespace=ADA, subtree=True, limit=1, offset=2)] == ["draft"]
    assert client.facts.search("report", namespace=ADA, mode="keyword", min_score=0.01).results == ()
    assert [match.key for match in client.facts.search(namespace=ADA, where=mnemon.F("key") == "tea")] == ["tea"]
    [ids] = client.facts.search("tea", namespace=ADA, where={"category": "drinks"}, limit=1, view="ids")
    assert (ids.key, ids.value, ids.score is None) == ("tea", {}, False)
    [full] = client.facts.search("tea", namespace=ADA, where={"category": "drinks"}, limit=1, view="full")
    assert len(full.fact.embeddings[0]) > 0 and full.value["category"] == "drinks"
    with pytest.raises(ValueError, match=r"\$like"):
        client.facts.search("tea", namespace=ADA, where={"category": {"$like": "d%"}})


def test_unindexed_facts_are_found_only_by_key_and_in_lists(client: Client) -> None:
    client.facts.put(ADA, "off", {"content": "zebra"}, index=False)
    client.facts.put(ADA, "path", {"content": "zebra", "title": "giraffe"}, index=["title"])

    assert client.facts.get(ADA, "off").index is False
    assert client.facts.get(ADA, "path").index == ("title",)
    found = client.facts.search("zebra", namespace=ADA, mode="keyword", min_score=0.01)
    assert found.results == ()
    assert [match.key for match in client.facts.search("giraffe", namespace=ADA)] == ["path"]
    assert {fact.key for fact in client.facts.list(ADA)} == {"off", "path"}


def test_a_given_vector_is_searched(client: Client) -> None:
    dimension = client.documents.status().embedding_model.dimension
    east, north = [1.0] + [0.0] * (dimension - 1), [0.0, 1.0] + [0.0] * (dimension - 2)
    client.facts.put(ADA, "east", {"content": "a"}, embedding=east)
    [result] = client.facts.put_many([(Fact(ADA, "north", {"content": "b"}), north)])
    assert result.error is None

    assert client.facts.search(vector=north, namespace=ADA)[0].key == "north"
    assert client.facts.search(vector=east, namespace=ADA)[0].key == "east"


def test_lists_and_namespaces_come_page_by_page(client: Client) -> None:
    facts = [Fact((*ADA, f"room-{number % 3}"), f"key-{number:02}", {"n": number}) for number in range(20)]
    assert [result.error for result in client.facts.put_many(facts)] == [None] * 20

    listed = list(client.facts.list(ADA, subtree=True, page_size=7))
    assert [fact.value["n"] for fact in listed] == list(range(20))
    assert list(client.facts.list(ADA)) == []
    page = client.facts.list_page(ADA, subtree=True, page_size=7)
    assert (len(page.facts), page.next_page_token != "") == (7, True)
    assert [fact.key for fact in client.facts.list(subtree=True, where={"n": {"$lt": 2}})] == ["key-00", "key-01"]
    rooms = [(*ADA, f"room-{number}") for number in range(3)]
    assert list(client.facts.list_namespaces(prefix=("user",), page_size=2)) == rooms
    assert list(client.facts.list_namespaces(suffix=("*", "room-1"))) == [rooms[1]]
    assert list(client.facts.list_namespaces(max_depth=2)) == [ADA]
    assert len(client.facts.list_namespaces_page(page_size=2).namespaces) == 2


def test_several_facts_are_read_at_once_and_missing_ones_left_out(client: Client) -> None:
    fill(client)
    names = [(BOB, "tea"), (ADA, "gone"), (BOB, "report"), (ADA, "tea")]
    assert [(fact.namespace, fact.key) for fact in client.facts.get_many(names)] == [(BOB, "tea"), (ADA, "tea")]


def test_a_fact_with_a_ttl_expires_unless_it_is_renewed(client: Client) -> None:
    client.facts.put(ADA, "kept", {"n": 1}, ttl=timedelta(hours=1))
    client.facts.put(ADA, "gone", {"n": 1}, ttl=timedelta(seconds=0.5))

    wait_until(lambda: [fact.key for fact in client.facts.list(ADA)] == ["kept"])
    with pytest.raises(mnemon.FactNotFoundError):
        client.facts.get(ADA, "gone")
    kept = client.facts.get(ADA, "kept")
    result, gone = client.facts.renew([(ADA, "kept"), (ADA, "gone")])
    assert (gone.namespace, gone.key, gone.expire_time) == (ADA, "gone", None)
    assert isinstance(gone.error, mnemon.FactNotFoundError)
    assert gone.to_dict()["error"]["reason"] == "FACT_NOT_FOUND"
    renewed = client.facts.get(ADA, "kept")
    assert (result.error, result.expire_time) == (None, renewed.expire_time)
    assert kept.expire_time is not None and renewed.expire_time is not None
    assert kept.ttl == renewed.ttl == timedelta(hours=1)
    assert renewed.expire_time > kept.expire_time
    assert (renewed.revision, renewed.update_time) == (kept.revision, kept.update_time)


def test_many_facts_are_deleted_at_once_and_a_dry_run_only_counts(client: Client) -> None:
    fill(client)
    assert client.facts.delete_many(ADA, subtree=True, where={"score": {"$lt": 5}}, dry_run=True).deleted_count == 2
    assert client.facts.delete_many(ADA, subtree=True, where={"score": {"$lt": 5}}).deleted_count == 2
    assert [(fact.namespace, fact.key) for fact in client.facts.list(subtree=True)] == [(ADA, "tea"), (BOB, "tea")]
    assert client.facts.delete_many(ADA).deleted_count == 1
    with pytest.raises(ValueError, match="namespace"):
        client.facts.delete_many(())


def test_a_bad_fact_of_a_bulk_fails_alone(client: Client) -> None:
    client.facts.put(ADA, "there", {})
    items = [Fact(ADA, "a", {"n": 1}), Fact(("",), "b", {}), Fact(ADA, "there", {}), Fact(ADA, "", {"n": 2})]
    results = list(client.facts.put_many(items, mode="create"))

    assert [type(result.error) for result in results] == [
        type(None),
        mnemon.InvalidArgumentError,
        mnemon.FactExistsError,
        type(None),
    ]
    assert client.facts.get(ADA, results[3].key).value == {"n": 2}


def test_the_example_of_the_readme_runs_as_printed(
    client: Client, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## Facts\n")
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:1]

    # The model of the tests knows words alone.
    asked = example.replace("What does she drink?", "Which tea does she drink?")
    exec(asked.replace("127.0.0.1:50051", address), {})  # noqa: S102

    assert capsys.readouterr().out == "tea: Ada likes green tea.\n[('user', 'ada')]\n"
    assert client.facts.get(ADA, "code").ttl == timedelta(days=7)
