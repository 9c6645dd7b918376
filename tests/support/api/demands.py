"""The demands of the server on request fields, as JSON Schema, with the limits of its checks.

JSON Schema counts the characters of a text, and the server its bytes: a text of the maximum length may still be too
long if it has others than ASCII. `make test-openapi` finds where a check and the description differ.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from mnemon_server.domain.access import NAME_BYTES_MAX, OVERLAP_MAX, TENANT_ID
from mnemon_server.domain.access import TTL_MAX as KEY_TTL_MAX
from mnemon_server.domain.access.grants import SUBJECT_BYTES_MAX, SUBJECTS
from mnemon_server.domain.access.quarantine import REASON_BYTES_MAX as QUARANTINE_REASON_BYTES_MAX
from mnemon_server.domain.access.quotas import LIMIT_MAX as QUOTA_MAX
from mnemon_server.domain.access.quotas import WHOLE
from mnemon_server.domain.access.tenants import DISPLAY_NAME_BYTES_MAX, REASON_BYTES_MAX
from mnemon_server.domain.bridge import CONTENT_MAX_MAX, CONTENT_MAX_MIN
from mnemon_server.domain.conflicts import CONFLICTS_MAX
from mnemon_server.domain.conversations import ARGUMENTS_BYTES_MAX, MESSAGE_ID_BYTES_MAX, MESSAGES_MAX, SPEAKER_KEY
from mnemon_server.domain.conversations import NAME_BYTES_MAX as MESSAGE_NAME_BYTES_MAX
from mnemon_server.domain.conversations import ROLE_BYTES_MAX as MESSAGE_ROLE_BYTES_MAX
from mnemon_server.domain.documents import CONTENT_BYTES_MAX, DOC_ID_BYTES_MAX, QUERY_BYTES_MAX
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.events import (
    CONTEXT_BYTES_MAX,
    CONVERSATION_BYTES_MAX,
    EVENT_ID_BYTES_MAX,
    EVENT_TYPE_BYTES_MAX,
    LAST_DAYS_MAX,
    PAYLOAD_BYTES_MAX,
)
from mnemon_server.domain.events import LIMIT_MAX as EVENTS_MAX
from mnemon_server.domain.events import SOURCE_BYTES_MAX as EVENT_SOURCE_BYTES_MAX
from mnemon_server.domain.facts import KEY_BYTES_MAX
from mnemon_server.domain.filters import VALUES_MAX
from mnemon_server.domain.memories import LIMIT_MAX as MEMORIES_MAX
from mnemon_server.domain.memories import TAG_BYTES_MAX
from mnemon_server.domain.namespaces import LABEL_BYTES_MAX
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.recall import LIMIT_MAX as RECALL_MAX
from mnemon_server.domain.recall import ROLE_BYTES_MAX, TOKENS_MAX, Tokenizer
from mnemon_server.domain.records import DURATION_MAX, METADATA_KEY, METADATA_LIST_MAX, METADATA_TEXT_BYTES_MAX
from mnemon_server.domain.rules import DESCRIPTION_BYTES_MAX, RULE_NAME_BYTES_MAX
from mnemon_server.domain.semantic import KEYWORD_BYTES_MAX, SOURCE_BYTES_MAX, SUMMARY_BYTES_MAX, TOP_K_MAX
from mnemon_server.domain.validation import REQUEST_ID_BYTES_MAX, SCOPE_BYTES_MAX
from mnemon_server.services.backup.store import NAME as BACKUP_NAME
from mnemon_server.services.bridge.routing import POLICY_FIELDS
from mnemon_server.services.conflicts.arbitration import SOURCE_PRIORITY_MAX
from mnemon_server.services.documents.checks import FIELDS as DOCUMENT_FIELDS
from mnemon_server.services.facts.checks import LIMIT_MAX as FACTS_MAX
from mnemon_server.services.facts.checks import OFFSET_MAX, PATH_BYTES_MAX, TTL_MAX
from mnemon_server.services.facts.texts import PATH
from mnemon_server.services.memories.checks import FIELDS as MEMORY_FIELDS
from mnemon_server.services.memories.checks import UUID
from mnemon_server.services.rules.schema import WEIGHT_MAX
from mnemon_server.transport.convert.tenants import FIELDS as TENANT_FIELDS

Schema = dict[str, Any]

_WITHOUT_NUL = r"^[^\u0000]*$"
_NOT_BLANK = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
_MICROSECONDS = rf"0\.(?:{'|'.join(f'0{{{zeros}}}[1-9][0-9]{{0,{8 - zeros}}}' for zeros in range(6))})"
"""From a microsecond to a second."""
_NAME = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$"


def _text(most: int) -> Schema:
    return {"maxLength": most, "pattern": _WITHOUT_NUL}


def _filled(most: int) -> Schema:
    return {"minLength": 1, **_text(most)}


def _said(most: int) -> Schema:
    return {"minLength": 1, "maxLength": most, "pattern": _NOT_BLANK}


def _any_id(most: int) -> Schema:
    return {"maxLength": most, "pattern": r"^(?:[^\u0000]*[^\s\u0000][^\u0000]*)?$"}


def whole(expression: str) -> str:
    """A pattern of JSON Schema that matches a text as a whole."""
    return f"^(?:{expression})$"


def naturals(most: int) -> str:
    """A pattern of the whole numbers from 1 to `most`, without leading zeros; `most` has two digits or more."""
    digits = str(most)
    shorter = f"[1-9][0-9]{{0,{len(digits) - 2}}}"
    smaller = [
        f"{digits[:place]}[{least}-{int(digit) - 1}][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if int(digit) > (least := int(place == 0))
    ]
    return "|".join([shorter, *smaller, digits])


def _seconds(least: str, most: timedelta) -> Schema:
    """A duration up to `most`; `least` is the pattern of those below a second."""
    limit = most // timedelta(seconds=1)
    longer = rf"(?:{naturals(limit - 1)})(?:\.[0-9]{{1,9}})?|{limit}(?:\.0{{1,9}})?"
    return {"pattern": f"^(?:(?:{'|'.join(filter(None, (least, longer)))})s)$"}


def _mask(fields: Iterable[str]) -> Schema:
    """The names of fields, separated by commas, as JSON writes them."""
    name = "|".join(re.sub("_(.)", lambda found: found[1].upper(), each) for each in fields).replace(".", r"\.")
    return {"pattern": f"^(?:(?:{name})(?:,(?:{name}))*)?$"}


def _numbers(least: float, most: float | None = None) -> Schema:
    return {"minimum": least, **({} if most is None else {"maximum": most})}


_SHARE: Final = _numbers(0, 1)
_ID: Final = {"minLength": 1, "maxLength": DOC_ID_BYTES_MAX, "pattern": _NAME}
_NATURAL: Final = {"minimum": 0, "pattern": whole(f"0|{naturals(2**63 - 1)}")}
_POSITIVE: Final = {"minimum": 1, "maximum": int(QUOTA_MAX), "pattern": "^[1-9][0-9]{0,14}$"}
_TENANT: Final = {"pattern": whole(TENANT_ID.pattern)}
_ANY_TENANT: Final = {"pattern": whole(f"(?:{TENANT_ID.pattern})?")}
_METADATA_KEY: Final = {"pattern": whole(METADATA_KEY.pattern)}
_ORIGIN: Final = {"pattern": whole("|".join(Origin))}
_ANY_ORIGIN: Final = {"pattern": whole(f"(?:{'|'.join(Origin)})?")}
_RULE: Final = _text(RULE_NAME_BYTES_MAX)
_RULE_NAME: Final = {"minLength": 1, "maxLength": RULE_NAME_BYTES_MAX, "pattern": _NAME}

_SCOPE_PARTS = [f"scope.{name}" for name in SCOPE_FIELDS]

_FIELDS: Final[Mapping[str, Schema]] = {
    **dict.fromkeys(("users", "personas"), _said(SCOPE_BYTES_MAX)),
    **dict.fromkeys(("namespace", "labels", "prefix", "suffix"), _said(LABEL_BYTES_MAX)),
    **dict.fromkeys(("page_size", "max_depth", "max_batch_size"), _numbers(0)),
    **dict.fromkeys(("min_score", "min_relevance", "min_confidence", "importance", "min_importance"), _SHARE),
    "demoted_importance": _SHARE,
    **dict.fromkeys(("semantic_threshold", "keyword_threshold", "relation_threshold", "merge_threshold"), _SHARE),
    **dict.fromkeys(("deduplication_threshold", "importance_boost", "importance_min", "importance_max"), _SHARE),
    **{f"FactorWeights.{name}": _numbers(0, WEIGHT_MAX) for name in ("importance", "recency", "source", "semantic")},
    **{f"Scope.{name}": _any_id(SCOPE_BYTES_MAX) for name in ("user", "household", "persona", "agent", "project")},
    **dict.fromkeys(("origin", "min_trust"), _ANY_ORIGIN),
    "origin_name": _any_id(SCOPE_BYTES_MAX),
    **{f"Quotas.{name}": _POSITIVE for name in WHOLE},
    "expected_revision": _NATURAL,
    "request_id": _any_id(REQUEST_ID_BYTES_MAX),
    "query": _text(QUERY_BYTES_MAX),
    "rule": _RULE,
    "key": _said(KEY_BYTES_MAX),
    "RevokeKeyRequest.key_id": {"minLength": 1},
    "doc_id": _ID,
    "memory_id": _ID,
    "memory_ids": _ID,
    "decision_id": _ID,
    "version_id": _ID,
    **dict.fromkeys(("last", "max_messages"), _numbers(0, MESSAGES_MAX)),
    **dict.fromkeys(("conversation_id", "message_ids"), _said(CONVERSATION_BYTES_MAX)),
    **dict.fromkeys(("conversation", "after_message_id"), _any_id(CONVERSATION_BYTES_MAX)),
    "payload": _text(PAYLOAD_BYTES_MAX),
    "event_id": _said(EVENT_ID_BYTES_MAX),
    "event_ids": _said(EVENT_ID_BYTES_MAX),
    "event_types": _any_id(EVENT_TYPE_BYTES_MAX),
    "personality": _text(TAG_BYTES_MAX),
    "type": _text(TAG_BYTES_MAX),
    "sources": _said(SOURCE_BYTES_MAX),
    "source_priority": _numbers(0, SOURCE_PRIORITY_MAX),
    "importance_delta": {"minimum": 0, "exclusiveMaximum": 1},
    "paths": {"maxLength": PATH_BYTES_MAX, "pattern": whole(PATH.pattern)},
    "tenant": _ANY_TENANT,
    "display_name": {"maxLength": DISPLAY_NAME_BYTES_MAX},
    "record_ids": _any_id(DOC_ID_BYTES_MAX),
    "remove_metadata": _METADATA_KEY,
    "ArbitrateConflictRequest.rule": _RULE,
    "Condition.field": {"minLength": 1},
    "AcceptGrantRequest.grant_id": {"minLength": 1},
    "RevokeGrantRequest.grant_id": {"minLength": 1},
    "CreateGrantRequest.subject": {
        "pattern": rf"^(?:{'|'.join(SUBJECTS)})[^\u0000]+$",
        "maxLength": SUBJECT_BYTES_MAX,
    },
    "CreateKeyRequest.name": {"minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": r"\S"},
    "CreateKeyRequest.namespaces": {"minLength": 1},
    "CreateKeyRequest.origins": _ORIGIN,
    "RuleConditions.origins": _ORIGIN,
    "EraseOrigin.origin": _ORIGIN,
    "QuarantineOriginRequest.origin": _ORIGIN,
    "QuarantineOriginRequest.reason": _text(QUARANTINE_REASON_BYTES_MAX),
    "ReleaseOriginRequest.origin": _ORIGIN,
    "CreateKeyRequest.users": _said(SCOPE_BYTES_MAX),
    "CreateTenantRequest.tenant": _TENANT,
    "DeleteTenantRequest.tenant": _TENANT,
    "GetTenantRequest.tenant": _TENANT,
    "GetUsageRequest.tenant": _TENANT,
    "CreateBackupRequest.name": {"pattern": whole(f"(?:{BACKUP_NAME.pattern})?")},
    "CreateBackupRequest.base_name": {"pattern": whole(f"(?:{BACKUP_NAME.pattern})?")},
    "DetectConflictsRequest.limit": _numbers(0, CONFLICTS_MAX),
    "Document.content": _said(CONTENT_BYTES_MAX),
    "EpisodicEvent.event_id": _any_id(EVENT_ID_BYTES_MAX),
    "EpisodicEvent.event_type": _said(EVENT_TYPE_BYTES_MAX),
    "EpisodicEvent.content": _text(CONTENT_BYTES_MAX),
    "EpisodicEvent.context": _text(CONTEXT_BYTES_MAX),
    "EpisodicEvent.source": _text(EVENT_SOURCE_BYTES_MAX),
    "ConversationMessage.message_id": _any_id(MESSAGE_ID_BYTES_MAX),
    "ConversationMessage.role": _said(MESSAGE_ROLE_BYTES_MAX),
    "ConversationMessage.name": _any_id(MESSAGE_NAME_BYTES_MAX),
    "ConversationMessage.content": _text(CONTENT_BYTES_MAX),
    "ConversationMessage.tool_call_id": _any_id(MESSAGE_ID_BYTES_MAX),
    "MessageToolCall.id": _any_id(MESSAGE_ID_BYTES_MAX),
    "MessageToolCall.name": _said(MESSAGE_NAME_BYTES_MAX),
    "MessageToolCall.arguments": _text(ARGUMENTS_BYTES_MAX),
    **{
        f"{message}.{name}": schema
        for message in ("RecallRequest", "GetConversationContextRequest")
        for name, schema in (
            ("max_tokens", _numbers(0, TOKENS_MAX)),
            ("tokenizer", {"pattern": whole(f"(?:{'|'.join(map(re.escape, Tokenizer))})?")}),
        )
    },
    "EraseRequest.user": _filled(SCOPE_BYTES_MAX),
    "Fact.key": _any_id(KEY_BYTES_MAX),
    "Fact.ttl": _seconds(_MICROSECONDS, TTL_MAX),
    "WatchChangesRequest.heartbeat_interval": {
        "pattern": r"^(?:(?:[5-9]|[1-5][0-9])(?:\.[0-9]{1,9})?|60(?:\.0{1,9})?)s$"
    },
    "DetectionConfig.time_window": _seconds(_MICROSECONDS, DURATION_MAX),
    "CreateKeyRequest.ttl": _seconds("", KEY_TTL_MAX),
    "RotateKeyRequest.overlap": _seconds(r"0(?:\.[0-9]{1,9})?", OVERLAP_MAX),
    "ForecastMemoriesRequest.min_confidence": {"exclusiveMinimum": 0, "maximum": 1},
    "ListDecisionsRequest.user": _any_id(SCOPE_BYTES_MAX),
    "ListDecisionsRequest.memory_id": {"maxLength": DOC_ID_BYTES_MAX, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"},
    "Memory.memory_id": {"pattern": whole(f"(?:{UUID.pattern})?")},
    "Memory.content": _said(CONTENT_BYTES_MAX),
    "MergeRuleConfig.name": _RULE_NAME,
    "MergeRuleConfig.extends": _RULE_NAME,
    "MergeRuleConfig.description": _text(DESCRIPTION_BYTES_MAX),
    "DeleteDocumentsRequest.filters": {
        "properties": {"timestampValue": {"type": "null"}, "stringListValue": {"type": "null"}}
    },
    "MemoryFilter.metadata": {"properties": {"timestampValue": {"type": "null"}, "stringListValue": {"type": "null"}}},
    "MetadataValue.string_value": _text(METADATA_TEXT_BYTES_MAX),
    "QueryWindowRequest.limit": _numbers(0, EVENTS_MAX),
    "QueryWindowRequest.last_days": _numbers(1, LAST_DAYS_MAX),
    "Quotas.calls_per_second": {"exclusiveMinimum": 0, "maximum": QUOTA_MAX},
    "Quotas.mib_in_flight": {"exclusiveMinimum": 0, "maximum": QUOTA_MAX},
    "Quotas.disk_mib": {"exclusiveMinimum": 0, "maximum": QUOTA_MAX},
    "Quotas.embedding_seconds_per_minute": {"exclusiveMinimum": 0, "maximum": QUOTA_MAX},
    "Quotas.records": {**_POSITIVE, "minimum": 0, "pattern": "^(?:0|[1-9][0-9]{0,14})$"},
    "RecallMessage.role": _text(ROLE_BYTES_MAX),
    "RecallMessage.content": _text(QUERY_BYTES_MAX),
    "RecallRequest.limit": _numbers(0, RECALL_MAX),
    "RoutingPolicy.content_max": _numbers(CONTENT_MAX_MIN, CONTENT_MAX_MAX),
    "RoutingPolicy.event_types": _said(EVENT_TYPE_BYTES_MAX),
    "SearchDocumentsRequest.limit": _numbers(0),
    "SearchFactsRequest.limit": _numbers(0, FACTS_MAX),
    "SearchFactsRequest.offset": _numbers(0, OFFSET_MAX),
    "SearchMemoriesRequest.limit": _numbers(0, MEMORIES_MAX),
    "SearchSimilarRequest.limit": _numbers(0, TOP_K_MAX),
    "SemanticMemory.content": _said(CONTENT_BYTES_MAX),
    "SemanticMemory.summary": _text(SUMMARY_BYTES_MAX),
    "SemanticMemory.source": _text(SOURCE_BYTES_MAX),
    "SemanticMemory.keywords": _said(KEYWORD_BYTES_MAX),
    "StringList.values": _text(METADATA_TEXT_BYTES_MAX),
    "Suspension.reason": _said(REASON_BYTES_MAX),
    "UpdateDocumentRequest.update_mask": _mask((*DOCUMENT_FIELDS, *_SCOPE_PARTS)),
    "UpdateMemoryRequest.update_mask": _mask((*MEMORY_FIELDS, *_SCOPE_PARTS)),
    "UpdateRoutingPolicyRequest.update_mask": {"minLength": 1, **_mask(POLICY_FIELDS)},
    "UpdateTenantRequest.update_mask": {"minLength": 1, **_mask(TENANT_FIELDS)},
    "WatchChangesRequest.cursor": {"minLength": 1},
    "WatchChangesRequest.earliest": {"const": True},
}
"""By "Message.field", or by the name of the field in all messages; of a list or map, for each entry."""

_LISTS: Final[Mapping[str, Schema]] = {
    "metadata": {"propertyNames": _METADATA_KEY},
    "ConversationMessage.metadata": {"propertyNames": {**_METADATA_KEY, "not": {"const": SPEAKER_KEY}}},
    "DeleteDocumentsRequest.filters": {"propertyNames": _METADATA_KEY},
    "set_metadata": {"propertyNames": _METADATA_KEY},
    "source_priority": {"propertyNames": _said(SOURCE_BYTES_MAX)},
    "CreateKeyRequest.origins": {"maxItems": len(Origin)},
    "Condition.values": {"minItems": 1, "maxItems": VALUES_MAX},
    "FilterList.filters": {"minItems": 1},
    "StringList.values": {"maxItems": METADATA_LIST_MAX},
}
"""Of a list or map as a whole."""

_SPECIFIED: Final = frozenset(
    {
        "ChangeFilter.types",
        "Condition.comparator",
        "CreateKeyRequest.role",
        "DetectionConfig.required_signals",
        "DetectionConfig.signals",
        "EraseFilter.kind",
        "ExportSelection.kinds",
        "GetConversationContextRequest.kinds",
        "ListToolsRequest.actions_permitted",
        "RecallFilter.kind",
        "RecallRequest.kinds",
        "ToolContext.actions_permitted",
    }
)
"""The fields whose value must be another one than that of a field that is left out."""

_OF_CONVERSATIONS: Final = (
    "AppendMessagesRequest",
    "DeleteConversationRequest",
    "DeleteMessagesRequest",
    "GetConversationContextRequest",
    "ListMessagesRequest",
)
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_OF_CONVERSATIONS, ("scope",)),
    "BatchGetFactsRequest": ("names",),
    "Condition": ("field", "comparator", "values"),
    "DeleteDocumentRequest": ("doc_id",),
    "DeleteFactRequest": ("namespace", "key"),
    "DeleteMemoryRequest": ("memory_id",),
    "DeleteRuleRequest": ("name",),
    "EpisodicEvent": ("scope",),
    "EraseFilter": ("kind",),
    "Fact": ("namespace", "value"),
    "FactName": ("namespace", "key"),
    "FactNamespace": ("labels",),
    "FilterList": ("filters",),
    "GetDocumentRequest": ("doc_id",),
    "GetEventRequest": ("event_id",),
    "GetFactRequest": ("namespace", "key"),
    "GetMemoryRequest": ("memory_id",),
    "GetRuleRequest": ("name",),
    "GetSemanticMemoryRequest": ("memory_id",),
    "ListDocumentVersionsRequest": ("doc_id",),
    "ListFactVersionsRequest": ("namespace", "key"),
    "ListMemoryVersionsRequest": ("memory_id",),
    "ListSemanticMemoryVersionsRequest": ("memory_id",),
    "RecallFilter": ("kind", "filter"),
    "ReinforceMemoryRequest": ("memory_id",),
    "RenewFactsRequest": ("names",),
    "ResolveRuleRequest": ("name",),
    "RestoreDocumentVersionRequest": ("doc_id", "version_id"),
    "RestoreFactVersionRequest": ("namespace", "key", "version_id"),
    "RestoreMemoryVersionRequest": ("memory_id", "version_id"),
    "RestoreSemanticMemoryVersionRequest": ("memory_id", "version_id"),
    "UndeleteMemoryRequest": ("memory_id",),
}
"""The fields that a message must have, besides those whose comment begins with "Required"."""

ONE_OF: Final = frozenset(("Filter", "MemoryReference", "EraseRequest", "UnmergeMemoryRequest", "MetadataValue"))
"""The messages of which exactly one field must be set; of others with a choice, at most one."""

_USER: Final = {"properties": {"user": {"type": "string", "minLength": 1}}, "required": ["user"]}
_EMPTY: Final = {"type": "string", "maxLength": 0}
_GIVEN: Final = {"type": "string"}
_STATEMENT: Final = {
    "properties": {"content": _GIVEN, "scope": {"type": "object", **_USER}},
    "required": ["content", "scope"],
}
INSIDE: Final[Mapping[str, Schema]] = {
    "CreateMemoryRequest.memory": {"properties": {"content": _GIVEN}, "required": ["content"]},
    "EpisodicEvent.scope": _USER,
    "CreateGrantRequest.scope": {
        "properties": {**_USER["properties"], "origin": _EMPTY, "originName": _EMPTY},
        "required": ["user"],
    },
    **{f"{request}.scope": _USER for request in _OF_CONVERSATIONS},
    "IndexDocumentRequest.document": {
        "properties": {"docId": _GIVEN, "content": _GIVEN},
        "required": ["docId", "content"],
    },
    "MemoryReference.memory": _STATEMENT,
    "PreviewResolutionRequest.memory": _STATEMENT,
    "SaveSemanticMemoryRequest.memory": _STATEMENT,
    "UpdateDocumentRequest.document": {"properties": {"docId": _GIVEN}, "required": ["docId"]},
    "UpdateMemoryRequest.memory": {
        "properties": {"memoryId": {"type": "string", "minLength": 1}},
        "required": ["memoryId"],
    },
    "UpdateTenantRequest.tenant": {"properties": {"tenant": _TENANT}, "required": ["tenant"]},
}
"""The demands on the message in a field that it need not meet elsewhere."""


def _set(name: str, value: Schema) -> Schema:
    return {"required": [name], "properties": {name: value}}


_SOME: Final = {"type": "array", "minItems": 1}
_NAMED: Final = {"type": "string", "minLength": 1}
_SOMETHING: Final = {"type": "object", "minProperties": 1}
_CHANGE: Final = {
    "anyOf": [
        _set("updateMask", _NAMED),
        _set("setMetadata", _SOMETHING),
        _set("removeMetadata", _SOME),
    ]
}
WHOLE_MESSAGES: Final[Mapping[str, Schema]] = {
    "DeleteMessagesRequest": {
        "oneOf": [
            _set("messageIds", _SOME),
            _set("last", {"type": "integer", "minimum": 1}),
            _set("afterMessageId", _NAMED),
        ]
    },
    "PreviewExtractionRequest": {"oneOf": [_set("conversationId", _NAMED), _set("messages", _SOME)]},
    "ListMessagesRequest": {
        "not": {
            "required": ["last", "newestFirst"],
            "properties": {"last": {"minimum": 1}, "newestFirst": {"const": True}},
        }
    },
    "CreateGrantRequest": {"oneOf": [_set("scope", {"type": "object"}), _set("namespace", _SOME)]},
    "DeleteDocumentsRequest": {"anyOf": [_set("filter", _SOMETHING), _set("filters", _SOMETHING)]},
    "DeleteSemanticMemoriesRequest": {"oneOf": [_set("memoryIds", _SOME), _set("filter", _SOMETHING)]},
    "FactFilter": {"anyOf": [_set("namespace", _SOME), _set("subtree", {"const": True})]},
    "PruneEventsRequest": {
        "oneOf": [
            _set("eventIds", _SOME),
            {"anyOf": [_set("before", {"type": "string"}), _set("filter", _SOMETHING)]},
        ]
    },
    "UpdateDocumentRequest": _CHANGE,
    "UpdateMemoryRequest": _CHANGE,
}
"""The demands on several fields of a message together."""


def of_value(field: FieldDescriptor) -> Schema:
    """The demands on a value of this field, or on each entry of its list or map."""
    demand = _FIELDS.get(_name(field), _FIELDS.get(field.name, {}))
    if field.message_type is not None and not field.message_type.GetOptions().map_entry:
        return INSIDE.get(_name(field), _FIELDS.get(_name(field), {}))
    if field.enum_type is not None:
        unspecified = field.enum_type.values_by_number[0].name
        return {"not": {"const": unspecified}} if _name(field) in _SPECIFIED else {}
    return demand


def of_list(field: FieldDescriptor, *, required: bool) -> Schema:
    """The demands on a list or map as a whole."""
    least: Schema = {"minItems": 1} if required else {}
    return {**least, **_LISTS.get(_name(field), _LISTS.get(field.name, {}))}


def _name(field: FieldDescriptor) -> str:
    owner: Any = field.containing_type
    return f"{owner.name}.{field.name}"
