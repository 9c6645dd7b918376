# Generated from _async/semantic.py by `make generate`: change that file instead.
"""The blocking client's object for statements about users."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import SaveSemanticMemories
from mnemon._local_time import Moment
from mnemon._messages.convert import invalid, moment
from mnemon._messages.filters import keywords_to_pb
from mnemon._messages.records import save
from mnemon._messages.translation import read, request
from mnemon._sync.bulk import send_all
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import semantic
from mnemon.v1 import semantic_pb2 as pb
from mnemon.v1.semantic_pb2_grpc import SemanticMemoryServiceStub


class Semantic(Service):
    """Statements about users, as `client.semantic`.

    Each is saved once, found by meaning, and checked for conflicts, about which `client.conflicts` says more.
    """

    _stub = Stub(SemanticMemoryServiceStub)

    def add(
        self,
        content: str,
        *,
        user: str,
        household: str = "",
        persona: str = "",
        agent: str = "",
        project: str = "",
        origin: str = "",
        origin_name: str = "",
        summary: str = "",
        importance: float | None = None,
        keywords: Sequence[str] = (),
        source: str = "",
        metadata: Mapping[str, values.MetadataValue] | None = None,
        create_time: Moment | None = None,
        embedding: Sequence[float] = (),
        conflict_policy: str = semantic.ConflictPolicy.IGNORE,
        rule: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> semantic.SaveAnswer:
        """Saves a statement, and returns what is known now.

        The same content is saved once per user, household and persona.

        `importance` is 0 to 1. `create_time` is when it was learnt; None means now. `embedding` is its vector, of the
        server's dimension; without it, the server embeds the content. `conflict_policy` is "ignore", "detect" (names
        the conflicts) or "resolve" (decides them by `rule`, or by the rule whose conditions match). The same
        `request_id` with the same statement gets the same answer for 24 hours. Raises RuleNotFoundError, ThrottledError
        while the server limits writes, and IndexWarmingError while it loads or builds the index.
        """
        memory = semantic.SemanticMemory(
            content=content,
            user=user,
            household=household,
            persona=persona,
            agent=agent,
            project=project,
            origin=origin,
            origin_name=origin_name,
            summary=summary,
            importance=importance,
            keywords=keywords,
            source=source,
            metadata=metadata or {},
            create_time=None if create_time is None else moment("create_time", create_time),
            embedding=embedding,
        )
        asked = save(memory, conflict_policy=conflict_policy, rule=rule, request_id=request_id)
        return read(semantic.SaveAnswer, self._call(self._stub.SaveSemanticMemory, asked, timeout))

    def add_many(
        self,
        items: Iterable[semantic.SemanticMemoryLike],
        *,
        scope: values.Scope | None = None,
        conflict_policy: str = semantic.ConflictPolicy.IGNORE,
        rule: str = "",
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[semantic.SaveResult, None, None]:
        """Saves many statements, and yields one result for each, in order. Nothing is sent until you iterate.

        An item is a text or a `SemanticMemory`, which may hold its vector. The client reads items lazily and sends them
        in batches, a few ahead of the results. An invalid item fails alone. If the connection breaks, the client
        resumes where it broke, and each item is stored once. It raises an error only if the server stays unavailable or
        does not answer a batch within `timeout` seconds. `scope` applies to statements without a scope;
        `conflict_policy` and `rule` apply to all.
        """
        method = SaveSemanticMemories(scope=scope, conflict_policy=conflict_policy, rule=rule)
        return send_all(self._connection.target, lambda: self._stub.BulkSaveSemanticMemories, method, items, timeout)

    def search(
        self,
        query: str = "",
        *,
        vector: Sequence[float] | None = None,
        limit: int = 3,
        top_k: int | None = None,
        mode: str | None = None,
        min_similarity: float | None = None,
        view: str = values.View.STANDARD,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SimilarityAnswer:
        """Finds the statements nearest to a text or a vector, best first, up to `limit`, also `top_k`, 1 to 100.

        `mode` is "hybrid", "vector" or "keyword"; None means hybrid, or vector if only a vector is given. A blank query
        without a vector finds nothing. `min_similarity` is the least cosine similarity of a result, 0 to 1; None means
        0.7 by vector, and none in hybrid mode, since few statements reach 0.7 to the question that they answer; it does
        not go with "keyword". `which` are the keyword arguments of `SemanticFilters`, such as `user="ada"` or
        `where=F("importance") >= 0.5`. They apply before the search, so that they never hide a match. `view` is "ids"
        (ids, revisions and scores only), "standard", or "full", which adds vectors. The diagnostics of the answer count
        what each filter left out.
        """
        # The server would report this field by its name in the request.
        if min_similarity is not None and not 0.0 <= min_similarity <= 1.0:
            raise invalid("min_similarity", "must be between 0 and 1")
        if min_similarity is not None and mode == values.SearchMode.KEYWORD:
            raise invalid("min_similarity", 'must be None if mode is "keyword", which does not compare meaning')
        asked = request(
            pb.SearchSimilarRequest,
            as_of=as_of,
            query=query,
            vector=vector,
            limit=limit if top_k is None else top_k,
            mode=mode,
            min_score=min_similarity,
            filter=_filter(which),
            view=view,
        )
        return read(semantic.SimilarityAnswer, self._call(self._stub.SearchSimilar, asked, timeout))

    def get(
        self,
        memory_id: str,
        *,
        view: str = values.View.STANDARD,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> semantic.SemanticMemory:
        """Returns one statement, even a superseded one. Raises MemoryNotFoundError if it does not exist.

        The view "full" includes its vector.
        """
        asked = request(pb.GetSemanticMemoryRequest, as_of=as_of, memory_id=memory_id, view=view)
        response = self._call(self._stub.GetSemanticMemory, asked, timeout)
        return read(semantic.SemanticMemory, response.memory)

    def list(
        self,
        *,
        show_superseded: bool = False,
        page_size: int = 0,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> Iterator[semantic.SemanticMemory]:
        """Yields all statements that match, in the order in which they were saved.

        With `show_superseded`, it includes superseded ones. `timeout` applies to each page.
        """
        return self._items(
            self.list_page, page_size=page_size, show_superseded=show_superseded, as_of=as_of, timeout=timeout, **which
        )

    def list_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        show_superseded: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SemanticMemoryPage:
        """Returns one page of statements: 100 if `page_size` is 0, at most 1,000, and at most 3 MiB of content.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        asked = request(
            pb.ListSemanticMemoriesRequest,
            as_of=as_of,
            filter=_filter(which),
            page_size=page_size,
            page_token=page_token,
            show_superseded=show_superseded,
        )
        return read(semantic.SemanticMemoryPage, self._call(self._stub.ListSemanticMemories, asked, timeout))

    def versions(
        self, memory_id: str, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[semantic.SemanticMemoryVersion]:
        """Yields the earlier versions of a statement, newest first, if it has any. `timeout` applies to each page."""
        return self._items(self.versions_page, memory_id, page_size=page_size, timeout=timeout)

    def versions_page(
        self, memory_id: str, *, page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> semantic.SemanticMemoryVersionPage:
        """Returns one page of the earlier versions of a statement: 100 if `page_size` is 0, at most 1,000."""
        kind = pb.ListSemanticMemoryVersionsRequest
        asked = request(kind, memory_id=memory_id, page_size=page_size, page_token=page_token)
        return read(
            semantic.SemanticMemoryVersionPage, self._call(self._stub.ListSemanticMemoryVersions, asked, timeout)
        )

    def restore_version(
        self,
        memory_id: str,
        version_id: str,
        *,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> semantic.SemanticMemory:
        """Makes an earlier version of a statement the current one, also of one that was deleted, and returns it.

        Raises VersionNotFoundError if the statement has no such version. Raises
        InvalidOperationError if the same statement has been saved since.
        """
        asked = request(
            pb.RestoreSemanticMemoryVersionRequest,
            memory_id=memory_id,
            version_id=version_id,
            expected_revision=expected_revision,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.RestoreSemanticMemoryVersion, asked, timeout)
        return read(semantic.SemanticMemory, response.memory)

    def delete(
        self,
        memory_id: str,
        *,
        allow_missing: bool = False,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> semantic.SemanticDeleteReceipt:
        """Permanently removes one statement, as `delete_many` does.

        Raises MemoryNotFoundError if it does not exist, unless `allow_missing`. With `expected_revision`, it removes
        the statement only if it has this revision; otherwise it raises RevisionMismatchError.
        """
        asked = request(
            pb.DeleteSemanticMemoriesRequest,
            memory_ids=(memory_id,),
            allow_missing=allow_missing,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        return read(semantic.SemanticDeleteReceipt, self._call(self._stub.DeleteSemanticMemories, asked, timeout))

    def delete_many(
        self,
        memory_ids: Iterable[str] | None = None,
        *,
        allow_missing: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[semantic.SemanticFilters],
    ) -> semantic.SemanticDeleteReceipt:
        """Permanently removes statements, in one transaction: those with these ids, or all that match.

        Statements that were merged into them or gave way to them are removed, too, and so are the decisions about them.
        At most 1,000 ids. If an id does not exist, it raises MemoryNotFoundError and removes nothing, unless
        `allow_missing`. With `dry_run`, it only counts them. Raises InvalidArgumentError without ids and filters, or
        with both.
        """
        asked = request(
            pb.DeleteSemanticMemoriesRequest,
            memory_ids=memory_ids,
            filter=_filter(which),
            allow_missing=allow_missing,
            dry_run=dry_run,
            request_id=request_id,
        )
        return read(semantic.SemanticDeleteReceipt, self._call(self._stub.DeleteSemanticMemories, asked, timeout))

    def status(self, *, timeout: float | None = None) -> semantic.SemanticIndexStatus:
        """Returns the state of the semantic index, its progress, and whether the server limits writes."""
        answer = self._call(self._stub.GetIndexStatus, pb.GetIndexStatusRequest(), timeout)
        return read(semantic.SemanticIndexStatus, answer)

    def create_snapshot(
        self, *, request_id: str | None = None, timeout: float | None = None
    ) -> semantic.SnapshotReceipt:
        """Writes the semantic index to disk now, so that the next start is fast. A small index needs no snapshot."""
        asked = request(pb.CreateSnapshotRequest, request_id=request_id)
        return read(semantic.SnapshotReceipt, self._call(self._stub.CreateSnapshot, asked, timeout))


def _filter(which: semantic.SemanticFilters) -> pb.SemanticMemoryFilter | None:
    return keywords_to_pb(pb.SemanticMemoryFilter, which, semantic.SemanticFilters)
