# Generated from _async/memories.py by `make generate`: change that file instead.
"""The blocking client's methods for memories."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Unpack

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import BulkCreateMemories
from mnemon._connection import Connection
from mnemon._messages import memories as memory_convert
from mnemon._messages import memory_requests
from mnemon._messages.documents import receipt_from_pb
from mnemon._messages.fields import check_keywords
from mnemon._sync.bulk import send_all
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon.v1 import memory_pb2 as pb
from mnemon.v1.memory_pb2_grpc import MemoryServiceStub


class MemoryMethods(Connection):
    """Facts whose confidence fades: remembered, recalled, reinforced and forgotten."""

    def remember(
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
        """Stores a new memory, with confidence 1, and returns it as it is stored.

        `tags` are the keyword arguments of `MemoryTags`, such as `type="preference"` or `user="ada"`. `memory_id` is a
        UUID of the caller's, and MemoryExistsError says that it is taken; without one, the server chooses. The server
        embeds the text, unless `embedding` is its vector, of the server's dimension. The same `request_id` with the
        same memory gets the same answer for 24 hours.
        """
        check_keywords(tags, memories.MemoryTags.__annotations__)
        memory = memories.Memory(
            content=content,
            memory_id=memory_id,
            decay=decay,
            metadata=metadata or {},
            **tags,
        )
        request = memory_requests.create_memory(memory, embedding=embedding, request_id=request_id, ack=ack)
        response = self._call(self._memories.CreateMemory, request, timeout)
        return memory_convert.memory_from_pb(response.memory)

    def remember_many(
        self,
        items: Iterable[memories.MemoryLike],
        *,
        scope: values.Scope | None = None,
        ack: str = values.AckLevel.DURABLE,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[memories.RememberResult, None, None]:
        """Stores many memories, and yields what became of each one, in order. Nothing is sent before it is iterated.

        An item is a text or a `Memory`, alone or with its vector as a pair. Items are read lazily and sent in batches,
        some ahead of the results. A bad one fails alone. A broken connection is taken up again where it broke, every
        memory being stored once; only when the server stays away, or answers no batch within `timeout` seconds, is an
        error raised. `scope` is for memories that have none.
        """
        method = BulkCreateMemories(scope=scope, ack=ack)
        return send_all(self._target, lambda: self._memories.BulkCreateMemories, method, items, timeout)

    def recall(
        self,
        query: str = "",
        *,
        vector: Sequence[float] | None = None,
        limit: int = 10,
        min_confidence: float = 0.3,
        mode: str | None = None,
        min_score: float = 0.0,
        view: str = values.View.STANDARD,
        explain: bool = False,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.RecallAnswer:
        """Finds the memories most relevant to a text or a vector, best first: never fewer than there are up to `limit`.

        `mode` is "hybrid", "vector" or "keyword"; None means hybrid, or vector where only a vector is given. A blank
        query without a vector finds nothing. `view` is "ids", which leaves out all but ids, confidences, revisions and
        scores, "standard", or "full", with embeddings. With `explain` each result says why it scored as it did. `which`
        are the keyword arguments of `MemoryFilters`, such as `type="preference"` or `where=F("metadata.score") >= 3`.
        """
        request = memory_requests.search_memories(
            query,
            vector=vector,
            limit=limit,
            min_confidence=min_confidence,
            which=which,
            mode=mode,
            min_score=min_score,
            view=view,
            explain=explain,
        )
        return memory_convert.recall_from_pb(self._call(self._memories.SearchMemories, request, timeout))

    def get_memory(self, memory_id: str, *, timeout: float | None = None) -> memories.Memory:
        """Returns one memory, whatever its confidence; MemoryNotFoundError if it does not exist or it was forgotten."""
        request = memory_requests.get_memory(memory_id)
        response = self._call(self._memories.GetMemory, request, timeout)
        return memory_convert.memory_from_pb(response.memory)

    def list_memories(
        self,
        *,
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> Iterator[memories.Memory]:
        """Yields all memories that match, in the order of their creation, page after page.

        With `show_deleted` also those that are forgotten and not purged. `timeout` is for each page.
        """
        token = ""
        while True:
            page = self.list_memories_page(
                page_size=page_size,
                page_token=token,
                min_confidence=min_confidence,
                show_deleted=show_deleted,
                timeout=timeout,
                **which,
            )
            yield from page.memories
            if not (token := page.next_page_token):
                return

    def list_memories_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.MemoryPage:
        """Returns one page of memories: 100 where `page_size` is 0, at most 1,000, and at most 3 MiB of content.

        The other arguments must be those of the page before, else InvalidPageTokenError.
        """
        request = memory_requests.list_memories(
            page_size=page_size,
            page_token=page_token,
            which=which,
            min_confidence=min_confidence,
            show_deleted=show_deleted,
        )
        return memory_convert.page_from_pb(self._call(self._memories.ListMemories, request, timeout))

    def count_memories(
        self,
        *,
        min_confidence: float = 0.0,
        show_deleted: bool = False,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> int:
        """Counts the memories that match; with `show_deleted` also those that are forgotten and not purged."""
        request = memory_requests.count_memories(which=which, min_confidence=min_confidence, show_deleted=show_deleted)
        response = self._call(self._memories.CountMemories, request, timeout)
        return response.count

    def update_memory(
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
        """Changes what is given, leaves the rest, and returns the memory as it is now; an empty text empties a field.

        `tags` are the keyword arguments of `MemoryTagChanges`, such as `type="preference"`. `metadata` replaces all
        metadata; `set_metadata` and `remove_metadata` change single keys. With `expected_revision` only if the memory
        has this revision, else RevisionMismatchError.
        """
        request = memory_requests.update_memory(
            memory_id,
            content=content,
            decay=decay,
            metadata=metadata,
            set_metadata=set_metadata,
            remove_metadata=remove_metadata,
            embedding=embedding,
            expected_revision=expected_revision,
            ack=ack,
            request_id=request_id,
            **tags,
        )
        response = self._call(self._memories.UpdateMemory, request, timeout)
        return memory_convert.memory_from_pb(response.memory)

    def reinforce(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> memories.Memory:
        """Sets a reinforceable memory's confidence back to 1; InvalidOperationError for the other policies."""
        request = memory_requests.reinforce_memory(
            memory_id, expected_revision=expected_revision, request_id=request_id
        )
        response = self._call(self._memories.ReinforceMemory, request, timeout)
        return memory_convert.memory_from_pb(response.memory)

    def forget(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Deletes softly: nothing finds the memory any more, until `unforget`, or for good after `purge`.

        MemoryNotFoundError if it does not exist, unless `allow_missing`: then the receipt's outcome is MISSING.
        InvalidOperationError where it is forgotten already.
        """
        request = memory_requests.delete_memory(
            memory_id,
            expected_revision=expected_revision,
            allow_missing=allow_missing,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._memories.DeleteMemory, request, timeout)
        return receipt_from_pb(response.receipt)

    def unforget(
        self,
        memory_id: str,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> memories.Memory:
        """Takes `forget` back; InvalidOperationError where the memory is not forgotten."""
        request = memory_requests.undelete_memory(memory_id, expected_revision=expected_revision, request_id=request_id)
        response = self._call(self._memories.UndeleteMemory, request, timeout)
        return memory_convert.memory_from_pb(response.memory)

    def purge(
        self,
        *,
        min_confidence: float = 0.0,
        only_deleted: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> memories.PurgeReceipt:
        """Removes all memories that match for good, forgotten ones included, in one transaction.

        With `only_deleted` only forgotten ones; with `dry_run` they are only counted. Without any filter and without
        `only_deleted`, InvalidArgumentError.
        """
        request = memory_requests.purge_memories(
            which=which,
            min_confidence=min_confidence,
            only_deleted=only_deleted,
            dry_run=dry_run,
            request_id=request_id,
        )
        response = self._call(self._memories.PurgeMemories, request, timeout)
        return memories.PurgeReceipt(response.purged_count, response.replayed)

    def forecast(
        self,
        by: datetime | timedelta,
        *,
        min_confidence: float = 0.3,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[memories.MemoryFilters],
    ) -> Iterator[memories.MemoryForecast]:
        """Yields what falls below `min_confidence` by a time, or within a time from now, in the order of creation.

        Those already below are included. `timeout` is for each page.
        """
        request = memory_requests.forecast_memories(by, which=which, min_confidence=min_confidence, page_size=page_size)
        while True:
            response = self._call(self._memories.ForecastMemories, request, timeout)
            for forecast in response.forecasts:
                yield memory_convert.forecast_from_pb(forecast)
            if not (token := response.next_page_token):
                return
            request.page_token = token

    def memory_status(self, *, timeout: float | None = None) -> memories.MemoryStatus:
        """Says how the memory service and what it stands on are."""
        return memory_convert.status_from_pb(self._call(self._memories.GetStatus, pb.GetStatusRequest(), timeout))

    @property
    def _memories(self) -> MemoryServiceStub:
        return self._stub(MemoryServiceStub)
