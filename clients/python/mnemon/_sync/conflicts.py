# Generated from _async/conflicts.py by `make generate`: change that file instead.
"""The blocking client's object for conflicts."""

from collections.abc import Iterator

from mnemon._messages import conflict_requests
from mnemon._messages import conflicts as conflict_convert
from mnemon._messages.decisions import decision_page_from_pb
from mnemon._sync.service import Service
from mnemon._values import conflicts, decisions, semantic
from mnemon._values.rules import MergeRule
from mnemon.v1.conflicts_pb2_grpc import ConflictServiceStub


class Conflicts(Service):
    """Statements that conflict, as `client.conflicts`: detect, decide, merge and undo, each as a separate step."""

    def detect(
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
        request = conflict_requests.detect(
            candidate, rule=rule, detection=detection, limit=limit if top_k is None else top_k
        )
        return conflict_convert.detected_from_pb(self._call(self._stub.DetectConflicts, request, timeout))

    def arbitrate(
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
        request = conflict_requests.arbitrate(candidate, existing, rule=rule, arbitration=arbitration)
        return conflict_convert.arbitrated_from_pb(self._call(self._stub.ArbitrateConflict, request, timeout))

    def merge(
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
        request = conflict_requests.merge(
            first,
            second,
            rule=rule,
            merge=merge,
            expected_revisions=expected_revisions,
            dry_run=dry_run,
            request_id=request_id,
        )
        return conflict_convert.merged_from_pb(self._call(self._stub.MergeMemories, request, timeout))

    def preview(
        self, memory: semantic.SemanticMemory, *, rule: str = "", timeout: float | None = None
    ) -> conflicts.ResolutionPreview:
        """Returns what saving a statement with "resolve" would do. It changes nothing."""
        request = conflict_requests.preview(memory, rule=rule)
        return conflict_convert.preview_from_pb(self._call(self._stub.PreviewResolution, request, timeout))

    def unmerge(
        self,
        decision_id: str = "",
        *,
        memory_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> conflicts.UnmergeAnswer:
        """Undoes a decision; with `memory_id`, the one that made a merged statement.

        Searches find what was superseded again, and the merged statement is removed. Raises DecisionNotFoundError and
        MemoryNotFoundError, and InvalidOperationError if a later decision depends on this one or it was undone already.
        """
        request = conflict_requests.unmerge(decision_id, memory_id=memory_id, request_id=request_id)
        return conflict_convert.unmerged_from_pb(self._call(self._stub.UnmergeMemory, request, timeout))

    def list_decisions(
        self, *, user: str = "", memory_id: str = "", page_size: int = 0, timeout: float | None = None
    ) -> Iterator[decisions.Decision]:
        """Yields decisions, newest first; of this user and about this statement, if they are given.

        `timeout` applies to each page.
        """
        token = ""
        while True:
            page = self.list_decisions_page(
                user=user, memory_id=memory_id, page_size=page_size, page_token=token, timeout=timeout
            )
            yield from page.decisions
            if not (token := page.next_page_token):
                return

    def list_decisions_page(
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
        request = conflict_requests.list_decisions(
            user=user, memory_id=memory_id, page_size=page_size, page_token=page_token
        )
        return decision_page_from_pb(self._call(self._stub.ListDecisions, request, timeout))

    @property
    def _stub(self) -> ConflictServiceStub:
        return self._connection.stub(ConflictServiceStub)
