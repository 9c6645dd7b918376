"""The calls of `verify-isolation`: at least one request for every method of the API.

Requests are JSON. `{memory}` and the like stand for the names of the victim's records, or for names that do not exist;
`{own_user}` and the like for those of the caller.
"""

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]
TOKENS: Final = ("memory_page", "change_cursor")
"""Names of the victim that the server has sealed."""

OWN_PLACE: Final = "{own_label}"
_TEXT: Final = "the lighthouse keeper counts ships"
"""The query of every caller; it has no name in it, so that two callers get the same scores."""
_SCOPE: Final = {"user": "{user}"}
_NO_PERSONA: Final = {"user": "{user}", "persona": "unknown"}
_OWN_SCOPE: Final = {"user": "{own_user}"}
_AS_IT_IS: Final = {"conflictPolicy": "CONFLICT_POLICY_IGNORE"}


@dataclass(frozen=True, slots=True)
class Probe:
    """One call."""

    method: str
    """Such as "MemoryService/GetMemory"."""
    messages: tuple[Json, ...]
    """The request; several for a stream of requests."""
    shares: bool = False
    """Whether it shows what all callers of a tenant share: that an id is taken, or a position in the change feed.
    Between callers of one tenant, such a call is left out."""
    keeps: str = ""
    """The placeholder that stands for the id of the stored statement or grant from then on."""
    until: str = ""
    """The field by which the last answer of an endless stream is known."""

    def kept(self, answer: Json) -> Json:
        """The id that the server chose, by its placeholder."""
        if not self.keeps:
            return {}
        stored = answer["memory"]["memoryId"] if "memory" in answer else answer["grant"]["grantId"]
        return {self.keeps.strip("{}"): stored}

    @property
    def forges(self) -> bool:
        """Whether it shows a token that the caller was not given."""
        return any(f"{{{token}}}" in str(self.messages) for token in TOKENS)


def _probe(method: str, *messages: Json, shares: bool = False, keeps: str = "", until: str = "") -> Probe:
    return Probe(method, messages or ({},), shares, keeps, until)


def _conversation(name: str, scope: Json, text: str) -> Json:
    """A message of a conversation."""
    return {
        "scope": scope,
        "conversationId": name,
        "messages": [{"role": "user", "messageId": each, "content": text} for each in ("first", "second")],
    }


def _stored(label: str, scope: Json, names: dict[str, str], word: str, requests: str) -> tuple[Probe, ...]:
    """Calls that store one record of each kind, with a word in every text of it."""
    text, said = f"{_TEXT} {word}", {"stringValue": word}
    fact = {"namespace": [label], "key": names["fact"], "value": {"says": text}, "metadata": {"said": said}}
    event = {"eventId": names["event"], "scope": scope, "eventType": "isolation", "eventTime": "{now}", "content": text}
    statement = {"scope": scope, "createTime": "{now}", "content": text, "source": word}
    memory = {"memoryId": names["memory"], "scope": scope, "content": text, "type": word, "metadata": {"said": said}}
    document = {"docId": names["document"], "scope": scope, "content": text, "metadata": {"said": said}}
    other = {"scope": scope, "createTime": "{now}", "content": f"{word} keeps a red boat in the harbour"}
    another = {"scope": scope, "createTime": "{now}", "content": f"{word} keeps a blue boat in the harbour"}
    later = {"memoryId": names["later"], "scope": scope, "content": f"{word} sleeps by day", "type": word}
    rule = {"name": names["rule"], "description": word, "priority": 7}
    grant = {"subject": f"user:{word}", "scope": scope}
    return (
        _probe("AccessService/CreateGrant", grant, keeps=names["grant"]),
        _probe("KnowledgeStoreService/IndexDocument", {"document": document, "requestId": f"{requests}-document"}),
        _probe("MemoryService/CreateMemory", {"memory": memory, "requestId": f"{requests}-memory"}),
        _probe("MemoryService/CreateMemory", {"memory": later}),
        _probe("MemoryService/UpdateMemory", {"memory": {**later, "type": "other"}, "updateMask": "type"}),
        _probe("FactService/PutFact", {"fact": fact, "requestId": f"{requests}-fact"}),
        _probe("EpisodicMemoryService/RecordEvent", {"event": event, "requestId": f"{requests}-event"}),
        _probe(
            "ConversationService/AppendMessages",
            {**_conversation(names["conversation"], scope, text), "requestId": f"{requests}-conversation"},
        ),
        _probe(
            "SemanticMemoryService/SaveSemanticMemory",
            {"memory": statement, "requestId": f"{requests}-statement", **_AS_IT_IS},
            keeps=names["statement"],
        ),
        _probe("SemanticMemoryService/SaveSemanticMemory", {"memory": other, **_AS_IT_IS}, keeps=names["merged"]),
        _probe("SemanticMemoryService/SaveSemanticMemory", {"memory": another, **_AS_IT_IS}, keeps=names["second"]),
        _probe(
            "ConflictService/MergeMemories",
            {"first": {"memoryId": names["merged"]}, "second": {"memoryId": names["second"]}},
        ),
        _probe("RulesService/RegisterRule", {"rule": rule, "requestId": f"{requests}-rule"}),
    )


RECORDS: Final = (
    *("document", "memory", "later", "last", "fact", "event", "conversation"),
    *("statement", "merged", "second", "rule", "grant"),
)
_NAMED: Final = {name: f"{{{name}}}" for name in RECORDS}
_OWN: Final = {name: f"{{own_{name}}}" for name in _NAMED}

PLANTED: Final = _stored("{label}", _SCOPE, _NAMED, "{secret}", "{request}")
"""The victim's records."""
OWN: Final = _stored(OWN_PLACE, _OWN_SCOPE, _OWN, "a gull", "{own_request}")
"""The names of the caller who tries to reach them."""

_DOCUMENT: Final = {"docId": "{document}", "content": "overwritten", "scope": _OWN_SCOPE}
_MEMORY: Final = {"memoryId": "{memory}", "content": "overwritten", "type": "other", "scope": _OWN_SCOPE}
_EVENT: Final = {
    "eventId": "{event}",
    "eventType": "isolation",
    "eventTime": "{now}",
    "content": "overwritten",
    "scope": _OWN_SCOPE,
}
_FACT: Final = {"namespace": ["{label}"], "key": "{fact}", "value": {"says": "overwritten"}}
_OWN_FACT: Final = {"namespace": [OWN_PLACE], "key": "{fact}", "value": {"says": "overwritten"}}
_STATEMENT: Final = {"content": "overwritten", "scope": _OWN_SCOPE}
_IMPORTED: Final = {"revision": 1, "createTime": "{now}", "updateTime": "{now}"}
_TOOL: Final = {"context": {"namespace": ["{label}"]}}
_ABP: Final = '[[ABP_TOOL:search_memory]] {"query": "the lighthouse keeper counts ships"} [[END_ABP_TOOL]]'

READS: Final = (
    _probe("KnowledgeStoreService/GetDocument", {"docId": "{document}"}),
    _probe("KnowledgeStoreService/ListDocuments"),
    _probe("KnowledgeStoreService/ListDocuments", {"filter": {"scope": _SCOPE}}),
    _probe("KnowledgeStoreService/CountDocuments"),
    _probe("KnowledgeStoreService/CountDocuments", {"filter": {"scope": _SCOPE}}),
    *(
        _probe("KnowledgeStoreService/SearchDocuments", {"query": _TEXT, "mode": f"SEARCH_MODE_{mode}"})
        for mode in ("VECTOR", "KEYWORD", "HYBRID")
    ),
    _probe("KnowledgeStoreService/CheckHealth"),
    _probe("MemoryService/GetMemory", {"memoryId": "{memory}"}),
    _probe("MemoryService/ListMemories", {"showDeleted": True}),
    _probe("MemoryService/ListMemories", {"filter": {"scope": _SCOPE}}),
    _probe("MemoryService/ListMemories", {"pageSize": 1, "pageToken": "{memory_page}"}),
    _probe("MemoryService/GetMemory", {"memoryId": "{memory}", "asOfTime": "2100-01-01T00:00:00Z"}),
    _probe("MemoryService/ListMemories", {"asOfTime": "2100-01-01T00:00:00Z", "showDeleted": True}),
    _probe("MemoryService/SearchMemories", {"query": _TEXT, "asOfTime": "2100-01-01T00:00:00Z"}),
    _probe("KnowledgeStoreService/ListDocuments", {"asOfTime": "2100-01-01T00:00:00Z"}),
    _probe("SemanticMemoryService/ListSemanticMemories", {"asOfTime": "2100-01-01T00:00:00Z", "showSuperseded": True}),
    _probe("FactService/GetFact", {"namespace": ["{label}"], "key": "{fact}", "asOfTime": "2100-01-01T00:00:00Z"}),
    _probe("MemoryService/ListMemoryVersions", {"memoryId": "{later}"}),
    _probe("KnowledgeStoreService/ListDocumentVersions", {"docId": "{document}"}),
    _probe("SemanticMemoryService/ListSemanticMemoryVersions", {"memoryId": "{second}"}),
    _probe("FactService/ListFactVersions", {"namespace": ["{label}"], "key": "{fact}"}),
    _probe("MemoryService/CountMemories", {"showDeleted": True}),
    *(
        _probe("MemoryService/SearchMemories", {"query": _TEXT, "mode": f"SEARCH_MODE_{mode}"})
        for mode in ("VECTOR", "KEYWORD", "HYBRID")
    ),
    _probe("MemoryService/SearchMemories", {"query": _TEXT, "filter": {"scope": _SCOPE}}),
    _probe("MemoryService/ForecastMemories", {"minConfidence": 0.5, "byTime": "2100-01-01T00:00:00Z"}),
    _probe("MemoryService/GetStatus"),
    _probe("SemanticMemoryService/GetSemanticMemory", {"memoryId": "{statement}"}),
    _probe("SemanticMemoryService/ListSemanticMemories", {"showSuperseded": True}),
    _probe("SemanticMemoryService/SearchSimilar", {"query": _TEXT}),
    _probe("SemanticMemoryService/SearchSimilar", {"query": _TEXT, "filter": {"scope": _SCOPE}}),
    _probe("SemanticMemoryService/GetIndexStatus"),
    _probe("ConflictService/DetectConflicts", {"candidate": {"memoryId": "{statement}"}}),
    _probe(
        "ConflictService/DetectConflicts",
        {"candidate": {"memory": {"content": f"{_TEXT} no more", "scope": _SCOPE, "createTime": "{now}"}}},
    ),
    _probe(
        "ConflictService/ArbitrateConflict",
        {"candidate": {"memoryId": "{merged}"}, "existing": {"memoryId": "{statement}"}},
    ),
    _probe(
        "ConflictService/PreviewResolution",
        {"memory": {"content": f"{_TEXT} no more", "scope": _SCOPE, "createTime": "{now}"}},
    ),
    _probe("ConflictService/ListDecisions"),
    _probe("ConflictService/ListDecisions", {"memoryId": "{merged}"}),
    _probe("ConflictService/ListDecisions", {"user": "{user}"}),
    _probe("RulesService/GetRule", {"name": "{rule}"}),
    _probe("RulesService/ListRules"),
    _probe("RulesService/ExportRules"),
    _probe("RulesService/ResolveRule", {"name": "{rule}"}),
    _probe("RulesService/FindMatchingRule", {"candidate": {"content": _TEXT, "scope": _SCOPE}}),
    _probe("EpisodicMemoryService/GetEvent", {"eventId": "{event}"}),
    _probe("EpisodicMemoryService/ListRecentEvents"),
    _probe("EpisodicMemoryService/ListRecentEvents", {"filter": {"scope": _SCOPE}}),
    _probe("EpisodicMemoryService/QueryWindow", {"query": _TEXT, "lastDays": 30}),
    _probe("EpisodicMemoryService/QueryWindow", {"lastDays": 30, "filter": {"scope": _SCOPE}}),
    _probe("EpisodicMemoryService/SummarizeRange"),
    _probe("EpisodicMemoryService/GetTimelineStatus"),
    _probe("BridgeService/GetBridgeStatus"),
    _probe("BridgeService/GetRoutingPolicy"),
    # No conversation has this persona, so no extractor is asked.
    _probe("BridgeService/PreviewExtraction", {"scope": _NO_PERSONA, "conversationId": "{conversation}"}),
    _probe("FactService/GetFact", {"namespace": ["{label}"], "key": "{fact}", "showVersions": True}),
    _probe("FactService/BatchGetFacts", {"names": [{"namespace": ["{label}"], "key": "{fact}"}]}),
    _probe("FactService/SearchFacts", {"query": _TEXT, "filter": {"subtree": True}}),
    _probe("FactService/ListFacts", {"filter": {"subtree": True}}),
    _probe("FactService/ListFacts", {"filter": {"namespace": ["{label}"], "subtree": True}}),
    _probe("FactService/ListNamespaces"),
    _probe("RecallService/Recall", {"query": _TEXT, "minConfidence": 0.0}),
    _probe("RecallService/Recall", {"query": _TEXT, "scope": _SCOPE, "namespace": ["{label}"]}),
    _probe("ConversationService/ListConversations"),
    _probe("ConversationService/ListConversations", {"scope": _SCOPE}),
    _probe("ConversationService/ListMessages", {"scope": _SCOPE, "conversationId": "{conversation}"}),
    _probe("ConversationService/GetConversationContext", {"scope": _SCOPE, "conversationId": "{conversation}"}),
    _probe("ToolService/ListTools"),
    _probe("ToolService/CallTool", {"tool": "search_memory", "arguments": {"query": _TEXT}, **_TOOL}),
    _probe("ToolService/GetProtocolStats"),
    _probe("ArchiveService/ExportRecords"),
    _probe("ArchiveService/ExportRecords", {"selection": {"scope": _SCOPE}}),
    _probe("EraseService/Erase", {"user": "{user}", "dryRun": True}),
    _probe("EraseService/Erase", {"namespace": {"labels": ["{label}"]}, "dryRun": True}),
    _probe("EraseService/ListErasures"),
    _probe("EraseService/GetErasureKey"),
    _probe("QuarantineService/ListQuarantines"),
    _probe("ChangeService/ListChanges", {"view": "CHANGE_VIEW_FULL"}),
    _probe("ChangeService/ListChanges", {"filter": {"recordIds": ["{memory}", "{document}"]}}),
    _probe("ChangeService/ListChanges", {"cursor": "{change_cursor}"}, shares=True),
    _probe("ServerService/GetServerInfo"),
    _probe("AccessService/WhoAmI"),
    _probe("AccessService/ListGrants"),
    _probe("AccessService/ListKeys"),
    _probe("AccessService/ListKeys", {"tenant": "{tenant}"}),
    _probe("TenantService/GetTenant", {"tenant": "{tenant}"}),
    _probe("TenantService/ListTenants"),
    _probe("TenantService/GetUsage", {"tenant": "{tenant}"}),
)
"""Calls that change nothing. The victim makes them, too, before and after all others."""

WRITES: Final = (
    _probe("KnowledgeStoreService/UpdateDocument", {"document": _DOCUMENT, "updateMask": "content"}),
    _probe("KnowledgeStoreService/DeleteDocument", {"docId": "{document}"}),
    _probe("KnowledgeStoreService/IndexDocument", {"document": _DOCUMENT, "expectedRevision": 1}, shares=True),
    _probe(
        "KnowledgeStoreService/IndexDocument",
        {"document": {**_DOCUMENT, "docId": "{own_last}"}, "requestId": "{request}-document"},
    ),
    _probe("KnowledgeStoreService/IndexDocument", {"document": {**_DOCUMENT, "scope": _SCOPE}}, shares=True),
    _probe("KnowledgeStoreService/BulkIndexDocuments", {"requests": [{"document": _DOCUMENT}]}, shares=True),
    _probe("MemoryService/UpdateMemory", {"memory": _MEMORY, "updateMask": "content"}),
    _probe("MemoryService/ReinforceMemory", {"memoryId": "{memory}"}),
    _probe("MemoryService/DeleteMemory", {"memoryId": "{memory}"}),
    _probe("MemoryService/UndeleteMemory", {"memoryId": "{memory}"}),
    _probe("MemoryService/RestoreMemoryVersion", {"memoryId": "{later}", "versionId": "{memory}"}),
    _probe("KnowledgeStoreService/RestoreDocumentVersion", {"docId": "{document}", "versionId": "{memory}"}),
    _probe("SemanticMemoryService/RestoreSemanticMemoryVersion", {"memoryId": "{second}", "versionId": "{memory}"}),
    _probe("FactService/RestoreFactVersion", {"namespace": ["{label}"], "key": "{fact}", "versionId": "{memory}"}),
    _probe("MemoryService/CreateMemory", {"memory": _MEMORY}, shares=True),
    _probe("MemoryService/CreateMemory", {"memory": {**_MEMORY, "memoryId": ""}, "requestId": "{request}-memory"}),
    _probe("MemoryService/BulkCreateMemories", {"requests": [{"memory": _MEMORY}]}, shares=True),
    _probe("MemoryService/PurgeMemories", {"filter": {"scope": _SCOPE}}),
    _probe("SemanticMemoryService/SaveSemanticMemory", {"memory": _STATEMENT}),
    _probe("SemanticMemoryService/BulkSaveSemanticMemories", {"requests": [{"memory": _STATEMENT}]}),
    _probe("SemanticMemoryService/DeleteSemanticMemories", {"memoryIds": ["{statement}"]}),
    _probe("SemanticMemoryService/DeleteSemanticMemories", {"filter": {"scope": _SCOPE}}),
    _probe("SemanticMemoryService/CreateSnapshot", {"requestId": "{request}"}),
    _probe(
        "ConflictService/MergeMemories",
        {"first": {"memoryId": "{merged}"}, "second": {"memoryId": "{statement}"}},
    ),
    _probe("ConflictService/UnmergeMemory", {"memoryId": "{merged}"}),
    _probe("RulesService/UpdateRule", {"rule": {"name": "{rule}", "priority": 9}, "updateMask": "priority"}),
    _probe("RulesService/DeleteRule", {"name": "{rule}"}),
    _probe("RulesService/RegisterRule", {"rule": {"name": "{rule}", "priority": 3}}, shares=True),
    _probe("RulesService/LoadRules", {"rules": [{"name": "{rule}", "priority": 4}]}, shares=True),
    _probe("RulesService/ResetRules"),
    _probe("EpisodicMemoryService/RecordEvent", {"event": _EVENT}, shares=True),
    _probe("EpisodicMemoryService/RecordEvent", {"event": {**_EVENT, "eventId": ""}, "requestId": "{request}-event"}),
    _probe("EpisodicMemoryService/BulkRecordEvents", {"requests": [{"event": _EVENT}]}, shares=True),
    _probe("EpisodicMemoryService/PruneEvents", {"eventIds": ["{event}"]}),
    _probe("EpisodicMemoryService/PruneEvents", {"before": "2100-01-01T00:00:00Z", "filter": {"scope": _SCOPE}}),
    _probe("EpisodicMemoryService/CompactTimeline"),
    *(
        _probe("ConversationService/AppendMessages", _conversation("{conversation}", scope, "overwritten"))
        for scope in (_SCOPE, _OWN_SCOPE)
    ),
    _probe(
        "ConversationService/AppendMessages",
        {**_conversation("{own_last}", _OWN_SCOPE, "overwritten"), "requestId": "{request}-conversation"},
    ),
    _probe("ConversationService/DeleteMessages", {"scope": _SCOPE, "conversationId": "{conversation}", "last": 1}),
    _probe("ConversationService/DeleteConversation", {"scope": _SCOPE, "conversationId": "{conversation}"}),
    _probe("BridgeService/UpdateRoutingPolicy", {"policy": {"minImportance": 0.9}, "updateMask": "minImportance"}),
    _probe("BridgeService/PauseBridge"),
    _probe("BridgeService/ResumeBridge"),
    _probe("QuarantineService/QuarantineOrigin", {"origin": "web", "originName": "{label}"}),
    _probe("QuarantineService/ReleaseOrigin", {"origin": "web", "originName": "{label}"}),
    _probe("FactService/RenewFacts", {"names": [{"namespace": ["{label}"], "key": "{fact}"}]}),
    _probe("FactService/DeleteFact", {"namespace": ["{label}"], "key": "{fact}"}),
    _probe("FactService/PutFact", {"fact": _OWN_FACT, "requestId": "{request}-fact"}),
    _probe("FactService/PutFact", {"fact": _FACT}),
    _probe("FactService/BulkPutFacts", {"requests": [{"fact": _FACT}]}),
    _probe("FactService/DeleteFacts", {"filter": {"namespace": ["{label}"], "subtree": True}}),
    _probe("ToolService/ParseToolCalls", {"text": _ABP}),
    _probe("ToolService/ExecuteText", {"text": _ABP, **_TOOL}),
    _probe("ToolService/CallTool", {"tool": "manage_memory", "arguments": {"content": "overwritten"}, **_TOOL}),
    _probe(
        "ArchiveService/ImportRecords",
        {"start": {"header": {"formatVersion": 1}}},
        {"records": [{"kind": "RECORD_KIND_DOCUMENT", "id": "{document}", "content": "overwritten", **_IMPORTED}]},
        shares=True,
    ),
    _probe("BackupService/CreateBackup", until="progress"),
    _probe("KnowledgeStoreService/DeleteDocuments", {"filter": {"scope": _SCOPE}}),
    _probe("KnowledgeStoreService/RebuildIndex"),
    _probe(
        "KnowledgeStoreService/IndexDocument",
        {"document": {"docId": "{own_last}", "content": "x", "scope": _OWN_SCOPE}},
    ),
    _probe("ChangeService/WatchChanges", {"earliest": True, "view": "CHANGE_VIEW_FULL"}, until="{own_last}"),
    _probe("AccessService/CreateKey", {"name": "isolation", "role": "ROLE_READER", "tenant": "{tenant}"}),
    _probe("AccessService/CreateKey", {"name": "isolation", "role": "ROLE_OPERATOR"}),
    _probe(
        "AccessService/CreateGrant", {"subject": "user:{own_user}", "scope": _SCOPE, "access": "GRANT_ACCESS_WRITE"}
    ),
    _probe("AccessService/CreateGrant", {"subject": "user:{own_user}", "namespace": ["{label}"]}),
    _probe("AccessService/AcceptGrant", {"grantId": "{grant}"}),
    _probe("AccessService/RevokeGrant", {"grantId": "{grant}"}),
    _probe("AccessService/RotateKey", {"keyId": "{key}"}),
    _probe("AccessService/RotateKey", {"keyId": "{key}", "tenant": "{tenant}"}),
    _probe("AccessService/RevokeKey", {"keyId": "{key}"}),
    _probe("AccessService/RevokeKey", {"keyId": "{key}", "tenant": "{tenant}"}),
    _probe("TenantService/CreateTenant", {"tenant": "{tenant}"}),
    _probe(
        "TenantService/UpdateTenant",
        {"tenant": {"tenant": "{tenant}", "displayName": "x"}, "updateMask": "displayName"},
    ),
    _probe("TenantService/DeleteTenant", {"tenant": "{tenant}"}),
)
"""Calls that would change the victim's records, if they reached them."""

PROBES: Final = (*READS, *WRITES, *READS)
