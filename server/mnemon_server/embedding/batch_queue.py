"""Texts that wait for the model, and the selection of the next batch."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")

SPECIAL_TOKENS = 2
URGENT_TEXTS_MAX = 8
SHARE_TOKENS_MIN = 64
"""Fewer tokens are not divided among workers, because each run costs as much as 20 tokens before it reads any."""

COUNTED_AT_ONCE = 64
"""Number of texts to tokenise at a time. Counting thousands at once would delay queries and idle the other workers."""


class Item(Generic[Waiter]):
    """A text, and the waiters for its vector, each with the row of its result array."""

    __slots__ = ("key", "sequence", "text", "tokens", "urgent", "waiters")

    def __init__(self, key: bytes, text: str, sequence: int) -> None:
        self.key, self.text, self.sequence = key, text, sequence
        self.tokens = 0
        self.urgent = False
        self.waiters: list[tuple[Waiter, int]] = []

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key by length. It is unique for each item."""
        return self.tokens, self.sequence


class BatchQueue(Generic[Waiter]):
    """The waiting texts. A text with several waiters is queued once. Not thread-safe.

    Urgent texts go first. Bulk texts are counted before they are embedded; a batch then consists of the text that has
    waited longest and the texts closest to it in length. Free workers divide what is waiting.
    """

    def __init__(self, batch_tokens_max: int) -> None:
        self._batch_tokens_max = batch_tokens_max
        self._items: dict[bytes, Item[Waiter]] = {}
        self._urgent: dict[bytes, Item[Waiter]] = {}
        self._uncounted: dict[bytes, Item[Waiter]] = {}
        self._counted: dict[bytes, Item[Waiter]] = {}
        self._by_length: list[Item[Waiter]] = []
        self._counted_tokens = 0
        self._sequence = 0

    def waiting(self, *, urgent: bool) -> int:
        """The number of texts without a vector, including those being embedded."""
        return len(self._urgent) if urgent else len(self._items) - len(self._urgent)

    def add(self, key: bytes, text: str, waiter: Waiter, row: int, *, urgent: bool) -> Item[Waiter]:
        """Registers a waiter for a text's vector, and returns the text's item."""
        item = self._items.get(key)
        if item is None:
            self._sequence += 1
            item = self._items[key] = Item(key, text, self._sequence)
            self._uncounted[key] = item
        item.waiters.append((waiter, row))
        if urgent and not item.urgent:
            if self._take_out(item):
                self._urgent[key] = item
            item.urgent = True
        return item

    def abandon(self, items: Iterable[Item[Waiter]], waiter: Waiter) -> None:
        """Removes a waiter. A text without waiters is dropped unless it is already being embedded."""
        for item in items:
            item.waiters = [entry for entry in item.waiters if entry[0] is not waiter]
            if not item.waiters and self._take_out(item):
                self._items.pop(item.key)

    def is_empty(self) -> bool:
        """True if there is no text to count or to embed."""
        return not (self._urgent or self._uncounted or self._counted)

    def take_uncounted(self) -> list[Item[Waiter]]:
        """The texts to count next, for `add_counted`; empty while an urgent text waits."""
        if self._urgent:
            return []
        items = list(islice(self._uncounted.values(), COUNTED_AT_ONCE))
        for item in items:
            del self._uncounted[item.key]
        return items

    def add_counted(self, items: Sequence[Item[Waiter]], counts: Sequence[int]) -> None:
        """Returns the texts from `take_uncounted` to the queue, with their token counts."""
        for item, count in zip(items, counts, strict=True):
            item.tokens = count + SPECIAL_TOKENS
            if not item.waiters:
                self._items.pop(item.key)
            elif item.urgent:
                self._urgent[item.key] = item
            else:
                self._counted[item.key] = item
                self._counted_tokens += item.tokens
                insort(self._by_length, item, key=_rank)

    def take_batch(self, workers: int = 1) -> list[Item[Waiter]]:
        """The texts to embed next, as one of `workers` that are free; empty if no text is ready.

        They stay in progress until `finish`.
        """
        if self._urgent:
            batch = list(islice(self._urgent.values(), URGENT_TEXTS_MAX))
            for item in batch:
                del self._urgent[item.key]
            return batch
        if not self._counted:
            return []
        share = max(-(-self._counted_tokens // workers), SHARE_TOKENS_MIN)
        oldest = self._position(next(iter(self._counted.values())))
        low, high = self._window(oldest, min(share, self._batch_tokens_max))
        batch = self._by_length[low:high]
        del self._by_length[low:high]
        for item in batch:
            del self._counted[item.key]
            self._counted_tokens -= item.tokens
        return batch

    def finish(self, batch: Iterable[Item[Waiter]]) -> None:
        """Removes texts that have their vectors, or whose embedding failed."""
        for item in batch:
            self._items.pop(item.key, None)

    def waiters(self) -> set[Waiter]:
        """All waiters."""
        return {waiter for item in self._items.values() for waiter, _ in item.waiters}

    def _window(self, position: int, tokens_max: int) -> tuple[int, int]:
        """The range of `_by_length` around a position that fills a batch with the least padding."""
        items, low, high = self._by_length, position, position + 1
        while True:
            room = tokens_max // (high - low + 1)
            shorter = items[high - 1].tokens - items[low - 1].tokens if low > 0 else None
            longer = items[high].tokens - items[low].tokens if high < len(items) else None
            if longer is not None and items[high].tokens <= room and (shorter is None or longer <= shorter):
                high += 1
            elif shorter is not None and items[high - 1].tokens <= room:
                low -= 1
            else:
                return low, high

    def _take_out(self, item: Item[Waiter]) -> bool:
        """Removes a waiting item from its queue; False if it is already being counted or embedded."""
        if self._urgent.pop(item.key, None) is not None or self._uncounted.pop(item.key, None) is not None:
            return True
        if self._counted.pop(item.key, None) is None:
            return False
        del self._by_length[self._position(item)]
        self._counted_tokens -= item.tokens
        return True

    def _position(self, item: Item[Waiter]) -> int:
        return bisect_left(self._by_length, item.rank, key=_rank)


def _rank(item: Item[Waiter]) -> tuple[int, int]:
    return item.rank
