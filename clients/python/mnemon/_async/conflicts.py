"""The asyncio client's object for conflicts."""

from collections.abc import AsyncIterator

from mnemon._async.service import AsyncService, Stub
from mnemon._messages.calls import reference_to_pb, unmerge
from mnemon._messages.records import given_statement
from mnemon._messages.rules import part_to_pb
from mnemon._messages.translation import read, request
from mnemon._values import conflicts, decisions, semantic
from mnemon._values.rules import MergeRule
from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import decisions_pb2
from mnemon.v1.conflicts_pb2_grpc import ConflictServiceStub


class AsyncConflicts(AsyncService):
    """Statements that conflict, as `client.conflicts`: detect, decide, merge and undo, each as a separate step."""

    _stub = Stub(ConflictServiceStub)

    async def detect(
        self,
        candidate: semantic.MemoryReference,
        *,
        rule: str = "",
        detection: MergeRule | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        timeout: float | None = None,
    ) -> conflicts.DetectedConflicts:
        """Compares a statement, stored or not, with the known ones of its user, household and persona.

        The most severe conflict comes first.

        The detection settings are those of `rule`, or of the rule whose conditions match. `detection` overrides them
        for this call, in the form of a rule, such as `{"semantic_threshold": 0.7, "signals": ["semantic"]}`. `limit`,
        also `top_k`, is 1 to 1,000; None means 100. Raises MemoryNotFoundError and RuleNotFoundError.
        """
        asked = request(
            pb.DetectConflictsRequest,
            candidate=reference_to_pb("candidate", candidate),
            rule=rule,
            detection=part_to_pb(decisions_pb2.DetectionConfig(), detection, "detection"),
            limit=limit if top_k is None else top_k,
        )
        return read(conflicts.DetectedConflicts, await self._call(self._stub.DetectConflicts, asked, timeout))

    async def arbitrate(
        self,
        candidate: semantic.MemoryReference,
        existing: semantic.MemoryReference,
        *,
        rule: str = "",
        arbitration: MergeRule | None = None,
        timeout: float | None = None,
    ) -> conflicts.ArbitrationAnswer:
        """Decides between two statements, each stored or not, and gives the reason. It changes nothing.

        Both must be of the same user, household and persona.

        `arbitration` overrides the settings of the rule for this call, such as `{"allow_merge": False}`.
        """
        asked = request(
            pb.ArbitrateConflictRequest,
            candidate=reference_to_pb("candidate", candidate),
            existing=reference_to_pb("existing", existing),
            rule=rule,
            arbitration=part_to_pb(decisions_pb2.ArbitrationConfig(), arbitration, "arbitration"),
        )
        return read(conflicts.ArbitrationAnswer, await self._call(self._stub.ArbitrateConflict, asked, timeout))

    async def merge(
        self,
        first: semantic.MemoryReference,
        second: semantic.MemoryReference,
        *,
        rule: str = "",
        merge: MergeRule | None = None,
        expected_revisions: tuple[int | None, int | None] = (None, None),
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> conflicts.MergeAnswer:
        """Merges two statements of the same user, household and persona.

        Two stored ones are superseded by the result, unless `dry_run` is set. Both must be stored, or neither; then
        nothing is stored. `merge` overrides the settings of the rule for this call, such as
        `{"content_strategy": "concatenate"}`. With `expected_revisions`, it merges only if the stored statements have
        these revisions; otherwise it raises RevisionMismatchError.
        """
        asked = request(
            pb.MergeMemoriesRequest,
            first=reference_to_pb("first", first, expected_revisions[0]),
            second=reference_to_pb("second", second, expected_revisions[1]),
            rule=rule,
            merge=part_to_pb(decisions_pb2.MergeConfig(), merge, "merge"),
            dry_run=dry_run,
            request_id=request_id,
        )
        return read(conflicts.MergeAnswer, await self._call(self._stub.MergeMemories, asked, timeout))

    async def preview(
        self, memory: semantic.SemanticMemory, *, rule: str = "", timeout: float | None = None
    ) -> conflicts.ResolutionPreview:
        """Returns what saving a statement with "resolve" would do. It changes nothing."""
        asked = request(pb.PreviewResolutionRequest, memory=given_statement("memory", memory), rule=rule)
        return read(conflicts.ResolutionPreview, await self._call(self._stub.PreviewResolution, asked, timeout))

    async def unmerge(
        self,
        decision_id: str = "",
        *,
        memory_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> conflicts.UnmergeAnswer:
        """Undoes a decision; with `memory_id`, the one that made a merged statement.

        Searches find what was superseded again, and the merged statement is removed. Restored statements
        conflict again with the ones that had replaced them, or with each other; `detect` lists all conflicts.
        Raises DecisionNotFoundError and MemoryNotFoundError, and InvalidOperationError if a later decision depends on
        this one or it was undone already.
        """
        asked = unmerge(decision_id, memory_id=memory_id, request_id=request_id)
        return read(conflicts.UnmergeAnswer, await self._call(self._stub.UnmergeMemory, asked, timeout))

    def list_decisions(
        self, *, user: str = "", memory_id: str = "", page_size: int = 0, timeout: float | None = None
    ) -> AsyncIterator[decisions.Decision]:
        """Yields decisions, newest first; of this user and about this statement, if they are given.

        `timeout` applies to each page.
        """
        return self._items(
            self.list_decisions_page, user=user, memory_id=memory_id, page_size=page_size, timeout=timeout
        )

    async def list_decisions_page(
        self,
        *,
        user: str = "",
        memory_id: str = "",
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> decisions.DecisionPage:
        """Returns one page of decisions: 100 if `page_size` is 0, at most 1,000.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        kind = pb.ListDecisionsRequest
        asked = request(kind, user=user, memory_id=memory_id, page_size=page_size, page_token=page_token)
        return read(decisions.DecisionPage, await self._call(self._stub.ListDecisions, asked, timeout))
