"""ConflictService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import conflicts_pb2_grpc

from mnemon_server.transport.convert import conflicts as convert
from mnemon_server.transport.convert.shared.reader import read_page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer


class ConflictServicer(TenantServicer, conflicts_pb2_grpc.ConflictServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def DetectConflicts(self, request: pb.DetectConflictsRequest, context: Context) -> pb.DetectConflictsResponse:
        detection = convert.read_detection(request)
        async with self.vault() as vault:
            detected = await vault.conflicts.detect(
                detection.candidate, rule=request.rule, detection=detection.changes, limit=detection.limit
            )
        return convert.detected_to_pb(detected)

    async def ArbitrateConflict(
        self, request: pb.ArbitrateConflictRequest, context: Context
    ) -> pb.ArbitrateConflictResponse:
        candidate, existing, changes = convert.read_arbitration(request)
        async with self.vault() as vault:
            arbitrated = await vault.conflicts.arbitrate(candidate, existing, rule=request.rule, arbitration=changes)
        return convert.arbitrated_to_pb(arbitrated)

    async def MergeMemories(self, request: pb.MergeMemoriesRequest, context: Context) -> pb.MergeMemoriesResponse:
        first, second, changes = convert.read_merge(request)
        async with self.vault() as vault:
            merged = await vault.conflicts.merge(
                first,
                second,
                rule=request.rule,
                merge=changes,
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return convert.merged_to_pb(merged)

    async def PreviewResolution(
        self, request: pb.PreviewResolutionRequest, context: Context
    ) -> pb.PreviewResolutionResponse:
        memory = convert.read_preview(request)
        async with self.vault() as vault:
            saved = await vault.conflicts.preview(memory, rule=request.rule)
        return convert.preview_to_pb(saved)

    async def UnmergeMemory(self, request: pb.UnmergeMemoryRequest, context: Context) -> pb.UnmergeMemoryResponse:
        async with self.vault() as vault:
            unmerged = await vault.conflicts.unmerge(
                memory_id=request.memory_id, decision_id=request.decision_id, request_id=request.request_id
            )
        return convert.unmerged_to_pb(unmerged)

    async def ListDecisions(self, request: pb.ListDecisionsRequest, context: Context) -> pb.ListDecisionsResponse:
        limit = read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.conflicts.list_decisions(
                user=request.user,
                memory_id=request.memory_id,
                before=pages.position(),
                limit=limit,
            )
        return convert.decisions_to_pb(page, pages.next(page.next_position))
