"""Attacks by ordinary calls: small requests for large answers, hostile shapes, texts, figures and tools."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import grpc
from google.protobuf.struct_pb2 import Struct
from mnemon.v1 import (
    archive_pb2,
    archive_pb2_grpc,
    changes_pb2,
    changes_pb2_grpc,
    facts_pb2,
    facts_pb2_grpc,
    knowledge_store_pb2,
    knowledge_store_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
)

MB = 1_000_000
MESSAGE_BYTES = 4 * MB
"""As much as a message may have."""
CALL_TIMEOUT_S = 20.0
OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)
NAMESPACE = ["user", "eve"]
CONTEXT = {"user_id": "eve"}

Outcomes = Counter[str]
"""How calls ended, by the names of their codes."""


@dataclass(frozen=True)
class Caller:
    """A server, and as whom to call it."""

    address: str
    api_key: str = ""
    """None if the server serves everybody."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What a call sends to say who calls."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()


@dataclass(frozen=True)
class Target(Caller):
    """The server that is attacked, and by whom."""

    pid: int = 0
    http: str = ""
    """Where it answers HTTP."""


Strike = Callable[[Target], Outcomes]


def calling(caller: Caller) -> Any:
    """A connection of its own, whose calls say who calls."""
    channel = grpc.insecure_channel(caller.address, OPTIONS)
    return grpc.intercept_channel(channel, _Authorized(caller)) if caller.headers else channel


class _Authorized(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the headers of a caller. Call credentials would need TLS."""

    def __init__(self, caller: Caller) -> None:
        self._headers = caller.headers

    def _intercept(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        return continuation(_Details(details, self._headers), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _intercept


class _Details(grpc.ClientCallDetails):
    """Those of a call, with further headers."""

    def __init__(self, details: Any, headers: tuple[tuple[str, str], ...]) -> None:
        self.method, self.timeout, self.credentials = details.method, details.timeout, details.credentials
        self.metadata = (*(details.metadata or ()), *headers)
        self.wait_for_ready, self.compression = details.wait_for_ready, details.compression


def ending(call: Callable[[], Any]) -> str:
    """The name of the code that the call ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def struct(**fields: Any) -> Struct:
    """The message of a JSON object."""
    message = Struct()
    message.update(fields)
    return message


# Small requests for large answers


def store_large_facts(target: Target, content: object, count: int) -> None:
    """Facts of about a megabyte each, found by the word "apple"."""

    def puts() -> Iterator[facts_pb2.BulkPutFactsRequest]:
        for number in range(count):
            fact = facts_pb2.Fact(namespace=NAMESPACE, key=f"k{number}", value=struct(t="apple", content=content))
            fact.index.paths.append("t")
            yield facts_pb2.BulkPutFactsRequest(requests=[facts_pb2.PutFactRequest(fact=fact)])

    with calling(target) as channel:
        stub: Any = facts_pb2_grpc.FactServiceStub(channel)
        for answer in stub.BulkPutFacts(puts()):
            assert answer.results[0].HasField("receipt"), answer


def get_one_fact_a_thousand_times(target: Target) -> Outcomes:
    """17 KB that ask for a gigabyte."""
    name = facts_pb2.FactName(namespace=NAMESPACE, key="k0")
    request = facts_pb2.BatchGetFactsRequest(names=[name] * 1000)
    with calling(target) as channel:
        stub: Any = facts_pb2_grpc.FactServiceStub(channel)
        return Counter([ending(lambda: stub.BatchGetFacts(request, timeout=CALL_TIMEOUT_S))])


def search_large_facts(target: Target) -> Outcomes:
    """Four searches at once, each of which finds a hundred megabytes."""
    request = facts_pb2.SearchFactsRequest(query="apple", limit=1000)
    request.filter.namespace.extend(NAMESPACE)
    return _together(
        target, 4, lambda channel: facts_pb2_grpc.FactServiceStub(channel).SearchFacts(request, timeout=CALL_TIMEOUT_S)
    )


def execute_many_searches(target: Target) -> Outcomes:
    """7 KB of text with 64 searches for large facts."""
    call = '[[ABP_TOOL:search_memory]]{"query": "apple", "limit": 100}[[END_ABP_TOOL]]'
    request = tools_pb2.ExecuteTextRequest(text="\n".join([call] * 64), response_format=2)
    request.context.config.update(CONTEXT)
    return _together(
        target, 1, lambda channel: tools_pb2_grpc.ToolServiceStub(channel).ExecuteText(request, timeout=CALL_TIMEOUT_S)
    )


def _together(target: Target, count: int, call: Callable[[Any], Any]) -> Outcomes:
    with calling(target) as channel, ThreadPoolExecutor(count) as threads:
        return Counter(threads.map(lambda _: ending(lambda: call(channel)), range(count)))


# Streams and tools that occupy


def store_large_documents(target: Target) -> None:
    """40 MB in the log of changes, for those who watch whole records."""

    def requests() -> Iterator[knowledge_store_pb2.BulkIndexDocumentsRequest]:
        for number in range(60):
            request = knowledge_store_pb2.BulkIndexDocumentsRequest()
            document = request.requests.add().document
            document.doc_id, document.content = f"large-{number}", f"large {number} " + "z" * 700_000
            yield request

    with calling(target) as channel:
        list(knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel).BulkIndexDocuments(requests()))


def watch_without_reading(target: Target, count: int = 200, wait_s: float = 8.0) -> Outcomes:
    """Watchers of whole records that take nothing of what they are sent."""
    request = changes_pb2.WatchChangesRequest(earliest=True, view=changes_pb2.CHANGE_VIEW_FULL, max_batch_size=1000)
    channels = [calling(target) for _ in range(4)]
    watches = [changes_pb2_grpc.ChangeServiceStub(channels[i % 4]).WatchChanges(request) for i in range(count)]
    outcomes = _endings(watches, wait_s)
    for channel in channels:
        channel.close()
    return outcomes


def take_every_stream(target: Target, count: int = 520, wait_s: float = 3.0) -> Outcomes:
    """One connection that opens as many watches as it can, and reads none."""
    with calling(target) as channel:
        stub: Any = changes_pb2_grpc.ChangeServiceStub(channel)
        return _endings([stub.WatchChanges(changes_pb2.WatchChangesRequest()) for _ in range(count)], wait_s)


def call_a_slow_tool(target: Target, count: int = 520, wait_s: float = 4.0) -> Outcomes:
    """More calls than are in work at a time, of a tool whose endpoint answers late."""
    request = tools_pb2.CallToolRequest(tool="slow")
    with calling(target) as channel:
        stub: Any = tools_pb2_grpc.ToolServiceStub(channel)
        return _endings([stub.CallTool.future(request, timeout=wait_s) for _ in range(count)], wait_s + 1.0)


def _endings(calls: Iterable[Any], wait_s: float) -> Outcomes:
    """How calls ended within a time; those that had not are ended."""
    left, outcomes, deadline = list(calls), Outcomes(), monotonic() + wait_s
    while left and monotonic() < deadline:
        sleep(0.05)
        outcomes += Counter(str(call.code().name) for call in left if not call.is_active())
        left = [call for call in left if call.is_active()]
    for call in left:
        call.cancel()
    return outcomes + Counter({"still open": len(left)})


def match_a_hostile_pattern(target: Target) -> Outcomes:
    """Arguments on which a backtracking matcher of ^(a+)+$ takes seconds."""
    request = tools_pb2.CallToolRequest(tool="picky")
    request.arguments.update({"text": "a" * 28 + "b"})
    return _together(
        target, 1, lambda channel: tools_pb2_grpc.ToolServiceStub(channel).CallTool(request, timeout=CALL_TIMEOUT_S)
    )


# Hostile shapes and figures


def wide_messages() -> list[tuple[str, str, bytes]]:
    """Messages of 4 MB, each made of one kind of small part: the kind, the method, and the bytes."""
    lists = _field(1, _field(1, b"c") + _field(2, _field(6, _field(1, _field(6, b"")) * (MESSAGE_BYTES // 5))))
    keys = b"".join(_field(1, _field(1, b"%x" % i) + _field(2, b"\x20\x01")) for i in range(MESSAGE_BYTES // 14))
    name = _field(1, b"bomb") + _field(2, b"k")
    metadata = b"".join(_field(3, _field(1, b"k%x" % i) + _field(2, b"\x20\x01")) for i in range(MESSAGE_BYTES // 16))
    return [
        ("empty lists of a value", "FactService/PutFact", _field(1, name + _field(3, lists))),
        ("keys of a value", "FactService/PutFact", _field(1, name + _field(3, keys))),
        ("empty labels", "FactService/GetFact", _field(1, b"") * (MESSAGE_BYTES // 2)),
        ("unknown fields", "FactService/GetFact", _field(99, b"") * (MESSAGE_BYTES // 3)),
        ("empty names", "FactService/BatchGetFacts", _field(1, b"") * (MESSAGE_BYTES // 2)),
        (
            "keys of metadata",
            "KnowledgeStoreService/IndexDocument",
            _field(1, _field(1, b"d") + _field(2, b"c") + metadata),
        ),
    ]


def send_wide_messages(target: Target) -> Outcomes:
    """Each of the wide messages."""
    outcomes = Outcomes()
    with calling(target) as channel:
        for _, method, message in wide_messages():
            raw = channel.unary_unary(f"/mnemon.v1.{method}", request_serializer=bytes, response_deserializer=bytes)
            outcomes[ending(lambda m=message, raw=raw: raw(m, timeout=CALL_TIMEOUT_S))] += 1  # type: ignore[misc]
    return outcomes


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes(parts) + bytes([number])


def _field(number: int, body: bytes) -> bytes:
    """A field of a message, with its length."""
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def parse_small_objects(target: Target) -> Outcomes:
    """A text of nearly a mebibyte whose blocks are all but JSON."""
    block = "[[ABP_TOOL:x]]{'a': {'b': [1, {'c': 'd',}],}[[END_ABP_TOOL]]"
    texts = [block * (960_000 // len(block)), "[[ABP_TOOL:x]]" + "{'a': \"b," * 106_000 + "[[END_ABP_TOOL]]"]
    outcomes = Outcomes()
    with calling(target) as channel:
        stub: Any = tools_pb2_grpc.ToolServiceStub(channel)
        for text in texts:
            request = tools_pb2.ParseToolCallsRequest(text=text)
            outcomes[ending(lambda request=request: stub.ParseToolCalls(request, timeout=CALL_TIMEOUT_S))] += 1  # type: ignore[misc]
    return outcomes


def import_figures_without_room(target: Target) -> Outcomes:
    """A record and a registry whose figures leave no room for the next change."""
    memory = archive_pb2.ArchivedRecord(kind=2, id="00000000-0000-0000-0000-00000000000f", content="x")
    memory.revision = 2**63 - 2
    memory.create_time.FromSeconds(1)
    memory.update_time.FromSeconds(1)
    rule = archive_pb2.ArchivedRecord(kind=6, id="evil", content='{"name": "evil", "conditions": {}}')
    with calling(target) as channel:
        stub: Any = archive_pb2_grpc.ArchiveServiceStub(channel)
        header = next(iter(stub.ExportRecords(archive_pb2.ExportRecordsRequest()))).header

        def send(record: archive_pb2.ArchivedRecord, **figures: int) -> str:
            request = archive_pb2.ImportRecordsRequest(records=[record])
            request.start.header.CopyFrom(header)
            request.start.embed_anew = True
            for name, figure in figures.items():
                setattr(request.start.header, name, figure)
            try:
                [answer] = stub.ImportRecords(iter([request]), timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "a refused record" if answer.results[0].WhichOneof("outcome") == "error" else "TAKEN"

        return Counter([send(memory), send(rule, rules_version=2**63 - 1)])


def forge_page_tokens(target: Target) -> Outcomes:
    """Tokens that no server gave."""
    with calling(target) as channel:
        stub: Any = memory_pb2_grpc.MemoryServiceStub(channel)
        requests = [memory_pb2.ListMemoriesRequest(page_token=token) for token in ("AAAA", "_" * 64, "f" * 27)]
        return Counter(ending(lambda r=r: stub.ListMemories(r, timeout=CALL_TIMEOUT_S)) for r in requests)  # type: ignore[misc]
