"""Checks of facts, filters and searches for facts: every problem is named with its field.

Namespaces need no check here: a `Namespace` is checked when it is created.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.facts import (
    FILTER_FIELDS,
    KEY_BYTES_MAX,
    FactFilter,
    FactIndex,
    FactQuery,
    PutFact,
    key_violations,
    value_violations,
)
from mnemon_server.domain.filters import expression_violations
from mnemon_server.domain.namespaces import Namespace, namespace_violations
from mnemon_server.domain.validation import (
    is_id,
    metadata_violations,
    request_id_violations,
    revision_violations,
    scope_violations,
    share_violations,
    text_violations,
)
from mnemon_server.services.facts.texts import PATH, PATHS_MAX
from mnemon_server.services.writing.writes import vector_violations

NAMES_MAX = LIMIT_MAX = 1_000
OFFSET_MAX = 100_000
PATH_BYTES_MAX = 512
TTL_MAX = timedelta(days=36_500)


def put_violations(request: PutFact, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a fact that is to be stored; the key may be empty, and is then generated."""
    if request.key:
        yield from key_violations(request.key, "fact.key")
    yield from value_violations(request.value, "fact.value")
    yield from metadata_violations(request.metadata, "fact.metadata")
    yield from scope_violations(request.source, "fact")
    if request.ttl is not None and not timedelta(0) < request.ttl <= TTL_MAX:
        yield FieldViolation("fact.ttl", f"must be more than 0 and at most {TTL_MAX.days:,} days; unset means for ever")
    yield from _index_violations(request.index, "fact.index")
    yield from vector_violations(request.embedding, dimension, "embedding")
    if request.embedding is not None and request.index.off:
        yield FieldViolation("embedding", "must be left out if fact.index.off is set: the fact is then not searched")
    yield from revision_violations(request.expected_revision)
    yield from request_id_violations(request.request_id)


def names_violations(names: Sequence[tuple[Namespace, str]]) -> Iterable[FieldViolation]:
    """Violations in the names of several facts."""
    if not 1 <= len(names) <= NAMES_MAX:
        yield FieldViolation("names", f"must be 1 to {NAMES_MAX:,}")
        return
    for number, (_, key) in enumerate(names):
        # Nearly all are valid, and there may be a thousand.
        if not key or not is_id(key, KEY_BYTES_MAX):
            yield from key_violations(key, f"names[{number}].key")


def filter_violations(where: FactFilter) -> Iterable[FieldViolation]:
    """Violations in a filter."""
    if where.namespace is None and not where.subtree:
        yield FieldViolation("filter.namespace", "must not be empty unless subtree is set: it would mean every fact")
    yield from expression_violations(where.where, FILTER_FIELDS)


def query_violations(query: FactQuery, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a search."""
    yield from filter_violations(query.filter)
    yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
    yield from vector_violations(query.vector, dimension, "vector")
    if not 1 <= query.limit <= LIMIT_MAX:
        yield FieldViolation("limit", f"must be 1 to {LIMIT_MAX:,}")
    if not 0 <= query.offset <= OFFSET_MAX:
        yield FieldViolation("offset", f"must be 0 to {OFFSET_MAX:,}")
    yield from share_violations(query.min_score, "min_score")


def pattern_violations(prefix: Sequence[str], suffix: Sequence[str], max_depth: int) -> Iterable[FieldViolation]:
    """Violations in the pattern that selects namespaces; "*" is checked like any other label."""
    for field, labels in (("prefix", prefix), ("suffix", suffix)):
        if labels:
            yield from namespace_violations(tuple(labels), field)
    if max_depth < 0:
        yield FieldViolation("max_depth", "must be 0 (no limit) or more")


def _index_violations(index: FactIndex, field: str) -> Iterable[FieldViolation]:
    if index.off and index.paths:
        yield FieldViolation(f"{field}.paths", "must be empty if off is set")
    if len(index.paths) > PATHS_MAX:
        yield FieldViolation(f"{field}.paths", f"must be at most {PATHS_MAX}")
        return
    for number, path in enumerate(index.paths):
        place = f"{field}.paths[{number}]"
        if found := list(text_violations(path, place, PATH_BYTES_MAX)):
            yield from found
        elif not PATH.fullmatch(path):
            yield FieldViolation(place, 'must be such as "title", "author.name", "messages[*].text", "tags[0]" or "$"')
