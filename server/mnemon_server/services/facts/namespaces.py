"""The namespaces that hold facts, by steps through their index: what belongs to a cut that is there is passed over."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from mnemon_server.domain.facts import FactFilter, NamespacePage
from mnemon_server.domain.namespaces import decode_namespace
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.facts.filters import expired, living

WILDCARD = "*"
STEP = 256
"""Namespaces read at once."""

_LAST_CHARACTER = "\U0010ffff"
# The encoding ends each label with ".", which stands between these two.
_BEFORE_END, _END, _BEHIND_END = "-", ".", "/"


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
    holds_facts = _check_of_life(records, now)

    def is_wanted(text: str) -> bool:
        labels = _labels(text)
        return _fits(labels, prefix) and _fits(labels[::-1], suffix[::-1]) and holds_facts(text)

    start = max(_behind(after, max_depth) if after else "", _before(_literal(prefix)))
    found = tuple(islice(_walk(records, start, _literal(prefix), max_depth, is_wanted), limit + 1))
    return NamespacePage(found[:limit], found[limit - 1] if len(found) > limit else None)


def _walk(
    records: RecordEngine, position: str, head: str, max_depth: int, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, ...]]:
    """What is wanted of the namespaces behind a position that begin with `head`, cut, each once."""
    while True:
        texts = records.distinct_texts("namespace", after=position, limit=STEP)
        for text in texts:
            if text <= position:
                continue
            position = text
            if text < head:
                continue
            if not text.startswith(head):
                return
            if is_wanted(text):
                cut = _labels(text)[: max_depth or None]
                position = _behind(cut, max_depth)
                yield cut
        if len(texts) < STEP:
            return


def _check_of_life(records: RecordEngine, now: datetime) -> Callable[[str], bool]:
    """Tells whether a namespace has a fact that has not expired; nearly always nothing has, and none is asked for."""
    if not records.list_documents(expired(now), limit=1):
        return lambda text: True
    return lambda text: bool(records.list_documents(living(FactFilter(namespace=decode_namespace(text)), now), limit=1))


def _fits(labels: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the labels begin as the pattern says."""
    return len(labels) >= len(pattern) and all(
        wanted in (WILDCARD, label) for label, wanted in zip(labels, pattern, strict=False)
    )


def _literal(prefix: Sequence[str]) -> str:
    """The encoding of what stands before the first wildcard."""
    before = prefix[: prefix.index(WILDCARD)] if WILDCARD in prefix else prefix
    return "".join(label + _END for label in before)


def _labels(text: str) -> tuple[str, ...]:
    return tuple(text.removesuffix(_END).split(_END))


def _before(head: str) -> str:
    """A text before everything that begins with `head`, and behind nearly all else that is before it."""
    return head[:-1] + _BEFORE_END + _LAST_CHARACTER if head else ""


def _behind(labels: Sequence[str], max_depth: int) -> str:
    """A text behind the namespace, and behind those below it where it is a cut, but before all others."""
    text = "".join(label + _END for label in labels)
    return text[:-1] + _BEHIND_END if len(labels) == max_depth else text
