"""Every method for memories of the Python client against a real server."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import Client, F, Memory, Scope

from tests.support.repository import ROOT
from tests.support.server import server_process, wait_until

LOCAL = ("--knowledge-store-backend", "local")
VAST = timedelta(days=3650)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without memories."""
    with Client(address) as found:
        found.memories.purge(where=F("memory_id").exists())
        yield found


@pytest.fixture
def ids(client: Client) -> dict[str, str]:
    """Ids of three memories: of tea, the train, and the report."""
    remembered = {
        "tea": client.remember(
            "Ada likes green tea.", type="preference", user="ada", agent="claude", metadata={"score": 5, "hot": True}
        ),
        "train": client.remember(
            "The night train to Vienna leaves at nine.", type="fact", user="ada", decay="contextual"
        ),
        "report": client.remember(
            "The quarterly report is due on Friday.",
            type="fact",
            user="bob",
            project="office",
            is_global=True,
            decay="reinforceable",
            metadata={"score": 3},
        ),
    }
    return {name: memory.memory_id for name, memory in remembered.items()}


def test_a_memory_comes_back_as_it_was_given(client: Client) -> None:
    metadata: dict[str, Any] = {
        "title": "Grüße 🚀",
        "pages": 2**53 + 1,
        "weight": 5.0,
        "draft": False,
        "tags": ["a", "b"],
        "when": datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC),
    }
    given = {"user": "ada", "household": "h", "persona": "p", "agent": "claude", "project": "x", "personality": "dry"}

    memory = client.remember(
        "日本語のテキスト", type="note", is_global=True, decay="reinforceable", metadata=metadata, **given
    )

    assert client.memories.get(memory.memory_id).to_dict() == {
        **memory.to_dict(),
        "confidence": pytest.approx(1, abs=1e-3),
    }
    assert (memory.content, memory.type, memory.decay, memory.is_global) == (
        "日本語のテキスト",
        "note",
        "reinforceable",
        True,
    )
    assert memory.scope == Scope("ada", "h", "p", "claude", "x")
    assert memory.metadata == metadata
    assert {key: type(value) for key, value in memory.metadata.items()} == {k: type(v) for k, v in metadata.items()}
    assert (memory.confidence, memory.revision, memory.reinforce_time) == (1.0, 1, None)
    assert memory.create_time is not None


def test_the_same_request_id_stores_one_memory(client: Client) -> None:
    first = client.remember("once", request_id="one-call")
    again = client.remember("once", request_id="one-call")

    assert again.memory_id == first.memory_id
    assert client.memories.count() == 1
    with pytest.raises(mnemon.RequestIdReusedError):
        client.remember("twice", request_id="one-call")


@pytest.mark.parametrize("mode", [None, "hybrid", "vector", "keyword"])
def test_a_recall_finds_the_nearest_first_and_says_why(client: Client, ids: dict[str, str], mode: str | None) -> None:
    answer = client.memories.search("green tea", mode=mode, explain=True)

    best = answer[0]
    assert (best.memory_id, best.content) == (ids["tea"], "Ada likes green tea.")
    assert [match.score for match in answer] == sorted((match.score for match in answer), reverse=True)
    assert best.explanation is not None
    assert sum(part.contribution for part in best.explanation.parts) == pytest.approx(best.score, abs=1e-3)
    assert (best.similarity is None) == (mode == "keyword")
    assert (best.keyword_score is None) == (mode == "vector")
    assert answer.diagnostics.mode == (mode or "hybrid")
    assert client.memories.search("green tea", limit=1, mode=mode)[0].explanation is None


def test_an_answer_says_that_nothing_relevant_was_found(client: Client, ids: dict[str, str]) -> None:
    own = client.memories.search("When does the night train to Vienna leave?")
    assert (own.best_relevance, own.nothing_relevant) == (own[0].score, False)

    foreign = client.memories.search("How long does sourdough bread have to rest?")
    floor = foreign.diagnostics.relevance_floor
    assert floor is not None
    assert foreign[0].score == foreign.best_relevance < floor < own[0].score
    assert foreign.nothing_relevant
    assert foreign.to_dict()["diagnostics"]["nothing_relevant"]
    lower = client.memories.search("How long does sourdough bread have to rest?", min_score=foreign[0].score / 2)
    assert (len(lower) > 0, lower.nothing_relevant) == (True, False)
    assert client.memories.search("anything", user="nobody").best_relevance == 0.0


def test_a_recall_by_vector_finds_what_was_given_with_it(client: Client) -> None:
    dimension = client.documents.status().embedding_model.dimension
    first, second = ([float(place == axis) for place in range(dimension)] for axis in (0, 1))
    client.remember("first axis", embedding=first)
    client.remember("second axis", embedding=second)

    answer = client.memories.search(vector=second)

    assert answer[0].content == "second axis"
    assert answer[0].similarity == pytest.approx(1, abs=1e-3)
    assert answer.diagnostics.mode == mnemon.SearchMode.VECTOR
    with pytest.raises(mnemon.InvalidArgumentError, match="embedding"):
        client.remember("too short", embedding=[1.0])


def test_filters_mean_the_same_in_every_method(client: Client, ids: dict[str, str]) -> None:
    names = {memory_id: name for name, memory_id in ids.items()}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"type": "fact"}, {"train", "report"}),
        ({"user": "ada", "type": "fact"}, {"train"}),
        ({"is_global": False}, {"tea", "train"}),
        ({"metadata": {"score": 5}}, {"tea"}),
        ({"metadata": {"score": "5"}}, set()),
        ({"where": F("metadata.score") >= 3}, {"tea", "report"}),
        ({"where": (F("metadata.score") > 3) | (F("project") == "office")}, {"tea", "report"}),
        ({"where": ~F("agent").exists()}, {"train", "report"}),
        ({"where": F("type").isin(["fact", "other"]) & (F("user") != "bob")}, {"train"}),
        ({"where": F("content").contains("report")}, {"report"}),
        ({"where": {"decay_policy": {"in": ["contextual", "stable"]}, "user": "ada"}}, {"tea", "train"}),
        ({"where": F("memory_id") == ids["tea"]}, {"tea"}),
        ({"created_to": datetime.now(UTC) - timedelta(hours=1)}, set()),
        ({"created_from": datetime.now(UTC) - timedelta(hours=1)}, {"tea", "train", "report"}),
        ({"reinforced_from": datetime.now(UTC) - timedelta(hours=1)}, set()),
    ]
    for which, expected in cases:
        recalled = client.memories.search("tea train report", mode="keyword", **which)
        assert {names[match.memory_id] for match in recalled} == expected, which
        assert {names[memory.memory_id] for memory in client.memories.list(**which)} == expected, which
        assert client.memories.count(**which) == len(expected), which
        if which == {"metadata": {"score": "5"}}:
            with pytest.raises(mnemon.InvalidArgumentError, match="with text, only with a number"):
                client.memories.purge(dry_run=True, **which)
        else:
            assert client.memories.purge(dry_run=True, **which).purged_count == len(expected), which
        fading = {names[each.memory.memory_id] for each in client.memories.forecast(VAST, **which)}
        assert fading == expected - {"tea"}, which


def test_a_filter_of_an_unknown_field_is_refused_with_the_known_fields(client: Client) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match="decay_policy"):
        client.memories.count(where=F("flavour") == "mint")


def test_an_update_changes_what_is_given_and_leaves_the_rest(client: Client, ids: dict[str, str]) -> None:
    changed = client.memories.update(
        ids["tea"], content="Ada likes black tea.", agent="", set_metadata={"score": 7}, remove_metadata=["hot"]
    )

    assert (changed.content, changed.agent, changed.user, changed.type) == (
        "Ada likes black tea.",
        "",
        "ada",
        "preference",
    )
    assert (changed.metadata, changed.revision) == ({"score": 7}, 2)
    assert client.memories.search("black tea", limit=1)[0].memory_id == ids["tea"]
    assert client.memories.update(ids["tea"], metadata={}, decay="contextual").metadata == {}
    with pytest.raises(mnemon.RevisionMismatchError):
        client.memories.update(ids["tea"], content="late", expected_revision=1)


def test_only_a_reinforceable_memory_can_be_reinforced(client: Client, ids: dict[str, str]) -> None:
    assert client.memories.reinforce(ids["report"]).reinforce_time is not None
    for name in ("tea", "train"):
        with pytest.raises(mnemon.InvalidOperationError):
            client.memories.reinforce(ids[name])


def test_a_forgotten_memory_is_found_again_only_after_it_was_restored(client: Client, ids: dict[str, str]) -> None:
    receipt = client.memories.delete(ids["tea"])

    assert (receipt.id, receipt.outcome) == (ids["tea"], mnemon.WriteOutcome.DELETED)
    assert ids["tea"] not in {match.memory_id for match in client.memories.search("green tea")}
    with pytest.raises(mnemon.MemoryNotFoundError):
        client.memories.get(ids["tea"])
    with pytest.raises(mnemon.InvalidOperationError):
        client.memories.delete(ids["tea"])
    [deleted] = [memory for memory in client.memories.list(show_deleted=True) if memory.delete_time]
    assert deleted.memory_id == ids["tea"]
    assert (client.memories.count(), client.memories.count(show_deleted=True)) == (2, 3)
    assert client.memories.status().deleted_count == 1

    assert client.memories.undelete(ids["tea"]).content == "Ada likes green tea."
    assert client.memories.search("green tea")[0].memory_id == ids["tea"]
    with pytest.raises(mnemon.InvalidOperationError):
        client.memories.undelete(ids["tea"])


def test_a_purge_removes_for_good_and_never_everything_by_accident(client: Client, ids: dict[str, str]) -> None:
    with pytest.raises(mnemon.InvalidArgumentError):
        client.memories.purge()
    with pytest.raises(mnemon.InvalidArgumentError, match="user"):
        client.memories.purge(user="", type="fact")
    client.memories.delete(ids["train"])

    assert client.memories.purge(only_deleted=True, dry_run=True) == mnemon.PurgeReceipt(1, False)
    assert client.memories.purge(only_deleted=True).purged_count == 1
    with pytest.raises(mnemon.MemoryNotFoundError):
        client.memories.undelete(ids["train"])
    assert client.memories.purge(user="bob").purged_count == 1
    assert [memory.memory_id for memory in client.memories.list(show_deleted=True)] == [ids["tea"]]


def test_a_forecast_says_when_a_memory_falls_below_the_threshold(client: Client, ids: dict[str, str]) -> None:
    in_a_month = datetime.now(UTC) + timedelta(days=30)

    [train] = client.memories.forecast(in_a_month)

    assert train.memory.memory_id == ids["train"]
    assert train.memory.confidence == pytest.approx(1, abs=1e-3)
    assert train.confidence_then == pytest.approx(0.5 ** (30 / 7), abs=1e-3)
    assert train.memory.create_time is not None and train.fade_time is not None
    assert train.fade_time - train.memory.create_time == pytest.approx(
        timedelta(days=7 * 1.736966), abs=timedelta(minutes=5)
    )
    assert {each.memory.memory_id for each in client.memories.forecast(VAST, min_confidence=0.9, page_size=1)} == {
        ids["train"],
        ids["report"],
    }


def test_faded_memories_are_left_out_unless_requested(tmp_path: Path) -> None:
    flags = (*LOCAL, "--contextual-half-life-h", "0.001")
    with server_process(tmp_path, *flags) as server, Client(server.address()) as client:
        memory = client.remember("It rains at the moment.", decay="contextual")
        lasting = client.remember("It rains in April.")
        wait_until(lambda: client.memories.get(memory.memory_id).confidence < 0.9)

        def found(min_confidence: float) -> set[str]:
            answer = client.memories.search("it rains", mode="vector", min_confidence=min_confidence)
            return {match.memory_id for match in answer}

        assert found(0.9) == {lasting.memory_id}
        assert found(0.0) == {lasting.memory_id, memory.memory_id}
        assert [each.memory_id for each in client.memories.list(min_confidence=0.9)] == [lasting.memory_id]
        assert (client.memories.count(min_confidence=0.9), client.memories.count()) == (1, 2)


def test_lists_read_all_pages_and_a_page_reads_one(client: Client) -> None:
    texts = [f"note {number}" for number in range(7)]
    for text in texts:
        client.remember(text, user="ada")

    assert [memory.content for memory in client.memories.list(page_size=3)] == texts
    page = client.memories.list_page(page_size=5, user="ada")
    rest = client.memories.list_page(page_size=5, user="ada", page_token=page.next_page_token)
    assert [memory.content for memory in (*page.memories, *rest.memories)] == texts
    assert rest.next_page_token == ""
    with pytest.raises(mnemon.InvalidPageTokenError):
        client.memories.list_page(page_size=5, user="bob", page_token=page.next_page_token)


def test_bad_items_of_a_bulk_fail_alone(client: Client) -> None:
    items: list[Any] = ["one", Memory("two", type="fact", user="bob"), " ", ("three", [1.0]), Memory("four")]
    results = list(client.memories.add_many(items, scope=Scope(user="ada")))

    assert [result.position for result in results if result.error] == [2, 3]
    assert all(isinstance(result.error, mnemon.InvalidArgumentError) for result in results[2:4])
    stored = {client.memories.get(result.memory_id).content: result for result in results if result.receipt}
    assert set(stored) == {"one", "two", "four"}
    assert client.memories.get(results[0].memory_id).user == "ada"
    assert client.memories.get(results[1].memory_id).user == "bob"


def test_a_status_describes_the_memory_store(client: Client, ids: dict[str, str]) -> None:
    status = client.memories.status()

    assert (status.status, status.error, status.backend) == (mnemon.HealthStatus.HEALTHY, "", "local")
    assert (status.memory_count, status.deleted_count) == (3, 0)
    assert status.index.flat_count + status.index.graph_count == 3


def test_the_example_for_memories_of_the_readme_runs_as_printed(address: str, client: Client) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^## Memories\n\n```python\n(.*?)```", readme, re.DOTALL | re.MULTILINE)
    script = example.replace("127.0.0.1:50051", address)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout, done.stderr) == ("100%  Ada likes green tea.\n", "")


def test_the_filters_of_the_readme_are_understood(client: Client, ids: dict[str, str]) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(F\(.*?)```", readme, re.DOTALL)
    filters = [eval(line, {"F": F}) for line in block.splitlines()]  # noqa: S307

    assert [client.memories.count(where=where) for where in filters] == [2, 2, 1, 2, 1]
