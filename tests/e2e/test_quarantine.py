"""While a source is in quarantine, no answer shows any of its records; after the release, they are all back."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc import aio
from mnemon_server.domain.access import Role
from mnemon_server.transport.roles import permissions

from tests.support.access import bearer, guarded_server, make_key, methods, path_of
from tests.support.server import eventually

MARK = "zanzibar"
SITE = "evil.example"
EVIL = {"origin": "web", "originName": SITE}
OTHER = {"origin": "web", "originName": "good.example"}
ADA = {"user": "ada"}
PLACE = ["users", "ada"]
METHODS = {f"{method.containing_service.name}/{method.name}": method for method in methods()}
PERMISSIONS = permissions({method.containing_service for method in METHODS.values()})
ABP = '[[ABP_TOOL:search_memory]]{"query": "the letter on Monday"}[[END_ABP_TOOL]]'
PLAIN = {"WhoAmI", "GetServerInfo", "ListGrants", "ListTools", "ParseToolCalls"}
"""Methods that show no records."""

UNSTEADY = ("duration", "confidence")
"""Endings of the names of fields that differ from call to call."""

Json = dict[str, Any]


@dataclass
class Caller:
    """Calls methods with JSON."""

    channel: aio.Channel
    secret: str

    async def call(self, name: str, request: Json) -> Json:
        """The answer; of an error, its code."""
        method = METHODS[name]
        message = ParseDict(request, GetMessageClass(method.input_type)())
        try:
            return _steady(MessageToDict(await self._stub(method)(message, metadata=bearer(self.secret))))
        except aio.AioRpcError as error:
            return {"code": error.code().name, "details": error.details()}

    async def must(self, name: str, request: Json) -> Json:
        """The answer; fails the test if it is an error."""
        answer = await self.call(name, request)
        assert "code" not in answer, (name, answer)
        return answer

    def _stub(self, method: MethodDescriptor) -> Any:
        answer = GetMessageClass(method.output_type)
        return self.channel.unary_unary(path_of(method), lambda each: each.SerializeToString(), answer.FromString)


def _steady(value: Any) -> Any:
    """The answer without what differs from call to call."""
    if isinstance(value, dict):
        return {key: _steady(each) for key, each in value.items() if not key.lower().endswith(UNSTEADY)}
    return [_steady(each) for each in value] if isinstance(value, list) else value


@dataclass
class Stored:
    """The ids of records that the server named."""

    ids: dict[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> Mapping[str, list[Json]]:
        """Requests for every method that reads, whose answers have something from the source."""
        memory, statement, merged = self.ids["memory"], self.ids["statement"], self.ids["merged"]
        words, mine = {"query": f"the {MARK} letter"}, {"filter": {"scope": ADA}}
        query, recall, past = words | mine, words | {"scope": ADA}, {"asOfTime": self.ids["time"]}
        rival = {"candidate": {"memoryId": self.ids["rival"]}}
        words_alone = {"signals": ["SIGNAL_TYPE_KEYWORD"], "keywordThreshold": 0.1}
        everywhere = {"filter": {"subtree": True}}
        talk = {"scope": ADA, "conversationId": "talk"}
        search = {**words, "kinds": ["fact", "document", "memory", "statement", "event"]}
        context = {"config": {"user_id": "ada"}}
        return {
            "KnowledgeStoreService/SearchDocuments": [query, query | {"mode": "SEARCH_MODE_KEYWORD"}, query | past],
            "KnowledgeStoreService/GetDocument": [{"docId": f"{MARK}-1"}, {"docId": "moved", **past}],
            "KnowledgeStoreService/ListDocuments": [mine, {}, past],
            "KnowledgeStoreService/CountDocuments": [mine, {}],
            "KnowledgeStoreService/ListDocumentVersions": [{"docId": "moved"}],
            "MemoryService/GetMemory": [{"memoryId": memory}],
            "MemoryService/ListMemories": [{}, mine, past],
            "MemoryService/SearchMemories": [query, query | {"explain": True}, query | past],
            "MemoryService/CountMemories": [{}],
            "MemoryService/ListMemoryVersions": [{"memoryId": memory}],
            "MemoryService/ForecastMemories": [mine | {"byTime": "2100-01-01T00:00:00Z", "minConfidence": 0.5}],
            "SemanticMemoryService/SearchSimilar": [query, query | past],
            "SemanticMemoryService/GetSemanticMemory": [
                {"memoryId": each} for each in (statement, merged, self.ids["both"])
            ],
            "SemanticMemoryService/ListSemanticMemories": [{}, mine, {"showSuperseded": True}, past],
            "SemanticMemoryService/ListSemanticMemoryVersions": [
                {"memoryId": each} for each in (self.ids["part"], merged)
            ],
            "ConflictService/DetectConflicts": [rival, rival | {"detection": words_alone}],
            "ConflictService/ArbitrateConflict": [
                {"candidate": {"memoryId": self.ids["rival"]}, "existing": {"memoryId": statement}}
            ],
            "ConflictService/PreviewResolution": [
                {"memory": {"content": self.ids["said"], "scope": ADA, "createTime": self.ids["time"]}}
            ],
            "ConflictService/ListDecisions": [{}, {"memoryId": merged}, {"memoryId": self.ids["both"]}],
            "EpisodicMemoryService/QueryWindow": [mine, query],
            "EpisodicMemoryService/ListRecentEvents": [mine],
            "EpisodicMemoryService/SummarizeRange": [mine],
            "EpisodicMemoryService/GetEvent": [{"eventId": f"{MARK}-event"}],
            "ConversationService/ListMessages": [talk, talk | {"newestFirst": True, "pageSize": 1}],
            "ConversationService/ListConversations": [{"scope": ADA}],
            "ConversationService/GetConversationContext": [talk],
            "FactService/GetFact": [
                {"namespace": PLACE, "key": f"{MARK}-key"},
                {"namespace": PLACE, "key": "moved", **past},
                {"namespace": PLACE, "key": "moved", "showVersions": True},
            ],
            "FactService/BatchGetFacts": [{"names": [{"namespace": PLACE, "key": f"{MARK}-key"}]}],
            "FactService/SearchFacts": [words | {"filter": {"namespace": PLACE}}, everywhere | words | past],
            "FactService/ListFacts": [
                {"filter": {"namespace": PLACE}},
                everywhere | {"showVersions": True},
                everywhere | past,
            ],
            "FactService/ListNamespaces": [{}, {"prefix": PLACE}],
            "FactService/ListFactVersions": [{"namespace": PLACE, "key": "moved"}],
            "RecallService/Recall": [recall | {"maxTokens": 2_000}, recall | past],
            "ToolService/CallTool": [{"tool": "search_memory", "arguments": search, "context": context}],
            "ToolService/ExecuteText": [{"text": ABP, "context": {"namespace": PLACE}}],
            "ChangeService/ListChanges": [{"view": "CHANGE_VIEW_FULL"}, {"filter": {"recordIds": [memory]}}],
        }


@dataclass
class Place:
    """A server with records of a page, of another one, and of the user."""

    admin: Caller
    writers: list[Caller]
    """A caller without bounds, one that is bound to the user, and one to whom the user's records are granted."""
    stored: Stored


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Place]:
    admin, writer = make_key(folder, "admin"), make_key(folder, "writer")
    bound = make_key(folder, "writer", "--user", "ada", "--namespace", "users.ada")
    guest = make_key(folder, "writer", "--user", "bob", "--namespace", "users.bob")
    async with guarded_server(folder) as connection, aio.insecure_channel(str(connection.server.address)) as channel:
        callers = [Caller(channel, secret) for secret in (writer, bound, guest)]
        place = Place(Caller(channel, admin), callers, Stored())
        for what in ({"scope": ADA}, {"namespace": PLACE}):
            await place.admin.must(
                "AccessService/CreateGrant", {"subject": "user:bob", "access": "GRANT_ACCESS_WRITE", **what}
            )
        await fill(callers[0], place.stored)
        yield place


async def fill(caller: Caller, stored: Stored) -> None:
    """Records of every kind from the site, and others."""
    evil, other, own = ADA | EVIL, ADA | OTHER, ADA | {"origin": "user"}
    said, ids = f"The {MARK} letter came on Monday.", stored.ids
    now = datetime.now(UTC).isoformat()
    for doc_id, text, scope in ((f"{MARK}-1", said, evil), ("own", "A letter came.", own), ("moved", said, evil)):
        await caller.must(
            "KnowledgeStoreService/IndexDocument", {"document": {"docId": doc_id, "content": text, "scope": scope}}
        )
    stable = {"decayPolicy": "DECAY_POLICY_STABLE"}
    fading = {"content": f"{said} It fades.", "scope": evil, "decayPolicy": "DECAY_POLICY_REINFORCEABLE"}
    await caller.must("MemoryService/CreateMemory", {"memory": fading})
    for text, scope in (("A letter came.", own), (f"{said} It began.", evil)):
        made = await caller.must("MemoryService/CreateMemory", {"memory": {"content": text, "scope": scope, **stable}})
        ids["memory"] = made["memory"]["memoryId"]
    await caller.must(
        "MemoryService/UpdateMemory", {"memory": {"memoryId": ids["memory"], "content": said}, "updateMask": "content"}
    )
    for name, text, scope in (
        ("statement", f"{said} It is long.", evil),
        ("rival", "The letter came on Friday. It is long.", own),
        ("part", f"The {MARK} letter is blue.", evil),
        ("other", "The letter is blue.", other),
        ("third", "The letter is long and blue.", other),
    ):
        saved = await caller.must(
            "SemanticMemoryService/SaveSemanticMemory", {"memory": {"content": text, "scope": scope}}
        )
        ids[name] = saved["memory"]["memoryId"]
    for key, scope in ((f"{MARK}-key", EVIL), ("own", {"origin": "user"}), ("moved", EVIL)):
        await put_fact(caller, PLACE, key, said if scope is EVIL else "A letter came.", scope)
    await put_fact(caller, [*PLACE, MARK], "alone", said, EVIL)
    for event_id, text, scope in ((f"{MARK}-event", said, evil), ("own-event", "A letter came.", own)):
        event = {"eventId": event_id, "eventType": "note", "content": text, "scope": scope, "eventTime": now}
        await caller.must("EpisodicMemoryService/RecordEvent", {"event": event})
    for conversation, text, scope in (
        ("talk", "A letter came.", own),
        ("talk", said, evil),
        ("begun", said, evil),
        ("begun", "A letter came.", own),
        (f"{MARK}-talk", said, evil),
    ):
        message = {"role": "user", "content": text}
        await caller.must(
            "ConversationService/AppendMessages",
            {"scope": scope, "conversationId": conversation, "messages": [message]},
        )
    ids["said"] = f"{said} It is long."
    ids["time"] = (await caller.must("FactService/GetFact", {"namespace": PLACE, "key": "moved"}))["fact"]["updateTime"]
    # From here on, records that came from the site no longer do, or are part of others.
    ids["merged"] = await merge(caller, ids["part"], ids["other"])
    ids["both"] = await merge(caller, ids["merged"], ids["third"])
    await caller.must(
        "KnowledgeStoreService/IndexDocument", {"document": {"docId": "moved", "content": "Mine.", "scope": own}}
    )
    await put_fact(caller, PLACE, "moved", "Mine.", {"origin": "user"})


async def merge(caller: Caller, first: str, second: str) -> str:
    """Merges two statements; the result does not have the origin of the site."""
    asked = {"first": {"memoryId": first}, "second": {"memoryId": second}}
    memory = (await caller.must("ConflictService/MergeMemories", asked))["memory"]
    assert MARK in memory["content"] and memory["scope"]["originName"] == OTHER["originName"]
    return str(memory["memoryId"])


async def put_fact(caller: Caller, namespace: list[str], key: str, text: str, scope: Json) -> None:
    fact = {"namespace": namespace, "key": key, "value": {"content": text}, **scope}
    await caller.must("FactService/PutFact", {"fact": fact})


def test_every_method_that_reads_is_tried() -> None:
    """All others need a role or a reach that sees everything, or show no records."""
    reading = {
        name
        for name, method in METHODS.items()
        if PERMISSIONS[path_of(method)].role is Role.READER and not PERMISSIONS[path_of(method)].whole_tenant
    }
    names = dict.fromkeys(("memory", "statement", "merged", "both", "part", "rival", "time", "said"), "")
    tried = {*Stored(names).reads, "ToolService/CallTool", "ToolService/ExecuteText", "ChangeService/WatchChanges"}
    assert {name for name in reading if name.split("/")[1] not in PLAIN} == tried - {
        "ToolService/CallTool",
        "ToolService/ExecuteText",
    }


async def answers(place: Place) -> dict[tuple[str, int, int], Json]:
    """The answers of all methods to all callers."""
    return {
        (name, number, who): await caller.call(name, request)
        for name, requests in place.stored.reads.items()
        for number, request in enumerate(requests)
        for who, caller in enumerate(place.writers)
    }


def shows(answer: Json, request: Json) -> bool:
    """Whether an answer has something from the site that the request does not have."""
    told = str(answer)
    for asked in (f"{MARK}-1", f"{MARK}-key", f"{MARK}-event", str(request.get("memory", {}).get("content"))):
        told = told.replace(asked, "") if asked in str(request) else told
    return MARK in told or SITE in told


async def test_nothing_of_a_source_in_quarantine_is_in_any_answer_and_all_of_it_is_back_after_the_release(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as place:
        before = await answers(place)
        problems = {name: answer for name, answer in before.items() if "code" in answer}
        assert not problems
        added = await place.admin.must("QuarantineService/QuarantineOrigin", EVIL | {"reason": "gives orders"})
        assert {each["kind"] for each in added["counts"]} == {
            f"RECORD_KIND_{kind}" for kind in ("DOCUMENT", "MEMORY", "SEMANTIC", "FACT", "EVENT")
        }
        during = await answers(place)
        assert {
            key: answer for key, answer in during.items() if shows(answer, place.stored.reads[key[0]][key[1]])
        } == {}
        assert [key for key, answer in during.items() if answer == before[key]] == []
        for answer in (answer for (name, *_), answer in during.items() if name == "ConflictService/DetectConflicts"):
            assert answer.get("totalCount", 0) == len(answer.get("conflicts", ()))
        await place.admin.must("QuarantineService/ReleaseOrigin", EVIL)
        after = await answers(place)
        assert {key: after[key] for key in after if after[key] != before[key]} == {}


def is_read(method: MethodDescriptor) -> bool:
    """Whether a method only reads, and gives one answer that does not count its calls."""
    reads = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    return reads and not method.server_streaming and method.name != "GetUsage"


async def test_what_concerns_the_whole_tenant_sees_everything(tmp_path: Path) -> None:
    whole = [name for name, method in METHODS.items() if PERMISSIONS[path_of(method)].whole_tenant and is_read(method)]
    async with opened(tmp_path) as place:
        settled = {"textPendingCount", "queueDepth"}

        async def is_settled() -> bool:
            statuses = ("EpisodicMemoryService/GetTimelineStatus", "BridgeService/GetBridgeStatus")
            found = [await place.admin.must(name, {}) for name in statuses]
            return all(map(settled.isdisjoint, found))

        await eventually(is_settled)
        before = {name: await place.admin.call(name, {}) for name in whole}
        await place.admin.must("QuarantineService/QuarantineOrigin", EVIL)
        await place.admin.must("QuarantineService/QuarantineOrigin", {"origin": "user"})
        during = {name: await place.admin.call(name, {}) for name in whole}
        changed = {name for name in whole if during[name] != before[name]}
        assert changed == {"QuarantineService/ListQuarantines"}
        pruned = await place.admin.must("EpisodicMemoryService/PruneEvents", {"eventIds": [f"{MARK}-event"]})
        assert pruned["prunedCount"] == "1"
        await place.admin.must("SemanticMemoryService/CreateSnapshot", {})
