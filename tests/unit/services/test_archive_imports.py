"""What an import does to a vault: conflicts, vectors, times, events and invalid records."""

import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.archive import (
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ExportSummary,
    ImportConflict,
    ImportStart,
)
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import FACTS, MEMORIES, RULES, SEMANTIC
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import EmbeddingModelMismatchError, InvalidArgumentError
from mnemon_server.domain.events import Event
from mnemon_server.domain.facts import FactRenewal, record_id
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import Scope
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.services.facts.store import FactStore

from tests.support.archive_stores import (
    CREATED,
    DIMENSION,
    HEADER,
    MODEL,
    UNIT,
    UPDATED,
    changed,
    created,
    memory,
    open_archive,
    statement,
)

LATER = UPDATED + timedelta(seconds=1)
ACME = Namespace(("org", "acme"))


def fact(key: str = "k", value: dict[str, Any] | None = None, **fields: Any) -> ArchivedRecord:
    own = {
        "namespace": "org.acme.",
        "fact_key": key,
        "fact_value": json.dumps(value or {"content": "Ada likes tea.", "n": 5}),
        "own_metadata": "{}",
        "indexing": "{}",
        "created_at": CREATED,
        "updated_at": UPDATED,
        **fields,
    }
    document = Document(record_id(ACME, key), "", fields=own, create_time=CREATED, update_time=UPDATED, revision=2)
    return ArchivedRecord(RecordKind.FACT, document)


def rule(name: str, place: int, **fields: Any) -> ArchivedRecord:
    content = json.dumps({"name": name, **fields})
    document = Document(name, content, {"place": place}, create_time=CREATED, update_time=UPDATED)
    return ArchivedRecord(RecordKind.RULE, document)


async def test_a_record_keeps_its_times_its_revision_and_its_vector(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        tilted = tuple(np.float32([0.6, 0.8, *[0.0] * (DIMENSION - 2)]).tolist())
        given = memory(passages=(Passage(0, 0, 3, tilted), Passage(1, 4, 14, UNIT)))
        assert created(await opened.take(given))
        stored = opened.stored(MEMORIES, "m")
        assert (stored.create_time, stored.update_time, stored.revision) == (CREATED, UPDATED, 3)
        assert [(part.start, part.end, part.embedding) for part in stored.passages] == [(0, 3, tilted), (4, 14, UNIT)]
        [event] = opened.changes()
        assert (event.type, event.record_id, event.revision) == (ChangeType.MEMORY_CREATED, "m", 3)


@pytest.mark.parametrize(
    ("policy", "time", "outcome", "content"),
    [
        (ImportConflict.NEWER, LATER, "replaced", "other"),
        (ImportConflict.NEWER, UPDATED, "kept", "Ada likes tea."),
        (ImportConflict.KEEP, LATER, "kept", "Ada likes tea."),
        (ImportConflict.REPLACE, CREATED, "replaced", "other"),
        (ImportConflict.REFUSE, LATER, "'m' already exists in another state", "Ada likes tea."),
    ],
)
async def test_a_taken_id_is_handled_as_requested(
    tmp_path: Path, policy: ImportConflict, time: Any, outcome: str, content: str
) -> None:
    async with open_archive(tmp_path) as opened:
        await opened.take(memory())
        other = memory(content="other", update_time=time, revision=1)
        assert await opened.outcomes(other, on_conflict=policy) == [outcome]
        stored = opened.stored(MEMORIES, "m")
        assert (stored.content, stored.revision) == (content, 4 if outcome == "replaced" else 3)
        assert await opened.outcomes(memory(content=content, update_time=stored.update_time), on_conflict=policy) == [
            "unchanged"
        ]


@pytest.mark.parametrize("policy", ImportConflict)
async def test_an_expired_fact_does_not_block_an_import(tmp_path: Path, policy: ImportConflict) -> None:
    async with open_archive(tmp_path) as opened:
        end = opened.clock.time + timedelta(seconds=60)
        mortal = fact(ttl_s=60.0, expire_time=end)
        assert created(await opened.take(mortal))
        opened.clock.pass_hours(1)
        assert await opened.outcomes(mortal, on_conflict=policy) == ["unchanged"]
        assert await opened.outcomes(fact(), on_conflict=policy) == ["created"]
        assert opened.stored(FACTS, record_id(ACME, "k")).fields["expire_time"] is None
        assert [event.type for event in opened.changes()] == [
            ChangeType.FACT_CREATED, ChangeType.FACT_DELETED, ChangeType.FACT_CREATED,
        ]  # fmt: skip


async def test_the_later_of_two_records_with_one_id_in_a_message_wins(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        pair = memory(content="first"), memory(content="second", update_time=LATER)
        assert await opened.outcomes(*pair) == ["created", "replaced"]
        assert opened.stored(MEMORIES, "m").content == "second"
        assert await opened.outcomes(*pair) == ["kept", "unchanged"]


async def test_a_deleted_memory_comes_back_deleted_and_the_log_says_so(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        assert created(await opened.take(memory(hidden=True, fields={"delete_time": UPDATED})))
        assert opened.stored(MEMORIES, "m").hidden
        assert [event.type for event in opened.changes()] == [ChangeType.MEMORY_DELETED]
        assert opened.vault.collection(MEMORIES).search_keywords("tea").passage_ids.tolist() == []


async def test_fields_derived_from_other_fields_are_computed_again(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        given = statement("s", "Ada lives in Berlin.", fields={"content_hash": "forged", "terms": ("forged",)})
        assert created(await opened.take(given))
        stored = opened.stored(SEMANTIC, "s")
        assert stored.fields["content_hash"] != "forged" and stored.fields["terms"] == ("ada", "berlin", "lives")
        assert stored.fields["time"] == CREATED
        [part] = stored.passages
        assert (part.start, part.end) == (0, 20)
        assert np.linalg.norm(part.embedding or ()) == pytest.approx(1.0)

        forged = changed(fact(), content="forged", metadata={"n": 9})
        assert created(await opened.take(forged))
        stored = opened.stored(FACTS, record_id(ACME, "k"))
        assert (stored.content, dict(stored.metadata)) == ("Ada likes tea.", {"content": "Ada likes tea.", "n": 5})
        assert len(stored.passages) == 1


async def test_rules_come_in_any_order_and_the_registry_gets_their_version(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        header = replace(HEADER, rules_version=9)
        archive = [rule("child", 2, extends="base"), rule("base", 1), rule("orphan", 3, extends="nobody")]
        child, base, orphan = await opened.outcomes(*archive, header=header)
        assert (child, base) == ("created", "created") and "extends 'nobody', which does not exist" in orphan
        rules, version = await opened.rules.export()
        assert ([each["name"] for each in rules], version) == (["default", "base", "child"], 9)
        assert (await opened.rules.resolve("child")).ancestors == ("base",)
        assert opened.stored(RULES, "base").create_time == CREATED
        assert (await opened.outcomes(*archive[:2], header=header)) == ["unchanged"] * 2
        assert (await opened.rules.export())[1] == 9
        newer = changed(rule("base", 1, priority=3), update_time=LATER)
        assert await opened.outcomes(newer) == ["replaced"]
        assert (await opened.rules.export())[1] == 10


async def test_an_event_keeps_its_time_of_recording_and_is_never_replaced(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        event = Event("e", "task", CREATED, "Did it.", scope=Scope(user="ada"), record_time=UPDATED)
        archived = ArchivedRecord(RecordKind.EVENT, event=event)
        assert created(await opened.take(archived))
        [_, [again], summary] = await opened.parts(ExportSelection(kinds=frozenset({RecordKind.EVENT})))
        assert again == archived
        assert isinstance(summary, ExportSummary) and summary.counts == {RecordKind.EVENT: 1}
        other = replace(archived, event=replace(event, content="Did something else."))
        assert await opened.outcomes(archived, other, on_conflict=ImportConflict.REPLACE) == ["unchanged", "kept"]
        [refused] = await opened.outcomes(other, on_conflict=ImportConflict.REFUSE)
        assert "events are never replaced" in refused
        assert '"imported": true' in opened.changes()[0].details


NAN = (float("nan"), *UNIT[1:])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (memory(doc_id=""), "record.id: must be 1 to 512 bytes"),
        (memory(content=" ", passages=()), "record.content: must not be blank"),
        (memory(fields={"decay_policy": "never"}), "record.fields.decay_policy: must be one of stable"),
        (memory(fields={"colour": "red"}), "record.fields.colour: is not a field of this kind"),
        (memory(fields={"global": "yes"}), "record.fields.global: must be of the type boolean"),
        (memory(metadata={"$bad": 1}), "record.metadata: key '$bad'"),
        (memory(scope=Scope(user="u" * 300)), "record.scope.user: must be at most 256"),
        (memory(scope=Scope(origin="press")), "record.scope.origin: must be one of 'user', 'agent'"),
        (changed(fact(), scope=Scope(origin="press")), "record.scope.origin: must be one of 'user', 'agent'"),
        (changed(fact(), scope=Scope(origin_name="crm")), "record.scope.origin_name: names an origin"),
        (memory(revision=-1), "record.revision: must be 0 to 9,007,199,254,740,991"),
        (memory(update_time=None), "record.update_time: must be set together"),
        (memory(passages=(Passage(0, 0, 4, UNIT[1:]),)), "vector: must have 8 numbers"),
        (memory(passages=(Passage(0, 0, 4, NAN),)), "vector: must contain only finite numbers"),
        (memory(passages=(Passage(0, 0, 4, (0.0,) * DIMENSION),)), "vector: must not be all zeros"),
        (memory(passages=(Passage(0, 4, 90, UNIT),)), "passages[0]: must be a part of the content"),
        (statement("s", "text", scope=Scope()), "record.scope.user: must name the user"),
        (statement("s", "text", fields={"importance": 2.0}), "record.importance: must be between 0 and 1"),
        (statement("s", "text", passages=(Passage(0, 0, 2, UNIT),)), "passages: must be one, of the whole content"),
        (fact(fact_value="{"), "record.fields: must be valid for a fact"),
        (fact(fact_value="[]"), "record.fields.fact_value: must be a JSON object"),
        (fact(namespace="org.acme"), "record.fields: must be valid for a fact"),
        (fact(indexing='{"paths": [1]}'), "record.fields.indexing"),
        (fact(versions='["x", 1, {}]'), "record.fields: must be valid for a fact"),
        (fact(versions="[-1, 1, {}]"), "record.fields.versions"),
        (fact(versions=f"[{2**63}, 1, {{}}]"), "record.fields.versions"),
        (fact(versions='[1, 1, "text"]'), "record.fields.versions: must be a JSON object"),
        (fact(versions=f"[1, 1, {'[' * 33}{']' * 33}]"), "record.fields.versions: must be a JSON object"),
        (fact(versions='[1, 1, {"n": NaN}]'), "record.fields.versions.n: must be a finite number"),
        (fact(versions="[1, 1e400, {}]"), "record.fields: must be valid for a fact"),
        (fact(versions=f"[1, {10**30}, {{}}]"), "record.fields: must be valid for a fact"),
        (fact(versions="\n".join(["[1, 1, {}]"] * 11)), "record.fields.versions: must be at most 10"),
        (fact(versions=json.dumps([1, 1, {"a": "b" * 66_000}])), "65,536 bytes together"),
        (fact(ttl_s=1e300), "record.fields.ttl_s: must be at least a millionth"),
        (fact(ttl_s=-1.0), "record.fields.ttl_s: must be at least a millionth"),
        (fact(key="k", fact_key="other"), "record.id: must be"),
        (rule("r", 1, priority="high"), "record.content"),
        (changed(rule("r", 1), content="{"), "record.content: must be the JSON of a rule"),
        (changed(rule("r", 1), doc_id="other"), "record.id: must be the rule's name"),
        (ArchivedRecord(RecordKind.DECISION, Document("d", "{}")), "record.content: must be the JSON of a decision"),
        (ArchivedRecord(RecordKind.DOCUMENT, Document("d", "text", hidden=True)), "record.hidden: must not be set"),
        (ArchivedRecord(RecordKind.EVENT), "record.event: must be set"),
        (ArchivedRecord(RecordKind.EVENT, event=Event("e", "", CREATED)), "record.event.event_type"),
    ],
)
async def test_a_bad_record_fails_alone_and_says_why(tmp_path: Path, record: ArchivedRecord, said: str) -> None:
    async with open_archive(tmp_path) as opened:
        first, refused, last = await opened.outcomes(memory("before"), record, memory("after"))
        assert (first, last) == ("created", "created")
        assert said in refused
        assert [event.record_id for event in opened.changes()] == ["before", "after"]


async def test_a_ttl_written_as_a_whole_number_by_a_tool_is_kept_and_renewed(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened, EmbeddingBatcher(HashingEmbedder(DIMENSION)) as batcher:
        assert created(await opened.take(fact(ttl_s=60, expire_time=opened.clock.time + timedelta(seconds=30))))
        assert opened.stored(FACTS, record_id(ACME, "k")).fields["ttl_s"] == 60.0
        facts = FactStore(opened.vault, batcher, clock=opened.clock)
        [renewal] = (await facts.renew([(ACME, "k")])).results
        await facts.aclose()
        assert renewal == FactRenewal(opened.clock.time + timedelta(seconds=60))


async def test_a_decision_with_values_of_wrong_types_is_refused(tmp_path: Path) -> None:
    decision = {
        "decision_id": "d",
        "scope": {"user": "ada"},
        "candidate_id": "c",
        "existing_id": "e",
        "result_id": "c",
        "rule": "default",
        "signals": [{"type": "time", "score": 1, "bound": 300.0, "time_delta_us": 5, "importance_delta": None}],
        "conflict_count": 1,
        "arbitration": {
            "action": "keep",
            "strategy": "recency",
            "winner": "candidate",
            "loser": "existing",
            "confidence": 1.0,
            "reason": "newer",
            "factors": [],
        },
        "merge": None,
        "create_time": 1,
        "revert_time": None,
    }

    def record(**changes: Any) -> ArchivedRecord:
        return ArchivedRecord(RecordKind.DECISION, Document("d", json.dumps({**decision, **changes})))

    wrong = [{"conflict_count": "1"}, {"rule": None}, {"scope": {"user": 5}}, {"signals": [1]}, {"create_time": "now"}]
    wrong.append({"create_time": 10**30})
    async with open_archive(tmp_path) as opened:
        refused = await opened.outcomes(*(record(**changes) for changes in wrong))
        assert all("must be the JSON of a decision" in each for each in refused), refused
        assert await opened.outcomes(record()) == ["created"]
        assert [event.type for event in opened.changes()] == [ChangeType.CONFLICT_RESOLVED]


async def test_vectors_need_a_header_that_names_their_model(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        for header in (None, ArchiveHeader()):
            [refused] = await opened.outcomes(memory(), header=header)
            assert "must be empty if no header names their model" in refused
            assert await opened.outcomes(memory("n", passages=()), header=header, on_conflict=ImportConflict.KEEP) in (
                ["created"],
                ["unchanged"],
            )
        other = ArchiveHeader(model=replace(MODEL, revision="2"))
        with pytest.raises(EmbeddingModelMismatchError, match="hashing@2/fp32/8"):
            opened.store.begin_import(ImportStart(header=other))
        with pytest.raises(InvalidArgumentError, match="format_version: must be 1"):
            opened.store.begin_import(ImportStart(header=ArchiveHeader(format_version=2)))
        assert await opened.outcomes(memory(), header=other, embed_anew=True) == ["created"]
        assert opened.stored(MEMORIES, "m").passages[0].embedding != UNIT


async def test_a_message_of_texts_without_vectors_is_embedded_in_parts(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        texts = [*(f"Thing {number}." for number in range(150)), *("long " * 150_000 for _ in range(3))]
        given = [memory(str(number), text, passages=(), fields={}) for number, text in enumerate(texts)]
        assert created(await opened.take(*given))
        stored = opened.vault.collection(MEMORIES).get_documents([str(number) for number in range(len(texts))])
        assert [bool(each and each.passages) for each in stored] == [True] * len(texts)
        assert (
            sum(len(each.passages) for each in stored if each)
            == opened.vault.collection(MEMORIES).stats().passage_count
        )


async def test_statements_beyond_the_capacity_are_refused(tmp_path: Path) -> None:
    async with open_archive(tmp_path, capacity=2) as opened:
        given = [statement(str(number), f"Ada knows thing number {number}.") for number in range(3)]
        hidden = statement("h", "Old.", fields={"superseded_by": "0"})
        *stored, refused = await opened.outcomes(hidden, *given)
        assert stored == ["created"] * 3
        assert "the capacity of 2 statements is reached" in refused
        assert await opened.outcomes(given[0]) == ["unchanged"]


async def test_expired_facts_are_left_out_and_removed_ones_are_counted(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        ends = opened.clock() + timedelta(minutes=1)
        await opened.take(fact("stays"), fact("goes", ttl_s=60.0, expire_time=ends), fact("later"))
        opened.clock.pass_hours(1)
        keys, summary = [], None
        async for part in opened.store.export(ExportSelection(namespace=Namespace(("org",)))):
            if isinstance(part, list):
                keys += [each.document.fields["fact_key"] for each in part if each.document]
                details = json.dumps({"namespace": ["org", "acme"], "key": "later"})

                def remove(tx: Any, details: str = details) -> str:
                    tx.collection(FACTS).delete_document(
                        record_id(ACME, "later"), change=ChangeType.FACT_DELETED, details=details
                    )
                    return ""

                opened.vault.transact(remove).result()
            elif isinstance(part, ExportSummary):
                summary = part
        assert keys == ["stays", "later"]
        assert summary is not None and (summary.changed_count, summary.removed_count) == (0, 1)


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
async def test_many_facts_are_exported_and_imported_one_message_at_a_time(tmp_path: Path, count: int) -> None:
    async with open_archive(tmp_path / "a") as source, open_archive(tmp_path / "b") as target:
        importing = source.store.begin_import(ImportStart(header=HEADER))
        for start in range(0, count, 1_000):
            assert created(await importing.take(_facts(start, start + 1_000)))
        selection = ExportSelection(kinds=frozenset({RecordKind.FACT}))
        copying, largest, copied = target.store.begin_import(ImportStart(header=HEADER)), 0, 0
        tracemalloc.start()
        try:
            async for part in source.store.export(selection):
                if isinstance(part, list):
                    largest = max(largest, len(part))
                    assert created(await copying.take(part))
                    copied += len(part)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert copied == target.vault.collection(FACTS).stats().document_count == count
        # All of 20,000 at once take 32 MB or more. The rest is what the indexes hold while they grow.
        assert largest <= 256 and peak < 24 << 20


def _facts(start: int, end: int) -> Sequence[ArchivedRecord]:
    found = []
    for number in range(start, end):
        # One long word: to pack the same short ones, so often in each, would take the index 20 MB for a moment.
        record = fact(f"k{number}", {"content": f"Thing {number} {'liesabout' * 36}"})
        assert record.document is not None
        content = json.loads(str(record.document.fields["fact_value"]))["content"]
        found.append(changed(record, content=content, passages=(Passage(0, 0, len(content), UNIT),)))
    return found
