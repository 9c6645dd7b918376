"""The request in the form of each method on the API's page, and the words that the method is found by."""

from collections.abc import Mapping
from typing import Any, Final

_ADA: Final = {"user": "ada"}
_ID: Final = "0b9d7a52-3c1e-4f7a-9d0c-6a1f5e2b8c44"
_LATER_ID: Final = "5f1c2b1e-8a5d-4f0e-b0a4-2d6c1c7f9e10"
_BERLIN: Final = {"content": "Ada lives in Berlin.", "scope": _ADA}
_MUNICH: Final = {"content": "Ada lives in Munich now.", "scope": _ADA}
_TEXT: Final = '[[ABP_TOOL:search_memory]]\n{"action": "search", "parameters": {"query": "seat"}}\n[[END_ABP_TOOL]]'
_RULE: Final = {"name": "careful", "description": "For what Ada says.", "priority": 7}
_PAGE: Final = {"pageSize": 10}

REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "KnowledgeStoreService/UpdateDocument": {
        "document": {"docId": "tea"},
        "setMetadata": {"topic": {"stringValue": "drinks"}},
    },
    "KnowledgeStoreService/GetDocument": {"docId": "tea"},
    "KnowledgeStoreService/ListDocuments": _PAGE,
    "KnowledgeStoreService/ListDocumentVersions": {"docId": "tea", **_PAGE},
    "KnowledgeStoreService/RestoreDocumentVersion": {"docId": "tea", "versionId": _LATER_ID},
    "KnowledgeStoreService/CountDocuments": {"filters": {"topic": {"stringValue": "drinks"}}},
    "KnowledgeStoreService/DeleteDocument": {"docId": "tea", "allowMissing": True},
    "KnowledgeStoreService/DeleteDocuments": {"filter": {"scope": _ADA}, "dryRun": True},
    "MemoryService/GetMemory": {"memoryId": _ID},
    "MemoryService/ListMemories": {"filter": {"scope": _ADA}, **_PAGE},
    "MemoryService/UpdateMemory": {
        "memory": {"memoryId": _ID, "content": "Ada likes black tea."},
        "updateMask": "content",
    },
    "MemoryService/ReinforceMemory": {"memoryId": _ID},
    "MemoryService/DeleteMemory": {"memoryId": _ID},
    "MemoryService/UndeleteMemory": {"memoryId": _ID},
    "MemoryService/PurgeMemories": {"filter": {"scope": _ADA}, "onlyDeleted": True, "dryRun": True},
    "MemoryService/ListMemoryVersions": {"memoryId": _ID, **_PAGE},
    "MemoryService/RestoreMemoryVersion": {"memoryId": _ID, "versionId": _LATER_ID},
    "MemoryService/CountMemories": {"filter": {"scope": _ADA}},
    "MemoryService/ForecastMemories": {"filter": {"scope": _ADA}, "byTime": "2030-01-31T12:00:00Z"},
    "SemanticMemoryService/GetSemanticMemory": {"memoryId": _ID},
    "SemanticMemoryService/ListSemanticMemories": {"filter": {"scope": _ADA}, **_PAGE},
    "SemanticMemoryService/ListSemanticMemoryVersions": {"memoryId": _ID, **_PAGE},
    "SemanticMemoryService/RestoreSemanticMemoryVersion": {"memoryId": _ID, "versionId": _LATER_ID},
    "SemanticMemoryService/DeleteSemanticMemories": {"memoryIds": [_ID], "dryRun": True, "allowMissing": True},
    "ConflictService/DetectConflicts": {"candidate": {"memory": _BERLIN}},
    "ConflictService/ArbitrateConflict": {"candidate": {"memory": _MUNICH}, "existing": {"memory": _BERLIN}},
    "ConflictService/MergeMemories": {"first": {"memoryId": _ID}, "second": {"memoryId": _LATER_ID}, "dryRun": True},
    "ConflictService/UnmergeMemory": {"decisionId": _ID},
    "ConflictService/ListDecisions": _ADA,
    "RulesService/GetRule": {"name": "careful"},
    "RulesService/UpdateRule": {"rule": _RULE, "updateMask": "priority"},
    "RulesService/DeleteRule": {"name": "careful", "allowMissing": True},
    "RulesService/ListRules": _PAGE,
    "RulesService/FindMatchingRule": {"candidate": _BERLIN},
    "RulesService/ResolveRule": {"name": "default"},
    "RulesService/LoadRules": {"rules": [{"name": "bold", "extends": "default", "priority": 1}]},
    "EpisodicMemoryService/ListRecentEvents": {"filter": {"scope": _ADA}, **_PAGE},
    "EpisodicMemoryService/SummarizeRange": {
        "range": {"startTime": "2026-01-01T00:00:00Z"},
        "filter": {"scope": _ADA},
    },
    "EpisodicMemoryService/GetEvent": {"eventId": _ID},
    "EpisodicMemoryService/PruneEvents": {
        "before": "2020-01-01T00:00:00Z",
        "filter": {"scope": _ADA},
        "dryRun": True,
    },
    "ConversationService/ListMessages": {"scope": _ADA, "conversationId": "trip", "last": 10},
    "ConversationService/DeleteMessages": {
        "scope": _ADA,
        "conversationId": "trip",
        "messageIds": [_ID],
        "allowMissing": True,
    },
    "ConversationService/DeleteConversation": {"scope": _ADA, "conversationId": "old trip", "allowMissing": True},
    "BridgeService/UpdateRoutingPolicy": {"policy": {"minImportance": 0.8}, "updateMask": "minImportance"},
    "BridgeService/PreviewExtraction": {
        "scope": _ADA,
        "messages": [{"role": "user", "content": "I moved to Munich."}],
        "extract": "EXTRACT_MODE_MODEL",
    },
    "FactService/GetFact": {"namespace": ["user", "ada"], "key": "seat"},
    "FactService/BatchGetFacts": {"names": [{"namespace": ["user", "ada"], "key": "seat"}]},
    "FactService/RenewFacts": {"names": [{"namespace": ["user", "ada"], "key": "seat"}]},
    "FactService/ListFacts": {"filter": {"namespace": ["user", "ada"]}, **_PAGE},
    "FactService/ListNamespaces": {"prefix": ["user"]},
    "FactService/ListFactVersions": {"namespace": ["user", "ada"], "key": "seat", **_PAGE},
    "FactService/RestoreFactVersion": {"namespace": ["user", "ada"], "key": "seat", "versionId": _LATER_ID},
    "FactService/DeleteFact": {"namespace": ["user", "ada"], "key": "seat", "allowMissing": True},
    "FactService/DeleteFacts": {"filter": {"namespace": ["user", "ada"]}, "dryRun": True},
    "ToolService/ParseToolCalls": {"text": _TEXT},
    "ToolService/ExecuteText": {"text": _TEXT, "context": {"config": {"user_id": "ada"}}},
    "AccessService/ListKeys": _PAGE,
    "AccessService/CreateGrant": {"subject": "user:bo", "scope": {"user": "ada"}, "access": "GRANT_ACCESS_WRITE"},
    "AccessService/ListGrants": _PAGE,
    "AccessService/AcceptGrant": {"grantId": "a571dfa6af20756e2197c4c1494ccf63"},
    "AccessService/RevokeGrant": {"grantId": "a571dfa6af20756e2197c4c1494ccf63", "allowMissing": True},
    "AccessService/RotateKey": {"keyId": "k1", "overlap": "3600s"},
    "AccessService/RevokeKey": {"keyId": "k1", "allowMissing": True},
    "TenantService/CreateTenant": {"tenant": "acme", "displayName": "Acme"},
    "TenantService/GetTenant": {"tenant": "acme"},
    "TenantService/UpdateTenant": {
        "tenant": {"tenant": "acme", "displayName": "Acme Ltd."},
        "updateMask": "displayName",
    },
    "TenantService/DeleteTenant": {"tenant": "acme", "allowMissing": True},
    "TenantService/GetUsage": {"tenant": "acme"},
    "QuarantineService/ReleaseOrigin": {"origin": "web", "originName": "evil.example"},
    "ChangeService/WatchChanges": {"earliest": True},
}
"""The requests of methods that `examples.py` does not show. For the rest, `{}` is one that people send."""

WORDS: Final[Mapping[str, str]] = {
    "KnowledgeStoreService/IndexDocument": "put add store upload insert remember",
    "KnowledgeStoreService/SearchDocuments": "find query recall retrieve",
    "KnowledgeStoreService/DeleteDocument": "remove forget",
    "KnowledgeStoreService/DeleteDocuments": "remove forget",
    "MemoryService/CreateMemory": "remember add store insert",
    "MemoryService/SearchMemories": "recall find query",
    "MemoryService/DeleteMemory": "forget remove hide",
    "MemoryService/UndeleteMemory": "restore undo forget",
    "MemoryService/PurgeMemories": "forget remove for good",
    "SemanticMemoryService/SaveSemanticMemory": "learn remember add statement",
    "SemanticMemoryService/SearchSimilar": "recall find similar",
    "SemanticMemoryService/DeleteSemanticMemories": "forget remove",
    "ConflictService/UnmergeMemory": "undo",
    "EpisodicMemoryService/RecordEvent": "remember log add timeline",
    "EpisodicMemoryService/QueryWindow": "timeline history recall find",
    "EpisodicMemoryService/PruneEvents": "forget delete remove",
    "FactService/PutFact": "remember add store set",
    "FactService/SearchFacts": "recall find query",
    "FactService/DeleteFact": "forget remove",
    "FactService/DeleteFacts": "forget remove",
    "EraseService/Erase": "forget delete gdpr right to be forgotten",
    "QuarantineService/QuarantineOrigin": "hide block poison distrust isolate",
    "QuarantineService/ReleaseOrigin": "unhide show end quarantine undo",
    "ToolService/CallTool": "run function",
    "ChangeService/WatchChanges": "subscribe stream events follow",
    "AccessService/WhoAmI": "login identity",
    "ServerService/GetServerInfo": "version status",
}
"""The words by which people look for a method that neither its name nor its description has."""
