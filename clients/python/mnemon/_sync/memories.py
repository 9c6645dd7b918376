# Generated from _async/memories.py by `make generate`: change that file instead.
"""The blocking client's object for memories."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import BulkCreateMemories
from mnemon._local_time import Moment
from mnemon._messages.filters import check_keywords, ids_filter, keywords_to_pb
from mnemon._messages.records import memory_to_pb, update_memory
from mnemon._messages.translation import read, request
from mnemon._sync.bulk import send_all
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon.v1 import memory_pb2 as pb
from mnemon.v1.memory_pb2_grpc import MemoryServiceStub


class Memories(Service):
    """Memories, as `client.memories`: what is remembered, with a confidence that decays."""

    _stub = Stub(MemoryServiceStub)

    def add(
        self,
        content: str,
        *,
        decay: str = memories.DecayPolicy.STABLE,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        memory_id: str = "",
        embedding: Sequence[float] | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
        **tags: Unpack[memories.MemoryTags],
    ) -> memories.Memory:
        """Stores a new memory with confidence 1, and returns it as stored.

        `tags` are the keyword arguments of `MemoryTags`, such as `type="preference"` or `user="ada"`. `memory_id` is a
        UUID that you choose; this raises MemoryExistsError if it is in use. Without it, the server chooses one.
        `embedding` is the vector of the text, of the server's dimension; without it, the server embeds the text. The
        same `request_id` with the same memory gets the same answer for 24 hours.
        """
        check_keywords(tags, memories.MemoryTags.__annotations__)
        memory = memories.Memory(
            content=content,
            memory_id=memory_id,
            decay=decay,
            metadata=metadata or {},
            **tags,
        )
        message = memory_to_pb(memory)
        asked = request(pb.CreateMemoryRequest, memory=message, embedding=embedding, request_id=request_id, ack=ack)
        response = self._call(self._stub.CreateMemory, asked, timeout)
        return read(memories.Memory, response.memory)

    def add_many(
        self,
        items: Iterable[memories.MemoryLike],
        *,
        scope: values.Scope | None = None,
        ack: str = values.AckLevel.DURABLE,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[memories.RememberResult, None, None]:
        """Stores many memories, and yields one result for each, in order. Nothing is sent until you iterate.

        An item is a text or a `Memory`, or a pair of one of them and its vector. The client reads items lazily and
        sends them in batches, a few ahead of the results. An invalid item fails alone. If the connection breaks, the
        client resumes where it broke, and each item is stored once. It raises an error only if the server stays
        unavailable or does not answer a batch within `timeout` seconds. `scope` applies to memories without a scope.
        """
        method = BulkCreateMemories(scope=scope, ack=ack)
        return send_all(self._connection.target, lambda: self._stub.BulkCreateMemories, method, items, timeout)

    def search(
        self,
        query: str = "",
        *,
        vector: Sequence[float] | None = None,
        limit: int = 10,
        top_k: int | None = None,
        min_confidence: float = 0.3,
        mode: str | None = None,
        min_score: float = 0.0,
        view: str = values.View.STANDARD,
        explain: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.MemoryAnswer:
        """Finds the memories most relevant to a text or a vector, best first, up to `limit`, also `top_k`.

        `mode` is "hybrid", "vector" or "keyword"; None means hybrid, or vector if only a vector is given. A blank query
        without a vector finds nothing. `view` is "ids" (ids, confidences, revisions and scores only), "standard", or
        "full", which adds embeddings. With `explain`, each result explains its score. `which` are the keyword arguments
        of `MemoryFilters`, such as `type="preference"` or `where=F("metadata.score") >= 3`. Memories below
        `min_confidence` do not count towards `limit`.
        """
        asked = request(
            pb.SearchMemoriesRequest,
            as_of=as_of,
            query=query,
            vector=vector,
            limit=limit if top_k is None else top_k,
            filter=_filter(which, min_confidence),
            mode=mode,
            min_score=min_score,
            view=view,
            explain=explain,
        )
        return read(memories.MemoryAnswer, self._call(self._stub.SearchMemories, asked, timeout))

    def get(self, memory_id: str, *, as_of: Moment | None = None, timeout: float | None = None) -> memories.Memory:
        """Returns one memory, whatever its confidence. Raises MemoryNotFoundError if it is missing or deleted."""
        response = self._call(
            self._stub.GetMemory, request(pb.GetMemoryRequest, as_of=as_of, memory_id=memory_id), timeout
        )
        return read(memories.Memory, response.memory)

    def list(
        self,
        *,
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        page_size: int = 0,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> Iterator[memories.Memory]:
        """Yields all memories that match, in the order of their creation.

        With `show_deleted`, it includes memories that are deleted but not purged. `timeout` applies to each page.
        """
        return self._items(
            self.list_page,
            page_size=page_size,
            min_confidence=min_confidence,
            show_deleted=show_deleted,
            as_of=as_of,
            timeout=timeout,
            **which,
        )

    def list_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.MemoryPage:
        """Returns one page of memories: 100 if `page_size` is 0, at most 1,000, and at most 3 MiB of content.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        asked = request(
            pb.ListMemoriesRequest,
            as_of=as_of,
            filter=_filter(which, min_confidence or None),
            page_size=page_size,
            page_token=page_token,
            show_deleted=show_deleted,
        )
        return read(memories.MemoryPage, self._call(self._stub.ListMemories, asked, timeout))

    def count(
        self,
        *,
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> int:
        """Counts the memories that match; with `show_deleted`, including those that are deleted but not purged."""
        chosen = _filter(which, min_confidence or None)
        asked = request(pb.CountMemoriesRequest, filter=chosen, show_deleted=show_deleted)
        response = self._call(self._stub.CountMemories, asked, timeout)
        return response.count

    def update(
        self,
        memory_id: str,
        *,
        content: str | None = None,
        decay: str | None = None,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        set_metadata: Mapping[str, values.MetadataValue] | None = None,
        remove_metadata: Iterable[str] = (),
        embedding: Sequence[float] | None = None,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
        **tags: Unpack[memories.MemoryTagChanges],
    ) -> memories.Memory:
        """Changes the given fields, keeps the others, and returns the memory as it is now. An empty text clears a
        field.

        `tags` are the keyword arguments of `MemoryTagChanges`, such as `type="preference"`. `metadata` replaces all
        metadata; `set_metadata` and `remove_metadata` change single keys. With `expected_revision`, it writes only if
        the memory has this revision; otherwise it raises RevisionMismatchError.
        """
        asked = update_memory(
            memory_id,
            {"content": content, "decay": decay, "metadata": metadata, **tags},
            set_metadata=set_metadata,
            remove_metadata=remove_metadata,
            embedding=embedding,
            expected_revision=expected_revision,
            ack=ack,
            request_id=request_id,
        )
        response = self._call(self._stub.UpdateMemory, asked, timeout)
        return read(memories.Memory, response.memory)

    def reinforce(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> memories.Memory:
        """Resets the confidence of a reinforceable memory to 1. Raises InvalidOperationError for the other policies."""
        kind = pb.ReinforceMemoryRequest
        asked = request(kind, memory_id=memory_id, expected_revision=expected_revision, request_id=request_id)
        response = self._call(self._stub.ReinforceMemory, asked, timeout)
        return read(memories.Memory, response.memory)

    def delete(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Soft-deletes a memory: nothing finds it any more. `undelete` restores it; `purge` removes it for good.

        Raises MemoryNotFoundError if it does not exist; with `allow_missing`, the outcome in the receipt is then
        MISSING. Raises InvalidOperationError if it is already deleted.
        """
        asked = request(
            pb.DeleteMemoryRequest,
            memory_id=memory_id,
            expected_revision=expected_revision,
            allow_missing=allow_missing,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.DeleteMemory, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def undelete(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> memories.Memory:
        """Undoes `delete`. Raises InvalidOperationError if the memory is not deleted."""
        kind = pb.UndeleteMemoryRequest
        asked = request(kind, memory_id=memory_id, expected_revision=expected_revision, request_id=request_id)
        response = self._call(self._stub.UndeleteMemory, asked, timeout)
        return read(memories.Memory, response.memory)

    def versions(
        self, memory_id: str, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[memories.MemoryVersion]:
        """Yields the earlier versions of a memory, newest first, if it has any. `timeout` applies to each page."""
        return self._items(self.versions_page, memory_id, page_size=page_size, timeout=timeout)

    def versions_page(
        self, memory_id: str, *, page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> memories.MemoryVersionPage:
        """Returns one page of the earlier versions of a memory: 100 if `page_size` is 0, at most 1,000."""
        kind = pb.ListMemoryVersionsRequest
        asked = request(kind, memory_id=memory_id, page_size=page_size, page_token=page_token)
        return read(memories.MemoryVersionPage, self._call(self._stub.ListMemoryVersions, asked, timeout))

    def restore_version(
        self,
        memory_id: str,
        version_id: str,
        *,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> memories.Memory:
        """Makes an earlier version the current one, and returns the memory; a deleted memory is undeleted by that.

        Raises VersionNotFoundError if the memory has no such version.
        """
        asked = request(
            pb.RestoreMemoryVersionRequest,
            memory_id=memory_id,
            version_id=version_id,
            expected_revision=expected_revision,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.RestoreMemoryVersion, asked, timeout)
        return read(memories.Memory, response.memory)

    def purge(
        self,
        memory_ids: Iterable[str] | None = None,
        *,
        min_confidence: float = 0.0,
        only_deleted: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.PurgeReceipt:
        """Permanently removes memories, in one transaction: those with these ids, or all that match.

        Deleted memories are removed, too; with `only_deleted`, only they are. Ids that do not exist are not counted.
        With `dry_run`, it only counts. Raises InvalidArgumentError without ids, filters and `only_deleted`, or with ids
        and filters.
        """
        if memory_ids is not None:
            which = {"where": ids_filter("memory_ids", memory_ids, "memory_id", alone=not which)}
        asked = request(
            pb.PurgeMemoriesRequest,
            filter=_filter(which, min_confidence or None),
            only_deleted=only_deleted,
            dry_run=dry_run,
            request_id=request_id,
        )
        return read(memories.PurgeReceipt, self._call(self._stub.PurgeMemories, asked, timeout))

    def forecast(
        self,
        by: Moment,
        *,
        min_confidence: float = 0.3,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> Iterator[memories.MemoryForecast]:
        """Yields the memories whose confidence falls below `min_confidence` by a time, or within a time from now.

        `by` is a datetime, a date, which counts to its end, a timedelta from now, or a text such as "2027-01-31" or
        "2 weeks".

        They come in the order of their creation, and include those that are already below. `timeout` applies to each
        page.
        """
        asked = request(
            pb.ForecastMemoriesRequest,
            filter=_filter(which),
            min_confidence=min_confidence,
            by=by,
            page_size=page_size,
        )
        while True:
            response = self._call(self._stub.ForecastMemories, asked, timeout)
            for forecast in response.forecasts:
                yield read(memories.MemoryForecast, forecast)
            if not (token := response.next_page_token):
                return
            asked.page_token = token

    def status(self, *, timeout: float | None = None) -> memories.MemoryStatus:
        """Returns the state of the memory service and of what it depends on."""
        return read(memories.MemoryStatus, self._call(self._stub.GetStatus, pb.GetStatusRequest(), timeout))


def _filter(which: memories.MemoryFilters, min_confidence: float | None = None) -> pb.MemoryFilter | None:
    return keywords_to_pb(pb.MemoryFilter, which, memories.MemoryFilters, min_confidence=min_confidence)
