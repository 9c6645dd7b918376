# Generated from _async/semantic.py by `make generate`: change that file instead.
"""The blocking client's methods for what is known of users."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import SaveSemanticMemories
from mnemon._connection import Connection
from mnemon._messages import semantic as semantic_convert
from mnemon._messages import semantic_requests
from mnemon._sync.bulk import send_all
from mnemon._values import documents as values
from mnemon._values import semantic
from mnemon.v1 import semantic_pb2 as pb
from mnemon.v1.semantic_pb2_grpc import SemanticMemoryServiceStub


class SemanticMethods(Connection):
    """Statements about users: saved once each, found by meaning, and kept from contradicting each other."""

    def save_semantic(
        self,
        content: str,
        *,
        user: str,
        household: str = "",
        persona: str = "",
        agent: str = "",
        project: str = "",
        summary: str = "",
        importance: float | None = None,
        keywords: Sequence[str] = (),
        source: str = "",
        metadata: Mapping[str, values.MetadataValue] | None = None,
        create_time: datetime | None = None,
        embedding: Sequence[float] = (),
        conflict_policy: str = semantic.ConflictPolicy.IGNORE,
        rule: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> semantic.SaveAnswer:
        """Saves a statement, and says what is known now; the same content of the same user and persona only once.

        `importance` is 0 to 1; `create_time` is when it was learnt, None for now; `embedding` is its vector, of the
        server's dimension, else the server embeds the content. `conflict_policy` is "ignore", "detect" (names the
        conflicts) or "resolve" (decides them by `rule`, or by the rule whose conditions match). The same `request_id`
        with the same statement gets the same answer for 24 hours. RuleNotFoundError; ThrottledError where writes are
        held back; IndexWarmingError while the index is being loaded or built.
        """
        memory = semantic.SemanticMemory(
            content=content,
            user=user,
            household=household,
            persona=persona,
            agent=agent,
            project=project,
            summary=summary,
            importance=importance,
            keywords=keywords,
            source=source,
            metadata=metadata or {},
            create_time=create_time,
            embedding=embedding,
        )
        request = semantic_requests.save(memory, conflict_policy=conflict_policy, rule=rule, request_id=request_id)
        return semantic_convert.save_answer_from_pb(self._call(self._semantic.SaveSemanticMemory, request, timeout))

    def save_semantic_many(
        self,
        items: Iterable[semantic.SemanticMemoryLike],
        *,
        scope: values.Scope | None = None,
        conflict_policy: str = semantic.ConflictPolicy.IGNORE,
        rule: str = "",
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[semantic.SaveResult, None, None]:
        """Saves many statements, and yields what became of each one, in order. Nothing is sent before it is iterated.

        An item is a text or a `SemanticMemory`, with its vector where it has one. Items are read lazily and sent in
        batches, some ahead of the results. A bad one fails alone. A broken connection is taken up again where it broke,
        every statement being saved once; only when the server stays away, or answers no batch within `timeout` seconds,
        is an error raised. `scope` is for statements that have none; `conflict_policy` and `rule` are for all.
        """
        method = SaveSemanticMemories(scope=scope, conflict_policy=conflict_policy, rule=rule)
        return send_all(self._target, lambda: self._semantic.BulkSaveSemanticMemories, method, items, timeout)

    def search_similar(
        self,
        query: str = "",
        *,
        vector: Sequence[float] | None = None,
        top_k: int = 3,
        min_similarity: float = 0.7,
        view: str = values.View.STANDARD,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SimilarityAnswer:
        """Finds the statements nearest to a text or a vector, most similar first; a blank query finds nothing.

        At most `top_k` results, 1 to 100, of a cosine similarity of at least `min_similarity`, 0 to 1. `which` are the
        keyword arguments of `SemanticFilters`, such as `user="ada"` or `where=F("importance") >= 0.5`: they are applied
        first, so that none hides a match. `view` is "ids", which leaves out all but ids, revisions and similarities,
        "standard", or "full", with vectors. The answer's diagnostics count what was left out by what.
        """
        request = semantic_requests.search(
            query,
            vector=vector,
            top_k=top_k,
            min_similarity=min_similarity,
            which=which,
            view=view,
        )
        return semantic_convert.similarity_from_pb(self._call(self._semantic.SearchSimilar, request, timeout))

    def get_semantic(
        self, memory_id: str, *, view: str = values.View.STANDARD, timeout: float | None = None
    ) -> semantic.SemanticMemory:
        """Returns one statement, a superseded one too, in the view "full" with its vector; MemoryNotFoundError."""
        request = semantic_requests.get(memory_id, view=view)
        response = self._call(self._semantic.GetSemanticMemory, request, timeout)
        return semantic_convert.statement_from_pb(response.memory)

    def list_semantic(
        self,
        *,
        show_superseded: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> Iterator[semantic.SemanticMemory]:
        """Yields all statements that match, in the order in which they were saved, page after page.

        With `show_superseded` also those that were merged or gave way. `timeout` is for each page.
        """
        token = ""
        while True:
            page = self.list_semantic_page(
                page_size=page_size, page_token=token, show_superseded=show_superseded, timeout=timeout, **which
            )
            yield from page.memories
            if not (token := page.next_page_token):
                return

    def list_semantic_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        show_superseded: bool = False,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SemanticMemoryPage:
        """Returns one page of statements: 100 where `page_size` is 0, at most 1,000, and at most 3 MiB of content.

        The other arguments must be those of the page before, else InvalidPageTokenError.
        """
        request = semantic_requests.list_page(
            page_size=page_size, page_token=page_token, which=which, show_superseded=show_superseded
        )
        return semantic_convert.page_from_pb(self._call(self._semantic.ListSemanticMemories, request, timeout))

    def delete_semantic(
        self,
        memory_ids: Iterable[str] = (),
        *,
        allow_missing: bool = False,
        expected_revision: int | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SemanticDeleteReceipt:
        """Removes statements for good, in one transaction: those of the ids, or all that match, superseded ones too.

        What was merged into them or gave way to them goes with them, and so do the decisions about them. At most 1,000
        ids; where one is not there, MemoryNotFoundError, and nothing is removed, unless `allow_missing`. With one id
        and `expected_revision` only if the statement has this revision, else RevisionMismatchError. With `dry_run` they
        are only counted. Without ids and filters, or with both, InvalidArgumentError.
        """
        request = semantic_requests.delete(
            memory_ids,
            which=which,
            allow_missing=allow_missing,
            expected_revision=expected_revision,
            dry_run=dry_run,
            request_id=request_id,
        )
        return semantic_convert.deleted_from_pb(self._call(self._semantic.DeleteSemanticMemories, request, timeout))

    def semantic_index_status(self, *, timeout: float | None = None) -> semantic.SemanticIndexStatus:
        """Says how the semantic index is, how far it has come, and whether writes are held back."""
        request = pb.GetIndexStatusRequest()
        return semantic_convert.status_from_pb(self._call(self._semantic.GetIndexStatus, request, timeout))

    def create_snapshot(
        self, *, request_id: str | None = None, timeout: float | None = None
    ) -> semantic.SnapshotReceipt:
        """Writes the semantic index to disk now, so that the next start is quick; few statements need none."""
        request = semantic_requests.create_snapshot(request_id=request_id)
        return semantic_convert.snapshot_from_pb(self._call(self._semantic.CreateSnapshot, request, timeout))

    @property
    def _semantic(self) -> SemanticMemoryServiceStub:
        return self._stub(SemanticMemoryServiceStub)
