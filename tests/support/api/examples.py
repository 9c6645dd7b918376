"""The calls that the reference and the OpenAPI document show. Tests make them, in this order, on one server."""

import json
import shlex
from dataclasses import dataclass
from typing import Any, Final

from tests.support.api.schemas import PACKAGE

GRPC, HTTP = "127.0.0.1:50051", "127.0.0.1:8080"
"""The addresses in the commands."""


@dataclass(frozen=True, slots=True)
class Example:
    """A call."""

    method: str
    """Such as "MemoryService/GetMemory"."""
    request: dict[str, Any]
    shows: str
    """What its answer has in it."""
    credential: str = ""
    """The variable of the environment with a credential, if only a server with authentication answers."""

    @property
    def full_name(self) -> str:
        """The name of the method."""
        return PACKAGE + self.method.replace("/", ".")

    def curl(self) -> str:
        """The command for JSON over HTTP."""
        return f"curl {self._header()}--json {self._data()} http://{HTTP}/{PACKAGE}{self.method}"

    def buf_curl(self) -> str:
        """The command for gRPC; reflection tells it the messages."""
        return (
            f"buf curl --protocol grpc --http2-prior-knowledge {self._header()}--data {self._data()} \\\n"
            f"  http://{GRPC}/{PACKAGE}{self.method}"
        )

    def _header(self) -> str:
        return f'--header "authorization: Bearer ${self.credential}" ' if self.credential else ""

    def _data(self) -> str:
        return shlex.quote(json.dumps(self.request, ensure_ascii=False))


_DOCUMENT: Final = {"docId": "tea", "content": "Green tea is best at eighty degrees."}
_EVENT: Final = {"eventType": "task", "content": "Ada must renew her passport.", "importance": 0.9}
_FACT: Final = {"namespace": ["user", "ada"], "key": "seat", "value": {"content": "Ada prefers window seats."}}
_ADA: Final = {"user": "ada"}

EXAMPLES: Final = (
    Example("AccessService/WhoAmI", {}, '"tenant"'),
    Example(
        "AccessService/CreateKey",
        {"name": "for reports", "role": "ROLE_READER"},
        '"secret"',
        credential="MNEMON_ADMIN_KEY",
    ),
    Example("KnowledgeStoreService/IndexDocument", {"document": _DOCUMENT}, '"receipt"'),
    Example("KnowledgeStoreService/SearchDocuments", {"query": "How hot should the water be?"}, '"docId":"tea"'),
    Example(
        "MemoryService/CreateMemory",
        {"memory": {"content": "Ada likes green tea.", "scope": _ADA}, "requestId": "create-1"},
        '"memoryId"',
    ),
    Example(
        "MemoryService/SearchMemories",
        {"query": "What tea does she drink?", "filter": {"scope": _ADA}, "limit": 3},
        "Ada likes green tea.",
    ),
    Example(
        "SemanticMemoryService/SaveSemanticMemory",
        {"memory": {"content": "Ada lives in Munich.", "scope": _ADA}},
        "Ada lives in Munich.",
    ),
    Example(
        "SemanticMemoryService/SearchSimilar",
        {"query": "Ada lives in Munich", "filter": {"scope": _ADA}},
        "Ada lives in Munich.",
    ),
    Example(
        "ConflictService/PreviewResolution",
        {"memory": {"content": "Ada lives in Berlin now.", "scope": _ADA}},
        '"reason"',
    ),
    Example(
        "RulesService/RegisterRule",
        {"rule": {"name": "careful", "description": "For what Ada says.", "priority": 5}, "requestId": "rule-1"},
        '"careful"',
    ),
    Example(
        "EpisodicMemoryService/RecordEvent",
        {"event": {**_EVENT, "scope": _ADA, "eventTime": "2026-01-31T12:00:00Z"}},
        '"sequence"',
    ),
    Example(
        "EpisodicMemoryService/QueryWindow",
        {"range": {"startTime": "2026-01-01T00:00:00Z"}, "filter": {"scope": _ADA}},
        "Ada must renew her passport.",
    ),
    Example("BridgeService/GetRoutingPolicy", {}, '"minImportance"'),
    Example("FactService/PutFact", {"fact": _FACT}, '"receipt"'),
    Example(
        "FactService/SearchFacts",
        {"query": "Which window seats?", "filter": {"namespace": ["user"], "subtree": True}},
        "Ada prefers window seats.",
    ),
    Example(
        "RecallService/Recall",
        {"query": "Where does Ada live?", "scope": _ADA, "maxTokens": 200},
        "Ada lives in Munich.",
    ),
    Example(
        "ConversationService/AppendMessages",
        {"scope": _ADA, "conversationId": "trip", "messages": [{"role": "user", "content": "Book me a window seat."}]},
        '"receipts"',
    ),
    Example("ConversationService/ListConversations", {"scope": _ADA}, '"trip"'),
    Example(
        "ConversationService/GetConversationContext",
        {"scope": _ADA, "conversationId": "trip", "maxTokens": 500},
        "Book me a window seat.",
    ),
    Example("ToolService/ListTools", {}, '"search_memory"'),
    Example(
        "ToolService/CallTool",
        {"tool": "search_memory", "arguments": {"query": "window seats"}, "context": {"config": {"user_id": "ada"}}},
        "Ada prefers window seats.",
    ),
    Example("ChangeService/ListChanges", {"pageSize": 2}, '"changes"'),
    Example("ArchiveService/ExportRecords", {"selection": {"scope": _ADA}}, "Ada likes green tea."),
    Example("BackupService/CreateBackup", {}, '"chunk"'),
    Example("EraseService/Erase", {"user": "ada", "dryRun": True}, '"dryRun":'),
    Example(
        "QuarantineService/QuarantineOrigin",
        {"origin": "web", "originName": "evil.example", "reason": "gives orders to agents"},
        '"quarantine":',
    ),
    Example("QuarantineService/ListQuarantines", {}, '"evil.example"'),
    Example("TenantService/ListTenants", {}, '"default"', credential="MNEMON_OPERATOR_KEY"),
    Example("ServerService/GetServerInfo", {}, '"version"'),
)
