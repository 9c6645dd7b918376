"""The tools that are the MCP server's own: searches of the knowledge store, of the timeline, and of everything."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from mnemon._async.client import AsyncClient
from mnemon._local_time import distance_of, in_zone, named_day
from mnemon._mcp.identity import Identity
from mnemon._values.documents import FilterValue, Scope, ScopeFields, View
from mnemon._values.timeline import EpisodicEvent, EventFilters
from mnemon.shared.tool_results import RESULT_KIB_DEFAULT, as_json, bounded

SEARCH_KNOWLEDGE, QUERY_TIMELINE, RECALL = "search_knowledge", "query_timeline", "recall"
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def _moment(given: object, clock: time) -> object:
    """A day at this time by the clock, or the moment of an age, counted back from now; anything else as given."""
    if not isinstance(given, str):
        return given
    try:
        return datetime.combine(named_day(given), clock)
    except ValueError:
        pass
    try:
        distance = distance_of(given)
        return given if distance is None else datetime.now(UTC) - distance
    except OverflowError:
        raise ValueError("is beyond the calendar") from None


def _time(given: object, read: ValidatorFunctionWrapHandler) -> object:
    """The time in the zone, or an error that a model can follow."""
    try:
        return in_zone(read(given))
    except (ValueError, OverflowError):
        raise ValueError('must be a time such as 2027-01-31, or an age, such as "2 weeks"') from None


_TEXT = WithJsonSchema({"type": "string"})
_DAY_END = time.max.replace(fold=1)
"""The second time, if the clocks repeat it."""
Since = Annotated[datetime, WrapValidator(_time), BeforeValidator(lambda given: _moment(given, time.min)), _TEXT]
Until = Annotated[datetime, WrapValidator(_time), BeforeValidator(lambda given: _moment(given, _DAY_END)), _TEXT]
"""Ends of a span of time as a model writes them."""


class Arguments(BaseModel):
    """Arguments as a model writes them; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class KnowledgeSearch(Arguments):
    """The arguments of search_knowledge."""

    query: str = Field(min_length=1, description="What to look for, in plain words.")
    limit: int = Field(5, ge=1, le=100, description="How many passages to return at most.")
    filter: dict[str, FilterValue] = Field(
        default_factory=dict, description="Metadata that a document must carry: key to value."
    )


class TimelineQuery(Arguments):
    """The arguments of query_timeline."""

    query: str = Field("", description="What to look for, in plain words. Left out: the newest events.")
    since: Since | None = Field(
        None,
        description='Only events from this time on, in ISO 8601, local without a zone; or an age, such as "2 weeks".',
    )
    until: Until | None = Field(
        None, description="Only events up to this time, likewise; a day such as 2027-01-31 counts to its end."
    )
    event_types: list[str] = Field(
        default_factory=list,
        description='Only events of these types, such as "conversation", "task", "reminder", "emotion", "preference".',
    )
    limit: int = Field(10, ge=1, le=1_000, description="How many events to return at most.")


class Recall(Arguments):
    """The arguments of recall."""

    query: str = Field(min_length=1, description="The question, in plain words.")
    kinds: list[Literal["document", "memory", "fact", "statement", "event"]] = Field(
        default_factory=list, description="Only these kinds of records. Left out: all."
    )
    since: Since | None = Field(
        None,
        description='Only records from this time on, in ISO 8601, local without a zone; or an age, such as "2 weeks".',
    )
    until: Until | None = Field(
        None,
        description="Only records up to this time, likewise; a day such as 2027-01-31 counts to its end.",
    )
    max_tokens: int = Field(1_000, ge=50, le=8_000, description="The most that is returned, in tokens.")
    min_trust: Literal["user", "agent", "tool", "import", "web"] | None = Field(
        None,
        description='Only records from this origin or a more trusted one, in the order "user", "agent", "tool", '
        '"import", "web". Default: any.',
    )


_MORE = "More was found than one answer holds. Ask more precisely to see the rest."
NOTHING_KNOWN = "Nothing relevant is known."
NOTHING_RELEVANT = "The best results may have nothing to do with the query."
_CUT = "ask more precisely, with limit 1, to see more of it"


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool whose arguments are a model of pydantic, and whose answer is JSON."""

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[AsyncClient, Identity, Any], Awaitable[str]]
    is_read: bool = True
    """Whether it changes nothing."""

    async def __call__(self, client: AsyncClient, identity: Identity, arguments: Mapping[str, Any]) -> str:
        """The result of the tool. Raises ValidationError for bad arguments, MnemonError if the call fails."""
        return await self.run(client, identity, self.arguments.model_validate(arguments))


async def _search_knowledge(client: AsyncClient, identity: Identity, given: KnowledgeSearch) -> str:
    user, _ = identity.limits_for(await client.who_am_i())
    scope = Scope(user) if user and not identity.shared_knowledge else None
    answer = await client.documents.search(
        given.query, limit=given.limit, filters=given.filter, scope=scope, strict=True
    )
    found = (
        {
            "doc_id": hit.doc_id,
            "passage": hit.passage_text,
            "metadata": hit.document.to_dict()["metadata"],
            "score": hit.score,
        }
        for hit in answer
    )
    return json_list(found, truncated=answer.truncated, nothing_relevant=answer.nothing_relevant)


async def _query_timeline(client: AsyncClient, identity: Identity, given: TimelineQuery) -> str:
    which = EventFilters()
    if identity.user:
        which["user"] = identity.user
    if given.event_types:
        which["event_types"] = given.event_types
    answer = await client.timeline.search(
        given.query if given.query.strip() else None,
        # Without a start, the server would only search the last 30 days.
        since=given.since or _BEGINNING,
        until=given.until,
        limit=given.limit,
        **which,
    )
    found = map(_told, answer)
    return json_list(found, truncated=answer.truncated, nothing_relevant=answer.nothing_relevant)


async def _recall(client: AsyncClient, identity: Identity, given: Recall) -> str:
    user, namespace = identity.limits_for(await client.who_am_i())
    scope = ScopeFields(user=user) if user else ScopeFields()
    answer = await client.recall(
        given.query,
        kinds=given.kinds,
        namespace=namespace,
        since=given.since,
        until=given.until,
        time_zone=identity.time_zone,
        max_tokens=given.max_tokens,
        min_trust=given.min_trust,
        view=View.IDS,
        **scope,
    )
    return answer.context or NOTHING_KNOWN


def _told(event: EpisodicEvent) -> dict[str, Any]:
    """An event as a model sees it, without internal fields."""
    shown = ("event_id", "event_type", "event_time", "content", "context", "importance", "source", "metadata")
    said = {**event.to_dict(), "event_time": time_text(event.event_time)}
    return {key: said[key] for key in shown if said[key] not in ("", None, {})}


def time_text(time: datetime | None) -> str:
    """A time as a model sees it."""
    return in_zone(time).isoformat() if time else ""


def json_list(found: Iterable[Mapping[str, Any]], *, truncated: bool, nothing_relevant: bool = False) -> str:
    """The records as a JSON list, as far as one answer holds them, with notes at its end."""
    results = list(map(as_json, found))
    shown = bounded(results, RESULT_KIB_DEFAULT, lambda _: _CUT)
    notes = [NOTHING_RELEVANT] if nothing_relevant and shown else []
    if truncated or len(shown) < len(results):
        notes.append(_MORE)
    return f"[{', '.join([*shown, *(as_json({'note': note}) for note in notes)])}]"


OWN_TOOLS = {
    tool.name: tool
    for tool in (
        OwnTool(
            SEARCH_KNOWLEDGE,
            "Search the documents of the knowledge base, by meaning and by word. It returns the passages that fit "
            "best, with the id and the metadata of their documents.",
            KnowledgeSearch,
            _search_knowledge,
        ),
        OwnTool(
            QUERY_TIMELINE,
            "Look up what happened, and when: the newest events of a time, or those that fit a text best. Call this "
            "when the user asks about the past, such as what was discussed last week.",
            TimelineQuery,
            _query_timeline,
        ),
        OwnTool(
            RECALL,
            "Recall everything that is known about a question: from documents, memories, facts, statements and events. "
            "It returns the passages that matter, oldest first, each with a number to cite, or says that nothing "
            "relevant is known.",
            Recall,
            _recall,
        ),
    )
}
