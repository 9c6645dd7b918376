# Generated from _async/recall.py by `make generate`: change that file instead.
"""The blocking client's object for recall."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from mnemon._local_time import Moment, days_in
from mnemon._messages.calls import range_to_pb
from mnemon._messages.recall import fields_to_pb, filters_to_pb, kinds_to_pb, messages_to_pb, question_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import recall
from mnemon._values.filters import FilterLike
from mnemon.v1 import recall_pb2 as pb
from mnemon.v1.recall_pb2_grpc import RecallServiceStub


class Recall(Service):
    """Recall, as `client.recall`: one search over documents, memories, facts, statements and events."""

    _stub = Stub(RecallServiceStub)

    def recall(
        self,
        query: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        vector: Sequence[float] | None = None,
        kinds: Sequence[str] = (),
        namespace: Sequence[str] | str = (),
        filters: Mapping[str, FilterLike] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        as_of: Moment | None = None,
        limit: int | None = None,
        max_tokens: int | None = None,
        tokenizer: str = "",
        time_zone: str = "",
        min_relevance: float = 0.0,
        min_confidence: float | None = None,
        min_trust: str | None = None,
        view: str = values.View.STANDARD,
        timeout: float | None = None,
        **scope: Unpack[values.ScopeFields],
    ) -> recall.RecallAnswer:
        """Finds what matters for a question among all that is stored, and packs it into `answer.context` for a prompt.

        `answer.nothing_relevant` says that nothing is known about it; a blank query finds nothing. Instead of a query,
        `messages` are the last turns of a conversation, oldest first, such as {"role": "user", "content": "And where
        does she live?"}.

        `scope` limits it to a user's records, for example: `user="ada"`. Facts are then the ones that the memory tools
        store for that user and agent, unless you name a `namespace`. `kinds` are "document", "memory", "fact",
        "statement" and "event", by default all. `filters` are further conditions by kind, such as {"event": F("source")
        == "mail"}. `since` and `until` limit when events happened, and when other records were created: a datetime, a
        date, a timedelta back from now, or a text such as "2027-01-31" or "2 weeks". `as_of` asks what was known at
        such a moment. `limit` is the most items, 10 by default. With `max_tokens`, the size of the context (2,000 by
        default), it is as many as fit; `tokenizer` says how tokens are counted. `time_zone`, such as "Europe/Berlin",
        is that of the days in the context, by default UTC, and of those given, by default the machine's. Memories below
        `min_confidence`, by default 0.3, are left out, and so are records from origins less trusted than `min_trust`:
        "user", "agent", "tool", "import" or "web".
        """
        with days_in(time_zone):
            asked = request(
                pb.RecallRequest,
                query=question_to_pb(query, messages, vector),
                messages=messages_to_pb(messages),
                vector=vector,
                scope=fields_to_pb(scope),
                namespace=namespace,
                kinds=kinds_to_pb(kinds),
                kind_filters=filters_to_pb(filters or {}),
                time=range_to_pb(since, until),
                as_of=as_of,
                limit=limit,
                max_tokens=max_tokens,
                tokenizer=tokenizer,
                time_zone=time_zone,
                min_relevance=min_relevance,
                min_confidence=min_confidence,
                min_trust=min_trust or "",
                view=view,
            )
        return read(recall.RecallAnswer, self._call(self._stub.Recall, asked, timeout))
