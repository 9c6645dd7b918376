"""Every field of an answer arrives in the value that the client makes of it, and every argument in the request."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import mnemon
import mnemon.v1
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from mnemon._messages.translation import read

ANSWERS = {
    "ArbitrateConflictResponse": mnemon.ArbitrationAnswer,
    "BackupProgress": mnemon.BackupProgress,
    "BackupSummary": mnemon.Backup,
    "CheckHealthResponse": mnemon.StoreHealth,
    "CompactTimelineResponse": mnemon.CompactionProgress,
    "CreateKeyResponse": mnemon.KeySecret,
    "CreateSnapshotResponse": mnemon.SnapshotReceipt,
    "DeleteDocumentsResponse": mnemon.BulkDeleteReceipt,
    "DeleteRuleResponse": mnemon.RuleDeleteReceipt,
    "DeleteSemanticMemoriesResponse": mnemon.SemanticDeleteReceipt,
    "DetectConflictsResponse": mnemon.DetectedConflicts,
    "EpisodicPruned": mnemon.EpisodicPruned,
    "EpisodicSaved": mnemon.EpisodicSaved,
    "EraseProgress": mnemon.EraseProgress,
    "ErasureReceipt": mnemon.ErasureReceipt,
    "EventReceipt": mnemon.EventReceipt,
    "ExecuteTextResponse": mnemon.ExecutedText,
    "FactChange": mnemon.FactChange,
    "GetBridgeStatusResponse": mnemon.BridgeStatus,
    "GetIndexStatusResponse": mnemon.SemanticIndexStatus,
    "GetProtocolStatsResponse": mnemon.ProtocolStats,
    "GetRuleResponse": mnemon.StoredRule,
    "GetServerInfoResponse": mnemon.ServerInfo,
    "GetStatusResponse": mnemon.MemoryStatus,
    "GetTimelineStatusResponse": mnemon.TimelineStatus,
    "GetUsageResponse": mnemon.TenantUsage,
    "ListDecisionsResponse": mnemon.DecisionPage,
    "ListDocumentsResponse": mnemon.DocumentPage,
    "ListFactsResponse": mnemon.FactPage,
    "ListKeysResponse": mnemon.KeyPage,
    "ListMemoriesResponse": mnemon.MemoryPage,
    "ListNamespacesResponse": mnemon.NamespacePage,
    "ListRecentEventsResponse": mnemon.TimelinePage,
    "ListRulesResponse": mnemon.RulePage,
    "ListSemanticMemoriesResponse": mnemon.SemanticMemoryPage,
    "ListTenantsResponse": mnemon.TenantPage,
    "LoadRulesResponse": mnemon.LoadReceipt,
    "MemoryForecast": mnemon.MemoryForecast,
    "MergeMemoriesResponse": mnemon.MergeAnswer,
    "PreviewExtractionResponse": mnemon.ExtractionPreview,
    "PreviewResolutionResponse": mnemon.ResolutionPreview,
    "PruneEventsResponse": mnemon.PruneReceipt,
    "PurgeMemoriesResponse": mnemon.PurgeReceipt,
    "PutFactResponse": mnemon.FactReceipt,
    "QuarantineOriginResponse": mnemon.QuarantineReceipt,
    "QueryWindowResponse": mnemon.WindowAnswer,
    "RebuildIndexResponse": mnemon.RebuildProgress,
    "Reconciliation": mnemon.Reconciliation,
    "ReleaseOriginResponse": mnemon.QuarantineReceipt,
    "ResolveRuleResponse": mnemon.ResolvedRule,
    "SaveSemanticMemoryResponse": mnemon.SaveAnswer,
    "SearchDocumentsResponse": mnemon.SearchAnswer,
    "SearchFactsResponse": mnemon.FactAnswer,
    "SearchMemoriesResponse": mnemon.MemoryAnswer,
    "SearchSimilarResponse": mnemon.SimilarityAnswer,
    "ServiceWarning": mnemon.ServiceWarning,
    "SummarizeRangeResponse": mnemon.EventSummary,
    "Tool": mnemon.Tool,
    "UnmergeMemoryResponse": mnemon.UnmergeAnswer,
    "WhoAmIResponse": mnemon.Identity,
}
ELSEWHERE = {"ConflictSignal.importance_delta", "EventReceipt.duplicate_of", "Fact.index", "ToolCallResult.error"}
"""Fields that come from another message, or that another field decides on."""
NAMES = {"error": "message"}
"""The names of texts in messages where they are others."""
MODULES = [importlib.import_module(f"mnemon.v1.{each.name}") for each in pkgutil.iter_modules(mnemon.v1.__path__)]


def filled(message: Message, depth: int = 8) -> Message:
    """The message with something in every field; of a oneof, in the first."""
    for field in message.DESCRIPTOR.fields if depth else ():
        oneof = field.containing_oneof
        if not oneof or oneof.fields[0] is field or len(oneof.fields) == 1:
            fill(message, field, depth)
    return message


def fill(message: Any, field: FieldDescriptor, depth: int) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        if kind.message_type is not None:
            target["a"].int_value = 1
        else:
            target["a"] = scalar(kind)
    elif field.message_type is not None and field.is_repeated:
        filled(target.add(), depth - 1)
    elif field.message_type is not None and field.message_type.name == "Struct":
        target.update({"a": 1})
    elif field.message_type is not None:
        filled(target, depth - 1)
    elif field.is_repeated:
        target.append(scalar(field))
    else:
        setattr(message, field.name, scalar(field))


def scalar(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        # The last one: the first is often a default of the value.
        return field.enum_type.values[-1].number
    # Different in each field, so that a mix-up shows.
    text = f"the {field.full_name}"
    values = {FieldDescriptor.CPPTYPE_STRING: text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text}
    return {**values, FieldDescriptor.CPPTYPE_BOOL: True}.get(field.cpp_type, 100 + field.number)


def unread(value: Any, path: str) -> Iterator[str]:
    """The fields that the message did not reach, and texts that another field has."""
    for each in fields(value):
        name, found = f"{type(value).__name__}.{each.name}", getattr(value, each.name)
        if name not in ELSEWHERE and found in (None, "", 0, (), {}):
            yield f"{path}{each.name}"
        origin = found.rpartition(".")[2] if isinstance(found, str) and found.startswith("the ") else each.name
        if origin not in (each.name, NAMES.get(each.name)):
            yield f"{path}{each.name} is {found}"
        for inner in found if isinstance(found, tuple) else (found,):
            if is_dataclass(inner):
                yield from unread(inner, f"{path}{each.name}.")


def test_every_field_of_an_answer_is_in_the_value() -> None:
    for name, kind in ANSWERS.items():
        message = filled(next(getattr(module, name) for module in MODULES if hasattr(module, name))())
        assert list(unread(read(kind, message), "")) == [], name
