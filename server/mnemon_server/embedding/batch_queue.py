"""Texts that wait for the model, and the selection of the next batch: tenants take turns."""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
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

    __slots__ = ("key", "sequence", "tenant", "text", "tokens", "urgent", "waiters")

    def __init__(self, tenant: str, key: bytes, text: str, sequence: int) -> None:
        self.tenant, self.key, self.text, self.sequence = tenant, key, text, sequence
        self.tokens = 0
        self.urgent = False
        self.waiters: list[tuple[Waiter, int]] = []

    @property
    def owned_key(self) -> tuple[str, bytes]:
        """Identifies the text among those of all tenants."""
        return self.tenant, self.key

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key by length. It is unique for each item."""
        return self.tokens, self.sequence


class Line(Generic[Waiter]):
    """Texts, in turns: one of each tenant that has any, those of a tenant in the order in which they were added."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, dict[bytes, Item[Waiter]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def counts(self, tenant: str) -> tuple[int, int]:
        """The number of texts of all tenants, and of this one."""
        return sum(map(len, self._tenants.values())), len(self._tenants.get(tenant, ()))

    def add(self, item: Item[Waiter]) -> None:
        """Adds a text behind those of its tenant."""
        self._tenants.setdefault(item.tenant, {})[item.key] = item

    def next(self) -> Item[Waiter]:
        """The text whose turn it is, which stays in the line. Then it is the next tenant's turn."""
        tenant, items = next(iter(self._tenants.items()))
        self._tenants.move_to_end(tenant)
        return next(iter(items.values()))

    def take(self, most: int) -> list[Item[Waiter]]:
        """Takes out the texts whose turn it is, at most so many."""
        taken: list[Item[Waiter]] = []
        while self._tenants and len(taken) < most:
            taken.append(self.next())
            self.discard(taken[-1])
        return taken

    def discard(self, item: Item[Waiter]) -> bool:
        """Takes a text out; False if it is not in the line."""
        items = self._tenants.get(item.tenant)
        if items is None or items.pop(item.key, None) is None:
            return False
        if not items:
            del self._tenants[item.tenant]
        return True


class BatchQueue(Generic[Waiter]):
    """The waiting texts. A text with several waiters of one tenant is queued once. Not thread-safe.

    Urgent texts go first. Bulk texts are counted before they are embedded; a batch then consists of the text whose turn
    it is and the texts closest to it in length. Free workers divide what is waiting.

    Tenants take turns: one that adds a text while another one has thousands waiting need not wait for those.
    """

    def __init__(self, batch_tokens_max: int) -> None:
        self._batch_tokens_max = batch_tokens_max
        self._items: dict[tuple[str, bytes], Item[Waiter]] = {}
        self._urgent: Line[Waiter] = Line()
        self._uncounted: Line[Waiter] = Line()
        self._counted: Line[Waiter] = Line()
        self._by_length: list[Item[Waiter]] = []
        self._counted_tokens = 0
        self._sequence = 0
        self._count_of: Counter[str] = Counter()
        """Number of texts of each tenant in `_items`."""

    def waiting(self, *, urgent: bool, tenant: str = "") -> tuple[int, int]:
        """The number of texts without a vector, including those being embedded: of all tenants, and of this one."""
        all_urgent, own_urgent = self._urgent.counts(tenant)
        if urgent:
            return all_urgent, own_urgent
        return len(self._items) - all_urgent, self._count_of[tenant] - own_urgent

    def add(self, key: bytes, text: str, waiter: Waiter, row: int, *, urgent: bool, tenant: str = "") -> Item[Waiter]:
        """Registers a waiter for a text's vector, and returns the text's item."""
        item = self._items.get((tenant, key))
        if item is None:
            self._sequence += 1
            item = self._items[tenant, key] = Item(tenant, key, text, self._sequence)
            self._count_of[tenant] += 1
            self._uncounted.add(item)
        item.waiters.append((waiter, row))
        if urgent and not item.urgent:
            if self._take_out(item):
                self._urgent.add(item)
            item.urgent = True
        return item

    def abandon(self, items: Iterable[Item[Waiter]], waiter: Waiter) -> None:
        """Removes a waiter. A text without waiters is dropped unless it is already being embedded."""
        for item in items:
            item.waiters = [entry for entry in item.waiters if entry[0] is not waiter]
            if not item.waiters and self._take_out(item):
                self._forget(item)

    def is_empty(self) -> bool:
        """True if there is no text to count or to embed."""
        return not (self._urgent or self._uncounted or self._counted)

    def take_uncounted(self) -> list[Item[Waiter]]:
        """The texts to count next, for `add_counted`; empty while an urgent text waits."""
        if self._urgent:
            return []
        return self._uncounted.take(COUNTED_AT_ONCE)

    def add_counted(self, items: Sequence[Item[Waiter]], counts: Sequence[int]) -> None:
        """Returns the texts from `take_uncounted` to the queue, with their token counts."""
        for item, count in zip(items, counts, strict=True):
            item.tokens = count + SPECIAL_TOKENS
            if not item.waiters:
                self._forget(item)
            elif item.urgent:
                self._urgent.add(item)
            else:
                self._counted.add(item)
                self._counted_tokens += item.tokens
                insort(self._by_length, item, key=_rank)

    def take_batch(self, workers: int = 1) -> list[Item[Waiter]]:
        """The texts to embed next, as one of `workers` that are free; empty if no text is ready.

        They stay in progress until `finish`.
        """
        if self._urgent:
            return self._urgent.take(URGENT_TEXTS_MAX)
        if not self._counted:
            return []
        share = max(-(-self._counted_tokens // workers), SHARE_TOKENS_MIN)
        position = self._position(self._counted.next())
        low, high = self._window(position, min(share, self._batch_tokens_max))
        batch = self._by_length[low:high]
        del self._by_length[low:high]
        for item in batch:
            self._counted.discard(item)
            self._counted_tokens -= item.tokens
        return batch

    def finish(self, batch: Iterable[Item[Waiter]]) -> None:
        """Removes texts that have their vectors, or whose embedding failed."""
        for item in batch:
            self._forget(item)

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
        if self._urgent.discard(item) or self._uncounted.discard(item):
            return True
        if not self._counted.discard(item):
            return False
        del self._by_length[self._position(item)]
        self._counted_tokens -= item.tokens
        return True

    def _forget(self, item: Item[Waiter]) -> None:
        if self._items.pop(item.owned_key, None) is not None:
            self._count_of[item.tenant] -= 1
            if not self._count_of[item.tenant]:
                del self._count_of[item.tenant]

    def _position(self, item: Item[Waiter]) -> int:
        return bisect_left(self._by_length, item.rank, key=_rank)


def _rank(item: Item[Waiter]) -> tuple[int, int]:
    return item.rank
