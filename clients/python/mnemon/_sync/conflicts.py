# Generated from _async/conflicts.py by `make generate`: change that file instead.
"""The blocking client's methods for conflicts."""

from collections.abc import Iterator

from mnemon._connection import Connection
from mnemon._messages import conflict_requests
from mnemon._messages import conflicts as conflict_convert
from mnemon._messages.decisions import decision_page_from_pb
from mnemon._values import conflicts, decisions, semantic
from mnemon._values.rules import MergeRule
from mnemon.v1.conflicts_pb2_grpc import ConflictServiceStub


class ConflictMethods(Connection):
    """Statements that do not agree: found, decided, merged, and taken back; each step by itself."""

    def detect_conflicts(
        self,
        candidate: semantic.MemoryReference,
        *,
        rule: str = "",
        detection: MergeRule | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> conflicts.DetectedConflicts:
        """Compares a statement, stored or not, with those known of the same user; the most severe conflict first.

        `rule` is the one whose detection is used, else that whose conditions match; `detection` changes it for this
        call, as a rule would, such as `{"semantic_threshold": 0.7, "signals": ["semantic"]}`. `limit` is 1 to 1,000,
        100 where it is None. MemoryNotFoundError, RuleNotFoundError.
        """
        request = conflict_requests.detect(candidate, rule=rule, detection=detection, limit=limit)
        return conflict_convert.detected_from_pb(self._call(self._conflicts.DetectConflicts, request, timeout))

    def arbitrate(
        self,
        candidate: semantic.MemoryReference,
        existing: semantic.MemoryReference,
        *,
        rule: str = "",
        arbitration: MergeRule | None = None,
        timeout: float | None = None,
    ) -> conflicts.ArbitrationAnswer:
        """Decides between two statements of one user, each stored or not, and says why. It changes nothing.

        `arbitration` changes that of the rule for this call, such as `{"allow_merge": False}`.
        """
        request = conflict_requests.arbitrate(candidate, existing, rule=rule, arbitration=arbitration)
        return conflict_convert.arbitrated_from_pb(self._call(self._conflicts.ArbitrateConflict, request, timeout))

    def merge_memories(
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
        """Makes one statement of two of one user. Two stored ones are superseded by it, unless `dry_run` is set.

        Of stored ones, both or none; of two that are not, nothing is stored. `merge` changes that of the rule for this
        call, such as `{"content_strategy": "concatenate"}`. With `expected_revisions` only if the stored ones have
        these revisions, else RevisionMismatchError.
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
        return conflict_convert.merged_from_pb(self._call(self._conflicts.MergeMemories, request, timeout))

    def preview_resolution(
        self, memory: semantic.SemanticMemory, *, rule: str = "", timeout: float | None = None
    ) -> conflicts.ResolutionPreview:
        """Says what saving a statement with "resolve" would come to, and changes nothing."""
        request = conflict_requests.preview(memory, rule=rule)
        return conflict_convert.preview_from_pb(self._call(self._conflicts.PreviewResolution, request, timeout))

    def unmerge(
        self,
        decision_id: str = "",
        *,
        memory_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> conflicts.UnmergeAnswer:
        """Takes a decision back, or with `memory_id` the one that made a merged statement.

        What was superseded is found again, and what a merge made is removed. DecisionNotFoundError,
        MemoryNotFoundError; InvalidOperationError where a later decision stands on it, or it was taken back already.
        """
        request = conflict_requests.unmerge(decision_id, memory_id=memory_id, request_id=request_id)
        return conflict_convert.unmerged_from_pb(self._call(self._conflicts.UnmergeMemory, request, timeout))

    def list_decisions(
        self, *, user: str = "", memory_id: str = "", page_size: int = 0, timeout: float | None = None
    ) -> Iterator[decisions.Decision]:
        """Yields what was decided, newest first: of this user, and about this statement, where they are given.

        `timeout` is for each page.
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
        """Returns one page of decisions: 100 where `page_size` is 0, at most 1,000.

        The other arguments must be those of the page before, else InvalidPageTokenError.
        """
        request = conflict_requests.list_decisions(
            user=user, memory_id=memory_id, page_size=page_size, page_token=page_token
        )
        return decision_page_from_pb(self._call(self._conflicts.ListDecisions, request, timeout))

    @property
    def _conflicts(self) -> ConflictServiceStub:
        return self._stub(ConflictServiceStub)
