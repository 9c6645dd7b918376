"""No number in an archive breaks a vault: either it is refused by name, or everything works with it."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import grpc
import pytest
from grpc import aio
from mnemon import AsyncClient
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import (
    conflicts_pb2,
    episodic_pb2,
    facts_pb2,
    knowledge_store_pb2,
    memory_pb2,
    rules_pb2,
    semantic_pb2,
)
from mnemon_server.domain.conflicts import Decision
from mnemon_server.domain.facts import record_id
from mnemon_server.domain.namespaces import decode_namespace

from tests.support.figures import border_changes
from tests.support.full_rule import FULL
from tests.support.full_vault import TIME, fill
from tests.support.rpcs import Rpc, rpcs
from tests.support.server import Connection, whole_server

FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNAVAILABLE}
RPCS: dict[str, Rpc] = {rpc.method.name: rpc for rpc in rpcs()}
RUN = 250
Records = Sequence[pb.ArchivedRecord]
_ALIKE = re.compile(r"(?<=metadata)\[.*?\](?=\.)|\[\d+\]")
"""Keys and indices that make no difference."""
_RENAMED = {"time_delta": "time_delta_us"}


async def filled(folder: Path) -> tuple[pb.ArchiveHeader, list[pb.ArchivedRecord]]:
    """The archive of a vault with records of every kind."""
    async with whole_server(folder) as server, AsyncClient(str(server.server.address)) as client:
        await fill(client)
        await client.rules.add(FULL)
        # Only the weighted factors can decide between these two.
        for place in ("Berlin", "Bern"):
            alike: dict[str, Any] = {"user": "cy", "keywords": ["home"], "importance": 0.5, "create_time": TIME}
            await client.semantic.add(f"Cy lives in {place}.", conflict_policy="resolve", **alike)
        return await exported(server)


async def exported(server: Connection) -> tuple[pb.ArchiveHeader, list[pb.ArchivedRecord]]:
    parts = await RPCS["ExportRecords"].call(server.channel, pb.ExportRecordsRequest())
    return parts[0].header, [record for part in parts for record in part.records.records]


async def imported(server: Connection, header: pb.ArchiveHeader, records: Records) -> list[pb.ImportResult]:
    start = pb.ImportStart(header=header, on_conflict=pb.IMPORT_CONFLICT_REPLACE)
    runs = [records[n : n + RUN] for n in range(0, len(records), RUN)]
    requests = [pb.ImportRecordsRequest(start=start, records=run) for run in runs]
    responses = await RPCS["ImportRecords"].call(server.channel, *requests)
    return [result for response in responses for result in response.results]


def named(record: pb.ArchivedRecord, number: int) -> pb.ArchivedRecord:
    """The same record under its own id."""
    copy = pb.ArchivedRecord()
    copy.CopyFrom(record)
    copy.id = f"r{number}"
    if copy.kind == pb.RECORD_KIND_FACT:
        copy.fields["fact_key"].string_value = copy.id
        copy.id = record_id(decode_namespace(copy.fields["namespace"].string_value), copy.id)
    elif copy.kind in (pb.RECORD_KIND_RULE, pb.RECORD_KIND_DECISION):
        key = "name" if copy.kind == pb.RECORD_KIND_RULE else "decision_id"
        copy.content = json.dumps({**json.loads(copy.content), key: copy.id}, ensure_ascii=False, separators=(",", ":"))
    elif copy.kind == pb.RECORD_KIND_EVENT:
        copy.event.event_id, copy.event.content = copy.id, f"{copy.event.content} {number}"
    return copy


def bordered(records: Records) -> tuple[list[str], list[pb.ArchivedRecord]]:
    """A record for each boundary value of each number that its kind can have, with a description."""
    places, made, seen = [], [], set()
    for record in records:
        for place, change in border_changes(record):
            if (about := (record.kind, _ALIKE.sub("", place))) not in seen:
                seen.add(about)
                places.append(f"{pb.RecordKind.Name(record.kind)} {place}")
                made.append(copy := named(record, len(made)))
                change(copy)
    return places, made


def figures_of(kind: Any, prefix: str = "") -> set[str]:
    """The names of the numeric fields in the JSON of a dataclass."""
    found = set()
    for field in fields(kind):
        hint = get_type_hints(kind)[field.name]
        inner = [each for each in (hint, *get_args(hint)) if is_dataclass(each)]
        if inner:
            found |= figures_of(inner[0])
        elif {int, float} & {hint, *get_args(hint)} or "time" in field.name:
            found.add(_RENAMED.get(field.name, field.name))
    return found


async def test_any_number_in_an_archive_is_refused_by_name_or_works(tmp_path: Path) -> None:
    header, records = await filled(tmp_path / "source")
    places, made = bordered(records)
    tried = " ".join(places)
    missing = [name for name in figures_of(Decision) if f"'{name}'" not in tried]
    assert missing == [], "the JSON of decisions has numbers that no sample has"

    async with whole_server(tmp_path / "target", bridge_enabled=False) as server:
        results = await imported(server, header, made)
        for place, result in zip(places, results, strict=True):
            if result.HasField("error"):
                assert result.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0], (place, result.error)
                assert all(each.field.startswith("record.") for each in result.error.violations), (place, result)
                assert result.error.violations, (place, result.error)
        taken = [record for record, result in zip(made, results, strict=True) if result.done]
        assert len(taken) > 200
    # A wrong number may have an effect only when everything is read again.
    async with whole_server(tmp_path / "target", bridge_enabled=False) as server:
        await read_everything(server)
        await change_everything(server, taken)
        grown, changed = await exported(server)
        again = await imported(server, grown, changed)
        assert [result.error.message for result in again if result.HasField("error")] == []
        async with whole_server(tmp_path / "copy", bridge_enabled=False) as copy:
            results = await imported(copy, grown, changed)
            assert [result.error.message for result in results if result.HasField("error")] == []
            await read_everything(copy)
        await delete_everything(server, taken)


@pytest.mark.parametrize(
    "change", [pytest.param(change, id=place) for place, change in border_changes(pb.ArchiveHeader())]
)
async def test_a_header_is_refused_or_works(tmp_path: Path, change: Callable[[Any], None]) -> None:
    rule = pb.ArchivedRecord(kind=pb.RECORD_KIND_RULE, id="first", content='{"name":"first"}')
    header = pb.ArchiveHeader(format_version=1)
    header.selection.exact_namespace = False
    change(header)
    async with whole_server(tmp_path) as server:
        refusal = await failure(imported(server, header, [rule]))
        if refusal is not None:
            # A model of another dimension is another model.
            assert refusal.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), refusal
            return
        rules = server.rules
        await rules.RegisterRule(rules_pb2.RegisterRuleRequest(rule=rules_pb2.MergeRuleConfig(name="second")))
        update = rules_pb2.UpdateRuleRequest(rule=rules_pb2.MergeRuleConfig(name="first", priority=1))
        await rules.UpdateRule(update)
        await rules.DeleteRule(rules_pb2.DeleteRuleRequest(name="first"))
        grown, records = await exported(server)
        assert [each.WhichOneof("outcome") for each in await imported(server, grown, records)] == ["done"]
        await rules.ResetRules(rules_pb2.ResetRulesRequest())


async def failure(call: Awaitable[Any]) -> aio.AioRpcError | None:
    """The error of a call, or None if the call succeeds."""
    try:
        await call
    except aio.AioRpcError as error:
        return error
    return None


async def sound(call: Awaitable[Any], about: object = "") -> None:
    """Waits for a call that may fail, but not because of a fault of the server."""
    error = await failure(call)
    assert error is None or error.code() not in FAULTS, (about, error)


async def read_everything(server: Connection) -> None:
    """Lists, searches and counts."""
    requests: dict[str, dict[str, Any]] = {
        "ListDocuments": {},
        "ListMemories": {"show_deleted": True},
        "ListFacts": {"filter": {"subtree": True}, "show_versions": True},
        "ListSemanticMemories": {"show_superseded": True},
        "ListDecisions": {},
        "ListRules": {},
        "ListRecentEvents": {},
        "ListChanges": {"view": 2, "page_size": 1_000},
        "SearchDocuments": {"query": "Ada Vienna"},
        "SearchMemories": {"query": "Ada tea", "filter": {"min_confidence": 0.0}},
        "SearchFacts": {"query": "Ada", "filter": {"subtree": True}},
        "SearchSimilar": {"query": "Ada lives in Berlin."},
        "ForecastMemories": {"by_time": {"seconds": 253_402_300_799}, "min_confidence": 0.9},
        "SummarizeRange": {},
        "ExportRules": {},
    }
    for name, values in requests.items():
        rpc = RPCS[name]
        request = rpc.request(**values)
        for _ in range(20):
            [page] = await rpc.call(server.channel, request)
            if not getattr(page, "next_page_token", ""):
                break
            request.page_token = page.next_page_token


async def change_everything(server: Connection, records: Records) -> None:
    """Changes each record. A change that is allowed must succeed."""
    for record in records:
        match record.kind:
            case pb.RECORD_KIND_DOCUMENT:
                document = knowledge_store_pb2.Document(doc_id=record.id, content="changed")
                await server.store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
            case pb.RECORD_KIND_MEMORY:
                update = memory_pb2.UpdateMemoryRequest(memory={"memory_id": record.id, "type": "changed"})
                update.update_mask.paths.append("type")
                await sound(server.memories.ReinforceMemory(memory_pb2.ReinforceMemoryRequest(memory_id=record.id)))
                if not record.hidden:
                    await server.memories.UpdateMemory(update)
            case pb.RECORD_KIND_FACT:
                put = facts_pb2.PutFactRequest(fact=name_of(record))
                put.fact.value.update({"content": "changed"})
                await server.facts.PutFact(put)
            case pb.RECORD_KIND_RULE:
                change = {"name": record.id, "description": "changed"}
                await server.rules.UpdateRule(rules_pb2.UpdateRuleRequest(rule=change))
            case pb.RECORD_KIND_EVENT:
                await server.episodic.GetEvent(episodic_pb2.GetEventRequest(event_id=record.id))
            case pb.RECORD_KIND_DECISION:
                request = conflicts_pb2.UnmergeMemoryRequest(decision_id=record.id)
                await sound(server.conflicts.UnmergeMemory(request), record)
    for user in ("ada", "zoe"):
        save = semantic_pb2.SaveSemanticMemoryRequest(conflict_policy=semantic_pb2.CONFLICT_POLICY_RESOLVE)
        save.memory.scope.user, save.memory.content = user, "Ada lives in Berlin, and Zoe drinks tea."
        await server.semantic.SaveSemanticMemory(save)


async def delete_everything(server: Connection, records: Records) -> None:
    """Deletes each record."""
    for record in records:
        match record.kind:
            case pb.RECORD_KIND_DOCUMENT:
                await server.store.DeleteDocument(knowledge_store_pb2.DeleteDocumentRequest(doc_id=record.id))
            case pb.RECORD_KIND_MEMORY:
                await sound(server.memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=record.id)))
            case pb.RECORD_KIND_FACT:
                await server.facts.DeleteFact(facts_pb2.DeleteFactRequest(**name_of(record)))
            case pb.RECORD_KIND_RULE:
                await server.rules.DeleteRule(rules_pb2.DeleteRuleRequest(name=record.id, force=True))
    statements = [record.id for record in records if record.kind == pb.RECORD_KIND_SEMANTIC]
    await server.semantic.DeleteSemanticMemories(semantic_pb2.DeleteSemanticMemoriesRequest(memory_ids=statements))
    events = [record.id for record in records if record.kind == pb.RECORD_KIND_EVENT]
    await server.episodic.PruneEvents(episodic_pb2.PruneEventsRequest(event_ids=events))
    await server.rules.ResetRules(rules_pb2.ResetRulesRequest())


def name_of(record: pb.ArchivedRecord) -> dict[str, Any]:
    labels = decode_namespace(record.fields["namespace"].string_value)
    return {"namespace": labels, "key": record.fields["fact_key"].string_value}
