"""The recall service's requests and answers."""

from mnemon.v1 import recall_pb2 as pb

from mnemon_server.domain.recall import (
    KindDiagnostics,
    RecallAnswer,
    RecallItem,
    RecallMessage,
    RecallQuery,
    RecordReference,
    Tokenizer,
)
from mnemon_server.domain.records import SearchDiagnostics, View
from mnemon_server.services.background.offload import Pause
from mnemon_server.transport.convert.archive import KINDS, KINDS_TO_PB
from mnemon_server.transport.convert.shared.reader import Reader, read_filter, read_min_trust, vector_from_pb
from mnemon_server.wire.values import (
    VIEWS,
    duration_to_pb,
    fill_diagnostics,
    fill_metadata,
    fill_scope,
    fill_score,
    fill_time,
    scope_of,
)

_TOKENIZERS = {tokenizer.value: tokenizer for tokenizer in Tokenizer}


def read_recall(request: pb.RecallRequest) -> RecallQuery:
    """The query."""
    reader = Reader()
    start, end = reader.span("time", request.time) if request.HasField("time") else (None, None)
    query = RecallQuery(
        text=request.query,
        vector=vector_from_pb(request.vector),
        messages=tuple(RecallMessage(message.role, message.content) for message in request.messages),
        scope=scope_of(request),
        namespace=tuple(request.namespace),
        kinds=tuple(reader.enum(f"kinds[{number}]", kind, KINDS) for number, kind in enumerate(request.kinds)),
        filters=tuple(
            (
                reader.enum(f"kind_filters[{number}].kind", each.kind, KINDS),
                read_filter(reader, f"kind_filters[{number}].filter", each.filter),
            )
            for number, each in enumerate(request.kind_filters)
        ),
        start=start,
        end=end,
        limit=request.limit,
        max_tokens=request.max_tokens,
        tokenizer=read_tokenizer(reader, request.tokenizer),
        min_relevance=request.min_relevance,
        min_confidence=request.min_confidence if request.HasField("min_confidence") else None,
        view=reader.enum("view", request.view, VIEWS),
        as_of=reader.as_of(request),
        min_trust=read_min_trust(reader, "min_trust", request),
        time_zone=reader.time_zone("time_zone", request.time_zone),
    )
    reader.finish()
    return query


def read_tokenizer(reader: Reader, name: str) -> Tokenizer:
    if name and name not in _TOKENIZERS:
        reader.note("tokenizer", f"must be empty or one of {', '.join(map(repr, _TOKENIZERS))}")
    return _TOKENIZERS.get(name, Tokenizer.UTF8)


async def answer_to_pb(answer: RecallAnswer, view: View) -> pb.RecallResponse:
    """The answer; yields to other calls."""
    message = pb.RecallResponse(
        context=answer.context,
        context_tokens=answer.context_tokens,
        tokenizer=answer.tokenizer,
        nothing_relevant=answer.relevance.is_low,
        best_relevance=answer.relevance.best,
        relevance_floor=answer.relevance.floor,
        diagnostics=map(_diagnostics_to_pb, answer.kinds),
        truncated=answer.truncated,
        duration=duration_to_pb(answer.duration_s),
    )
    pause = Pause()
    for target, items in ((message.results, answer.items), (message.neighbours, answer.neighbours)):
        for item in items:
            _fill(target.add(citation=item.citation), item, view)
            await pause.where_due()
    return message


def _fill(target: pb.RecallItem, item: RecallItem, view: View) -> None:
    target.record.CopyFrom(_reference_to_pb(item.record))
    target.duplicates.extend(map(_reference_to_pb, item.duplicates))
    if item.relevance:
        fill_score(target.score, item.relevance, vector=item.similarity, keyword=item.keyword)
    if view is not View.IDS:
        _fill_item(target, item)


def _reference_to_pb(record: RecordReference) -> pb.RecordReference:
    return pb.RecordReference(kind=KINDS_TO_PB[record.kind], id=record.id, namespace=record.namespace)


def _fill_item(target: pb.RecallItem, item: RecallItem) -> None:
    target.content, target.type, target.source = item.content, item.type, item.source
    if item.confidence is not None:
        target.confidence = item.confidence
    if item.importance is not None:
        target.importance = item.importance
    fill_time(target.time, item.time)
    fill_time(target.update_time, item.update_time)
    fill_scope(target, item.scope)
    if item.metadata:
        fill_metadata(target.metadata, item.metadata)
    target.event_ids.extend(item.event_ids)
    target.conversation = item.conversation
    if item.passage is not None:
        target.passage_start, target.passage_end = item.passage.start, item.passage.end


def _diagnostics_to_pb(of_kind: KindDiagnostics) -> pb.RecallDiagnostics:
    message = pb.RecallDiagnostics(kind=KINDS_TO_PB[of_kind.kind], skipped=of_kind.skipped)
    if of_kind.search is not None:
        fill_diagnostics(message.search, of_kind.search)
    if isinstance(of_kind.search, SearchDiagnostics):
        message.search.returned = of_kind.returned
    return message
