"""A real gRPC server on loopback. A test writes its answers call by call."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2_grpc as health
from grpc_health.v1.health import HealthServicer
from grpc_status import rpc_status
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1.bridge_pb2_grpc import BridgeServiceServicer, add_BridgeServiceServicer_to_server
from mnemon.v1.conflicts_pb2_grpc import ConflictServiceServicer, add_ConflictServiceServicer_to_server
from mnemon.v1.episodic_pb2_grpc import EpisodicMemoryServiceServicer, add_EpisodicMemoryServiceServicer_to_server
from mnemon.v1.facts_pb2_grpc import FactServiceServicer, add_FactServiceServicer_to_server
from mnemon.v1.knowledge_store_pb2_grpc import (
    KnowledgeStoreServiceServicer,
    add_KnowledgeStoreServiceServicer_to_server,
)
from mnemon.v1.memory_pb2_grpc import MemoryServiceServicer, add_MemoryServiceServicer_to_server
from mnemon.v1.rules_pb2_grpc import RulesServiceServicer, add_RulesServiceServicer_to_server
from mnemon.v1.semantic_pb2_grpc import SemanticMemoryServiceServicer, add_SemanticMemoryServiceServicer_to_server
from mnemon.v1.tools_pb2_grpc import ToolServiceServicer, add_ToolServiceServicer_to_server

Script = Callable[[Any, grpc.ServicerContext], Any]


@dataclass
class ScriptedStore(
    KnowledgeStoreServiceServicer,
    MemoryServiceServicer,
    SemanticMemoryServiceServicer,
    ConflictServiceServicer,
    RulesServiceServicer,
    EpisodicMemoryServiceServicer,
    BridgeServiceServicer,
    FactServiceServicer,
    ToolServiceServicer,
):
    """Answers each call with the next line of its script, and repeats the last one. Notes the requests."""

    script: list[Script]
    requests: list[Any] = field(default_factory=list)
    streams: int = 0

    def _answer(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.append(request)
        line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return line(request, context)

    IndexDocument = GetDocument = SearchDocuments = CountDocuments = ListDocuments = DeleteDocument = _answer
    DeleteDocuments = RebuildIndex = CheckHealth = _answer
    CreateMemory = GetMemory = ListMemories = SearchMemories = UpdateMemory = ReinforceMemory = _answer
    DeleteMemory = UndeleteMemory = PurgeMemories = CountMemories = ForecastMemories = GetStatus = _answer
    SaveSemanticMemory = SearchSimilar = GetSemanticMemory = ListSemanticMemories = DeleteSemanticMemories = _answer
    DetectConflicts = ArbitrateConflict = MergeMemories = PreviewResolution = UnmergeMemory = ListDecisions = _answer
    RegisterRule = GetRule = UpdateRule = DeleteRule = ListRules = FindMatchingRule = ResolveRule = _answer
    ExportRules = LoadRules = ResetRules = _answer
    RecordEvent = QueryWindow = ListRecentEvents = SummarizeRange = GetEvent = PruneEvents = _answer
    GetTimelineStatus = GetBridgeStatus = GetRoutingPolicy = UpdateRoutingPolicy = PauseBridge = ResumeBridge = _answer
    PutFact = GetFact = BatchGetFacts = RenewFacts = SearchFacts = ListFacts = ListNamespaces = _answer
    DeleteFact = DeleteFacts = _answer
    ListTools = CallTool = ParseToolCalls = ExecuteText = GetProtocolStats = _answer

    def CompactTimeline(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """Answers with all messages of the line."""
        yield from self._answer(request, context)

    def _answer_all(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        self.streams += 1
        for request in request_iterator:
            yield self._answer(request, context)

    BulkSaveSemanticMemories = _answer_all
    BulkIndexDocuments = BulkCreateMemories = BulkRecordEvents = BulkPutFacts = _answer_all


@contextmanager
def scripted_server(*script: Script, threads: int = 4) -> Iterator[tuple[str, ScriptedStore]]:
    """Serves the script on a free port, to so many calls at once. Yields the address and the servicer."""
    server = grpc.server(ThreadPoolExecutor(threads), options=[("grpc.so_reuseport", 0)])
    store = ScriptedStore(list(script))
    add_KnowledgeStoreServiceServicer_to_server(store, server)
    add_MemoryServiceServicer_to_server(store, server)
    add_SemanticMemoryServiceServicer_to_server(store, server)
    add_ConflictServiceServicer_to_server(store, server)
    add_RulesServiceServicer_to_server(store, server)
    add_EpisodicMemoryServiceServicer_to_server(store, server)
    add_BridgeServiceServicer_to_server(store, server)
    add_FactServiceServicer_to_server(store, server)
    add_ToolServiceServicer_to_server(store, server)
    health.add_HealthServicer_to_server(HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", store
    finally:
        server.stop(0).wait()


def failing(
    code: grpc.StatusCode, message: str = "no", *, details: Sequence[Any] = (), reason: str = "", incident_id: str = ""
) -> Script:
    """A line that ends the call with a status and its details."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain="mnemon", metadata={"incident_id": incident_id})
    packed = []
    for detail in ([info] if reason else []) + list(details):
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    status = status_pb2.Status(code=code_pb2.Code.Value(code.name), message=message, details=packed)

    aborted = rpc_status.to_status(status)
    aborted = aborted._replace(trailing_metadata=(*aborted.trailing_metadata, ("x-request-id", "r-1")))

    def line(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort_with_status(aborted)

    return line


UNAVAILABLE = failing(grpc.StatusCode.UNAVAILABLE, "starting", reason="NOT_SERVING")
BROKEN = failing(grpc.StatusCode.UNAVAILABLE, "connection lost")


def silent(request: Any, context: grpc.ServicerContext) -> Any:
    """A line that answers nothing until the client gives up."""
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait()
    context.abort(grpc.StatusCode.CANCELLED, "nobody waits")


def receipts(request: pb.BulkIndexDocumentsRequest, context: grpc.ServicerContext) -> pb.BulkIndexDocumentsResponse:
    """A line that acknowledges every document of a batch."""
    return pb.BulkIndexDocumentsResponse(
        results=[
            pb.IndexDocumentResult(
                doc_id=each.document.doc_id,
                receipt=common_pb2.WriteReceipt(
                    id=each.document.doc_id, outcome=common_pb2.WRITE_OUTCOME_CREATED, revision=1
                ),
            )
            for each in request.requests
        ]
    )


def found(request: pb.GetDocumentRequest, context: grpc.ServicerContext) -> pb.GetDocumentResponse:
    """A line that finds any document."""
    return pb.GetDocumentResponse(document=pb.Document(doc_id=request.doc_id, content="text", revision=1))
