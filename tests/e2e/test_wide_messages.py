"""Messages with far more entries than a field allows: refused with the field's own error, and alone among many."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.struct_pb2 import Struct
from mnemon.v1 import (
    archive_pb2,
    common_pb2,
    conflicts_pb2,
    episodic_pb2,
    facts_pb2,
    memory_pb2,
    rules_pb2,
    semantic_pb2,
    tools_pb2,
)
from mnemon.v1 import knowledge_store_pb2 as documents_pb2

from tests.support.fact_messages import put_request
from tests.support.server import Connection, failure_of, violations, whole_server

MANY = 20_000
MAP = {f"key_{number}": common_pb2.MetadataValue(bool_value=True) for number in range(MANY)}
TEXTS = [f"text {number}" for number in range(MANY)]
WEIGHTS = {f"source {number}": 1.0 for number in range(MANY)}
GIVEN = conflicts_pb2.MemoryReference(memory={"content": "Ada likes tea.", "scope": {"user": "ada"}})
NAMESPACE = facts_pb2.FactFilter(namespace=TEXTS)
LISTS = common_pb2.Filter(
    condition=common_pb2.Condition(field="metadata.a", comparator=1, values=[_list := common_pb2.MetadataValue()])
)
_list.string_list_value.values.extend(TEXTS)


def struct(count: int) -> Struct:
    fields = Struct()
    for number in range(count):
        fields.fields[f"key_{number}"].bool_value = True
    return fields


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    async with whole_server(tmp_path_factory.mktemp("wide"), knowledge_store_backend="in_memory") as connected:
        yield connected


def rule(**conditions: Any) -> rules_pb2.MergeRuleConfig:
    return rules_pb2.MergeRuleConfig(name="wide", conditions=rules_pb2.RuleConditions(**conditions))


SINGLE = {
    "document.metadata": ("store", "IndexDocument", documents_pb2.IndexDocumentRequest(document={"metadata": MAP})),
    "filters": ("store", "CountDocuments", documents_pb2.CountDocumentsRequest(filters=MAP)),
    "memory.metadata": ("memories", "CreateMemory", memory_pb2.CreateMemoryRequest(memory={"metadata": MAP})),
    "filter.metadata": ("memories", "CountMemories", memory_pb2.CountMemoriesRequest(filter={"metadata": MAP})),
    "update_mask": (
        "memories",
        "UpdateMemory",
        memory_pb2.UpdateMemoryRequest(memory={}, update_mask={"paths": ["content"] * MANY}),
    ),
    "memory.keywords": (
        "semantic",
        "SaveSemanticMemory",
        semantic_pb2.SaveSemanticMemoryRequest(memory={"keywords": TEXTS}),
    ),
    "memory_ids": (
        "semantic",
        "DeleteSemanticMemories",
        semantic_pb2.DeleteSemanticMemoriesRequest(memory_ids=TEXTS),
    ),
    "event.metadata": ("episodic", "RecordEvent", episodic_pb2.RecordEventRequest(event={"metadata": MAP})),
    "filter.event_types": (
        "episodic",
        "QueryWindow",
        episodic_pb2.QueryWindowRequest(filter={"event_types": TEXTS, "scope": {"user": "u"}}),
    ),
    "event_ids": ("episodic", "PruneEvents", episodic_pb2.PruneEventsRequest(event_ids=TEXTS)),
    "fact.metadata": ("facts", "PutFact", facts_pb2.PutFactRequest(fact={"metadata": MAP, "value": struct(1)})),
    "fact.namespace": ("facts", "PutFact", facts_pb2.PutFactRequest(fact={"namespace": TEXTS, "value": struct(1)})),
    "filter.namespace": ("facts", "SearchFacts", facts_pb2.SearchFactsRequest(filter=NAMESPACE)),
    "filter.filter": (
        "facts",
        "ListFacts",
        facts_pb2.ListFactsRequest(filter={"namespace": ["a"], "filter": {"all_of": {"filters": [{}] * MANY}}}),
    ),
    "prefix": ("facts", "ListNamespaces", facts_pb2.ListNamespacesRequest(prefix=TEXTS)),
    "rule.conditions.users": ("rules", "RegisterRule", rules_pb2.RegisterRuleRequest(rule=rule(users=TEXTS))),
    "rule.arbitration.source_priority": (
        "rules",
        "RegisterRule",
        rules_pb2.RegisterRuleRequest(rule={"name": "wide", "arbitration": {"source_priority": WEIGHTS}}),
    ),
    "arbitration.source_priority": (
        "conflicts",
        "ArbitrateConflict",
        conflicts_pb2.ArbitrateConflictRequest(
            candidate=GIVEN, existing=GIVEN, arbitration={"source_priority": WEIGHTS}
        ),
    ),
    "detection.signals": (
        "conflicts",
        "DetectConflicts",
        conflicts_pb2.DetectConflictsRequest(candidate=GIVEN, detection={"signals": [1] * MANY}),
    ),
    "context.actions_permitted": (
        "tools",
        "CallTool",
        tools_pb2.CallToolRequest(tool="search_memory", context={"actions_permitted": [1] * MANY}),
    ),
    "actions_permitted": (
        "tools",
        "ListTools",
        tools_pb2.ListToolsRequest(actions_permitted=[1] * MANY),
    ),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("field", SINGLE)
async def test_far_too_many_entries_are_refused_by_the_name_of_their_field(connection: Connection, field: str) -> None:
    service, method, request = SINGLE[field]
    error = await failure_of(getattr(getattr(connection, service), method)(request))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert any(named.startswith(field) for named in violations(error)), violations(error)
    assert len(violations(error)) < 200


@pytest.mark.asyncio(loop_scope="module")
async def test_texts_of_a_list_in_a_filter_are_refused_however_many(connection: Connection) -> None:
    request = memory_pb2.CountMemoriesRequest(filter={"filter": LISTS})
    assert (await failure_of(connection.memories.CountMemories(request))).code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.asyncio(loop_scope="module")
async def test_the_mask_of_a_rule_is_refused_like_that_of_a_memory(connection: Connection) -> None:
    request = rules_pb2.UpdateRuleRequest(rule={"name": "default"}, update_mask={"paths": ["description"] * MANY})
    assert violations(await failure_of(connection.rules.UpdateRule(request))) == {"update_mask"}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_export_names_each_kind_once(connection: Connection) -> None:
    request = archive_pb2.ExportRecordsRequest(selection={"kinds": [1] * MANY})
    stream = connection.archive.ExportRecords(request)
    assert violations(await failure_of(stream.read())) == {"selection.kinds"}


@pytest.mark.asyncio(loop_scope="module")
async def test_one_item_of_too_many_entries_fails_alone(connection: Connection) -> None:
    wide, good = put_request("wide"), put_request("good")
    for key in MAP:
        wide.fact.metadata[key].bool_value = True
    wide_memory = memory_pb2.CreateMemoryRequest(memory={"content": "x", "metadata": MAP})
    good_memory = memory_pb2.CreateMemoryRequest(memory={"content": "Ada likes tea.", "scope": {"user": "ada"}})
    puts = connection.facts.BulkPutFacts(iter([facts_pb2.BulkPutFactsRequest(requests=[wide, good])]))
    creations = connection.memories.BulkCreateMemories(
        iter([memory_pb2.BulkCreateMemoriesRequest(requests=[wide_memory, good_memory])])
    )
    for answers, field in ((puts, "fact.metadata"), (creations, "memory.metadata")):
        first, second = (await answers.read()).results
        assert any(violation.field == field for violation in first.error.violations), first
        assert second.HasField("receipt"), second


@pytest.mark.asyncio(loop_scope="module")
async def test_an_object_of_a_whole_message_fails_alone(connection: Connection) -> None:
    wide, good = put_request("wide"), put_request("small")
    wide.fact.value.CopyFrom(struct(180_000))
    puts = connection.facts.BulkPutFacts(iter([facts_pb2.BulkPutFactsRequest(requests=[wide, good])]))
    first, second = (await puts.read()).results
    assert [(one.field, one.description) for one in first.error.violations] == [
        ("fact.value", "must contain at most 100,000 values")
    ]
    assert second.HasField("receipt"), second


@pytest.mark.asyncio(loop_scope="module")
async def test_a_message_with_more_fields_than_any_may_have_is_refused(connection: Connection) -> None:
    error = await failure_of(connection.facts.GetFact(facts_pb2.GetFactRequest(namespace=[""] * 200_000)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "a GetFactRequest of more than 131,072 fields" in str(error.details())
