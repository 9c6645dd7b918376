"""Lists the namespaces that hold facts, by stepping through the index of namespaces.

With `max_depth`, namespaces are cut to their first labels. After a cut namespace was found, the walk jumps past all
others that would be cut to the same.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from mnemon_server.domain.facts import FactFilter, NamespacePage
from mnemon_server.domain.namespaces import Namespace, decode_labels, decode_namespace, encode_namespace, span_of
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.facts.filters import expired, living

WILDCARD = "*"
STEP = 256
"""How many namespaces are read at once."""

# The encoding ends each label with "."; this is the character right after it.
_AFTER_END = "/"


def list_namespaces(
    records: RecordEngine,
    now: datetime,
    *,
    prefix: Sequence[str],
    suffix: Sequence[str],
    max_depth: int,
    after: Sequence[str],
    limit: int,
) -> NamespacePage:
    """A page of the namespaces with a fact that has not expired; see FactStore.namespaces. Blocks."""
    holds_facts = _fact_check(records, now)

    def is_wanted(text: str) -> bool:
        labels = decode_labels(text)
        return _fits(labels, prefix) and _fits(labels[::-1], suffix[::-1]) and holds_facts(text)

    start = _after(after, max_depth) if after else ""
    found = tuple(islice(_walk(records, start, _within(prefix), max_depth, is_wanted), limit + 1))
    return NamespacePage(found[:limit], found[limit - 1] if len(found) > limit else None)


def _walk(
    records: RecordEngine,
    position: str,
    within: tuple[str, str] | None,
    max_depth: int,
    is_wanted: Callable[[str], bool],
) -> Iterator[tuple[str, ...]]:
    """Yields matching namespaces of a range that come after `position`: cut to `max_depth`, each once."""
    while True:
        texts = records.distinct_texts("namespace", after=position, within=within, limit=STEP)
        for text in texts:
            if text <= position:
                continue
            position = text
            if is_wanted(text):
                cut = decode_labels(text)[: max_depth or None]
                position = _after(cut, max_depth)
                yield cut
        if len(texts) < STEP:
            return


def _fact_check(records: RecordEngine, now: datetime) -> Callable[[str], bool]:
    """A function that tells whether a namespace has a fact that has not expired.

    Usually there are no expired facts at all; then it reads nothing.
    """
    if not records.list_documents(expired(now), limit=1):
        return lambda text: True
    return lambda text: bool(records.list_documents(living(FactFilter(namespace=decode_namespace(text)), now), limit=1))


def _fits(labels: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the first labels match the pattern."""
    return len(labels) >= len(pattern) and all(
        wanted in (WILDCARD, label) for label, wanted in zip(labels, pattern, strict=False)
    )


def _within(prefix: Sequence[str]) -> tuple[str, str] | None:
    """The range of the namespaces that begin with the labels before the first wildcard; None without any."""
    before = prefix[: prefix.index(WILDCARD)] if WILDCARD in prefix else prefix
    return span_of(Namespace.stored(before)) if before else None


def _after(labels: Sequence[str], max_depth: int) -> str:
    """The position after a namespace: it skips those below the namespace if they would be cut to it."""
    text = encode_namespace(labels)
    return text[:-1] + _AFTER_END if len(labels) == max_depth else text
