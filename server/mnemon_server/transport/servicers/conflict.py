"""ConflictService over gRPC. Every method has the same steps: check what may be no value, convert, call, convert."""

from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import conflicts_pb2_grpc

from mnemon_server.transport.checks import conflicts as checks
from mnemon_server.transport.convert import conflicts as convert
from mnemon_server.transport.convert.shared.reading import page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer


class ConflictServicer(TenantServicer, conflicts_pb2_grpc.ConflictServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def DetectConflicts(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.DetectConflictsRequest, context: Context
    ) -> pb.DetectConflictsResponse:
        checks.check_detect_conflicts(request)
        async with self.vault(context) as vault:
            detected = await vault.conflicts.detect(
                convert.reference_from_pb(request.candidate),
                rule=request.rule,
                detection=convert.changes_from_pb(request.detection),
                limit=convert.limit_from_pb(request),
            )
        return convert.detected_to_pb(detected)

    async def ArbitrateConflict(  # noqa: N802
        self, request: pb.ArbitrateConflictRequest, context: Context
    ) -> pb.ArbitrateConflictResponse:
        checks.check_arbitrate_conflict(request)
        async with self.vault(context) as vault:
            arbitrated = await vault.conflicts.arbitrate(
                convert.reference_from_pb(request.candidate),
                convert.reference_from_pb(request.existing),
                rule=request.rule,
                arbitration=convert.changes_from_pb(request.arbitration),
            )
        return convert.arbitrated_to_pb(arbitrated)

    async def MergeMemories(  # noqa: N802
        self, request: pb.MergeMemoriesRequest, context: Context
    ) -> pb.MergeMemoriesResponse:
        checks.check_merge_memories(request)
        async with self.vault(context) as vault:
            merged = await vault.conflicts.merge(
                convert.reference_from_pb(request.first),
                convert.reference_from_pb(request.second),
                rule=request.rule,
                merge=convert.changes_from_pb(request.merge),
                dry_run=request.dry_run,
                request_id=request.request_id,
            )
        return convert.merged_to_pb(merged)

    async def PreviewResolution(  # noqa: N802
        self, request: pb.PreviewResolutionRequest, context: Context
    ) -> pb.PreviewResolutionResponse:
        checks.check_preview_resolution(request)
        memory = convert.given_from_pb(request.memory)
        async with self.vault(context) as vault:
            saved = await vault.conflicts.preview(memory, memory.embedding, rule=request.rule)
        return convert.preview_to_pb(saved)

    async def UnmergeMemory(  # noqa: N802
        self, request: pb.UnmergeMemoryRequest, context: Context
    ) -> pb.UnmergeMemoryResponse:
        async with self.vault(context) as vault:
            unmerged = await vault.conflicts.unmerge(
                memory_id=request.memory_id, decision_id=request.decision_id, request_id=request.request_id
            )
        return convert.unmerged_to_pb(unmerged)

    async def ListDecisions(  # noqa: N802
        self, request: pb.ListDecisionsRequest, context: Context
    ) -> pb.ListDecisionsResponse:
        checks.check_list_decisions(request)
        async with self.vault(context) as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.conflicts.list_decisions(
                user=request.user,
                memory_id=request.memory_id,
                before=pages.position(),
                limit=page_size(request.page_size),
            )
        return convert.decisions_to_pb(page, pages.next(page.next_position))
